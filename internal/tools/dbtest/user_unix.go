//go:build unix

package dbtest

import (
	"os"
	osuser "os/user"
	"strconv"
	"syscall"
)

const (
	sigQuit = syscall.SIGQUIT
	sigKill = syscall.SIGKILL
)

// user is one that a server runs as.
type user struct{ uid, gid int }

// unprivileged returns the named user, or nobody, if this process is root's; nil otherwise.
func unprivileged(name string) (*user, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	found, err := osuser.Lookup(name)
	if err != nil {
		found, err = osuser.Lookup("nobody")
	}
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(found.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(found.Gid)
	return &user{uid, gid}, err
}

// own gives the user a directory.
func (u *user) own(dir string) error {
	if u == nil {
		return nil
	}
	return os.Chown(dir, u.uid, u.gid)
}

// attributes puts a server into a process group of its own, so that a terminal's ^C reaches only its parent.
func attributes(as *user, parentEnds syscall.Signal) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if as != nil {
		attr.Credential = &syscall.Credential{Uid: uint32(as.uid), Gid: uint32(as.gid)}
	}
	endWithParent(attr, parentEnds)
	return attr
}
