package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/keyspace"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
)

// latency sends TIME repeatedly over one connection: 60 times, or for two seconds and no less than five times.
func (s *server) latency(ctx context.Context) (Finding, error) {
	var trips []time.Duration
	for start := time.Now(); len(trips) < 60 && (len(trips) < 5 || time.Since(start) < 2*time.Second); {
		sent := time.Now()
		if err := s.rdb.Time(ctx).Err(); err != nil {
			return Finding{}, err
		}
		trips = append(trips, time.Since(sent))
	}
	return latency(trips), nil
}

// latency rates round trips. A lock and unlock take two.
func latency(trips []time.Duration) Finding {
	slices.Sort(trips)
	p50, p90 := trips[len(trips)/2], trips[len(trips)*9/10]
	result := OK
	switch {
	case p50 >= time.Second:
		result = Problem
	case p90 >= 50*time.Millisecond:
		result = Warning
	}
	return is(result, "p50 %s, p90 %s of %d round trips", brief(p50), brief(p90), len(trips))
}

// brief rounds a duration to microseconds, or milliseconds if it is longer.
func brief(d time.Duration) time.Duration {
	if d >= 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Microsecond)
}

// slow looks for commands that held up every lock. No script of ours normally takes so long.
func (s *server) slow(ctx context.Context) (Finding, error) {
	const most = 128 // entries, which is what Redis keeps by default
	var entries []redis.SlowLog
	err := s.Refused.ask(s.address, "slowlog get", func() (err error) {
		entries, err = s.rdb.SlowLogGet(ctx, most).Result()
		return err
	})
	return slowest(entries), err
}

// slowest rates a slow log.
func slowest(entries []redis.SlowLog) Finding {
	const long = 100 * time.Millisecond
	n, slowest := 0, redis.SlowLog{}
	for _, e := range entries {
		if time.Since(e.Time) > 24*time.Hour || e.Duration < long || len(e.Args) == 0 {
			continue
		}
		if n++; e.Duration > slowest.Duration {
			slowest = e
		}
	}
	if n == 0 {
		return is(OK, "no slow command within a day")
	}
	which := inspect.Plain(strings.ToUpper(slowest.Args[0]))
	verb, ours := scriptIn(slowest.Args)
	if ours {
		which = strings.TrimRight(which+" of fairlock's own script "+verb, " ")
	}
	f := is(Warning, "%s took over %s within a day, the longest %s (%s)", inspect.Count(n, "command"), long,
		brief(slowest.Duration), which)
	if ours {
		return f.advise(
			"that script normally takes less than 1 ms: check what slows the server down, such as swap, a fork, "+
				"or a CPU that it shares", "LATENCY DOCTOR")
	}
	return f
}

// scriptIn reports whether a command of the slow log runs a script of this version. verb is its verb, or "".
func scriptIn(args []string) (verb string, ours bool) {
	if len(args) < 2 || !strings.HasPrefix(strings.ToLower(args[0]), "eval") {
		return "", false
	}
	sources := script.Sources()
	if source, ours := sources[args[1]]; ours {
		return source.Verb, true
	}
	const kept = 128 // bytes of a longer argument, which the scripts of several verbs begin with
	for _, source := range sources {
		if source.Text == args[1] || len(args[1]) > kept && strings.HasPrefix(source.Text, args[1][:kept]) {
			return "", true
		}
	}
	return "", false
}

// Bounds of the search. Each step is short for the server.
const (
	scanStep   = 500 // two commands for each key of a lock follow, in one pipeline
	scanWindow = 30 * time.Second
)

// search is what is found among the keys.
type search struct {
	seen    int            // keys of locks
	foreign []string       // of another type: each call for that lock fails
	kept    int            // numbers of permits that resize has set, which stay until they are reset
	eternal []string       // that should expire and never do: a mutex whose lock is among them stays held forever
	layouts map[string]int // how many numbers have which
}

