package sim

import (
	"bufio"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/fairlock/fairlock-go/internal/model"
	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/token"
)

// The reference for scripts is package model. Before each script, the data of its lock are loaded into the model, which
// then does the same. What the script leaves must be what the model has.

// step is a call of a script, with its arguments. The zero step stands for time that passes.
type step struct {
	verb string
	args []string // as ARGV
	text string   // of args
	sent []string // what it has published: the channel, and the message

	wrote   bool // it has called a command that writes
	refused bool // a full server has refused a command of it
}

// brings is the ticket that an acquire of a token brings; 0 if it brings none, or the script is another one.
func (s step) brings(token string) uint64 {
	if s.verb != "acquire" || s.args[1] != token {
		return 0
	}
	return uint64(numbers(s.args[4])[0])
}

// contents is what a lock has in the server.
type contents struct {
	model.Lock                  // with holders whose leases have ended, until a script removes them
	ends       map[string]int64 // token → when its lease ends, as Event.At
	wrong      []string         // what is wrong with these data, whatever was there before
}

// holder is the token's lease, waiter what the queue has of it; nil if there is none.
func (c *contents) holder(token string) *model.Holder {
	return find(c.Holders, func(h model.Holder) bool { return h.Token == token })
}

func (c *contents) waiter(token string) *model.Waiter {
	return find(c.Waiters, func(w model.Waiter) bool { return w.Token == token })
}

// clockAt is the queue's clock that a script finds.
func (c *contents) clockAt(now int64) int64 {
	if c.Last == 0 {
		return now
	}
	return c.Clock + min(max(now-c.ClockAt, 0), model.Second)
}

func find[T any](all []T, is func(T) bool) *T {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return &all[i]
	}
	return nil
}

// load loads what a lock has in the server.
func (o *observer) load(l *observed) (c contents) {
	db, clock := o.world.server.Miniredis.DB(0), o.world.server.Now()
	c.ends = map[string]int64{}
	wrong := func(format string, args ...any) { c.wrong = append(c.wrong, fmt.Sprintf(format, args...)) }
	left := func(key string) int64 { // as scripts see it, and above 0
		return max(db.TTL(key).Microseconds(), 1)
	}
	until := func(key string) int64 { // when it expires, rounded up; 0: there is no such key
		left := db.TTL(key)
		if left <= 0 {
			if db.Exists(key) {
				wrong("%s lasts for ever", key)
			}
			return 0
		}
		return (clock.UnixNano() + int64(left) + 999) / 1000
	}
	if text, err := db.Get(l.keys.Number); err == nil {
		n := numbers(text)
		c.Last, c.Clock, c.ClockAt, c.NumberUntil = uint64(n[1]), n[2], n[3], until(l.keys.Number)
	}
	if l.keys.Holders != "" {
		o.loadHolders(l, &c, until, wrong)
	} else if text, err := db.Get(l.keys.Permits); err == nil && until(l.keys.Permits) > 0 {
		token, fence, _ := strings.Cut(text, " ")
		c.Highest = uint64(numbers(fence)[0])
		c.Holders = []model.Holder{{Token: token, Fence: c.Highest, Expires: clock.UnixMicro() + left(l.keys.Permits)}}
		c.ends[token] = o.world.now() + int64(db.TTL(l.keys.Permits))
	}

	queue, _ := db.SortedSet(l.keys.Queue)
	heartbeats, _ := db.SortedSet(l.keys.Heartbeats)
	c.Heartbeats = map[string]int64{}
	for token, ticket := range queue {
		c.Waiters = append(c.Waiters, model.Waiter{Token: token, Ticket: uint64(ticket)})
	}
	for token, expires := range heartbeats {
		c.Heartbeats[token] = int64(expires)
	}
	slices.SortFunc(c.Waiters, func(a, b model.Waiter) int {
		return cmp.Or(cmp.Compare(a.Ticket, b.Ticket), cmp.Compare(a.Token, b.Token))
	})
	if expires := until(l.keys.Queue); len(queue) > 0 {
		if c.QueueUntil = clock.UnixMicro() + left(l.keys.Queue); len(heartbeats) > 0 && until(l.keys.Heartbeats) < expires {
			wrong("the heartbeats expire before the queue")
		}
	}

	tombstones, _ := db.SortedSet(l.keys.Tombstones)
	c.Tombstones = map[string]int64{}
	expires := until(l.keys.Tombstones)
	for token, at := range tombstones {
		c.Tombstones[token] = int64(at)
		if expires < int64(at) && o.back == 0 { // else later ones are over sooner, by a clock that has stepped back
			wrong("the tombstones expire before that of %s", token)
		}
	}
	return c
}

