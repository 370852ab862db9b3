//go:build !unix

package main

import "syscall"

// There is no such thing: a count of lost updates fails.
const (
	sigStop     = syscall.Signal(0)
	sigContinue = syscall.Signal(0)
	sigQuit     = syscall.SIGKILL
)
