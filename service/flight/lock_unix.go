//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package flight

import (
	"errors"
	"os"
	"syscall"
)

// tryLock takes the lock of an open file, without waiting. It is given back when the
// file is closed, also by a kill. It belongs to this one opening of the file, so
// that it holds within a process and between containers, whose processes may all have
// the number 1. known is false where the file system has no locks.
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

// isFull reports whether there is no room where something was written.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
