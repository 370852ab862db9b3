package main

import (
	"slices"
	"strings"
)

// withoutPassword moves a URL that may have a password from the arguments to the environment, and reports whether there
// was one.
func withoutPassword(args, env []string) (cleaned, moved []string, found bool) {
	cleaned, moved = slices.Clone(args), slices.Clone(env)
	for i, arg := range cleaned {
		if arg == "--" {
			break
		}
		raw, joined := strings.CutPrefix(arg, "--redis=")
		if !joined && (i == 0 || cleaned[i-1] != "--redis") || !mayHoldPassword(raw) {
			continue
		}
		moved = slices.DeleteFunc(moved, func(v string) bool { return strings.HasPrefix(v, envRedis+"=") })
		moved = append(moved, envRedis+"="+raw)
		cleaned[i] = strings.TrimSuffix(arg, raw) + "env:" + envRedis
		found = true
	}
	return cleaned, moved, found
}

// mayHoldPassword reports whether a URL may have one, also in the wrong place, if it was not encoded.
func mayHoldPassword(raw string) bool {
	_, rest, _ := strings.Cut(raw, "://")
	before, _, at := strings.Cut(rest, "@")
	return at && strings.Contains(before, ":") || strings.Contains(raw, "password")
}
