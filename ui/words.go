package ui

import (
	"html/template"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
	"github.com/fairlock/fairlock-go/internal/tools/words"
)

// functions are those that the templates call. The texts about locks are in package words.
var functions = template.FuncMap{
	"plain": inspect.Plain, "span": inspect.Span, "count": inspect.Count, "who": words.Who, "use": words.Use,
	"wants":   words.Wants,
	"renewed": words.Renewed, "renewedOfAll": words.RenewedOfAll, "longestHeld": words.LongestHeld, "left": words.Left,
	"held": words.HeldFor, "ago": words.Ago, "waiter": words.Waiter, "waiting": words.Waiting,
	"waitingAlone": words.WaitingAlone, "besideAlone": words.BesideAlone,
	"oldest": words.OldestWait, "ofKey": words.OfKey, "hasLeft": words.HasLeft, "heir": words.Heir,
	"released":   words.IsReleased,
	"lastNumber": func() string { return words.LastNumber }, "didYouMean": func() string { return words.DidYouMean },
	"unknown": func() string { return words.Unknown }, "none": func() string { return words.None },
	"clock": clockTime, "moment": moment, "ms": time.Duration.Milliseconds, "mayTake": mayTake,
	"hasPermits": inspect.HasPermits,
	"lower":      strings.ToLower, "sentence": sentence, "most": func() int { return inspect.Most },
	"add": func(a, b int) int { return a + b }, "third": func(
		d time.Duration) time.Duration {
		return d / 3
	}, "parts": parts,
}

// sentence capitalises the first letter of a text. The command prints the same texts in lower case.
func sentence(text string) string {
	first, n := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[n:]
}

// clockTime formats a time of day in UTC, so that all viewers see the same.
func clockTime(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// moment returns when a fence or a ticket was assigned, or zero if that is unknown.
func moment(number uint64) (t time.Time) {
	if number > 0 {
		t = time.UnixMicro(int64(number)).UTC()
	}
	return t
}

// parts splits a text so that the browser can cut it in the middle if it is too long: its end stays.
func parts(text string) (p struct{ Head, Tail string }) {
	const tail = 12
	all := []rune(text)
	if len(all) <= 2*tail {
		p.Head = text
		return p
	}
	p.Head, p.Tail = string(all[:len(all)-tail]), string(all[len(all)-tail:])
	return p
}

// mayTake reports whether a lock can be taken from one holder: by its token, or because a mutex has no other.
func mayTake(l inspect.Lock, h admin.Holder) bool {
	return !h.Token.IsZero() || l.Kind == fairlock.KindMutex
}

// has reports whether text contains part, ignoring case.
func has(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}
