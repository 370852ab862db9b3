// Package states tries every short history of a lock on the real scripts, breadth first, and checks the rules of
// package rules after each step.
//
// A step is a script that runs on a redis-server, as a function (step.lua): it gets the keys and the time, and returns
// the keys. So no state depends on what was tried before it, and time passes only as a step. States are merged if they
// are equal but for shifts of time and of numbers.
package states

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tools/rules"
)

//go:embed step.lua
var stepText string

// Result is what was seen. Of the steps, those that do not change the state count as well.
type Result struct {
	Depth, States, Steps int      // all histories of Depth steps were seen
	Wrong                []string // with the histories that led there
}

type hash [16]byte

// chunk is how many states are followed before the results are merged. It does not depend on the number of servers, so
// that each run sees the same states.
const chunk = 256

// explorer tries histories of one kind of lock, each of its servers a part of them.
type explorer struct {
	*Kind
	servers []*redis.Client
	scripts map[string]*redis.Script // by the hash of the original
	other   map[string]*redis.Script // those of the other release
}

// Explore tries all histories of up to depth steps, or until it has seen that many states. After each length it calls
// progress.
func Explore(k *Kind, depth, states int, servers []*redis.Client, progress func(Result)) (r Result, err error) {
	e := &explorer{k, servers, map[string]*redis.Script{}, map[string]*redis.Script{}}
	for hash, source := range script.Sources() {
		text := source.Text
		e.scripts[hash] = redis.NewScript(strings.Replace(stepText, "SCRIPT\n", text+"\n", 1))
		if e.other[hash] = e.scripts[hash]; k.Other != nil {
			e.other[hash] = redis.NewScript(strings.Replace(stepText, "SCRIPT\n", k.Other(text)+"\n", 1))
		}
		for _, rdb := range servers {
			if err := errors.Join(e.scripts[hash].Load(context.Background(), rdb).Err(),
				e.other[hash].Load(context.Background(), rdb).Err()); err != nil {
				return r, err
			}
		}
	}
	first := &node{now: start, keys: strings.Repeat("\n", len(k.keys)-1)}
	seen := map[hash]struct{}{e.canonical(first, e.read(start, first.keys)): {}}
	frontier := []*node{first}
	for r.Depth < depth && r.States < states && len(r.Wrong) == 0 {
		var next []*node
		r.Depth++
		for some := range slices.Chunk(frontier, chunk) {
			if r.States = len(seen); r.States >= states || len(r.Wrong) > 0 {
				r.Depth-- // not all of this length
				break
			}
			found, err := e.expand(some)
			if err != nil {
				return r, err
			}
			for _, f := range found {
				r.Steps += f.steps
				r.Wrong = append(r.Wrong, f.wrong...)
				for i, h := range f.hashes {
					if _, known := seen[h]; !known {
						if seen[h] = struct{}{}; r.Depth < depth {
							next = append(next, f.nodes[i])
						}
					}
				}
			}
		}
		r.States, frontier = len(seen), next
		progress(r)
	}
	return r, nil
}

// found is what follows a node.
type found struct {
	steps  int
	nodes  []*node
	hashes []hash
	wrong  []string
}

