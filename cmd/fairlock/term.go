package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colours reports whether w should get colours: it is a terminal and NO_COLOR is empty or not set.
func colours(w io.Writer) bool { return os.Getenv("NO_COLOR") == "" && isTerminal(w) }

// patiently says on a terminal what is being waited for if that takes over a second, until stop is called.
func patiently(what string) (stop func()) {
	if !isTerminal(os.Stderr) {
		return func() {}
	}
	var mu sync.Mutex
	shown, over := false, false // guarded by mu
	timer := time.AfterFunc(time.Second, func() {
		mu.Lock()
		defer mu.Unlock()
		if shown = !over; shown {
			_, _ = fmt.Fprintf(os.Stderr, "\r\x1b[K%s …", what)
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		if over = true; shown {
			_, _ = fmt.Fprint(os.Stderr, "\r\x1b[K")
		}
	}
}
