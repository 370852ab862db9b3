// Package tokens writes and reads the texts of tokens. Package token has what users see of them.
//
// The text of a token is
//
//	<client>:<layout>.<facts><TTL><flags><random>
//
// the client's id; the layout of what stands in Redis, 2; the length of the lease in ms, 7 digits of base 36; the
// flags, one such digit; and 128 random bits in base64url, 22 characters. The facts of a semaphore or a read-write lock
// are the number of permits that it asks for, and the number that there are for it, 6 digits of base 36 each; those of
// a mutex are none. Those of a keyed semaphore begin with the key, its limit (0 is none), 6 digits, and its share, 2
// digits. Bytes of the key that are not printable ASCII, spaces, colons and percent signs are percent-encoded. Each
// fact has its place from the end, so that scripts find it. What follows the last colon begins with the layout in every
// version.
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

// Layout is what this version writes to Redis and understands there.
const Layout = "2"

// ErrMalformed is token.ErrMalformed.
var ErrMalformed = errors.New("malformed token")

// The random part is 16 bytes in unpadded base64url, which is shorter than hexadecimal: Redis keeps the token of every
// waiter.
var encoding = base64.RawURLEncoding.Strict()

// What follows the layout has these lengths, from the end.
const (
	randomBytes = 16
	randomLen   = 22
	flagsLen    = 1
	ttlLen      = 7
	permitsLen  = 6 // also of the weight, and of the key limit
	shareLen    = 2
	mutexLen    = ttlLen + flagsLen + randomLen
	permitLen   = 2*permitsLen + mutexLen
	keyedLen    = permitsLen + shareLen + permitLen // without the key
)

// Terms are what a token says besides its client.
type Terms struct {
	TTL     time.Duration // of the lease, without a renewal; New rounds it up to milliseconds
	Weight  int           // permits that it asks for, at most Permits
	Permits int           // that there are for it, unless the semaphore was resized; 0: it is a mutex's, and Weight is 1
	Flags   Flags

	// Of a keyed semaphore. Others have zero values.
	Key      string // not encoded
	KeyLimit int    // permits that the key may hold at once; 0: any number
	Share    int

	Address string // of a leader, not encoded; others have none
}

// WriterWeight is how many permits a read-write lock has, as the token of each request says. A writer needs all of
// them, a reader one.
const WriterWeight = bounds.MaxPermits

// Flags say what other clients should know of a lease. Redis does not read them.
type Flags int

// The flags.
const (
	Released Flags = 1 << iota // the lock stays taken for the rest of a minimum hold, by nobody
	// the minimum hold is above the TTL of renewals, so the token's TTL is not what a renewal asks for
	MinHold
	// its holder is a leader, of package leader; the token is a mutex's, which begins with the address
	Leader
)

// New returns the text of a new token. It has 128 random bits. (A version-4 UUID has only 122.) If the client or one of
// the terms is out of bounds, Check says so.
func New(client string, terms Terms) string {
	var id uuid.UUID
	_, _ = rand.Read(id[:]) // never fails
	facts := ""
	if terms.Permits != 0 || terms.Weight != 1 {
		facts = digits(int64(terms.Weight), permitsLen) + digits(int64(terms.Permits), permitsLen)
	}
	if terms.Key != "" || terms.KeyLimit != 0 || terms.Share != 0 {
		facts = encode(terms.Key) + digits(int64(terms.KeyLimit), permitsLen) + digits(int64(terms.Share), shareLen) + facts
	}
	if terms.Flags&Leader != 0 {
		facts = encode(terms.Address)
	}
	ms := (terms.TTL + time.Millisecond - 1) / time.Millisecond
	return client + ":" + Layout + "." + facts + digits(int64(ms), ttlLen) + digits(int64(terms.Flags),
		flagsLen) + encoding.EncodeToString(id[:])
}

