package script

import (
	"maps"
	"slices"
)

// ScriptNames lists the verbs that have a script.
func ScriptNames() []string { return slices.Sorted(maps.Keys(verbs)) }

// Has reports whether this kind of lock has the verb.
func (l Lock) Has(verb string) bool { return l.kind.built[verb] != nil }

// Keys returns the keys of a lock in the order of KEYS.
func (l Lock) Keys() []string { return l.keys }

// KeysOf returns those that a verb declares.
func (l Lock) KeysOf(verb string) []string {
	s := l.kind.built[verb]()
	return l.keys[s.from:s.to]
}

// The kinds of locks.
var (
	Mutex          = lockOf("mutex")
	Semaphore      = lockOf("semaphore")
	KeyedSemaphore = lockOf("keyed")
	RWMutex        = lockOf("rwmutex")
)

func lockOf(kind string) func(rdb Sender, namespace, name string) Lock {
	return func(rdb Sender, namespace, name string) Lock {
		l, _ := Of(rdb, kind, namespace, name)
		return l
	}
}

// Mutex reports whether it is a mutex.
func (l Lock) Mutex() bool { return l.kind == &mutex }

// Keyed reports whether it is a keyed semaphore.
func (l Lock) Keyed() bool { return l.kind == &keyed }
