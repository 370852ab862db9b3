// Package token identifies acquisitions: one token is one call of Lock, from its first request until its lease ends.
//
// A token names who is in the queue and who owns the lock, and whoever has its text can release that lock. It
// therefore prints itself redacted, with fmt and with log/slog alike; Text gives the whole. (In an unexported field of a
// struct that is printed as a whole, fmt asks no method: there it shows.)
package token

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/google/uuid"
)

// MaxClient is the longest client id, in bytes.
const MaxClient = 128

// ErrMalformed is what Parse and New wrap when their input cannot be part of a token.
var ErrMalformed = errors.New("malformed token")

// The random part is 16 bytes in unpadded base64url. It is shorter than hexadecimal on purpose: Redis keeps the
// token of every waiter, and up to a client id of 21 bytes a waiter then costs less than 285 bytes there.
var encoding = base64.RawURLEncoding.Strict()

const (
	randomBytes = 16
	randomLen   = 22 // in base64url
)

// Token is the random identity of one acquisition. Tokens are comparable with ==, which suits map keys and tests;
// use Equal where a stranger supplies one of the two. The zero Token is no token.
type Token struct{ text string }

// New returns a fresh token of the given client: its id, readable, in front, and 128 random bits behind. The bits
// fill a UUID whole; a version-4 UUID would spend 6 of them on its version. The error says that the client id is
// unusable or that the system's source of randomness failed.
func New(client string) (Token, error) {
	if err := CheckClient(client); err != nil {
		return Token{}, err
	}
	var id uuid.UUID
	if _, err := io.ReadFull(rand.Reader, id[:]); err != nil {
		return Token{}, fmt.Errorf("token: %w", err)
	}
	text := make([]byte, len(client)+1+randomLen)
	n := copy(text, client)
	text[n] = ':'
	encoding.Encode(text[n+1:], id[:])
	return Token{string(text)}, nil
}

// Parse reads a token from the text that Text gave. It accepts nothing else.
func Parse(text string) (Token, error) {
	n := len(text) - randomLen - 1
	if n < 0 || text[n] != ':' {
		return Token{}, fmt.Errorf("%w: want a client id, a colon and %d characters", ErrMalformed, randomLen)
	}
	if err := CheckClient(text[:n]); err != nil {
		return Token{}, err
	}
	// The decoder skips line ends, so that fewer bits would do.
	if bits, err := encoding.DecodeString(text[n+1:]); err != nil || len(bits) != randomBytes {
		return Token{}, fmt.Errorf("%w: the random part is not base64url", ErrMalformed)
	}
	return Token{text}, nil
}

// CheckClient reports whether a client id can be part of a token: 1 to MaxClient bytes of printable ASCII, no space.
func CheckClient(client string) error {
	if client == "" || len(client) > MaxClient {
		return fmt.Errorf("%w: client id of %d bytes, want 1 to %d", ErrMalformed, len(client), MaxClient)
	}
	for i := range len(client) {
		if c := client[i]; c <= ' ' || c > '~' {
			return fmt.Errorf("%w: client id has byte %#02x at %d, want printable ASCII without spaces", ErrMalformed, c, i)
		}
	}
	return nil
}

// Client returns the readable id in front: the client that made the acquisition.
func (t Token) Client() string {
	if t.IsZero() {
		return ""
	}
	return t.text[:len(t.text)-randomLen-1]
}

// Text returns the whole token as it stands in Redis. Keep it secret: whoever has it can release the lock.
func (t Token) Text() string { return t.text }

// IsZero reports whether t is no token.
func (t Token) IsZero() bool { return t.text == "" }

// Equal compares two tokens in a time that tells nothing of where they differ.
func (t Token) Equal(u Token) bool {
	return subtle.ConstantTimeCompare([]byte(t.text), []byte(u.text)) == 1
}

// String returns the token redacted: the client, and enough of the random part to tell two waiters of one client
// apart (24 bits of 128).
func (t Token) String() string {
	if t.IsZero() {
		return "(no token)"
	}
	return t.text[:len(t.text)-randomLen+4] + "…"
}

// Format prints the same as String or GoString, whatever the verb: with one that is not for text, fmt would look into t.
func (t Token) Format(f fmt.State, verb rune) {
	if verb == 'v' && f.Flag('#') {
		_, _ = io.WriteString(f, t.GoString())
		return
	}
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), t.String())
}

// GoString returns the same as String, so that %#v is as safe as %v.
func (t Token) GoString() string { return "token.Token(" + t.String() + ")" }

// LogValue returns the same as String, for log/slog.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }
