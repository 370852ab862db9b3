package lua

import "slices"

// ScriptNames lists the verbs that have a script.
func ScriptNames() []string { return slices.Clone(verbs) }

// Keys returns the keys of a lock in the order of KEYS.
func (l Lock) Keys() []string { return l.keys }
