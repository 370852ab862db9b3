package inspect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlock/fairlock-go/internal/keyspace"
)

// Suggestions for an unused name or an empty namespace.

const (
	// guessing is how long it may take to find that out.
	guessing = 3 * time.Second
	// guesses is how many names are named at most.
	guesses = 10
)

// guess is scan, for no longer than guessing.
func (s *Server) guess(ctx context.Context, match string, see func(keys []string)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, guessing, fmt.Errorf("not finished within %v", guessing)) //nolint:forbidigo // the command and the page have no other clock
	defer cancel()
	var mu sync.Mutex
	return s.scan(ctx, match, func(ctx context.Context, keys []string) error {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil { // the search is over, and what it has found is in use
			return context.Cause(ctx)
		}
		see(keys)
		return nil
	})
}

// Namespaces are those that have keys of locks, in use or not, in order. If the error is not nil, there may be others.
func (s *Server) Namespaces(ctx context.Context) ([]string, error) {
	seen := map[string]bool{}
	err := s.guess(ctx, "*:{*}:*", func(keys []string) {
		for _, text := range keys {
			namespace, _, _ := strings.Cut(text, ":{")
			if _, ours := keyspace.Parse(namespace, text); ours {
				seen[namespace] = true
			}
		}
	})
	return slices.Sorted(maps.Keys(seen)), err
}

// NoLocks says that this namespace has no locks, by what Namespaces has returned, and names those that have some, the
// most alike first. It is "" if this one has some, or if that is not known.
func (s *Server) NoLocks(namespaces []string, err error) string {
	text := "no locks in this namespace"
	switch {
	case slices.Contains(namespaces, s.Namespace), len(namespaces) == 0 && err != nil:
		return ""
	case len(namespaces) == 0:
		return text + " or in any other"
	case err != nil:
		text = "no locks were found in this namespace"
	}
	others := mostAlike(s.Namespace, 0, namespaces, func(name string) string { return name })
	for i, name := range others {
		others[i] = Plain(name)
	}
	text += "; namespaces with locks: " + strings.Join(others[:min(guesses, len(others))], ", ")
	if more := len(others) - guesses; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Used are the locks that are in use by the names of their keys, and the other namespaces in which one with that name
// is. If the error is not nil, there may be others.
func (s *Server) Used(ctx context.Context, name string) (used []ID, elsewhere []string, err error) {
	seen, namespaces := map[ID]bool{}, map[string]bool{}
	err = s.guess(ctx, keyspace.Everywhere, func(keys []string) {
		for _, text := range keys {
			namespace, _, _ := strings.Cut(text, ":{")
			switch key, ours := keyspace.Parse(namespace, text); {
			case !ours || !key.Shows():
			case namespace == s.Namespace:
				seen[idOf(key)] = true
			case key.Name == name:
				namespaces[namespace] = true
			}
		}
	})
	return slices.SortedFunc(maps.Keys(seen), ID.Compare), slices.Sorted(maps.Keys(namespaces)), err
}

// Meant returns the locks in use that a user may mean by an unused name. These are other kinds of that name, and unless
// it was used lately, locks with similar names, the most similar first.
func (l Lock) Meant(used []ID) (meant []ID) {
	if l.InUse() || l.Idle() {
		return nil
	}
	for _, id := range used {
		if same := id.Name == l.Name; same && l.Kind != "" && id.Kind != l.Kind || !same && l.Fence == 0 {
			meant = append(meant, id)
		}
	}
	meant = mostAlike(l.Name, 0.5, meant, func(id ID) string { return id.Name })
	return meant[:min(guesses, len(meant))]
}

// NotSearched says why Meant may miss names.
func NotSearched(err error) string { return "similar names could not be searched: " + Cause(err) }

// mostAlike are those whose names are at least that similar to a name, the most similar first.
func mostAlike[T any](name string, least float64, all []T, nameOf func(T) string) (some []T) {
	type scored struct {
		one   T
		score float64
	}
	var kept []scored
	own := pairs(name)
	for _, one := range all {
		if score := alike(own, pairs(nameOf(one))); score >= least {
			kept = append(kept, scored{one, score})
		}
	}
	slices.SortStableFunc(kept, func(a, b scored) int { return cmp.Compare(b.score, a.score) })
	for _, k := range kept {
		some = append(some, k.one)
	}
	return some
}

// alike is the share of the pairs of the shorter of two names that the other one also has: from 0, none, to 1, all.
func alike(a, b []uint64) float64 {
	common := 0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch order := cmp.Compare(a[i], b[j]); {
		case order < 0:
			i++
		case order > 0:
			j++
		default:
			i, j, common = i+1, j+1, common+1
		}
	}
	return float64(common) / float64(min(len(a), len(b)))
}

// pairs are those of neighbouring characters of a name, in order. Its beginning and its end count as characters. Case
// and spaces at the ends do not count.
func pairs(name string) (all []uint64) {
	last := rune(0)
	for _, r := range strings.ToLower(strings.TrimSpace(name)) + "\x00" {
		all, last = append(all, uint64(last)<<32|uint64(r)), r
	}
	slices.Sort(all)
	return all
}
