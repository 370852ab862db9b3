// Package keyspace finds the keys of locks among others, to list locks.
package keyspace

import (
	"slices"
	"strings"

	"github.com/fairlock/fairlock-go/internal/script"
)

// Kinds are all kinds of locks.
var Kinds = []string{"mutex", "semaphore", "rwmutex", "keyed"}

// Key is a key of a lock.
type Key struct {
	Kind, Name string // of the lock
	Part       string // "queue", "lock", …
	Type       string // that it has in Redis
}

// unescape reverses the escaping of names in keys.
var unescape = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")

// Parse parses the name of a key. It returns false if the key is not that of a lock.
func Parse(namespace, text string) (Key, bool) {
	rest, ours := strings.CutPrefix(text, namespace+":{")
	name, _, _ := strings.Cut(rest, "}:")
	for _, kind := range Kinds {
		name := unescape.Replace(name)
		all := script.KeysOf(kind, namespace, name)
		i := slices.IndexFunc(all, func(k script.RedisKey) bool { return k.Name == text })
		if i >= 0 && ours && name != "" {
			return Key{kind, name, all[i].Part, all[i].Type}, true
		}
	}
	return Key{}, false
}

// Shows reports whether the key exists only while the lock is held or waited for, or while a semaphore is resized.
func (k Key) Shows() bool {
	return slices.Contains([]string{"lock", "queue", "permits"}, k.Part) || k.Part == "resized" && k.Kind != "rwmutex"
}

// Glob returns a pattern of Redis that matches only the text.
func Glob(text string) string { return glob.Replace(text) }

var glob = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// Pattern matches the keys that exist while locks whose names begin with prefix are in use. It does not match numbers,
// which outlive locks and may be many. Three letters at the end of a key suffice for that.
func Pattern(namespace, prefix string) string {
	start, _ := strings.CutSuffix(script.KeysOf("mutex", namespace, prefix).Part("queue"), "}:queue")
	return Glob(start) + "*}:*" + ends
}

// Everywhere matches the keys that exist while a lock of any namespace is in use.
const Everywhere = "*:{*}:*" + ends

// ends matches the ends of lock, queue, permits and resized.
const ends = "[oeiz][cuet][kesd]"

// Step is how many keys one SCAN looks at: about half a millisecond of the server's time.
const Step = 500

// Few is how many waiters of each lock a list reads, for its oldest wait.
const Few = 10
