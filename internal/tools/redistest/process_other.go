//go:build !unix

package redistest

import "syscall"

// Tests with a redis-server need Unix. These stubs let them compile elsewhere, so that go vet checks them and what they
// test for every system.

const (
	sigStop     = syscall.Signal(-1)
	sigContinue = syscall.Signal(-1)
)

func attributes() *syscall.SysProcAttr { return nil }
