//go:build unix

package redistest

import "syscall"

const (
	sigStop     = syscall.SIGSTOP
	sigContinue = syscall.SIGCONT
)

// attributes puts the server into a process group of its own, so that a terminal's ^C reaches only the tests.
func attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(attr)
	return attr
}
