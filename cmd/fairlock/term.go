package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// isTerminal reports whether w is a terminal.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// display reports whether w is a terminal on which lines can be overwritten.
func display(w any) bool { return os.Getenv("TERM") != "dumb" && isTerminal(w) }

// colours reports whether w should get colours: it is a terminal and NO_COLOR is empty or not set.
func colours(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && display(w)
}

// width returns the width of the terminal, or 0 if w is not one or the width is unknown.
func width(w io.Writer) int {
	if !isTerminal(w) {
		return 0
	}
	columns, _, _ := term.GetSize(int(w.(*os.File).Fd()))
	return columns
}

// progress is a line on a terminal that says what a command does, once that takes over a second. It is safe for
// concurrent use.
type progress struct {
	out   io.Writer
	on    bool                // it is a terminal
	width func(io.Writer) int // of it
	tty   *tty                // nil: unknown whether this job has it
	from  time.Time           // when the line may be shown first

	mu    sync.Mutex
	shown bool // guarded by mu
	over  bool // guarded by mu
}

// newProgress returns a line that is shown after a second. The caller calls clear.
func newProgress(out io.Writer) *progress {
	p := &progress{out: out, on: display(out), width: width, from: time.Now().Add(time.Second)}
	if p.on {
		p.tty = openTTY()
	}
	return p
}

// show sets the text of the line. A job in the background shows nothing, because it would overwrite what the user
// types.
func (p *progress) show(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.on || p.over || time.Now().Before(p.from) || p.tty != nil && !p.tty.foreground() {
		return
	}
	if width := p.width(p.out); width > 1 { // the next text could not overwrite a longer line
		what = ansi.Truncate(what, width-1, "…")
	}
	_, _ = fmt.Fprintf(p.out, "\r\x1b[K%s", what)
	p.shown = true
}

// clear clears the line. It is not shown again.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown && !p.over {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
	if p.over = true; p.tty != nil {
		p.tty.close()
		p.tty = nil
	}
}

// patiently shows a line until stop is called.
func patiently(what string) (stop func()) {
	p := newProgress(os.Stderr)
	timer := time.AfterFunc(time.Until(p.from), func() { p.show(what + " …") })
	return func() {
		timer.Stop()
		p.clear()
	}
}
