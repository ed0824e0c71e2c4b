package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// sleepFor sleeps in the kernel, on the goroutine's thread. The thread's timer slack is 50 us unless it is set (prctl(2)),
// and may be another thread's at the next call.
func sleepFor(d time.Duration) {
	_, _, _ = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, 1, 0)
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil) // a signal ends it early, and the caller looks at the clock again
}
