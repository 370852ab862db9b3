package fairlocktest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/token"
)

// tally counts what the seeds of an Explore have tried.
type tally struct {
	mu       sync.Mutex // may be taken while a World's mu is held
	seeds    int        // guarded by mu, as all that follows
	grants   int
	lost     int // leases, while their holders relied on them
	lostOwn  int // as lost, those of World.Work alone
	overlaps int // another client was granted such a lease's lock while its holder still relied on it
	crashes  int
	own      bool                    // World.Work was called
	relied   map[token.Token]*belief // leases of the present seed that clients rely on
}

// belief is a lease on which a client relies.
type belief struct {
	fairlock.Event

	doubted bool // another client was granted the lock meanwhile, though there was no room beside this lease
}

// begin counts a seed.
func (t *tally) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seeds++
	t.relied = map[token.Token]*belief{}
}

func (t *tally) crashed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.crashes++
}

func (t *tally) working() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.own = true
}

// granted counts a grant. It marks each lease that leaves no room for this one as doubted. Its client is wrong to rely
// on it, or has released it and does not know the outcome yet. ended tells the two apart.
func (t *tally) granted(e fairlock.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.grants++
	used := e.Token.Weight()
	var others []*belief
	for _, b := range t.relied {
		if b.Namespace == e.Namespace && b.ID == e.ID {
			used += b.Token.Weight()
			others = append(others, b)
		}
	}
	if used > max(e.Token.Terms().Permits, 1) {
		for _, b := range others {
			b.doubted = b.doubted || b.Token.Client() != e.Token.Client()
		}
	}
	t.relied[e.Token] = &belief{Event: e}
}

// ended counts the end of a lease.
func (t *tally) ended(e fairlock.EndedInfo, own bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.relied[e.Token]
	delete(t.relied, e.Token)
	if b == nil || !errors.Is(e.Err, fairlock.ErrLost) {
		return
	}
	t.lost++
	if own {
		t.lostOwn++
	}
	if b.doubted {
		t.overlaps++
	}
}

const unreached = "no fault reached your code: let its work last longer than TTL"

// String summarises what was tried in one line.
func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := fmt.Sprintf("%s: %s, %s lost while held, %s two clients believed to hold one lock, %s",
		plural(t.seeds, "seed"), plural(t.grants, "grant"), plural(t.lost, "lease"), plural(t.overlaps,
			"time"), plural(t.crashes, "crash"))
	if t.seeds > 0 && t.lost == 0 {
		line += "; " + unreached
	}
	return line
}

// judge fails a test whose workers have not lost a lease in any seed, because it would pass whatever they do after a
// loss.
func (t *tally) judge(tb testing.TB) {
	tb.Helper()
	t.mu.Lock()
	idle := t.own && t.lostOwn == 0
	t.mu.Unlock()
	if idle {
		tb.Errorf("fairlocktest: %s, as Worker.Busy does. No lease of World.Work was lost while it was held, with any seed. "+
			"If that is meant, set ExploreConfig.AllowNoLoss.", unreached)
	}
}

// plural writes a number, with commas, of things.
func plural(n int, what string) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	switch {
	case n == 1:
		return text + " " + what
	case strings.HasSuffix(what, "h"):
		return text + " " + what + "es"
	}
	return text + " " + what + "s"
}
