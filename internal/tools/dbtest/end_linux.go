package dbtest

import "syscall"

// endWithParent makes the kernel send the signal when the process that has started the server ends.
func endWithParent(attr *syscall.SysProcAttr, signal syscall.Signal) { attr.Pdeathsig = signal }
