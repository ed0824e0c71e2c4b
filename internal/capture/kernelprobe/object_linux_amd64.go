package kernelprobe

import _ "embed"

//go:embed bpf/probe_amd64.o
var object []byte

// callNames are the system calls in which threads may sleep, by number: include/uapi/asm-generic/unistd.h and arch/x86/entry/syscalls.
var callNames = map[int32]string{
	0: "read", 1: "write", 2: "open", 3: "close", 4: "stat", 5: "fstat", 6: "lstat", 7: "poll", 9: "mmap", 10: "mprotect", 11: "munmap",
	12: "brk", 16: "ioctl", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 23: "select", 24: "sched_yield", 25: "mremap",
	26: "msync", 28: "madvise", 34: "pause", 35: "nanosleep", 40: "sendfile", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom",
	46: "sendmsg", 47: "recvmsg", 56: "clone", 57: "fork", 58: "vfork", 59: "execve", 60: "exit", 61: "wait4", 70: "msgrcv", 72: "fcntl",
	73: "flock", 74: "fsync", 75: "fdatasync", 77: "ftruncate", 82: "rename", 83: "mkdir", 84: "rmdir", 85: "creat", 87: "unlink",
	101: "ptrace", 128: "rt_sigtimedwait", 130: "rt_sigsuspend", 162: "sync", 165: "mount", 166: "umount2", 202: "futex", 208: "io_getevents",
	217: "getdents64", 219: "restart_syscall", 220: "semtimedop", 230: "clock_nanosleep", 231: "exit_group", 232: "epoll_wait",
	243: "mq_timedreceive", 247: "waitid", 257: "openat", 258: "mkdirat", 262: "newfstatat", 263: "unlinkat", 270: "pselect6", 271: "ppoll",
	275: "splice", 276: "tee", 277: "sync_file_range", 281: "epoll_pwait", 285: "fallocate", 288: "accept4", 295: "preadv", 296: "pwritev",
	299: "recvmmsg", 306: "syncfs", 310: "process_vm_readv", 316: "renameat2", 318: "getrandom", 326: "copy_file_range", 332: "statx",
	426: "io_uring_enter", 431: "fsconfig", 435: "clone3",
}
