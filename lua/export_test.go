package lua

import (
	"maps"
	"slices"
)

// ScriptNames lists the verbs that have a script.
func ScriptNames() []string { return slices.Clone(verbs) }

// Scripts returns the scripts of all kinds of locks, by kind and verb.
func Scripts() map[string]map[string]string {
	all := map[string]map[string]string{}
	for kind, scripts := range map[string]map[string]script{"mutex": mutex.scripts, "permits": permits.scripts} {
		all[kind] = map[string]string{}
		for verb, s := range maps.All(scripts) {
			all[kind][verb] = s.text
		}
	}
	return all
}

// Keys returns the keys of a lock in the order of KEYS.
func (l Lock) Keys() []string { return l.keys }
