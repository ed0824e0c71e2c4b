package work

import "syscall"

// Limit bounds memory and CPU time of this process, a child. The kernel refuses it more, also when its parent was killed and
// cannot end it.
func Limit() error {
	const most, seconds = 2 << 30, 240
	if err := syscall.Setrlimit(syscall.RLIMIT_CPU, &syscall.Rlimit{Cur: seconds, Max: seconds}); err != nil {
		return err
	}
	return syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: most, Max: most})
}
