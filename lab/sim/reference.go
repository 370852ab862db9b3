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
	"github.com/fairlock/fairlock-go/lua"
)

// The reference for scripts is package model. Before each script, the data of its lock are loaded into the model, which
// then does the same. What the script leaves must be what the model has.

// script is a call of a script, with its arguments. The zero script stands for time that passes.
type script struct {
	verb string
	args []string // as ARGV
	text string   // of args
	sent []string // what it has published: the channel, and the message

	wrote   bool // it has called a command that writes
	refused bool // a full server has refused a command of it
}

// contents is what a lock has in the server.
type contents struct {
	model.Lock          // with holders whose leases have ended, until a script removes them
	others     string   // what a later version has added to the number
	members    []string // of waiters, in the queue, in the heartbeats, or in both
	wrong      []string // what is wrong with these data, whatever was there before
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
	wrong := func(format string, args ...any) { c.wrong = append(c.wrong, fmt.Sprintf(format, args...)) }
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
	if text, err := db.Get(l.keys.Number); err == nil && len(text) >= 66 {
		n := numbers(text)
		c.Last, c.Served, c.First, c.others = uint64(n[1]), uint64(n[3]), uint64(n[4]), text[66:]
		expires := until(l.keys.Number)
		if c.NumberUntil = n[2] * model.Millisecond; c.NumberUntil <= clock.UnixMicro() {
			c.NumberUntil = expires // it is still there
		}
		if off := expires - c.NumberUntil; off < 0 || off > 1001 { // Redis counts whole milliseconds, and miniredis nanoseconds
			wrong("the number expires at %d, and says %d", expires, n[2])
		}
	}
	o.loadHolders(l, &c, until, wrong)

	queue, _ := db.SortedSet(l.keys.Queue)
	fields, _ := db.HKeys(l.keys.Heartbeats)
	c.Damaged = len(queue)+len(fields) > 0 && len(fields) != len(queue)+1
	for _, field := range fields {
		if field != "clock" {
			c.members = append(c.members, field)
		}
	}
	for token, ticket := range queue {
		if !slices.Contains(c.members, short(token)) {
			c.members = append(c.members, short(token))
		}
		beat := numbers(db.HGet(l.keys.Heartbeats, short(token)))
		c.Waiters = append(c.Waiters, model.Waiter{
			Token: token, Weight: max(int(beat[1]), 1), Ticket: uint64(ticket), TTL: ttlOf(token), Expires: beat[0],
		})
	}
	slices.SortFunc(c.Waiters, func(a, b model.Waiter) int {
		return cmp.Or(cmp.Compare(a.Ticket, b.Ticket), cmp.Compare(a.Token, b.Token))
	})
	n := numbers(db.HGet(l.keys.Heartbeats, "clock"))
	c.Clock, c.ClockAt, c.Pass, c.Cursor, c.Quarantine = n[0], cmp.Or(n[1], clock.UnixMicro()), n[2], uint64(n[3]), n[4]
	if heartbeats := until(l.keys.Heartbeats); len(queue) > 0 {
		if c.QueueUntil = until(l.keys.Queue); heartbeats < c.QueueUntil && !c.Damaged {
			wrong("the heartbeats expire before the queue")
		}
	}

	tombstones, _ := db.SortedSet(l.keys.Tombstones)
	c.Tombstones = map[string]int64{}
	until(l.keys.Tombstones)
	for name, at := range tombstones {
		c.Tombstones[name] = int64(at)
	}
	return c
}

