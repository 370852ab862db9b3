package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/view"
)

// showWait says on a terminal, from the first second on, who holds the lock and which place in the queue is ours. The
// returned function ends that and wipes it away.
func (r *runner) showWait(ctx context.Context, server view.Server, client string) (stop func()) {
	if r.try || !isTerminal(os.Stderr) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	terminal := openTTY()
	id := view.ID{Kind: view.Kind(r.kind), Name: r.name}
	var task sync.WaitGroup
	task.Go(func() {
		began, shown := time.Now(), false
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for ctx.Err() == nil {
			select {
			case <-tick.C:
				if terminal != nil && !terminal.foreground() {
					continue // a job in the background would wipe away what is typed
				}
				if locks, err := server.Look(ctx, view.Most, id); err == nil {
					_, _ = fmt.Fprintf(os.Stderr, "\r\x1b[K%s", inWidth(fmt.Sprintf("%s: %s", id, standing(locks[0], client, time.Since(began)))))
					shown = true
				}
			case <-ctx.Done():
			}
		}
		if shown {
			_, _ = fmt.Fprint(os.Stderr, "\r\x1b[K")
		}
	})
	return func() {
		cancel()
		task.Wait()
		terminal.close()
	}
}

// inWidth shortens a line to what the terminal has: a longer one is not wiped away by what follows.
func inWidth(text string) string {
	width, _, err := term.GetSize(int(os.Stderr.Fd()))
	if err != nil || width < 1 {
		return text
	}
	return ansi.Truncate(text, width-1, "…")
}

// standing says where we stand.
func standing(l view.Lock, client string, waited time.Duration) string {
	text := fmt.Sprintf("waiting for %v", waited.Round(time.Second))
	ours := func(w view.Waiter) bool { return w.Token.Client() == client }
	if i := slices.IndexFunc(l.Waiters, ours); i >= 0 {
		text += fmt.Sprintf(", place %d of %d", i+1, l.Waiting)
	}
	if len(l.Holders) > 0 && l.Holders[0].Token.Client() != "" {
		text += ", held by " + l.Holders[0].Token.Client()
	}
	return text
}