// digits writes a number in base 36. One that does not fit is written so that Check refuses it.
func digits(n int64, length int) string {
	text := strconv.FormatInt(n, 36)
	if len(text) > length {
		return strings.Repeat("?", length)
	}
	return strings.Repeat("0", length-len(text)) + text
}

// Check returns an error unless text is a token's. If it is that of another layout, Check returns that layout alone.
func Check(text string) (otherLayout string, _ error) {
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 {
		return "", fmt.Errorf("%w: want a client id, a colon, a layout, facts and a random part", ErrMalformed)
	}
	if err := CheckClient(text[:colon]); err != nil {
		return "", err
	}
	layout, body, ok := strings.Cut(text[colon+1:], ".")
	if ok && layout != Layout && isNumber(layout) {
		return layout, nil
	}
	facts := len(body) - randomLen
	if !ok || layout != Layout || len(body) < mutexLen {
		return "", errForm
	}
	label := labelLen(text)
	if known := label > 0 || isMutex(text) || len(body) == permitLen; !known ||
		strings.Trim(body[label:facts], "0123456789abcdefghijklmnopqrstuvwxyz") != "" {
		return "", errForm
	}
	terms := Of(text)
	if encode(labelOf(text)) != body[:label] {
		return "", fmt.Errorf("%w: the key or the address is not percent-encoded as it should be", ErrMalformed)
	}
	if err := terms.check(isMutex(text), isKeyed(text)); err != nil {
		return "", err
	}
	// The decoder skips line ends, so the length of its result must be checked.
	if bits, err := encoding.DecodeString(body[facts:]); err != nil || len(bits) != randomBytes {
		return "", fmt.Errorf("%w: the random part is not base64url", ErrMalformed)
	}
	return "", nil
}

var errForm = fmt.Errorf(
	"%w: want layout, facts and random part after the client id, %d, %d or more than %d characters, "+
		"or the flag of a leader",
	ErrMalformed, len("2.")+mutexLen, len("2.")+permitLen, len("2.")+keyedLen)

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func (t Terms) check(mutex, keyed bool) error {
	switch {
	case t.TTL < bounds.MinTTL || t.TTL > bounds.MaxTTL:
		return fmt.Errorf("%w: TTL %v, want %v to %v", ErrMalformed, t.TTL, bounds.MinTTL, bounds.MaxTTL)
	case len(t.Address) > bounds.MaxClient:
		return fmt.Errorf("%w: address of %d bytes, want at most %d", ErrMalformed, len(t.Address), bounds.MaxClient)
	case mutex:
		return nil
	case t.Permits < 1 || t.Permits > bounds.MaxPermits:
		return fmt.Errorf("%w: a lock of %d permits, want 1 to %d", ErrMalformed, t.Permits, int64(bounds.MaxPermits))
	case t.Weight < 1 || t.Weight > t.Permits: // one that asks for more would block the queue
		return fmt.Errorf("%w: %d permits of %d", ErrMalformed, t.Weight, t.Permits)
	case !keyed:
		return nil
	case t.Key == "" || len(t.Key) > bounds.MaxKey:
		return fmt.Errorf("%w: key of %d bytes, want 1 to %d", ErrMalformed, len(t.Key), bounds.MaxKey)
	case t.KeyLimit < 0 || t.KeyLimit > bounds.MaxPermits || t.KeyLimit > 0 && t.Weight > t.KeyLimit:
		return fmt.Errorf("%w: %d permits with a key limit of %d", ErrMalformed, t.Weight, t.KeyLimit)
	case t.Share < 1 || t.Share > bounds.MaxShare:
		return fmt.Errorf("%w: share %d, want 1 to %d", ErrMalformed, t.Share, bounds.MaxShare)
	default:
		return nil
	}
}

