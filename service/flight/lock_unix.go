//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package flight

import (
	"errors"
	"os"
	"syscall"
)

// tryLock tries to lock an open file, without waiting. The kernel releases the lock when
// the file is closed or the process is killed. The lock belongs to this open file
// description, so it also works within a process and between containers, whose processes
// may all have pid 1. lockable is false if the file system has no locks.
func tryLock(f *os.File) (locked, lockable bool) {
	c, err := f.SyscallConn()
	if err != nil {
		return false, false
	}
	err = errors.Join(c.Control(func(fd uintptr) {
		for err = syscall.EINTR; err == syscall.EINTR; {
			err = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB)
		}
	}), err)
	return err == nil, err == nil || errors.Is(err, syscall.EWOULDBLOCK)
}

// isFull reports whether err means a full disk or an exhausted quota.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
