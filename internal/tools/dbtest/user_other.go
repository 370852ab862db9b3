//go:build !unix

package dbtest

import "syscall"

const (
	sigQuit = syscall.SIGKILL
	sigKill = syscall.SIGKILL
)

type user struct{}

func unprivileged(string) (*user, error) { return nil, nil }

func (*user) own(string) error { return nil }

func attributes(*user, syscall.Signal) *syscall.SysProcAttr { return nil }
