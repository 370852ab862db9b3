package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colours reports whether w should get colours: it is a terminal and NO_COLOR is empty or not set.
func colours(w io.Writer) bool { return os.Getenv("NO_COLOR") == "" && isTerminal(w) }
