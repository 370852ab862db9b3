package main

import (
	"os"
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reapOrphans waits for processes whose parents have died, if this process is the first of a container. They become its
// children, and would stay in the list of processes forever. Other goroutines wait for the children that it has started
// itself.
func reapOrphans() {
	if os.Getpid() != 1 {
		return
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		for range ended {
			started.reap()
		}
	}()
}

// reap waits for all ended children that we have not started. It looks before it waits, because a wait for any child
// could take one that os/exec waits for.
func (c *children) reap() {
	for {
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err == unix.EINTR {
			continue
		}
		pid := int((*childInfo)(unsafe.Pointer(&info)).pid) //nolint:gosec // package unix has no name for what the kernel writes there
		if pid == 0 {
			return // none has ended, or there is none
		}
		if waited := c.waited(pid); waited != nil {
			<-waited
			continue
		}
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
}

// childInfo is the layout of a unix.Siginfo about a child. Its union is aligned as a pointer is.
type childInfo struct {
	_   [3]int32 // signal, error, code
	_   [0]uintptr
	pid int32
}
