package script

import "strings"

// DefaultNamespace is the key prefix of a client that sets none.
const DefaultNamespace = "fairlock"

// RedisKey is a key of a lock.
type RedisKey struct {
	Name string
	Part string // the end of the name: "queue", "lock", …
	Type string // that it has in Redis
}

// KeysOf returns the keys of the lock of that kind and name; of another kind than Of knows, none. All keys of a lock
// have one hash tag, so that they are in one slot of a cluster.
func KeysOf(kind, namespace, name string) (all []RedisKey) {
	l, ok := Of(nil, kind, namespace, name)
	if !ok {
		return nil
	}
	for i, k := range l.kind.keys {
		all = append(all, RedisKey{l.keys[i], k.name, k.redisType})
	}
	return all
}

// Keys are the keys of a mutex.
type Keys struct {
	Number     string
	Lock       string
	Queue      string
	Heartbeats string
	Tombstones string
}

// PermitKeys are the keys of a semaphore or a read-write lock.
type PermitKeys struct {
	Number     string
	Permits    string
	Holders    string
	Queue      string
	Resized    string // the only key that does not expire; of a semaphore alone
	Heartbeats string
	Tombstones string
}

// KeyedKeys are the keys of a keyed semaphore.
type KeyedKeys struct {
	Number     string
	Permits    string
	Holders    string
	Queue      string
	Resized    string
	Heartbeats string
	Lines      string
	Turns      string
	Tombstones string
}

// MutexKeys returns the keys of the mutex with that name.
func MutexKeys(namespace, name string) Keys {
	k := mutex.keyNames(namespace, name, "")
	return Keys{k[0], k[1], k[2], k[3], k[4]}
}

// SemaphoreKeys returns the keys of the semaphore with that name.
func SemaphoreKeys(namespace, name string) PermitKeys {
	return permitKeys(permits.keyNames(namespace, name, semaphoreKeys))
}

// RWMutexKeys returns the keys of the read-write lock with that name.
func RWMutexKeys(namespace, name string) PermitKeys {
	return permitKeys(permits.keyNames(namespace, name, rwMutexKeys))
}

// KeyedSemaphoreKeys returns the keys of the keyed semaphore with that name.
func KeyedSemaphoreKeys(namespace, name string) KeyedKeys {
	k := keyed.keyNames(namespace, name, keyedKeys)
	return KeyedKeys{k[0], k[1], k[2], k[3], k[4], k[5], k[6], k[7], k[8]}
}

func permitKeys(k []string) PermitKeys { return PermitKeys{k[0], k[1], k[2], k[3], k[4], k[5], k[6]} }

// NotificationChannel returns the Pub/Sub channel on which a client is notified of grants to its waiters. The scripts
// derive it from a key and a token (queue.lua).
func NotificationChannel(namespace, client string) string { return namespace + ":notify:" + client }

// What the keys of permits have in their names.
const (
	semaphoreKeys = "sem:"
	rwMutexKeys   = "rw:"
	keyedKeys     = "key:"
)

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
