//go:build linux

package quotatest

import (
	"math/bits"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// ExecPinned executes the program again, bound to the first n CPUs it may use, and
// returns in that copy. The kernel counts throttled time for every CPU on which
// any thread waits, so a comparison with it needs as many CPUs as busy threads.
func ExecPinned(n int) error {
	const done = "WHYLATE_TEST_PINNED"
	if os.Getenv(done) != "" {
		return nil
	}
	runtime.LockOSThread() // affinity is a thread's, and execve keeps this one's
	var mask [64]uint64
	const size = unsafe.Sizeof(mask)
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, size, uintptr(unsafe.Pointer(&mask))); errno != 0 {
		return errno
	}
	for i, word := range mask {
		for cpus := bits.OnesCount64(word); cpus > n; cpus-- {
			word &^= 1 << (bits.Len64(word) - 1)
		}
		mask[i] = word
		n -= bits.OnesCount64(word)
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, size, uintptr(unsafe.Pointer(&mask))); errno != 0 {
		return errno
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(exe, os.Args, append(os.Environ(), done+"=1"))
}
