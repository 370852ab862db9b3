package redistest

import "syscall"

// dieWithParent makes the kernel kill the server if the test process is killed. Linux ties that to the thread that
// forked; the runtime keeps its threads.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
