package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/lua"
)

// Kind is what a name stands for.
type Kind string

// The kinds of locks.
const (
	Mutex     Kind = "mutex"
	Semaphore Kind = "semaphore"
	RW        Kind = "rw"
)

// Kinds are all of them.
var Kinds = []Kind{Mutex, Semaphore, RW}

// ParseKind reads what a user calls a kind.
func ParseKind(text string) (Kind, error) {
	if kind := Kind(text); slices.Contains(Kinds, kind) {
		return kind, nil
	}
	return "", fmt.Errorf("kind %s is unknown: want mutex, semaphore or rw", Plain(text))
}

// ID is which lock it is: kinds of the same name have nothing in common.
type ID struct {
	Kind Kind
	Name string
}

// IDs are these locks of these kinds.
func IDs(names []string, kinds ...Kind) []ID {
	var ids []ID
	for _, name := range names {
		for _, kind := range kinds {
			ids = append(ids, ID{kind, name})
		}
	}
	return ids
}

// String names the lock, in one line; without a kind, it is just a name.
func (id ID) String() string { return strings.TrimPrefix(string(id.Kind)+" ", " ") + Plain(id.Name) }

func (id ID) compare(other ID) int {
	if c := strings.Compare(id.Name, other.Name); c != 0 {
		return c
	}
	return slices.Index(Kinds, id.Kind) - slices.Index(Kinds, other.Kind)
}

// In is the lock in Redis, for who looks at it or takes it by force: its capacity does not matter to them.
func (id ID) In(rdb redis.Scripter, namespace string) lua.Lock {
	switch id.Kind {
	case Semaphore:
		return lua.Semaphore(rdb, namespace, id.Name, 1)
	case RW:
		return lua.RWMutex(rdb, namespace, id.Name)
	default:
		return lua.Mutex(rdb, namespace, id.Name)
	}
}

// signs are the keys of which one is there while the lock is in use.
func (id ID) signs(namespace string) []string {
	switch id.Kind {
	case Semaphore:
		keys := lua.SemaphoreKeys(namespace, id.Name)
		return []string{keys.Queue, keys.Permits}
	case RW:
		keys := lua.RWMutexKeys(namespace, id.Name)
		return []string{keys.Queue, keys.Permits}
	default:
		keys := lua.MutexKeys(namespace, id.Name)
		return []string{keys.Queue, keys.Lock}
	}
}

// unescape undoes what is done to names in keys.
var unescape = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")

// parse tells the lock of which a key is a sign.
func parse(namespace, key string) (ID, bool) {
	rest, _ := strings.CutPrefix(key, namespace+":{")
	name, _, _ := strings.Cut(rest, "}:")
	for _, kind := range Kinds {
		id := ID{kind, unescape.Replace(name)}
		if id.Name != "" && slices.Contains(id.signs(namespace), key) {
			return id, true
		}
	}
	return ID{}, false
}

// escape takes their meaning from the characters that have one in a pattern.
var escape = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// pattern matches the signs of all locks whose names begin with prefix: lock, queue and permits. Fences outlive a lock
// by a day, so there may be many, and the server leaves them out; three letters of the keys' ends suffice for that.
func pattern(namespace, prefix string) string {
	start, _ := strings.CutSuffix(lua.MutexKeys(namespace, prefix).Queue, "}:queue")
	return escape.Replace(start) + "*}:*[oei][cut][kes]"
}