// encode writes a key or an address so that a token has no space or colon but its own.
func encode(key string) string {
	var b strings.Builder
	for i := range len(key) {
		if c := key[i]; c <= ' ' || c > '~' || c == ':' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// CheckClient reports whether a client id can be part of a token: 1 to 128 bytes of printable ASCII, no space.
func CheckClient(client string) error {
	if client == "" || len(client) > bounds.MaxClient {
		return fmt.Errorf("%w: client id of %d bytes, want 1 to %d", ErrMalformed, len(client), bounds.MaxClient)
	}
	for i := range len(client) {
		if c := client[i]; c <= ' ' || c > '~' {
			return fmt.Errorf("%w: client id has byte %#02x at %d, want printable ASCII without spaces", ErrMalformed, c, i)
		}
	}
	return nil
}

// What follows reads texts that Check has accepted, and "", which says nothing.

// Client returns the readable id of the client that made the acquisition.
func Client(text string) string { return text[:max(strings.LastIndexByte(text, ':'), 0)] }

// Random returns the random part.
func Random(text string) string { return text[max(len(text)-randomLen, 0):] }

// Of returns the terms of a token.
func Of(text string) Terms {
	return Terms{TTL(text), Weight(text), Permits(text), FlagsOf(text), Key(text), KeyLimit(text), Share(text),
		Address(text)}
}

// TTL returns how long the lease lasts without a renewal.
func TTL(text string) time.Duration {
	return time.Duration(fact(text, mutexLen, ttlLen)) * time.Millisecond
}

// Weight returns how many permits the acquisition asks for.
func Weight(text string) int {
	if isMutex(text) {
		return 1
	}
	return int(fact(text, permitLen, permitsLen))
}

// Permits returns how many permits the acquisition's semaphore has, unless it was resized. It is WriterWeight of a
// read-write lock, and 0 of a mutex.
func Permits(text string) int {
	if isMutex(text) {
		return 0
	}
	return int(fact(text, permitLen-permitsLen, permitsLen))
}

// FlagsOf returns the flags.
func FlagsOf(text string) Flags { return Flags(fact(text, flagsLen+randomLen, flagsLen)) }

// Key returns the key of a keyed semaphore, as its caller has chosen it; "" of another lock.
func Key(text string) string {
	if !isKeyed(text) {
		return ""
	}
	return labelOf(text)
}

// KeyLimit returns how many permits the key may hold at once, as the acquisition says; 0: any number.
func KeyLimit(text string) int {
	if !isKeyed(text) {
		return 0
	}
	return int(fact(text, keyedLen, permitsLen))
}

// Share returns the share of the key, as the acquisition says; 0: it is no keyed semaphore's.
func Share(text string) int {
	if !isKeyed(text) {
		return 0
	}
	return int(fact(text, keyedLen-permitsLen, shareLen))
}

// Address returns the address of a leader, or "".
func Address(text string) string {
	if !isLeader(text) {
		return ""
	}
	return labelOf(text)
}

func isLeader(text string) bool { return FlagsOf(text)&Leader != 0 }

func isMutex(text string) bool { return isLeader(text) || lengthOf(text) == mutexLen }

func isKeyed(text string) bool { return !isLeader(text) && lengthOf(text) > keyedLen }

// labelLen is how long what stands before the facts of fixed length is: a key, or a leader's address.
func labelLen(text string) int {
	if isLeader(text) {
		return lengthOf(text) - mutexLen
	}
	return max(lengthOf(text)-keyedLen, 0)
}

// labelOf is that, decoded.
func labelOf(text string) string {
	begin := len(text) - lengthOf(text)
	label, _ := url.PathUnescape(text[begin : begin+labelLen(text)]) // Check has seen that it is well formed
	return label
}

// lengthOf is that of what follows the layout.
func lengthOf(text string) int { return len(text) - strings.LastIndexByte(text, ':') - len(":2.") }

// fact returns the number of so many digits that begins there, counted from the end of the text.
func fact(text string, at, digits int) int64 {
	if text == "" {
		return 0
	}
	begin := len(text) - at
	n, _ := strconv.ParseInt(text[begin:begin+digits], 36, 64)
	return n
}