// expand does all steps from some nodes, in their order.
func (e *explorer) expand(nodes []*node) ([]found, error) {
	all, errs := make([]found, len(nodes)), make([]error, len(e.servers))
	var wg sync.WaitGroup
	for i, rdb := range e.servers {
		wg.Go(func() {
			for j := i; j < len(nodes); j += len(e.servers) {
				var err error
				if all[j], err = e.follow(rdb, nodes[j]); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return all, errors.Join(errs...)
}

// follow does all steps from a node.
func (e *explorer) follow(rdb *redis.Client, n *node) (f found, _ error) {
	before := e.read(n.now, n.keys)
	for _, next := range e.others(n, before) {
		f.add(next, e.canonical(next, e.read(next.now, next.keys)))
	}
	requests := e.requests(n, before)
	f.steps = len(f.nodes) + len(requests)
	cmds, err := rdb.Pipelined(context.Background(), func(p redis.Pipeliner) error {
		for _, r := range requests {
			from := slices.Index(e.keys, r.keys[0]) + 1
			args := []any{n.now, from, from + len(r.keys) - 1}
			for key := range strings.SplitSeq(n.keys, "\n") {
				args = append(args, key)
			}
			for _, a := range r.args {
				args = append(args, a)
			}
			scripts := e.scripts
			if r.party == 1 {
				scripts = e.other
			}
			scripts[r.hash].EvalSha(context.Background(), p, e.keys, args...)
		}
		return nil
	})
	if err != nil {
		return f, fmt.Errorf("after\n%s: %w", n.story(), err)
	}
	for i, r := range requests {
		times := cmds[i].(*redis.Cmd).Val().([]any)
		s := &rules.Step{Verb: script.Sources()[r.hash].Verb, Args: r.args, Before: before}
		keys := e.run(s, n, times[0].([]any))
		wrong := rules.Check(s)
		if keys != n.keys {
			next := *n
			next.parent, next.step, next.keys = n, r.label, keys
			next.learn(e.Kind, r.party, s.After)
			f.add(&next, e.canonical(&next, s.After))
			second := &rules.Step{Verb: s.Verb, Args: s.Args, Before: s.After, Again: true}
			e.run(second, &next, times[1].([]any))
			wrong = append(wrong, rules.Check(second)...)
		}
		for _, text := range wrong {
			story := n.story()
			f.wrong = append(f.wrong, fmt.Sprintf(
				"in %d steps: %s\nafter\n%s%s\nreply %q, messages %+v\nbefore %+v\nafter  %+v\n", strings.Count(story,
					"\n")+1, text, story, r.label, s.Reply, s.Sent, *s.Before, *s.After))
		}
	}
	n.keys = "" // of a node that was followed its step is needed alone
	return f, nil
}

func (f *found) add(n *node, h hash) {
	f.nodes, f.hashes = append(f.nodes, n), append(f.hashes, h)
}

// run reads what step.lua has returned of one run, and returns the keys.
func (e *explorer) run(s *rules.Step, n *node, reply []any) string {
	if s.Reply = rules.Words(reply[1]); reply[0].(int64) == 0 {
		s.Reply = nil
	}
	for _, text := range reply[2].([]any) {
		s.Sent = append(s.Sent, rules.ParseMessage(text.(string)))
	}
	var keys []string
	for _, key := range reply[3].([]any) {
		keys = append(keys, key.(string))
	}
	joined := strings.Join(keys, "\n")
	if s.After = s.Before; joined != n.keys {
		s.After = e.read(n.now, joined)
	}
	return joined
}

// learn records what the tokens have been told: waiters their tickets, holders their fences.
func (n *node) learn(k *Kind, party int, s *rules.State) {
	if strings.HasPrefix(n.step, rested) {
		n.rest, _ = strconv.ParseUint(n.step[strings.IndexByte(n.step, '@')+1:], 10, 64)
	}
	if party < k.same {
		n.named = max(n.named, party+1)
	}
	for i, t := range k.tokens {
		if w := s.Waiter(t.Text()); w != nil {
			n.known[i].ticket = w.Ticket
		}
		if h := s.Holder(t.Text()); h != nil && h.Fence != n.known[i].fences[0] {
			n.known[i].fences = [2]uint64{h.Fence, n.known[i].fences[0]}
		}
	}
}

// canonical returns the hash of a state. States that differ only by a shift of times and numbers have the same hash. Of
// numbers only their order counts, and how far the last one is ahead of the clock. Of times the distance from now
// counts, or that they have passed.
func (e *explorer) canonical(n *node, s *rules.State) hash {
	var numbers []uint64
	each := func(f func(uint64)) {
		f(s.Last)
		for _, h := range s.Holders {
			f(h.Fence)
		}
		for _, w := range s.Waiters {
			f(w.Ticket)
		}
		for _, k := range n.known {
			f(k.ticket)
			f(k.fences[0])
			f(k.fences[1])
		}
		f(n.rest)
		for _, key := range e.callerKeys { // 0: it has no waiters and no holders
			f(s.Turns[key].Since)
			f(s.Held[key].Fence)
		}
	}
	each(func(n uint64) { numbers = append(numbers, n) })
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	text := make([]byte, 0, 512)
	put := func(n int64) { text = binary.AppendVarint(text, n) }
	each(func(n uint64) { put(int64(sort.Search(len(numbers), func(i int) bool { return numbers[i] >= n }))) })
	put(max((int64(s.Last)-s.Now+rules.Millisecond)/rules.Millisecond, 0))
	until := func(at int64) { put(max(at-s.Now, -stepBack)) }
	for i, t := range e.tokens {
		token := t.Text()
		if h := s.Holder(token); h != nil {
			put(int64(i))
			until(h.Expires)
		}
		if slices.ContainsFunc(s.Waiters, func(w rules.Waiter) bool { return w.Token == token }) {
			put(int64(10 + i))
		}
		if at, ok := s.Heartbeats[token]; ok {
			put(int64(20 + i))
			put(at - s.QueueClock())
		}
		if at, ok := s.Tombstones[token]; ok {
			put(int64(30 + i))
			until(at)
		}
	}
	if len(s.Heartbeats) > 0 {
		put(min(s.Now-s.ClockAt, rules.Second))
	}
	for i, key := range e.keys {
		if at, ok := s.Until[key[strings.LastIndexByte(key, ':')+1:]]; ok {
			put(int64(40 + i))
			until(at)
		}
	}
	for _, key := range e.callerKeys {
		put(s.Levels[key])
		put(int64(s.Turns[key].Served))
		put(int64(s.Held[key].Permits))
		put(int64(len(s.Lines[key])))
	}
	put(int64(s.Resized))
	text = fmt.Appendf(text, "%d %t %t", n.named, n.lost, n.back)
	sum := sha256.Sum256(text)
	return hash(sum[:16])
}
