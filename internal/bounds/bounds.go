// Package bounds has the bounds of what users set. Package fairlock checks them.
package bounds

import "time"

// Bounds of times.
const (
	MinTTL       = 10 * time.Millisecond
	MinWaiterTTL = 3 * time.Second
	MinFenceTTL  = 10 * time.Second
	MaxTTL       = 365 * 24 * time.Hour // also of WaiterTTL, FenceTTL, MaxWait and MinHold
)

// Bounds of names, in bytes.
const (
	MaxName      = 1024 // of a lock
	MaxNamespace = 256
	MaxClient    = 128 // of Config.Name
	MaxKey       = 128 // of a keyed semaphore
)

// Bounds of numbers.
const (
	MaxPermits   = 1 << 30 // of a lock, of a request, and of a key
	MaxShare     = 1000    // of a key
	MaxInspected = 1000    // holders, and waiters, that a State lists: more would keep Redis for too long
)