// loadHolders loads the holders.
func (o *observer) loadHolders(l *observed, c *contents, until func(string) int64, wrong func(string, ...any)) {
	db := o.world.server.Miniredis.DB(0)
	if l.keys.Holders == "" {
		c.Capacity = 1
		if text, err := db.Get(l.keys.Permits); err == nil {
			token, fence, _ := strings.Cut(text, " ")
			c.Holders = []model.Holder{{
				Token: token, Weight: 1, Fence: uint64(numbers(fence)[0]), TTL: ttlOf(token), Expires: until(l.keys.Permits),
			}}
		}
		return
	}
	permits, _ := db.SortedSet(l.keys.Permits)
	fields, _ := db.HKeys(l.keys.Holders)
	c.Lost = len(permits)+len(fields) > 0 && len(fields) != len(permits)+3
	for _, field := range fields {
		if ttl := ttlOf(field); len(permits) == 0 {
			c.LostTTL = max(c.LostTTL, ttl)
		}
	}
	c.Capacity = int(numbers(db.HGet(l.keys.Holders, "capacity"))[0])
	used, last := 0, int64(0)
	for token, ends := range permits {
		n := numbers(db.HGet(l.keys.Holders, token))
		if c.Lost {
			if had := l.holder(token); had != nil {
				n[1] = int64(had.Fence)
			}
		}
		c.Holders = append(c.Holders, model.Holder{
			Token: token, Weight: int(n[0]), Fence: uint64(n[1]), TTL: ttlOf(token), Expires: int64(ends),
		})
		used, last = used+int(n[0]), max(last, int64(ends))
	}
	slices.SortFunc(c.Holders, func(a, b model.Holder) int {
		return cmp.Or(cmp.Compare(a.Fence, b.Fence), cmp.Compare(a.Token, b.Token))
	})
	kept := min(until(l.keys.Permits), until(l.keys.Holders))
	if recorded := numbers(db.HGet(l.keys.Holders, "used"))[0]; len(permits) > 0 && !c.Lost && recorded != int64(used) {
		wrong("%d permits are said to be used, and %d are", recorded, used)
	} else if len(permits) > 0 && !c.Lost && kept < last+399*model.Millisecond { // Redis counts whole milliseconds
		wrong("the holders expire at %d, and the last lease ends at %d", kept, last)
	}
}

// do does to the model what a script does to the lock, and returns the reply: its words, without empty ones, and after how
// many µs another request can help, where the words have retryAfter. The scripts refuse a ticket that is too far ahead; the
// model does not know that.
func (s script) do(l *model.Lock, now int64) (reply []string, retry int64) {
	n := make([]int64, len(s.args))
	for i, arg := range s.args {
		n[i] = numbers(arg)[0]
	}
	const ms = model.Millisecond
	l.FenceTTL = n[0] * ms
	l.Advance(now)
	if token := s.args[1]; l.Tombstones[short(token)] > 0 { // the model knows them by the whole token
		l.Tombstones[token] = l.Tombstones[short(token)]
		delete(l.Tombstones, short(token))
	}
	switch s.verb {
	case "acquire":
		r := model.Request{
			Token: s.args[1], Weight: 1, Capacity: 1, TTL: ttlOf(s.args[1]), WaiterTTL: n[2] * ms, MaxWaiters: int(n[3]),
			Ticket: uint64(n[4]), Quarantine: n[5] * ms,
		}
		if len(n) > 6 {
			r.Weight, r.Capacity = int(n[6]), int(n[7])
		}
		if r.Ticket <= max(l.LastNumber(), uint64(now))+1<<45 {
			return wordsOfAcquire(l.Acquire(now, r))
		}
	case "release":
		return wordsOfHandoff(l.Release(now, s.args[1], uint64(n[2]))), 0
	case "leave":
		return wordsOfHandoff(l.Leave(now, s.args[1], n[2] == 1)), 0
	case "force_release":
		return wordsOfHandoff(l.ForceRelease(now, uint64(n[1]))), 0
	case "renew":
		fence, held := l.Renew(now, s.args[1], n[2]*ms, uint64(n[3]))
		return words([]any{map[bool]string{true: "renewed", false: "lost"}[held], fence}), 0
	case "heartbeat":
		r := l.Heartbeat(now, n[1]*ms, s.args[2:])
		reply = []string{retryAfter}
		for _, state := range r.States {
			reply = append(reply, strings.ReplaceAll(string(state), " ", "_"))
		}
		return reply, r.RetryAfter
	}
	return nil, 0
}