// keys looks at every key of the namespace, step by step.
func (s *server) keys(ctx context.Context) (Finding, error) {
	all := search{layouts: map[string]int{}}
	for start, cursor := time.Now(), uint64(0); ; {
		keys, next, err := s.rdb.Scan(ctx, cursor, keyspace.Glob(s.Namespace)+":{*}:*", scanStep).Result()
		if err == nil {
			err = all.look(ctx, s.rdb, s.Namespace, keys)
		}
		if err != nil {
			return Finding{}, err
		}
		s.Progress(s.address, "keys, "+inspect.Count(all.seen, "key"))
		if cursor = next; cursor == 0 || time.Since(start) > scanWindow {
			f := all.finding()
			s.layouts = all.layouts
			if cursor == 0 && all.seen == 0 {
				f = s.empty(ctx)
			}
			if cursor != 0 {
				f.Found += fmt.Sprintf("; stopped after %s, before all keys were read", scanWindow)
			}
			return f, nil
		}
	}
}

// empty is what there is to say of a server without a key of the namespace, which may be the wrong one.
func (s *server) empty(ctx context.Context) Finding {
	in := inspect.On(s.all, s.Namespace)
	defer in.Close()
	others, err := in.Namespaces(ctx)
	text := in.NoLocks(others, err)
	if text == "" || len(others) == 0 {
		return is(OK, "0 keys of locks")
	}
	f := is(Warning, "%s", text)
	f.Advice = "if there should be some, use the namespace of the programs that lock (Config.Namespace)"
	return f
}

// look looks at some keys. One that has gone meanwhile has no type.
func (f *search) look(ctx context.Context, rdb *redis.Client, namespace string, keys []string) error {
	keys = slices.DeleteFunc(keys, func(key string) bool { _, ours := keyspace.Parse(namespace, key); return !ours })
	f.seen += len(keys)
	types, ttls := make([]*redis.StatusCmd, len(keys)), make([]*redis.DurationCmd, len(keys))
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, key := range keys {
			types[i], ttls[i] = p.Type(ctx, key), p.PTTL(ctx, key)
		}
		return nil
	})
	var numbers []string
	for i, text := range keys {
		key, _ := keyspace.Parse(namespace, text)
		switch has := types[i].Val(); {
		case has == "none" || has == "":
			continue
		case has != key.Type:
			f.foreign = append(f.foreign, fmt.Sprintf("%q is a %s", text, has))
			continue
		case ttls[i].Val() == -1 && key.Part == "resized":
			f.kept++
		case ttls[i].Val() == -1:
			f.eternal = append(f.eternal, fmt.Sprintf("%q", text))
		}
		if key.Part == "number" {
			numbers = append(numbers, text)
		}
	}
	if err == nil && len(numbers) > 0 {
		err = f.read(ctx, rdb, numbers)
	}
	return err
}

// read reads numbers, which every lock has that was used lately. The first field is the layout.
func (f *search) read(ctx context.Context, rdb *redis.Client, numbers []string) error {
	replies, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range numbers {
			p.Get(ctx, key)
		}
		return nil
	})
	for _, reply := range replies {
		layout, _, _ := strings.Cut(reply.(*redis.StringCmd).Val(), " ")
		if _, err := strconv.ParseUint(layout, 10, 64); err == nil {
			f.layouts[layout]++
		}
	}
	if errors.Is(err, redis.Nil) { // it has expired meanwhile
		return nil
	}
	return err
}

// layout compares this version's layout with those that the check of keys has seen.
func (s *server) layout(context.Context) (Finding, error) {
	const ours = "this version has layout " + tokens.Layout
	var seen []string
	for _, layout := range slices.Sorted(maps.Keys(s.layouts)) {
		seen = append(seen, inspect.Count(s.layouts[layout], "lock")+" of layout "+layout)
	}
	switch n := len(seen); {
	case s.layouts == nil:
		return is(Unchecked, ours+"; the keys were not searched"), nil
	case n == 0:
		return is(OK, ours+"; no lock was used lately"), nil
	case n > 1 || s.layouts[tokens.Layout] == 0:
		return is(Problem, ours+"; used lately: %s", strings.Join(seen, ", ")), nil
	default:
		return is(OK, ours+"; used lately: %s", seen[0]), nil
	}
}

