package states

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/dispatch"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tools/rules"
	"github.com/fairlock/fairlock-go/token"
)

// What requests bring. A lease is longer than a waiter lives. The queue's clock, which advances by a second at most, is
// behind when a lease has ended.
const (
	ttl       = 10 * time.Second
	waiterTTL = 4 * time.Second
	rest      = time.Second // of a minimum hold
	fenceTTL  = 5 * time.Second
	start     = 1_700_000_000_000_000 // µs: when every history begins
	stepBack  = 20 * rules.Second     // of the server's clock, by more than a lease and FenceTTL last
)

// Kind is a kind of lock, with three tokens that request it, and two that take leases over.
type Kind struct {
	Name       string
	lock       func(rdb script.Sender) script.Lock
	keys       []string
	tokens     []token.Token // the last two of them: the one that resumes, and the one with the rest of a minimum hold
	same       int           // so many of the first tokens are interchangeable
	resizes    []int
	callerKeys []string // of a keyed semaphore, the keys that callers choose

	// Other makes another release of a script: the second token has that. nil: there is one release.
	Other func(text string) string
}

// requesters is how many tokens of a kind request the lock.
const requesters = 3

// Kinds are all kinds of locks.
func Kinds() []*Kind {
	kind := func(name, kind string, same int, resizes []int, tokens ...token.Token) *Kind {
		k := &Kind{Name: name, same: same, resizes: resizes, tokens: tokens}
		for _, t := range tokens {
			if key := rules.Terms(t.Text()).Key; key != "" && !slices.Contains(k.callerKeys, key) {
				k.callerKeys = append(k.callerKeys, key)
			}
		}
		for _, key := range script.KeysOf(kind, "ns", "name") {
			k.keys = append(k.keys, key.Name)
		}
		k.lock = func(rdb script.Sender) script.Lock {
			l, _ := script.Of(rdb, kind, "ns", "name")
			return l.WithFenceTTL(fenceTTL)
		}
		return k
	}
	const writer = 1 << 30
	return []*Kind{
		kind("mutex", "mutex", 3, nil, tokens("", "", "", "", "")...),
		kind("semaphore", "semaphore", 2, []int{0, 1, 3}, tokens("1/2", "1/2", "2/2", "1/2", "1/2")...),
		kind("two numbers", "semaphore", 0, []int{0, 1}, tokens("1/1", "1/3", "2/3", "1/1", "1/3")...),
		kind("rwmutex", "rwmutex", 2, nil, tokens(fmt.Sprintf("1/%d", writer), fmt.Sprintf("1/%d", writer),
			fmt.Sprintf("%d/%d", writer, writer), fmt.Sprintf("1/%d", writer), fmt.Sprintf("1/%d", writer))...),
		// key, and its limit: one is at it, the other not
		kind("keyed", "keyed", 2, []int{0, 1}, tokens("A 1 1/2", "A 1 1/2", "B 0 1/2", "A 1 1/2", "B 0 1/2")...),
	}
}

// tokens makes tokens of clients a, b, …: each of so many permits of so many; before that perhaps a key, and its limit;
// "": of a mutex.
func tokens(weights ...string) (all []token.Token) {
	for i, w := range weights {
		var facts strings.Builder
		words := strings.Fields(w)
		if len(words) == 3 {
			limit, _ := strconv.Atoi(words[1])
			fmt.Fprintf(&facts, "%s%06s%02d", words[0], strconv.FormatInt(int64(limit), 36), 1) // each key has one share
			w = words[2]
		}
		for digits := range strings.SplitSeq(w, "/") {
			if n, err := strconv.Atoi(digits); err == nil {
				fmt.Fprintf(&facts, "%06s", strconv.FormatInt(int64(n), 36))
			}
		}
		flags := 0
		if i > requesters { // tokens.Released: the rest of a minimum hold
			flags = 1
		}
		t, err := token.Parse(fmt.Sprintf("%c:2.%s%07s%d%021dA", 'a'+i, facts.String(),
			strconv.FormatInt(ttl.Milliseconds(), 36), flags, i))
		if err != nil {
			panic(err)
		}
		all = append(all, t)
	}
	return all
}

