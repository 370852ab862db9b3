package fairlock

// Kind is a kind of lock.
type Kind string

// The kinds of locks.
const (
	KindMutex          Kind = "mutex"
	KindSemaphore      Kind = "semaphore"
	KindKeyedSemaphore Kind = "keyed"
	KindRWMutex        Kind = "rwmutex"
)

// ID identifies a lock in a namespace.
type ID struct {
	Kind Kind
	Name string
}