// run runs a script in the server, and compares what it leaves with what the model has. The caller holds mu.
func (o *observer) run(peer *server.Peer, l *observed, s script, request []string) {
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
		o.last = script{}
	}
	s = o.last
	o.compare(l)
	o.last = script{}
	if !ran {
		return
	}
	want, got := before.Lock, l.contents
	want.Holders, want.Waiters, want.Tombstones = slices.Clone(want.Holders), slices.Clone(want.Waiters), maps.Clone(want.Tombstones)
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
	if s.verb == "leave" && slices.Equal(before.members, []string{short(s.args[1])}) {
		want.Damaged = false // it has removed the part of its waiter that was left, and there was no other
	}
	diff(l.keys.Holders == "", &want, &got.Lock, differ)
	if !sameReply(reply.String(), told, retry) {
		differ("the reply", fmt.Sprintf("%s, after %d µs", told, retry), reply.String())
	}
	if others := before.others; got.others != others && (before.Last > 0 || got.others != "") {
		differ("the end of the number", others, got.others)
	}
	var sent []string
	for _, g := range want.Notified {
		client, _, _ := strings.Cut(g.Token, ":")
		sent = append(sent, lua.NotificationChannel(lua.DefaultNamespace, client),
			fmt.Sprintf("%s %d %d", g.Token, g.Fence, g.Given/model.Millisecond))
	}
	if !slices.Equal(sent, s.sent) {
		differ("notifications", sent, s.sent)
	}
	if told := time.Duration(numbers(s.args[0])[0]) * time.Millisecond; told != fenceTTL && told != otherFenceTTL {
		wrong = append(wrong, "no client has that FenceTTL")
	}
	if want.First == 0 && before.First != 0 && !l.lost {
		wrong = append(wrong, "the lock is quarantined, and no data were lost")
	}
	if len(wrong) > 0 {
		before.Tombstones, got.Tombstones, want.Tombstones = nil, nil, nil // they may be many
		o.world.fail("server: at %v, lock %q, at %d: after %s %v: %s\nreply %q\nbefore: %+v\nafter:  %+v\nmodel:  %+v",
			time.Duration(o.world.now()), l.name, now, s.verb, s.args, strings.Join(wrong, "; "), reply.String(),
			before.Lock, got.Lock, want)
	}
}

// mayRefuse reports whether a full server may refuse a script: an acquire, or one that has only to admit waiters.
func (c *contents) mayRefuse(s script, now int64) bool {
	switch s.verb {
	case "acquire":
		return true
	case "release":
		return c.holder(s.args[1]) == nil
	case "leave":
		return c.holder(s.args[1]) == nil && c.waiter(s.args[1]) == nil
	default:
		return s.verb == "force_release" && len(c.Holders) == 0 && (c.Quarantine <= c.clockAt(now) || uint64(numbers(s.args[1])[0]) < c.Served)
	}
}

// diff calls differ for each difference between a lock and the model.
func diff(mutex bool, want, got *model.Lock, differ func(what string, want, got any)) {
	equal := func(what string, want, got any) {
		if want != got {
			differ(what, want, got)
		}
	}
	// between: Redis counts whole milliseconds, and miniredis nanoseconds.
	between := func(what string, want, got, less, more int64) {
		if got < want-less || got > want+more+1 {
			differ(what, want, got)
		}
	}
	equal("the last number", want.Last, got.Last)
	equal("the highest ticket that was served", want.Served, got.Served)
	equal("the first number", want.First, got.First)
	equal("when the number expires", want.NumberUntil, got.NumberUntil)
	equal("records lost", want.Lost, got.Lost)
	if len(want.Holders) != len(got.Holders) {
		differ("holders", want.Holders, got.Holders)
	} else if !want.Lost {
		for i, h := range want.Holders {
			if mutex { // PTTL is in whole milliseconds
				between("the end of a lease", h.Expires, got.Holders[i].Expires, 0, model.Millisecond)
				h.Expires = got.Holders[i].Expires
			}
			equal("a holder", h, got.Holders[i])
		}
	}
	if want.InUse() {
		equal("the capacity", want.Capacity, got.Capacity)
	}
	equal("heartbeats or queue lost", want.Damaged, got.Damaged)
	if !slices.Equal(want.Waiters, got.Waiters) {
		differ("waiters", want.Waiters, got.Waiters)
	}
	equal("the quarantine", want.QuarantineLeft(), got.QuarantineLeft())
	if len(want.Waiters) > 0 && !want.Damaged {
		type clock struct {
			clock, at, pass int64
			cursor          uint64
		}
		equal("the queue's clock", clock{want.Clock, want.ClockAt, want.Pass, want.Cursor},
			clock{got.Clock, got.ClockAt, got.Pass, got.Cursor})
		between("when the queue expires", want.QueueUntil, got.QueueUntil, 0, model.KeptAtMost-model.KeptAtLeast)
	}
	for token, until := range want.Tombstones {
		equal("the tombstone of "+token, until, got.Tombstones[short(token)])
	}
	equal("the number of tombstones", len(want.Tombstones), len(got.Tombstones))
}

// short is what the server stores of a token with heartbeats and tombstones.
func short(token string) string { return token[max(0, len(token)-14):] }

// ttlOf is the TTL in a token, in µs; 0 if it is none.
func ttlOf(token string) int64 {
	if len(token) < 34 {
		return 0
	}
	return numbers(token[len(token)-34 : len(token)-23])[0] * model.Millisecond
}
