package lua

import "strings"

// DefaultNamespace is the key prefix of a client that names none.
const DefaultNamespace = "fairlock"

// Keys names what a lock has in Redis. All its keys carry one hash tag, so that they live in one slot of a cluster.
type Keys struct {
	Queue, Alive, Fence, Lock string
}

// escape keeps braces out of the hash tag: no name can end the tag early, and no two names share a key.
var escape = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// MutexKeys returns the keys of the mutex with that name. The namespace has no braces, the name may have any bytes.
func MutexKeys(namespace, name string) Keys {
	if strings.ContainsAny(name, "%{}") {
		name = escape.Replace(name)
	}
	prefix := namespace + ":{" + name + "}:"
	return Keys{Queue: prefix + "queue", Alive: prefix + "alive", Fence: prefix + "fence", Lock: prefix + "lock"}
}

// WakeChannel returns the Pub/Sub channel on which a client hears what was granted to its waiters. The scripts derive
// it from a key and a token (admit.lua).
func WakeChannel(namespace, client string) string { return namespace + ":wake:" + client }

func (k Keys) list() []string { return []string{k.Queue, k.Alive, k.Fence, k.Lock} }

// types are the types that list's keys have when they are ours.
var types = []string{"zset", "zset", "string", "string"}
