package script

import (
	"slices"
	"strings"
)

// RedisKey is a key of a lock.
type RedisKey struct {
	Name string
	Part string // the end of the name: "queue", "lock", …
	Type string // that it has in Redis
}

// Keys are the keys of one lock, in the order of KEYS.
type Keys []RedisKey

// KeysOf returns the keys of the lock of that kind and name, or none for an unknown kind. All keys of a lock have one
// hash tag, so that they are in one slot of a cluster.
func KeysOf(kind, namespace, name string) (all Keys) {
	l, ok := Of(nil, kind, namespace, name)
	if !ok {
		return nil
	}
	for i, k := range l.kind.keys {
		all = append(all, RedisKey{l.keys[i], k.name, k.redisType})
	}
	return all
}

// Part returns the name of the key with that part.
func (k Keys) Part(part string) string {
	return k[slices.IndexFunc(k, func(key RedisKey) bool { return key.Part == part })].Name
}

// NotificationChannel returns the Pub/Sub channel on which a client is notified of grants to its waiters. The scripts
// derive it from a key and a token (queue.lua).
func NotificationChannel(namespace, client string) string { return namespace + ":notify:" + client }

// escape keeps braces out of the hash tag, so that no name ends the tag early and no two names share a key.
var escape = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// keyNames returns the keys of the lock with that name, in the order of KEYS. The namespace has no braces, the name may
// have any bytes.
func (k *kind) keyNames(namespace, name string) []string {
	if strings.ContainsAny(name, "%{}") {
		name = escape.Replace(name)
	}
	prefix := namespace + ":{" + name + "}:" + k.infix
	names := make([]string, len(k.keys))
	for i, key := range k.keys {
		names[i] = prefix + key.name
	}
	return names
}
