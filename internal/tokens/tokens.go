// Package tokens writes and reads the texts of tokens. Package token is the part that users see.
//
// The text of a token is
//
//	<client>:<layout>.<facts><TTL><flags><random>
//
// The layout is that of the keys in Redis, 2. The TTL is in ms, 7 digits of base 36. The flags are one such digit. The
// random part is 128 bits in base64url, 22 characters. A mutex has no facts. Those of a semaphore or a read-write lock
// are the weight of the request and the number of permits, 6 digits of base 36 each. For a keyed semaphore, the key,
// its limit (0 is none), 6 digits, and its share, 2 digits, come before them. For a leader, the facts are its address.
// Bytes of the key or the address that are not printable ASCII, spaces, colons and percent signs are percent-encoded.
// Each fact has a fixed position from the end, so that scripts find it (facts.lua). In every version, the text after
// the last colon begins with the layout.
package tokens

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fairlock/fairlock-go/internal/bounds"
)

// Layout is the layout of keys and tokens that this version writes and reads.
const Layout = "2"

// ErrMalformed is token.ErrMalformed.
var ErrMalformed = errors.New("malformed token")

// The random part is 16 bytes in unpadded base64url, which is shorter than hexadecimal: Redis keeps the token of every
// waiter.
var encoding = base64.RawURLEncoding.Strict()

// The lengths of the parts.
const (
	permitsLen = 6 // also of the weight, and of the key limit
	shareLen   = 2
	ttlLen     = 7
	flagsLen   = 1
	RandomLen  = 22 // the first 4 characters are printed
)

// Terms are the contents of a token besides its client.
type Terms struct {
	TTL     time.Duration // of the lease, without a renewal; New rounds it up to milliseconds
	Weight  int           // permits that are requested, at most Permits
	Permits int           // number of permits of the lock, unless it was resized; 0: a mutex, whose Weight is 1
	Flags   Flags

	// Of a keyed semaphore. Others have zero values.
	Key      string // not encoded
	KeyLimit int    // permits that the key may hold at once; 0: any number
	Share    int

	Address string // of a leader, not encoded; others have none
}

// WriterWeight is the number of permits of a read-write lock. A writer needs all of them, a reader one.
const WriterWeight = bounds.MaxPermits

// Flags tell other clients about a lease. Redis does not read them.
type Flags int

// The flags.
const (
	Released Flags = 1 << iota // its holder has unlocked; the lock stays taken for the rest of the minimum hold
	// MinHold: the minimum hold is above the TTL of renewals, so the token's TTL is not that of renewals
	MinHold
	// Leader: its holder is a leader (package leader); the token is a mutex's whose facts are the address
	Leader
)

// New returns the text of a new token. It has 128 random bits. (A version-4 UUID has only 122.) If the client or one of
// the terms is out of bounds, Parse says so.
func New(client string, terms Terms) string {
	var id uuid.UUID
	_, _ = rand.Read(id[:]) // never fails
	return client + ":" + Layout + "." + string(terms.facts()) + encoding.EncodeToString(id[:])
}

// Parse returns the terms of a token. If text is the token of another layout, Parse returns that layout alone.
func Parse(text string) (t Terms, otherLayout string, _ error) {
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 {
		return t, "", fmt.Errorf("%w: want a client id, a colon, a layout, facts and a random part", ErrMalformed)
	}
	if err := CheckClient(text[:colon]); err != nil {
		return t, "", err
	}
	layout, body, ok := strings.Cut(text[colon+1:], ".")
	if ok && layout != Layout && layout != "" && strings.Trim(layout, "0123456789") == "" {
		return t, layout, nil
	}
	random := len(body) - RandomLen
	if !ok || layout != Layout || random < ttlLen+flagsLen {
		return t, "", errForm
	}
	if t = read(body[:random]); string(t.facts()) != body[:random] {
		return Terms{}, "", errForm
	}
	if !t.valid() {
		return Terms{}, "", fmt.Errorf("%w: %+v is out of bounds", ErrMalformed, t)
	}
	// The decoder skips line ends, so the length of its result must be checked.
	if bits, err := encoding.DecodeString(body[random:]); err != nil || len(bits) != len(uuid.UUID{}) {
		return Terms{}, "", fmt.Errorf("%w: the random part is not base64url", ErrMalformed)
	}
	return t, "", nil
}