// node is a state, and what the tokens that have caused it know.
type node struct {
	parent *node
	step   string // that led here
	now    int64
	keys   string // as step.lua writes them, in the order of the kind's
	known  [requesters + 2]known
	rest   uint64 // the fence of the lease that was released with a rest: each rest has a token of its own
	named  int    // so many of the tokens that are interchangeable were named
	lost   bool   // a key was lost, once in a history
	back   bool   // the clock has stepped back, once
}

// known are the numbers that a token was told: its ticket, and its latest fences.
type known struct {
	ticket uint64
	fences [2]uint64
}

// story lists the steps that led to a node.
func (n *node) story() string {
	if n.parent == nil {
		return ""
	}
	return n.parent.story() + n.step + "\n"
}

// rested begins the label of a release with a rest, which ends with the fence.
const rested = "release with a rest"

// request is a request that can be sent: the script, and its arguments.
type request struct {
	label, hash string
	keys, args  []string
	party       int // the first token that it names; -1: none
}

// recorder takes the place of a server: it records the one request that is sent.
type recorder struct{ request }

func (r *recorder) Send(_ context.Context, sent dispatch.Request) (any, error) {
	r.hash, r.keys, r.args = sent.Script.Hash, sent.Keys, nil
	for _, a := range sent.Args {
		r.args = append(r.args, fmt.Sprint(a))
	}
	return nil, redis.Nil
}

// requests are all that can be sent in a state: by every token, with every number that it was told.
func (k *Kind) requests(n *node, s *rules.State) (all []request) {
	ctx, r := context.Background(), &recorder{}
	l := k.lock(r)
	send := func(party int, label string, call func()) {
		call()
		r.label, r.party = label, party
		all = append(all, r.request)
	}
	resumes, rests := k.tokens[requesters], k.tokens[requesters+1]
	for i, t := range k.tokens {
		name := string(rune('a' + i))
		if i < k.same && i > n.named {
			continue
		}
		for _, fence := range n.known[i].fences {
			if fence == 0 {
				continue
			}
			of := fmt.Sprintf(" %s@%d", name, fence)
			send(i, "release"+of, func() { _, _ = l.Release(ctx, t, fence, script.Rest{}) })
			send(i, "renew"+of, func() { _, _ = l.Renew(ctx, t, ttl, fence) })
			if i < requesters && t.Weight() == rests.Weight() && rules.Terms(t.Text()).Key == rules.Terms(rests.Text()).Key &&
				(n.rest == 0 || n.rest == fence) {
				send(i, rested+of, func() { _, _ = l.Release(ctx, t, fence, script.Rest{Left: rest, By: rests}) })
			}
			if i < requesters {
				send(i, "resume"+of, func() { _, _, _ = l.Resume(ctx, t, fence, ttl/2, resumes) })
			}
		}
		if i > requesters {
			continue
		}
		send(i, "leave tombstone "+name, func() {
			_, _ = l.Leave(ctx, script.Rest{},
				script.Leaving{Token: t, Tombstone: true})
		})
		if i == requesters {
			continue
		}
		ask := script.Request{Token: t, WaiterTTL: waiterTTL}
		send(i, "acquire "+name, func() { _, _ = l.Acquire(ctx, ask) })
		if n.known[i].ticket > 0 {
			send(i, "acquire with ticket "+name, func() {
				ask := ask
				ask.Ticket = script.Ticket(n.known[i].ticket)
				_, _ = l.Acquire(ctx, ask)
			})
		}
		send(i, "try "+name, func() { _, _ = l.Acquire(ctx, script.Request{Token: t, Try: true}) })
		if len(s.Waiters) > 0 {
			send(i, "acquire of at most 1 "+name, func() {
				ask := ask
				ask.MaxWaiters = 1
				_, _ = l.Acquire(ctx, ask)
			})
		}
		if len(s.Waiters)+len(s.Holders) > 0 {
			send(i, "leave "+name, func() { _, _ = l.Leave(ctx, script.Rest{}, script.Leaving{Token: t}) })
			send(i, "heartbeat "+name, func() { _, _ = l.Heartbeat(ctx, waiterTTL, []token.Token{t}) })
		}
	}
	for _, h := range s.Holders {
		send(-1, fmt.Sprintf("force @%d", h.Fence), func() { _, _ = l.ForceRelease(ctx, h.Fence, 0) })
	}
	for _, size := range k.resizes {
		send(-1, fmt.Sprintf("resize %d", size), func() { _, _ = l.Resize(ctx, size) })
	}
	send(-1, "heartbeat", func() { _, _ = l.Heartbeat(ctx, 0, nil) })
	send(-1, "inspect", func() { _, _ = l.Inspect(ctx, 10, 10) })
	return all
}

