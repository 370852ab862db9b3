// Package token identifies acquisitions: one token is one call of Lock, from its first request until its lease ends.
//
// In Redis, tokens are the waiters in the queue and the holder of the lock. Any process that has the text of a token
// can release its lock. So fmt and log/slog print a token redacted; Text returns all of it. (If a struct is printed
// that has a token in an unexported field, fmt calls no method, and prints all of it.)
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

// The random part is 16 bytes in unpadded base64url, which is shorter than hexadecimal: Redis keeps the token of every
// waiter. With a client id of up to 21 bytes, a waiter takes less than 285 bytes there.
var encoding = base64.RawURLEncoding.Strict()

const (
	randomBytes = 16
	randomLen   = 22 // in base64url
)

// Token is the random identity of one acquisition. Tokens are comparable with ==, for map keys and tests. Use Equal if
// one of the two comes from an untrusted source. The zero Token is no token.
type Token struct{ text string }

// New returns a new token of the given client: its readable id, then 128 random bits. (A version-4 UUID has only 122.)
// The error says that the client id is invalid or that the system's source of randomness failed.
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

// Parse returns the token whose Text is text. Any other text is an error, which is ErrMalformed.
func Parse(text string) (Token, error) {
	n := len(text) - randomLen - 1
	if n < 0 || text[n] != ':' {
		return Token{}, fmt.Errorf("%w: want a client id, a colon and %d characters", ErrMalformed, randomLen)
	}
	if err := CheckClient(text[:n]); err != nil {
		return Token{}, err
	}
	// The decoder skips line ends, so the length of its result must be checked.
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

// Client returns the readable id of the client that made the acquisition.
func (t Token) Client() string {
	if t.IsZero() {
		return ""
	}
	return t.text[:len(t.text)-randomLen-1]
}

// Text returns the whole token as Redis stores it. Keep it secret: it allows to release the lock.
func (t Token) Text() string { return t.text }

// IsZero reports whether t is no token.
func (t Token) IsZero() bool { return t.text == "" }

// Equal compares two tokens in constant time.
func (t Token) Equal(u Token) bool {
	return subtle.ConstantTimeCompare([]byte(t.text), []byte(u.text)) == 1
}

// String returns the token redacted: the client, and 24 of the 128 random bits, which distinguish the waiters of one
// client.
func (t Token) String() string {
	if t.IsZero() {
		return "(no token)"
	}
	return t.text[:len(t.text)-randomLen+4] + "…"
}

// Format prints what String or GoString returns, for every verb: with one that is not for text, fmt would print t's
// field.
func (t Token) Format(f fmt.State, verb rune) {
	if verb == 'v' && f.Flag('#') {
		_, _ = io.WriteString(f, t.GoString())
		return
	}
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), t.String())
}

// GoString is String for %#v.
func (t Token) GoString() string { return "token.Token(" + t.String() + ")" }

// LogValue is String for log/slog.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }
