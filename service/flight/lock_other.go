//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package flight

import "os"

// tryLock locks nothing on these systems. removeParts decides by the process id in a part file's name instead.
func tryLock(*os.File) (locked, lockable bool) { return false, false }

// isFull returns false: on these systems a full disk is not distinguished from other errors.
func isFull(error) bool { return false }