// others are the steps without a request: time passes, to when something ends; the clock steps back; a key is lost, or
// all are.
func (k *Kind) others(n *node, s *rules.State) (all []*node) {
	add := func(step string, now int64, keys string) *node {
		next := *n
		next.parent, next.step, next.now, next.keys = n, step, now, k.unexpired(now, keys)
		all = append(all, &next)
		return &next
	}
	after := func(times ...int64) int64 {
		times = slices.DeleteFunc(times, func(at int64) bool { return at <= s.Now })
		if len(times) == 0 {
			return 0
		}
		return slices.Min(times)
	}
	var ends []int64
	for _, h := range s.Holders {
		ends = append(ends, h.Expires)
	}
	if at := after(ends...); at > 0 {
		add("a lease ends", at, n.keys)
	}
	if at := after(slices.Concat(slices.Collect(maps.Values(s.Until)),
		slices.Collect(maps.Values(s.Tombstones)))...); at > 0 && (len(ends) == 0 || at > after(ends...)) {
		add("a key expires", at, n.keys)
	}
	// Until then requests of others keep the queue's clock up to date.
	pass := func(step string, d int64) {
		parts := strings.Split(n.keys, "\n")
		fields := strings.Split(parts[0], "\x1f")
		size := strings.Split(fields[2], " ")[4:] // if a resize has set one
		fields[2] = strings.Join(append([]string{fmt.Sprintf("2 %d %d %d", s.Last, s.QueueClock()+d, s.Now+d)}, size...), " ")
		parts[0] = strings.Join(fields, "\x1f")
		add(step, s.Now+d, strings.Join(parts, "\n"))
	}
	if len(s.Heartbeats) > 0 && s.Last > 0 {
		if d := slices.Min(slices.Collect(maps.Values(s.Heartbeats))) - s.QueueClock(); d > 0 {
			pass("a waiter expires", d)
			if d > rules.Millisecond {
				pass("a waiter nearly expires", d-rules.Millisecond)
			}
		}
	}
	if !n.back && len(s.Until) > 0 {
		add("the clock steps back", s.Now-stepBack, n.keys).back = true
	}
	if !n.lost && len(s.Until) > 0 {
		parts := strings.Split(n.keys, "\n")
		for i, part := range parts {
			if part != "" {
				others := slices.Clone(parts)
				others[i] = ""
				add("lost: "+k.keys[i], s.Now, strings.Join(others, "\n")).lost = true
			}
		}
		add("all is lost", s.Now, strings.Repeat("\n", len(parts)-1)).lost = true
	}
	return all
}

// unexpired leaves out keys that have expired.
func (k *Kind) unexpired(now int64, keys string) string {
	parts := strings.Split(keys, "\n")
	for i, part := range parts {
		if fields := strings.SplitN(part, "\x1f", 3); len(fields) == 3 {
			if until, _ := strconv.ParseInt(fields[1], 10, 64); until > 0 && until <= now {
				parts[i] = ""
			}
		}
	}
	return strings.Join(parts, "\n")
}

// read reads the keys of a state.
func (k *Kind) read(now int64, keys string) *rules.State {
	read := make(map[string]rules.Key, len(k.keys))
	for i, part := range strings.Split(keys, "\n") {
		if part == "" {
			continue
		}
		fields := strings.Split(part, "\x1f")
		key := rules.Key{Text: fields[2]}
		key.Until, _ = strconv.ParseInt(fields[1], 10, 64)
		for j := 2; j+1 < len(fields); j += 2 {
			name, number := fields[j], fields[j+1] // of a hash
			if fields[0] == "ZADD" {
				name, number = number, name
			}
			key.Members = append(key.Members, rules.Member{Name: name, Number: rules.Numbers(number)[0], Text: number})
		}
		read[k.keys[i][strings.LastIndexByte(k.keys[i], ':')+1:]] = key
	}
	return rules.Read(now, read)
}
