package redistest

import "syscall"

// dieWithParent has the kernel end the server if the test process is killed. (Go ties it to the thread that forked;
// the runtime keeps its threads.)
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
