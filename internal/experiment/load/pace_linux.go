package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// sleepFor sleeps in the kernel, on the goroutine's thread. It sets the thread's timer slack, which is
// 50 us by default (prctl(2)), each time, because the next call may run on another thread.
func sleepFor(d time.Duration) {
	_, _, _ = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, 1, 0)
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil) // a signal ends it early; the caller checks the clock
}
