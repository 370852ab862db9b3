// Package token identifies acquisitions. A token stands for one call of Lock, from its first request until its lease
// ends.
//
// Redis stores waiters and holders by their tokens. Any process that has the text of a token can release its lock. So
// fmt and log/slog print a token redacted, and Text returns all of it. Of a struct with a token in an unexported field,
// fmt prints the whole token.
package token

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/internal/tokens"
)

// ErrMalformed means that a text is not a token.
var ErrMalformed = tokens.ErrMalformed

// LayoutError means that a token or a key in Redis has the layout of another version. Nothing was written.
type LayoutError struct {
	What   string // "token", or the key
	Layout string // its layout
}

// Error names both layouts and says what to do.
func (e *LayoutError) Error() string {
	return fmt.Sprintf("%s has layout %.20q, this version has layout %s: use one version, or another namespace", e.What,
		e.Layout, tokens.Layout)
}

// Token is the random identity of one acquisition. Tokens are comparable with ==.
type Token struct {
	text  string
	terms tokens.Terms // parsed from text
}

// Parse returns the token whose Text is text. Any other text is an error: ErrMalformed, or for a token of another
// layout a *LayoutError.
func Parse(text string) (Token, error) {
	terms, other, err := tokens.Parse(text)
	if err != nil {
		return Token{}, err
	}
	if other != "" {
		return Token{}, &LayoutError{"token", other}
	}
	return Token{text, terms}, nil
}

// Text returns the whole token as Redis stores it. Keep it secret, because it is enough to release the lock.
func (t Token) Text() string { return t.text }

// Client returns the readable id of the client that made the acquisition.
func (t Token) Client() string { return t.text[:max(strings.LastIndexByte(t.text, ':'), 0)] }

// TTL returns how long the lease lasts without a renewal, in whole milliseconds.
func (t Token) TTL() time.Duration { return t.terms.TTL }

// Weight returns the number of permits requested: 1 for a mutex and a reader, 1 << 30 for a writer.
func (t Token) Weight() int { return t.terms.Weight }

// Terms returns all terms of the token. It is for the packages of this module, as its type is internal.
func (t Token) Terms() tokens.Terms { return t.terms }

// IsZero reports whether t is the zero Token, whose other methods return zero values.
func (t Token) IsZero() bool { return t.text == "" }

// String returns the token redacted: the client, and 24 of the 128 random bits, which distinguish the waiters of one
// client.
func (t Token) String() string {
	if t.IsZero() {
		return "(no token)"
	}
	return t.Client() + ":" + t.text[len(t.text)-tokens.RandomLen:][:4] + "…"
}

// Format prints String for every verb. Without it, fmt would print t's field for verbs that are not for text.
func (t Token) Format(f fmt.State, verb rune) {
	if verb == 'v' && f.Flag('#') {
		_, _ = io.WriteString(f, "token.Token("+t.String()+")")
		return
	}
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), t.String())
}

// LogValue is String for log/slog.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }
