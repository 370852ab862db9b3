package view

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
	"github.com/fairlock/fairlock-go/token"
)

// object is a JSON object, as scripts read it. Unknown values are null. Times are in UTC, durations in milliseconds.
type object map[string]any

// known returns v, or null if it is zero.
func known[T comparable](v T) any {
	var none T
	if v == none {
		return nil
	}
	return v
}

// ms returns a duration in milliseconds, or null if it is negative, which means unknown.
func ms(d time.Duration) any {
	if d < 0 {
		return nil
	}
	return d.Milliseconds()
}

// whose returns the fields that holders and waiters share.
func whose(t token.Token, weight int, writer bool, number uint64, more object) object {
	o := object{"client": known(t.Client()), "id": nil, "permits": weight, "writer": writer, "since": nil}
	if !t.IsZero() {
		o["id"] = t.String() // the redacted token tells it from others of its client
	}
	if number > 0 {
		o["since"] = time.UnixMicro(int64(number)).UTC()
	}
	maps.Copy(o, more)
	return o
}

// key adds the key of a keyed semaphore.
func key(l inspect.Lock, o object, text string) {
	if l.Kind != fairlock.KindKeyedSemaphore {
		return
	}
	if o["key"] = known(text); !utf8.ValidString(text) {
		o["key_base64"] = []byte(text)
	}
}

// JSON returns the lock on one line. If it cannot be read, only its name is known.
func JSON(l inspect.Lock) string {
	o := object{"kind": l.Kind, "name": l.Name}
	for field, value := range state(l) {
		if o[field] = value; l.Err != nil {
			o[field] = nil
		}
	}
	if l.Namespace != "" {
		o["namespace"] = l.Namespace
	}
	if !utf8.ValidString(l.Name) {
		o["name_base64"] = []byte(l.Name)
	}
	if l.Err != nil {
		o["error"] = inspect.Cause(l.Err)
	}
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // nothing in there that JSON does not have
	}
	var b strings.Builder
	for _, r := range string(text) { // escape control characters; outside of strings there are none
		if r < 0x7f {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// state returns a lock's state. Expired waiters are counted separately, and not listed.
func state(l inspect.Lock) object {
	holders, waiters := []object{}, []object{}
	for _, h := range l.Holders {
		holders = append(holders, whose(h.Token, h.Weight, h.Writer, h.Fence, object{
			"fence": known(h.Fence), "held_ms": h.Age.Milliseconds(), "lease_left_ms": ms(h.TTL),
			"ttl_ms": known(h.Token.TTL().Milliseconds()), "renewed_ms": ms(h.Renewed), "renewals_missed": h.Missed,
			"released": h.Released, "leader": h.Leader,
		}))
		key(l, holders[len(holders)-1], h.Key)
	}
	for _, w := range l.Living() {
		waiters = append(waiters, whose(w.Token, w.Weight, w.Writer, w.Ticket, object{
			"waiting_ms": w.Age.Milliseconds(), "expires_ms": w.TTL.Milliseconds(), "candidate": w.Candidate,
		}))
		key(l, waiters[len(waiters)-1], w.Key)
	}
	o := object{
		"at": known(l.At.UTC()), "held": len(holders) > 0, "held_ms": ms(l.HeldFor()), "used": l.Used, "permits": known(
			l.Permits),
		"resized": l.Resized, "other_permits": append([]int{}, l.Others...), "fence": known(l.Fence), "holders": holders,
		"waiting": l.Waiting, "expired": l.Expired, "candidates": l.Candidates, "oldest_wait_ms": nil,
	}
	if l.Waiting > l.Candidates {
		o["oldest_wait_ms"] = ms(l.OldestWait)
	}
	if l.Waiters != nil { // they were read
		o["waiters"] = waiters
	}
	if l.Kind == fairlock.KindKeyedSemaphore {
		keys := []object{}
		for _, k := range l.State.Keys {
			o := object{
				"held": k.Held, "waiting": k.Waiting, "limit": known(k.Limit), "share": k.Share, "waiting_ms": k.Age.Milliseconds(),
				"at_limit": k.AtLimit, "other_limits": append([]int{}, k.Others...),
			}
			key(l, o, k.Key)
			keys = append(keys, o)
		}
		o["keys"] = keys
	}
	return o
}

// Array returns a JSON array of locks, one a line.
func Array(all []inspect.Lock) string {
	lines := make([]string, len(all))
	for i, l := range all {
		lines[i] = "\n" + JSON(l)
	}
	return strings.Replace("["+strings.Join(lines, ",")+"\n]\n", "[\n]", "[]", 1)
}