// loadHolders loads the holders of permits: those whose leases have ended, too, because no other holds them until a script removes
// them.
func (o *observer) loadHolders(l *observed, c *contents, until func(string) int64, wrong func(string, ...any)) {
	db := o.world.server.Miniredis.DB(0)
	if text, err := db.Get(l.keys.Resized); err == nil {
		if c.Resized = int(numbers(text)[0]); db.TTL(l.keys.Resized) != 0 {
			wrong("the number of permits expires")
		}
	}
	permits, _ := db.SortedSet(l.keys.Permits)
	fields, _ := db.HKeys(l.keys.Holders)
	field := func(name string) int64 { return numbers(db.HGet(l.keys.Holders, name))[0] }
	kept := min(until(l.keys.Permits), until(l.keys.Holders))
	c.Highest = uint64(field("fence"))
	if c.Lost = len(permits)+len(fields) > 0 && len(fields) != len(permits)+2; c.Lost {
		return // nobody holds anything
	}
	used, last := int64(0), int64(0)
	for token, ends := range permits {
		h := model.Holder{Token: token, Fence: uint64(field(token)), Expires: int64(ends)}
		if c.Holders = append(c.Holders, h); h.Fence == 0 || h.Fence > c.Highest {
			wrong("%s has fence %d, and the highest is said to be %d", token, h.Fence, c.Highest)
		}
		c.ends[token] = o.world.now() + h.Expires*1000 - o.world.server.Now().UnixNano()
		used, last = used+int64(parse(token).Weight()), max(last, h.Expires)
	}
	slices.SortFunc(c.Holders, func(a, b model.Holder) int {
		return cmp.Or(cmp.Compare(a.Fence, b.Fence), cmp.Compare(a.Token, b.Token))
	})
	if recorded := field("used"); recorded != used {
		wrong("%d permits are said to be used, and %d are", recorded, used)
	}
	if len(permits) > 0 && kept < last+999*model.Millisecond { // Redis counts whole milliseconds
		wrong("the holders expire at %d, and the last lease ends at %d", kept, last)
	}
}

// do does to the model what a script does to the lock, and returns the reply: its words, without empty ones, and after how
// many µs another request can help, where the words have retryAfter. The scripts refuse a ticket that is too far ahead; the
// model does not know that.
func (s step) do(l *model.Lock, now int64) (reply []string, retry int64) {
	n := make([]int64, len(s.args))
	for i, arg := range s.args {
		n[i] = numbers(arg)[0]
	}
	const ms = model.Millisecond
	l.FenceTTL = n[0] * ms
	l.Advance(now)
	switch s.verb {
	case "acquire":
		r := model.Request{Token: s.args[1], WaiterTTL: n[2] * ms, MaxWaiters: int(n[3]), Ticket: uint64(n[4])}
		if r.Ticket <= max(l.LastNumber(), uint64(now)+1<<45) {
			return wordsOfAcquire(l.Acquire(now, r))
		}
	case "release":
		return wordsOfHandoff(l.Release(now, s.args[1], uint64(n[2]), model.Rest{Left: n[3] * ms, By: s.args[4]})), 0
	case "leave":
		return wordsOfHandoff(l.Leave(now, model.Rest{Left: n[1] * ms, By: s.args[2]}, s.args[4:], int(n[3]))), 0
	case "force_release":
		return append([]string{"0"}, wordsOfHandoff(l.ForceRelease(now, uint64(n[1])))...), 0 // all holders at once
	case "renew":
		return []string{map[bool]string{true: "renewed", false: "lost"}[l.Renew(now, s.args[1], n[2]*ms, uint64(n[3]))]}, 0
	case "resume":
		if fence := l.Resume(now, s.args[1], uint64(n[2]), n[3]*ms, s.args[4]); fence > 0 {
			return words([]any{"resumed", fence}), 0
		}
		return []string{"lost"}, 0
	case "resize":
		return wordsOfHandoff(l.Resize(now, int(n[1]))), 0
	case "heartbeat":
		return wordsOfHeartbeat(l.Heartbeat(now, n[1]*ms, s.args[2:]))
	case "waiting":
		return words([]any{l.Waiting(now)}), 0
	}
	return nil, 0
}

