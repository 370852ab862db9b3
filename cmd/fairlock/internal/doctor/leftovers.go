package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// types are the types that keys have when they are ours, by what their names end in, behind sem: and rw: for permits.
var (
	mutexTypes = map[string]string{
		"number": "string", "queue": "zset", "heartbeats": "hash", "tombstones": "zset", "lock": "string",
	}
	permitTypes = map[string]string{
		"number": "string", "queue": "zset", "heartbeats": "hash", "tombstones": "zset", "permits": "zset", "holders": "hash",
	}
)

// place is a key of ours, taken apart.
type place struct {
	key  string
	base string // the key up to its part, which all keys of the lock share
	part string // "queue", "lock", …
	kind string // the type that it should have
}

// parse takes a key apart; false if its name is none of ours.
func parse(namespace, key string) (place, bool) {
	rest, found := strings.CutPrefix(key, namespace+":{")
	if !found {
		return place{}, false
	}
	_, part, found := strings.Cut(rest, "}:")
	if !found {
		return place{}, false
	}
	types := mutexTypes
	for _, permits := range []string{"sem:", "rw:"} {
		if p, found := strings.CutPrefix(part, permits); found {
			part, types = p, permitTypes
		}
	}
	kind, found := types[part]
	return place{key: key, base: strings.TrimSuffix(key, part), part: part, kind: kind}, found
}

// leftovers is what should not be there.
type leftovers struct {
	seen    int      // keys of ours
	stopped bool     // before all were seen
	foreign []string // keys of another type than ours
	stuck   []string // locks that never expire
	eternal []string // other keys that never expire
}

// Bounds of the search. Each step is short for the server.
const (
	scanStep   = 1000
	scanWindow = 30 * time.Second
)

// search looks at every key of the namespace, step by step.
func search(ctx context.Context, rdb *redis.Client, namespace string, told func(keys int)) (leftovers, error) {
	var l leftovers
	start, cursor := time.Now(), uint64(0)
	for {
		keys, next, err := rdb.Scan(ctx, cursor, pattern(namespace)+":{*}:*", scanStep).Result()
		if err != nil {
			return l, err
		}
		var places []place
		for _, key := range keys {
			if p, is := parse(namespace, key); is {
				places = append(places, p)
			}
		}
		if err := l.look(ctx, rdb, places); err != nil {
			return l, err
		}
		l.seen += len(places)
		told(l.seen)
		if cursor = next; cursor == 0 {
			return l, nil
		}
		if time.Since(start) > scanWindow {
			l.stopped = true
			return l, nil
		}
	}
}

// look looks at some keys. One that has gone meanwhile is nothing.
func (l *leftovers) look(ctx context.Context, rdb *redis.Client, places []place) error {
	if len(places) == 0 {
		return nil
	}
	kinds, ttls := make([]*redis.StatusCmd, len(places)), make([]*redis.DurationCmd, len(places))
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, at := range places {
			kinds[i], ttls[i] = p.Type(ctx, at.key), p.PTTL(ctx, at.key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, at := range places {
		kind, ttl := kinds[i].Val(), ttls[i].Val()
		forever := ttl == -1
		switch {
		case kind == "none" || ttl == -2:
		case kind != at.kind:
			l.foreign = append(l.foreign, fmt.Sprintf("%q is a %s", at.key, printable(kind)))
		case forever && at.part == "lock":
			l.stuck = append(l.stuck, strconv.Quote(at.key))
		case forever:
			l.eternal = append(l.eternal, strconv.Quote(at.key))
		}
	}
	return nil
}

func (l leftovers) finding() Finding {
	values := map[string]any{
		"keys": l.seen, "complete": !l.stopped,
		"foreign": orNone(l.foreign), "locks_without_expiry": orNone(l.stuck), "keys_without_expiry": orNone(l.eternal),
	}
	var f Finding
	switch {
	case len(l.foreign) > 0:
		f = problem("delete it, or give locks a namespace of their own: each call for that lock fails",
			"somebody else's: %s", some(l.foreign))
	case len(l.stuck) > 0:
		f = problem("nobody holds it: fairlock release --force, or DEL", "locks that never expire: %s", some(l.stuck))
	case len(l.eternal) > 0:
		f = warn("somebody took their expiry away (PERSIST); if their locks are not in use, DEL",
			"keys that never expire: %s", some(l.eternal))
	default:
		f = ok("none, among %d keys of locks", l.seen)
	}
	if l.stopped {
		f.Found += fmt.Sprintf("; stopped after %s, before all keys were seen", brief(scanWindow))
	}
	return f.with(values)
}

// some lists the first few.
func some(all []string) string {
	const few = 3
	if len(all) > few {
		return strings.Join(all[:few], ", ") + fmt.Sprintf(" and %d more", len(all)-few)
	}
	return strings.Join(all, ", ")
}

// orNone is an empty list instead of none, for a script that reads it.
func orNone(all []string) []string {
	if all == nil {
		return []string{}
	}
	return all
}
