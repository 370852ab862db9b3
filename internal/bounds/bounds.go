// Package bounds has the bounds of settings. Package fairlock checks them.
package bounds

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Defaults of fairlock.Config.
const (
	DefaultNamespace = "fairlock"
	DefaultTTL       = 10 * time.Second
	DefaultWaiterTTL = 6 * time.Second
	DefaultFenceTTL  = 10 * time.Minute
)

// Bounds of times.
const (
	MinTTL       = 10 * time.Millisecond
	MinWaiterTTL = 3 * time.Second
	MinFenceTTL  = 10 * time.Second
	MinMaxOutage = 3 * time.Second
	MaxTTL       = 365 * 24 * time.Hour // also of WaiterTTL, FenceTTL, MaxWait, MaxOutage and MinHold
)

// Bounds of names, in bytes.
const (
	MaxName      = 1024 // of a lock
	MaxNamespace = 256
	MaxClient    = 128 // of Config.Name, and of leader.Config.Address
	MaxKey       = 128 // of a keyed semaphore
)

// Bounds of numbers.
const (
	MaxPermits   = 1 << 30 // of a lock, of a request, and of a key
	MaxShare     = 1000    // of a key
	MaxInspected = 1000    // holders, and waiters, that a State lists; more would block Redis for too long
)

// WrongNamespace returns what is wrong with a namespace, or "". A newline at its end, as from a file, would silently
// make it another namespace.
func WrongNamespace(ns string) string {
	switch {
	case len(ns) > MaxNamespace:
		return fmt.Sprintf("%d bytes, at most %d", len(ns), MaxNamespace)
	case strings.ContainsAny(ns, "{}"):
		return "must not contain braces, which would move the keys' hash tag"
	case Unseen(ns):
		return fmt.Sprintf("%.40q has a space at an end, or an invisible character", ns)
	}
	return ""
}

// Unseen reports whether a text has a space at its beginning or end. It also finds control characters, and characters
// that only format, such as a byte order mark.
func Unseen(text string) bool {
	return strings.TrimSpace(text) != text || strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
	})
}
