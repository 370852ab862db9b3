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
