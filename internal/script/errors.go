package script

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/fairlock/fairlock-go/internal/call"
	"github.com/fairlock/fairlock-go/token"
)

// ErrReply is wrapped by the error for a reply that no script of ours gives.
var ErrReply = errors.New("unexpected reply")

// Aborted reports whether a script that requests a lock raised the error, and may have written something before, which
// stays: the lock may be granted, or the waiter queued. An error that passes was raised by the first write. A foreign
// key and a bad number are found before that.
func Aborted(err error) bool {
	meaning, inScript := call.MeaningOf(err)
	return inScript && meaning != call.Temporary && meaning != call.ForeignKey && meaning != call.BadNumber
}

// explain adds the lock's keys to an error of the server that is about them.
func (l Lock) explain(err error) error {
	keys := strings.TrimSuffix(l.keys[0], l.kind.keys[0].name) + "*"
	switch meaning, _ := call.MeaningOf(err); meaning {
	case call.ForeignKey:
		return fmt.Errorf("one of the keys %q is not ours: %w", keys, err)
	case call.BadNumber:
		if layout := otherLayout.FindStringSubmatch(err.Error()); layout != nil {
			return &token.LayoutError{What: fmt.Sprintf("key %q", l.keys[0]), Layout: layout[1]}
		}
		return fmt.Errorf("%w (another program has written key %q; if nobody uses the lock, delete it)", err, l.keys[0])
	case call.Forbidden:
		return fmt.Errorf("keys %q: %w", keys, err)
	}
	return err
}

// otherLayout finds the layout in the error of a script that does not know it.
var otherLayout = regexp.MustCompile(`the number has layout (\d+)`)