var errForm = fmt.Errorf("%w: want facts, TTL, flags and random part, as layout %s has them, after the client id",
	ErrMalformed, Layout)

// facts returns the facts of a token.
func (t Terms) facts() []byte {
	var b []byte
	switch {
	case t.Flags&Leader != 0:
		b = encode(b, t.Address)
	case t.keyed() || t.Permits != 0 || t.Weight != 1:
		if t.keyed() {
			b = digits(digits(encode(b, t.Key), permitsLen, t.KeyLimit), shareLen, t.Share)
		}
		b = digits(digits(b, permitsLen, t.Weight), permitsLen, t.Permits)
	}
	ms := (t.TTL + time.Millisecond - 1) / time.Millisecond
	return digits(digits(b, ttlLen, ms), flagsLen, t.Flags)
}

// read reads the terms from the end of a text of facts. For any other text, facts of the result differs from it.
func read(facts string) (t Terms) {
	number := func(length int) int64 {
		begin := max(len(facts)-length, 0)
		n, _ := strconv.ParseInt(facts[begin:], 36, 64)
		facts = facts[:begin]
		return n
	}
	t.Flags, t.TTL, t.Weight = Flags(number(flagsLen)), time.Duration(number(ttlLen))*time.Millisecond, 1
	switch {
	case t.Flags&Leader != 0:
		t.Address, _ = url.PathUnescape(facts)
	case facts != "":
		t.Permits, t.Weight = int(number(permitsLen)), int(number(permitsLen))
		if facts != "" {
			t.Share, t.KeyLimit = int(number(shareLen)), int(number(permitsLen))
			t.Key, _ = url.PathUnescape(facts)
		}
	}
	return t
}

// valid reports whether the terms are within bounds. A request for more permits than there are would block the queue.
func (t Terms) valid() bool {
	mutex := t.Permits == 0 && t.Weight == 1 && !t.keyed()
	permits := 1 <= t.Weight && t.Weight <= t.Permits && t.Permits <= bounds.MaxPermits
	key := t.Key != "" && len(t.Key) <= bounds.MaxKey && 1 <= t.Share && t.Share <= bounds.MaxShare &&
		(t.KeyLimit == 0 || t.Weight <= t.KeyLimit) && t.KeyLimit <= bounds.MaxPermits
	return bounds.MinTTL <= t.TTL && t.TTL <= bounds.MaxTTL && len(t.Address) <= bounds.MaxClient &&
		(mutex || permits && (key || !t.keyed()))
}

func (t Terms) keyed() bool { return t.Key != "" || t.KeyLimit != 0 || t.Share != 0 }

// digits appends a number in base 36. If it does not fit, Parse refuses the result.
func digits[T ~int | ~int64](b []byte, length int, n T) []byte {
	text := strconv.FormatInt(int64(n), 36)
	if len(text) > length {
		text = "?"
	}
	const zeros = "0000000"
	return append(append(b, zeros[:length-len(text)]...), text...)
}

// encode appends a key or an address without spaces and colons.
func encode(b []byte, key string) []byte {
	for i := range len(key) {
		if c := key[i]; odd(rune(c)) || c == ':' || c == '%' {
			b = fmt.Appendf(b, "%%%02X", c)
		} else {
			b = append(b, c)
		}
	}
	return b
}

// CheckClient reports whether a client id can be part of a token: 1 to 128 bytes of printable ASCII, no space.
func CheckClient(client string) error {
	if client == "" || len(client) > bounds.MaxClient || strings.ContainsFunc(client, odd) {
		return fmt.Errorf("%w: client id %.40q, want 1 to %d bytes of printable ASCII without spaces", ErrMalformed, client,
			bounds.MaxClient)
	}
	return nil
}

func odd(r rune) bool { return r <= ' ' || r > '~' }
