package work

import "syscall"

// Limit bounds the memory of this process, a child: the kernel refuses it more.
func Limit() error {
	const most = 2 << 30
	return syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: most, Max: most})
}
