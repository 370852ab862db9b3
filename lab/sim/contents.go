package sim

import (
	"bufio"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/internal/bounds"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/tools/rules"
	"github.com/fairlock/fairlock-go/token"
)

// step is a call of a script, with its arguments. The zero step stands for time that passes.
type step struct {
	verb string
	args []string // as ARGV
	text string   // of args
	sent []string // the messages that it has published

	wrote   bool // it has called a command that writes
	refused bool // a full server has refused a command of it
}

// brings is the ticket that an acquire of a token brings; 0 if it brings none, or the script is another one.
func (s step) brings(token string) uint64 {
	if s.verb != "acquire" || s.args[1] != token {
		return 0
	}
	return uint64(rules.Numbers(s.args[4])[0])
}

// contents is what a lock has in the server.
type contents struct {
	rules.State
	ends map[string]int64 // token → when its lease ends, as Event.At
}

func find[T any](all []T, is func(T) bool) *T {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return &all[i]
	}
	return nil
}

// load loads what a lock has in the server.
func (o *observer) load(l *observed) contents {
	db, clock := o.world.server.Miniredis.DB(0), o.world.server.Now()
	keys := map[string]rules.Key{}
	for name, key := range l.keys {
		if !db.Exists(key) {
			continue
		}
		k := rules.Key{}
		if left := db.TTL(key); left > 0 {
			k.Until = (clock.UnixNano() + int64(left) + 999) / 1000 // rounded up
		}
		switch name {
		case "number", "resized", "lock":
			k.Text, _ = db.Get(key)
		case "holders":
			fields, _ := db.HKeys(key)
			for _, field := range fields {
				text := db.HGet(key, field)
				k.Members = append(k.Members, rules.Member{Name: field, Number: rules.Numbers(text)[0], Text: text})
			}
		default:
			members, _ := db.SortedSet(key)
			for member, score := range members {
				k.Members = append(k.Members, rules.Member{Name: member, Number: int64(score)})
			}
		}
		keys[name] = k
	}
	c := contents{*rules.Read(clock.UnixMicro(), keys), map[string]int64{}}
	for _, h := range c.Holders {
		if c.ends[h.Token] = o.world.now() + h.Expires*1000 - clock.UnixNano(); l.keys["lock"] != "" {
			c.ends[h.Token] = o.world.now() + int64(db.TTL(l.keys["lock"]))
		}
	}
	return c
}

// runLocked runs a script in the server, and checks the rules of package rules.
func (o *observer) runLocked(peer *server.Peer, l *observed, s step, request []string) {
	before := l.State
	before.Now = o.world.server.Now().UnixMicro()
	var sent strings.Builder
	w := bufio.NewWriter(&sent)
	inner := server.NewPeer(w)
	inner.Ctx, inner.Resp3, inner.ClientName = peer.Ctx, peer.Resp3, byObserver
	o.last = s
	o.world.server.Miniredis.Server().Dispatch(inner, request)
	inner.Flush()
	peer.WriteRaw(sent.String())
	ran := !strings.HasPrefix(sent.String(), "-NOSCRIPT")
	if !ran {
		o.last = step{}
	}
	s = o.last
	o.compareLocked(l)
	o.last = step{}
	if !ran {
		return
	}
	after := l.State
	did := &rules.Step{Verb: s.verb, Args: s.args, Before: &before, After: &after, Reply: replied(sent.String()),
		Refused: s.refused}
	for _, text := range s.sent {
		did.Sent = append(did.Sent, rules.ParseMessage(text))
	}
	for i, r := range rare {
		if r.is(did) {
			o.rare[i]++
		}
	}
	wrong := rules.Check(did)
	if s.refused && !mayRefuse(s, &before) || did.Reply == nil && !s.refused &&
		!strings.Contains(sent.String(), "too far ahead") {
		wrong = append(wrong, "it may not fail")
	}
	told := time.Duration(rules.Numbers(s.args[0])[0]) * time.Millisecond
	admin := told == bounds.DefaultFenceTTL && slices.Contains([]string{"inspect", "force_release", "resize", "heartbeat"},
		did.Verb)
	if told != fenceTTL && told != otherFenceTTL && !admin {
		wrong = append(wrong, "no client has that FenceTTL")
	}
	if len(wrong) > 0 {
		o.world.fail("server: at %v, lock %q, at %d: after %s %v: %s\nreply %q, messages %v\nbefore: %+v\nafter:  %+v",
			time.Duration(o.world.now()), l.name, before.Now, s.verb, s.args, strings.Join(wrong,
				"; "), sent.String(), s.sent, before, after)
	}
}

// replied are the words of a reply, as it is sent; nil: it is an error.
func replied(sent string) []string {
	if strings.HasPrefix(sent, "-") {
		return nil
	}
	words := []string{}
	lines := strings.Split(sent, "\r\n")
	for i := 0; i < len(lines); i++ {
		switch {
		case strings.HasPrefix(lines[i], "$") && i+1 < len(lines):
			i++
			words = append(words, strings.Fields(lines[i])...)
		case strings.HasPrefix(lines[i], ":"):
			words = append(words, lines[i][1:])
		}
	}
	return words
}

// mayRefuse reports whether a full server may refuse a script: the acquire of a new waiter, or a script that ends no
// lease and only admits waiters.
func mayRefuse(s step, before *rules.State) bool {
	ends := func(is func(rules.Holder) bool) bool { return slices.ContainsFunc(before.Live(), is) }
	switch s.verb {
	case "acquire":
		return !ends(func(h rules.Holder) bool { return h.Token == s.args[1] }) &&
			(before.Waiter(s.args[1]) == nil || s.args[2] == "0")
	case "release":
		return !ends(func(h rules.Holder) bool { return h.Token == s.args[1] && fmt.Sprint(h.Fence) == s.args[2] })
	case "force_release":
		return !ends(func(h rules.Holder) bool { return h.Fence <= uint64(rules.Numbers(s.args[1])[0]) })
	case "resize":
		return s.args[1] != "0"
	default:
		return false
	}
}

// parse reads a token; of a text that is none, the zero Token.
func parse(text string) token.Token {
	t, _ := token.Parse(text)
	return t
}

// isReleased reports whether the token has a lock for the rest of a minimum hold.
func isReleased(text string) bool { return parse(text).Terms().Flags&tokens.Released != 0 }