// run runs a script in the server, and compares what it leaves with what the model has. The caller holds mu.
func (o *observer) run(peer *server.Peer, l *observed, s step, request []string) {
	before := l.contents
	var reply strings.Builder
	w := bufio.NewWriter(&reply)
	inner := server.NewPeer(w)
	inner.Ctx, inner.Resp3, inner.ClientName = peer.Ctx, peer.Resp3, byObserver
	o.last = s
	o.world.server.Miniredis.Server().Dispatch(inner, request)
	inner.Flush()
	peer.WriteRaw(reply.String())
	now := o.world.server.Now().UnixMicro()
	ran := !strings.HasPrefix(reply.String(), "-NOSCRIPT")
	if !ran {
		o.last = step{}
	}
	s = o.last
	o.compare(l)
	o.last = step{}
	if !ran {
		return
	}
	want, got := before.Lock, l.contents
	want.Holders, want.Waiters = slices.Clone(want.Holders), slices.Clone(want.Waiters)
	want.Heartbeats, want.Tombstones = maps.Clone(want.Heartbeats), maps.Clone(want.Tombstones)
	var told []string
	var retry int64
	if s.refused && before.mayRefuse(s, now) {
		want.Advance(now)
	} else {
		told, retry = s.do(&want, now)
	}
	got.Holders, got.Tombstones = slices.Clone(got.Holders), maps.Clone(got.Tombstones)
	got.Advance(now)
	wrong := got.wrong
	differ := func(what string, want, got any) {
		wrong = append(wrong, fmt.Sprintf("%s: %+v, and the model has %+v", what, got, want))
	}
	diff(&want, &got.Lock, differ)
	if !sameReply(reply.String(), told, retry) {
		differ("the reply", fmt.Sprintf("%s, after %d µs", told, retry), reply.String())
	}
	var sent []string
	for i, g := range want.Notified {
		given := g.Given / model.Millisecond
		if at := 2*i + 1; g.Fence == 0 && at < len(s.sent) {
			if said := numbers(s.sent[at][strings.IndexByte(s.sent[at], ' ')+1:])[1]; given <= said && said <= given+2 {
				given = said // when the head can ask, rounded up
			}
		}
		client, _, _ := strings.Cut(g.Token, ":")
		sent = append(sent, script.NotificationChannel(script.DefaultNamespace, client),
			fmt.Sprintf("%s %d %d", g.Token, g.Fence, given))
	}
	if !slices.Equal(sent, s.sent) {
		differ("notifications", sent, s.sent)
	}
	if told := time.Duration(numbers(s.args[0])[0]) * time.Millisecond; told != fenceTTL && told != otherFenceTTL {
		wrong = append(wrong, "no client has that FenceTTL")
	}
	if len(wrong) > 0 {
		before.Tombstones, got.Tombstones, want.Tombstones = nil, nil, nil // they may be many
		o.world.fail("server: at %v, lock %q, at %d: after %s %v: %s\nreply %q\nbefore: %+v\nafter:  %+v\nmodel:  %+v",
			time.Duration(o.world.now()), l.name, now, s.verb, s.args, strings.Join(wrong, "; "), reply.String(),
			before.Lock, got.Lock, want)
	}
}

// mayRefuse reports whether a full server may refuse a script: the acquire of a newcomer, or one that ends no lease and has
// only to admit waiters.
func (c *contents) mayRefuse(s step, now int64) bool {
	ends := func(is func(model.Holder) bool) bool {
		return slices.ContainsFunc(c.Holders, func(h model.Holder) bool { return h.Expires > now && is(h) })
	}
	switch s.verb {
	case "acquire":
		return !ends(func(h model.Holder) bool { return h.Token == s.args[1] }) && (c.waiter(s.args[1]) == nil || s.args[2] == "0")
	case "release":
		return !ends(func(h model.Holder) bool { return h.Token == s.args[1] && fmt.Sprint(h.Fence) == s.args[2] })
	case "force_release":
		return !ends(func(h model.Holder) bool { return h.Fence <= uint64(numbers(s.args[1])[0]) })
	case "resize":
		return s.args[1] != "0"
	default:
		return false
	}
}

// diff calls differ for each difference between a lock and the model.
func diff(want, got *model.Lock, differ func(what string, want, got any)) {
	equal := func(what string, want, got any) {
		if want != got {
			differ(what, want, got)
		}
	}
	// expires compares when a key expires: miniredis counts nanoseconds.
	expires := func(what string, want, got int64) {
		if got < want || got > want+1 {
			differ(what, want, got)
		}
	}
	equal("the last number", want.Last, got.Last)
	expires("when the number expires", want.NumberUntil, got.NumberUntil)
	equal("records lost", want.Lost, got.Lost)
	equal("the number of permits for all", want.Resized, got.Resized)
	if len(want.Holders) != len(got.Holders) {
		differ("holders", want.Holders, got.Holders)
	} else {
		for i, h := range want.Holders {
			expires("the end of a lease", h.Expires, got.Holders[i].Expires)
			h.Expires = got.Holders[i].Expires
			equal("a holder", h, got.Holders[i])
		}
	}
	if !slices.Equal(want.Waiters, got.Waiters) {
		differ("waiters", want.Waiters, got.Waiters)
	}
	if !maps.Equal(want.Heartbeats, got.Heartbeats) {
		differ("when waiters expire", want.Heartbeats, got.Heartbeats)
	}
	if len(want.Waiters) > 0 {
		if want.Last > 0 {
			equal("the queue's clock", [2]int64{want.Clock, want.ClockAt}, [2]int64{got.Clock, got.ClockAt})
		}
		expires("when the queue expires", want.QueueUntil, got.QueueUntil)
	}
	for token, until := range want.Tombstones {
		equal("the tombstone of "+token, until, got.Tombstones[token])
	}
	equal("the number of tombstones", len(want.Tombstones), len(got.Tombstones))
}

// parse reads a token; of a text that is none, the zero Token.
func parse(text string) token.Token {
	t, _ := token.Parse(text)
	return t
}

// isReleased reports whether the token has a lock for the rest of a minimum hold.
func isReleased(text string) bool { return tokens.FlagsOf(parse(text).Text())&tokens.Released != 0 }
