//go:build unix && !linux

package dbtest

import "syscall"

func endWithParent(*syscall.SysProcAttr, syscall.Signal) {}