func (f *search) finding() Finding {
	some := func(all []string) string {
		if len(all) > 3 {
			all = append(all[:3:3], "…")
		}
		return strings.Join(all, ", ")
	}
	switch {
	case len(f.foreign) > 0:
		return is(Problem, "%s of other programs where locks fail: %s", inspect.Count(len(f.foreign), "key"), some(f.foreign))
	case slices.ContainsFunc(f.eternal, func(key string) bool { return strings.HasSuffix(key, `}:lock"`) }):
		return is(Problem, "held forever, as the key has no expiry: %s", some(f.eternal)).
			advise("release them by fairlock release, and find out what wrote them: the library's keys expire", "")
	case len(f.eternal) > 0:
		verb := map[bool]string{true: "expires", false: "expire"}[len(f.eternal) == 1]
		return is(Warning, "%s never %s: %s", inspect.Count(len(f.eternal), "key"), verb, some(f.eternal))
	}
	but := ""
	if f.kept > 0 {
		but = fmt.Sprintf(", except %d set by resize, which --reset removes", f.kept)
	}
	return is(OK, "%s of locks, of the right types, and they expire%s", inspect.Count(f.seen, "key"), but)
}

// exercising is how long the exercise of a lock may take.
const exercising = 10 * time.Second

// locks has one client hold a lock, another wait for it, and the first release it, twice over.
func (s *server) locks(parent context.Context) (Finding, error) {
	switch {
	case s.name == "":
		return is(Unchecked, "not tried: this node has no slots"), nil
	case strings.HasPrefix(s.facts.writes, "READONLY"), s.facts.told["role"] != "master" && s.facts.told["role"] != "":
		return is(Unchecked, "not tried on a replica"), nil
	case s.facts.writes != "":
		return is(Problem, "no lock can be acquired now: %s", s.facts.writes), nil
	case s.For != Use:
		return is(Unchecked, "not needed by an operator"), nil
	}
	began := time.Now()
	notified, err := s.exercise(parent)
	took := time.Since(began)
	keys := inspect.ID{Kind: fairlock.KindMutex, Name: s.name}.Keys(s.Namespace) // nobody else knows the name
	err = errors.Join(err, s.all.Del(context.WithoutCancel(parent), keys...).Err())
	switch {
	case parent.Err() != nil:
		return Finding{}, context.Cause(parent)
	case err != nil:
		return is(Problem, "a lock could not be acquired: %s", inspect.Cause(err)), nil
	}
	if !notified {
		advice := "find what drops idle or Pub/Sub connections on the way to the server"
		if s.unnotified {
			advice = "see the check of rights"
		}
		return is(Warning,
			"one was taken, renewed, handed over and released, but no notification came: a waiter is granted the lock "+
				"at its next heartbeat, up to a second later").advise(advice, ""), nil
	}
	return is(OK, "one was taken, renewed, handed over and released, all within %s", brief(took)), nil
}

// exercise returns whether a notification told the second client.
func (s *server) exercise(parent context.Context) (notified bool, err error) {
	ctx, cancel := context.WithTimeout(parent, exercising)
	defer cancel()
	tell := func(c chan struct{}) { // without waiting: a subscription may fail again and again
		select {
		case c <- struct{}{}:
		default:
		}
	}
	queued, up, granted := make(chan struct{}, 9), make(chan struct{}, 9), make(chan bool, 9)
	cfg := fairlock.Config{Namespace: s.Namespace, Logger: slog.New(slog.DiscardHandler), Trace: &fairlock.Trace{
		Queued:       func(fairlock.QueuedInfo) { tell(queued) },
		Subscription: func(error) { tell(up) },
		Granted:      func(i fairlock.GrantedInfo) { granted <- i.Handoff },
	}}
	holder, err := fairlock.New(s.all, cfg)
	if err != nil {
		return false, err
	}
	defer holder.Close()
	waiter, _ := fairlock.New(s.all, cfg)
	defer waiter.Close()
	handOff := func() error {
		held, err := holder.Mutex(s.name).Lock(ctx)
		if err != nil {
			return err
		}
		<-granted
		err = held.Renew(ctx)
		next := make(chan error, 1)
		go func() { // ends with ctx
			lease, err := waiter.Mutex(s.name).Lock(ctx)
			if err == nil {
				err = lease.Unlock(ctx)
			}
			next <- err
		}()
		select {
		case <-queued:
		case failed := <-next:
			next <- failed
		}
		return errors.Join(err, held.Unlock(ctx), <-next)
	}
	if err := handOff(); err != nil {
		return false, err
	}
	<-granted
	select { // the subscription of the waiter's client has come up, or failed; before, a waiter does not rely on it
	case <-up:
	case <-time.After(confirming):
	}
	err = handOff()
	return err == nil && <-granted, err
}
