//go:build unix && !linux

package cputime

import (
	"syscall"
	"time"
)

// Process returns the CPU time of all threads of this process; false if it cannot be read.
func Process() (time.Duration, bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}

// Thread is not measurable here.
func Thread() (time.Duration, bool) { return 0, false }
