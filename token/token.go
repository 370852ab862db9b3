// Package token identifies acquisitions: one token is one call of Lock, from its first request until its lease ends.
//
// The text of a token is
//
//	<client>:<layout>.<TTL>.<weight>.<flags>.<random>
//
// the client's id; the layout of what stands in Redis, 1; the length of the lease in ms, 11 digits; the number of permits
// that it asks for, 10 digits; the flags, a hexadecimal digit; and 128 random bits in base64url. What follows the last colon begins
// with the layout in every version.
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
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Bounds of what a token says.
const (
	MaxClient = 128                   // bytes of the client's id
	MinTTL    = 10 * time.Millisecond // of a lease
	MaxTTL    = 365 * 24 * time.Hour
	MaxWeight = 1 << 30 // permits
)

// Layout is what this version writes to Redis and understands there.
const Layout = "1"

// ErrMalformed is what Parse and New wrap when their input cannot be part of a token.
var ErrMalformed = errors.New("malformed token")

// LayoutError means that a token, or what stands in Redis, has the layout of another version. Nothing was written.
type LayoutError struct {
	What   string // "token", or a key
	Layout string // that it has
}

// Error names both layouts and says what helps.
func (e *LayoutError) Error() string {
	return fmt.Sprintf("%s has layout %.20q, this version has layout %s: use one version, or another namespace", e.What, e.Layout, Layout)
}

// The random part is 16 bytes in unpadded base64url, which is shorter than hexadecimal: Redis keeps the token of every
// waiter.
var encoding = base64.RawURLEncoding.Strict()

const (
	randomBytes = 16
	randomLen   = 22 // in base64url
	ttlLen      = 11
	weightLen   = 10
	factsLen    = len("1.") + ttlLen + len(".") + weightLen + len(".0.") // of what stands before the random part
	bodyLen     = factsLen + randomLen                                   // of what follows the colon
)

// Token is the random identity of one acquisition. Tokens are comparable with ==, for map keys and tests. Use Equal if
// one of the two comes from an untrusted source. The zero Token is no token.
type Token struct{ text string }

// New returns a new token of the given client, for a lease of that length, rounded up to milliseconds, and that number of
// permits. It has 128 random bits. (A version-4 UUID has only 122.) The error says that the client id is invalid, that ttl
// or weight is out of bounds, or that the system's source of randomness failed.
//
// New is internal to this module: Lock makes the tokens.
func New(client string, ttl time.Duration, weight int) (Token, error) {
	if err := errors.Join(CheckClient(client), checkTTL(ttl), checkWeight(int64(weight))); err != nil {
		return Token{}, err
	}
	var id uuid.UUID
	if _, err := io.ReadFull(rand.Reader, id[:]); err != nil {
		return Token{}, fmt.Errorf("token: %w", err)
	}
	ms := (ttl + time.Millisecond - 1).Milliseconds()
	return Token{fmt.Sprintf("%s:%s.%0*d.%0*d.0.%s", client, Layout, ttlLen, ms, weightLen, weight, encoding.EncodeToString(id[:]))}, nil
}

func checkTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return fmt.Errorf("%w: TTL %v, want %v to %v", ErrMalformed, ttl, MinTTL, MaxTTL)
	}
	return nil
}

func checkWeight(weight int64) error {
	if weight < 1 || weight > MaxWeight {
		return fmt.Errorf("%w: %d permits, want 1 to %d", ErrMalformed, weight, int64(MaxWeight))
	}
	return nil
}

// Parse returns the token whose Text is text. Any other text is an error: ErrMalformed, or for a token of another layout
// a *LayoutError.
func Parse(text string) (Token, error) {
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 {
		return Token{}, fmt.Errorf("%w: want a client id, a colon, a layout, a TTL and a random part", ErrMalformed)
	}
	if err := CheckClient(text[:colon]); err != nil {
		return Token{}, err
	}
	body := text[colon+1:]
	if layout, _, ok := strings.Cut(body, "."); ok && layout != Layout && isNumber(layout) {
		return Token{}, &LayoutError{"token", layout}
	}
	t := Token{text}
	if len(body) != bodyLen || !facts.MatchString(body[:factsLen]) {
		return Token{}, fmt.Errorf("%w: want layout, TTL, weight, flags and random part after the client id, %d characters",
			ErrMalformed, bodyLen)
	}
	if err := errors.Join(checkTTL(t.TTL()), checkWeight(t.fact(weightAt, weightLen))); err != nil {
		return Token{}, err
	}
	// The decoder skips line ends, so the length of its result must be checked.
	if bits, err := encoding.DecodeString(body[bodyLen-randomLen:]); err != nil || len(bits) != randomBytes {
		return Token{}, fmt.Errorf("%w: the random part is not base64url", ErrMalformed)
	}
	return t, nil
}

var facts = regexp.MustCompile(`^1\.\d{11}\.\d{10}\.[0-9a-f]\.$`)

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
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
	return t.text[:len(t.text)-bodyLen-1]
}

// TTL returns how long the lease lasts without a renewal; of the zero Token 0. It is a whole number of milliseconds.
func (t Token) TTL() time.Duration {
	if t.IsZero() {
		return 0
	}
	return time.Duration(t.fact(ttlAt, ttlLen)) * time.Millisecond
}

// Weight returns how many permits the acquisition asks for: 1 of a mutex and of a reader, 1 << 30 of a writer; of the zero
// Token 0.
func (t Token) Weight() int {
	if t.IsZero() {
		return 0
	}
	return int(t.fact(weightAt, weightLen))
}

// Where the facts begin, counted from the end of the text.
const (
	ttlAt    = bodyLen - len("1.")
	weightAt = ttlAt - ttlLen - len(".")
	flagsAt  = weightAt - weightLen - len(".")
)

// fact returns the number of so many digits that begins there. Parse and New have checked it.
func (t Token) fact(at, digits int) int64 {
	begin := len(t.text) - at
	n, _ := strconv.ParseInt(t.text[begin:begin+digits], 10, 64)
	return n
}

// Flags say what Redis and other clients have to know of a lease.
type Flags int

// The flags.
const (
	Released Flags = 2 // it was released, and keeps the lock taken until its minimum hold is over: nobody has this token
	Resumed  Flags = 4 // another process has taken it over, by the token without this flag or with it
	MinHold  Flags = 8 // it has a minimum hold above its TTL, so TTL is not what a renewal asks for
)

// Flags returns those of a token; of the zero Token none.
func (t Token) Flags() Flags {
	if t.IsZero() {
		return 0
	}
	flags, _ := strconv.ParseUint(t.text[len(t.text)-flagsAt:len(t.text)-flagsAt+1], 16, 4)
	return Flags(flags)
}

// With returns the token with further flags.
func (t Token) With(flags Flags) Token {
	if t.IsZero() {
		return t
	}
	at := len(t.text) - flagsAt
	return Token{t.text[:at] + strconv.FormatInt(int64(t.Flags()|flags), 16) + t.text[at+1:]}
}

// Without returns the token without these flags.
func (t Token) Without(flags Flags) Token {
	if t.IsZero() {
		return t
	}
	at := len(t.text) - flagsAt
	return Token{t.text[:at] + strconv.FormatInt(int64(t.Flags()&^flags), 16) + t.text[at+1:]}
}

// random is the text of the random part.
func (t Token) random() string { return t.text[len(t.text)-randomLen:] }

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
	return t.Client() + ":" + t.random()[:4] + "…"
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
