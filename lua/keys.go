package lua

import "strings"

// DefaultNamespace is the key prefix of a client that names none.
const DefaultNamespace = "fairlock"

// Keys names what a mutex has in Redis. All its keys carry one hash tag, so that they live in one slot of a cluster.
type Keys struct {
	Queue, Alive, Fence, Lock string
}

// PermitKeys names what a semaphore or a read-write lock has in Redis.
type PermitKeys struct {
	Queue, Alive, Fence, Permits, Holders, Wants string
}

// escape keeps braces out of the hash tag: no name can end the tag early, and no two names share a key.
var escape = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// prefix begins the keys of a lock. The namespace has no braces, the name may have any bytes.
func prefix(namespace, name string) string {
	if strings.ContainsAny(name, "%{}") {
		name = escape.Replace(name)
	}
	return namespace + ":{" + name + "}:"
}

// MutexKeys returns the keys of the mutex with that name.
func MutexKeys(namespace, name string) Keys {
	p := prefix(namespace, name)
	return Keys{Queue: p + "queue", Alive: p + "alive", Fence: p + "fence", Lock: p + "lock"}
}

// SemaphoreKeys returns the keys of the semaphore with that name.
func SemaphoreKeys(namespace, name string) PermitKeys {
	return permitKeys(prefix(namespace, name) + "sem:")
}

// RWMutexKeys returns the keys of the read-write lock with that name.
func RWMutexKeys(namespace, name string) PermitKeys {
	return permitKeys(prefix(namespace, name) + "rw:")
}

func permitKeys(p string) PermitKeys {
	return PermitKeys{
		Queue: p + "queue", Alive: p + "alive", Fence: p + "fence", Permits: p + "permits", Holders: p + "holders",
		Wants: p + "wants",
	}
}

// WakeChannel returns the Pub/Sub channel on which a client hears what was granted to its waiters. The scripts derive
// it from a key and a token (admit.lua).
func WakeChannel(namespace, client string) string { return namespace + ":wake:" + client }

func (k Keys) list() []string { return []string{k.Queue, k.Alive, k.Fence, k.Lock} }

func (k PermitKeys) list() []string {
	return []string{k.Queue, k.Alive, k.Fence, k.Permits, k.Holders, k.Wants}
}

// types are the types that keys have when they are ours, by how their names end.
var types = map[string]string{
	"queue": "zset", "alive": "zset", "fence": "string", "lock": "string", "permits": "zset", "holders": "hash", "wants": "hash",
}
