package work

import "syscall"

// LimitProcess bounds memory and CPU time of this process, a child. The kernel enforces the bounds even if the parent was killed
// and can no longer end the child.
func LimitProcess() error {
	const maxBytes, seconds = 2 << 30, 240
	if err := syscall.Setrlimit(syscall.RLIMIT_CPU, &syscall.Rlimit{Cur: seconds, Max: seconds}); err != nil {
		return err
	}
	return syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: maxBytes, Max: maxBytes})
}
