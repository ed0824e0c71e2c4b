// Package cputime reads how much CPU time this process has used.
package cputime

import (
	"syscall"
	"time"
	"unsafe"
)

// Process returns the CPU time of all threads of this process (CLOCK_PROCESS_CPUTIME_ID, clock_gettime(2)). The kernel brings the account of a thread
// that is running on another CPU up to date at its clock tick, so the answer may lag by a few milliseconds for each. It is false if the clock cannot
// be read.
func Process() (time.Duration, bool) {
	const clockProcessCPUTime = 2
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockProcessCPUTime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}

// Thread returns the CPU time of this thread (CLOCK_THREAD_CPUTIME_ID): lock the goroutine to it for as long as two readings are compared. It is
// false if the clock cannot be read.
func Thread() (time.Duration, bool) {
	const clockThreadCPUTime = 3
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockThreadCPUTime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}
