package script

import (
	"reflect"
	"slices"
	"strings"
	"sync"
)

// DefaultNamespace is the key prefix of a client that sets none.
const DefaultNamespace = "fairlock"

// Keys are the keys of a mutex. A struct of keys is the table of what a kind of lock has in Redis: in the order of KEYS,
// each field's name in lower case is the end of the key, and its tag is the key's type. All keys of a lock have one hash
// tag, so that they are in one slot of a cluster.
type Keys struct {
	Number     string `redis:"string"`
	Lock       string `redis:"string"`
	Queue      string `redis:"zset"`
	Heartbeats string `redis:"zset"`
	Tombstones string `redis:"zset"`
}

// PermitKeys are the keys of a semaphore or a read-write lock.
type PermitKeys struct {
	Number     string `redis:"string"`
	Permits    string `redis:"zset"`
	Holders    string `redis:"hash"`
	Queue      string `redis:"zset"`
	Resized    string `redis:"string"` // the only key that does not expire; of a semaphore alone
	Heartbeats string `redis:"zset"`
	Tombstones string `redis:"zset"`
}

// MutexKeys returns the keys of the mutex with that name.
func MutexKeys(namespace, name string) Keys {
	return fill[Keys](mutex.keyNames(namespace, name, ""))
}

// SemaphoreKeys returns the keys of the semaphore with that name.
func SemaphoreKeys(namespace, name string) PermitKeys {
	return fill[PermitKeys](permits.keyNames(namespace, name, semaphoreKeys))
}

// RWMutexKeys returns the keys of the read-write lock with that name.
func RWMutexKeys(namespace, name string) PermitKeys {
	return fill[PermitKeys](permits.keyNames(namespace, name, rwMutexKeys))
}

// fill sets the fields of a struct in their order.
func fill[T any](names []string) (keys T) {
	v := reflect.ValueOf(&keys).Elem()
	for i, name := range names {
		v.Field(i).SetString(name)
	}
	return keys
}

// NotificationChannel returns the Pub/Sub channel on which a client is notified of grants to its waiters. The scripts
// derive it from a key and a token (queue.lua).
func NotificationChannel(namespace, client string) string { return namespace + ":notify:" + client }

// kind is a kind of lock: the folder of its store, its keys in the order of KEYS, and its scripts by verb.
type kind struct {
	name    string
	keys    []key
	scripts map[string]func() script // each is built when it is first used
}

// key is the end of a key's name, and its type in Redis.
type key struct{ name, redisType string }

var (
	mutex   = newKind("mutex", Keys{})
	permits = newKind("permits", PermitKeys{})
	kinds   = []*kind{&mutex, &permits}
)

// What the keys of permits have in their names.
const (
	semaphoreKeys = "sem:"
	rwMutexKeys   = "rw:"
)

func newKind(name string, keys any) kind {
	k := kind{name: name, scripts: map[string]func() script{}}
	for _, field := range reflect.VisibleFields(reflect.TypeOf(keys)) {
		k.keys = append(k.keys, key{strings.ToLower(field.Name), field.Tag.Get("redis")})
	}
	for verb := range verbs {
		if k.file(verb) != "" {
			k.scripts[verb] = sync.OnceValue(func() script { return k.build(verb) })
		}
	}
	return k
}

// index returns where a key stands; that of store is the first of the store's keys, which follow the number.
func (k kind) index(name string) int {
	if name == "store" {
		return 1
	}
	return slices.IndexFunc(k.keys, func(key key) bool { return key.name == name })
}

// escape keeps braces out of the hash tag: no name can end the tag early, and no two names share a key.
var escape = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// keyNames returns the keys of the lock with that name, in the order of KEYS. The namespace has no braces, the name may
// have any bytes.
func (k *kind) keyNames(namespace, name, infix string) []string {
	if strings.ContainsAny(name, "%{}") {
		name = escape.Replace(name)
	}
	prefix := namespace + ":{" + name + "}:" + infix
	names := make([]string, len(k.keys))
	for i, key := range k.keys {
		names[i] = prefix + key.name
	}
	return names
}
