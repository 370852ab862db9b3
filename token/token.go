// Package token identifies acquisitions: one token is one call of Lock, from its first request until its lease ends.
//
// The text of a token is
//
//	<client>:<layout>.<facts><TTL><flags><random>
//
// the client's id; the layout of what stands in Redis, 2; the length of the lease in ms, 7 digits of base 36; the flags, one
// such digit; and 128 random bits in base64url, 22 characters. The facts of a semaphore or a read-write lock are the number of
// permits that it asks for, and the number that there are for it, 6 digits of base 36 each; those of a mutex are none. Each fact
// has its place from the end, so that scripts find it. What follows the last colon begins with the layout in every version.
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
	MaxWeight = 1 << 30 // permits of a lock, and of a request
)

// Layout is what this version writes to Redis and understands there.
const Layout = "2"

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

// What follows the layout has these lengths, from the end.
const (
	randomBytes = 16
	randomLen   = 22
	flagsLen    = 1
	ttlLen      = 7
	permitsLen  = 6 // also of the weight
	mutexLen    = ttlLen + flagsLen + randomLen
	permitLen   = 2*permitsLen + mutexLen
)

// Token is the random identity of one acquisition. Tokens are comparable with ==, for map keys and tests. Use Equal if
// one of the two comes from an untrusted source. The zero Token is no token.
type Token struct{ text string }

// Terms are what a token says besides its client.
type Terms struct {
	TTL     time.Duration // of the lease, without a renewal; New rounds it up to milliseconds
	Weight  int           // permits that it asks for, at most Permits
	Permits int           // that there are for it, unless the semaphore was resized; 0: it is a mutex's, and Weight is 1
	Flags   Flags
}

// New returns a new token of the given client. It has 128 random bits. (A version-4 UUID has only 122.) The error says that the
// client id is invalid, that one of the terms is out of bounds, or that the system's source of randomness failed.
//
// New is internal to this module: Lock makes the tokens.
func New(client string, terms Terms) (Token, error) {
	terms.TTL = (terms.TTL + time.Millisecond - 1).Truncate(time.Millisecond)
	if err := errors.Join(CheckClient(client), terms.check()); err != nil {
		return Token{}, err
	}
	var id uuid.UUID
	if _, err := io.ReadFull(rand.Reader, id[:]); err != nil {
		return Token{}, fmt.Errorf("token: %w", err)
	}
	facts := ""
	if terms.Permits > 0 {
		facts = digits(int64(terms.Weight), permitsLen) + digits(int64(terms.Permits), permitsLen)
	}
	return Token{client + ":" + Layout + "." + facts + digits(terms.TTL.Milliseconds(), ttlLen) +
		digits(int64(terms.Flags), flagsLen) + encoding.EncodeToString(id[:])}, nil
}

// digits writes a number in base 36.
func digits(n int64, length int) string {
	text := strconv.FormatInt(n, 36)
	return strings.Repeat("0", length-len(text)) + text
}

func (t Terms) check() error {
	switch {
	case t.TTL < MinTTL || t.TTL > MaxTTL:
		return fmt.Errorf("%w: TTL %v, want %v to %v", ErrMalformed, t.TTL, MinTTL, MaxTTL)
	case t.Permits == 0 && t.Weight != 1:
		return fmt.Errorf("%w: %d permits of a mutex", ErrMalformed, t.Weight)
	case t.Permits < 0 || t.Permits > MaxWeight:
		return fmt.Errorf("%w: a lock of %d permits, want 1 to %d", ErrMalformed, t.Permits, int64(MaxWeight))
	case t.Permits > 0 && (t.Weight < 1 || t.Weight > t.Permits): // one that asks for more would block the queue
		return fmt.Errorf("%w: %d permits of %d", ErrMalformed, t.Weight, t.Permits)
	case t.Flags < 0 || t.Flags >= 36:
		return fmt.Errorf("%w: flags %d", ErrMalformed, t.Flags)
	default:
		return nil
	}
}

// Parse returns the token whose Text is text. Any other text is an error: ErrMalformed, or for a token of another layout
// a *LayoutError.
func Parse(text string) (Token, error) {
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 {
		return Token{}, fmt.Errorf("%w: want a client id, a colon, a layout, facts and a random part", ErrMalformed)
	}
	if err := CheckClient(text[:colon]); err != nil {
		return Token{}, err
	}
	layout, body, ok := strings.Cut(text[colon+1:], ".")
	if ok && layout != Layout && isNumber(layout) {
		return Token{}, &LayoutError{"token", layout}
	}
	facts := len(body) - randomLen
	if !ok || layout != Layout || len(body) != mutexLen && len(body) != permitLen || strings.Trim(body[:facts], "0123456789abcdefghijklmnopqrstuvwxyz") != "" {
		return Token{}, fmt.Errorf("%w: want layout, facts and random part after the client id, %d or %d characters",
			ErrMalformed, len("2.")+mutexLen, len("2.")+permitLen)
	}
	t := Token{text}
	if len(body) == permitLen && t.Permits() == 0 {
		return Token{}, fmt.Errorf("%w: a lock of 0 permits", ErrMalformed)
	}
	if err := (Terms{t.TTL(), t.Weight(), t.Permits(), t.Flags()}).check(); err != nil {
		return Token{}, err
	}
	// The decoder skips line ends, so the length of its result must be checked.
	if bits, err := encoding.DecodeString(body[facts:]); err != nil || len(bits) != randomBytes {
		return Token{}, fmt.Errorf("%w: the random part is not base64url", ErrMalformed)
	}
	return t, nil
}

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
	return t.text[:max(strings.LastIndexByte(t.text, ':'), 0)]
}

// TTL returns how long the lease lasts without a renewal; of the zero Token 0. It is a whole number of milliseconds.
func (t Token) TTL() time.Duration {
	return time.Duration(t.fact(mutexLen, ttlLen)) * time.Millisecond
}

// Weight returns how many permits the acquisition asks for: 1 of a mutex and of a reader, 1 << 30 of a writer; of the zero
// Token 0.
func (t Token) Weight() int {
	if t.isMutex() {
		return 1
	}
	return int(t.fact(permitLen, permitsLen))
}

// Permits returns how many permits the acquisition's semaphore has, unless it was resized. It is 1 << 30 of a read-write lock,
// and 0 of a mutex and of the zero Token.
func (t Token) Permits() int {
	if t.isMutex() {
		return 0
	}
	return int(t.fact(permitLen-permitsLen, permitsLen))
}

func (t Token) isMutex() bool {
	return len(t.text)-strings.LastIndexByte(t.text, ':') == len(":2.")+mutexLen
}

// fact returns the number of so many digits that begins there, counted from the end of the text. Parse and New have checked it.
func (t Token) fact(at, digits int) int64 {
	if t.IsZero() {
		return 0
	}
	begin := len(t.text) - at
	n, _ := strconv.ParseInt(t.text[begin:begin+digits], 36, 64)
	return n
}

// Flags say what other clients should know of a lease. Redis does not read them.
type Flags int

// The flags.
const (
	Released Flags = 1 << iota // the lock stays taken for the rest of a minimum hold, by nobody
	MinHold                    // the minimum hold is above the TTL of renewals, so Token.TTL is not what a renewal asks for
)

// Flags returns those of a token; of the zero Token none.
func (t Token) Flags() Flags { return Flags(t.fact(flagsLen+randomLen, flagsLen)) }

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
