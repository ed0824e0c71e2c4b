package kernelprobe

import _ "embed"

//go:embed bpf/probe_arm64.o
var object []byte

// callNames are the system calls in which threads may sleep, by number: include/uapi/asm-generic/unistd.h and arch/x86/entry/syscalls.
var callNames = map[int32]string{
	4: "io_getevents", 22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 34: "mkdirat", 35: "unlinkat", 39: "umount2", 40: "mount",
	46: "ftruncate", 47: "fallocate", 56: "openat", 57: "close", 61: "getdents64", 63: "read", 64: "write", 65: "readv", 66: "writev",
	67: "pread64", 68: "pwrite64", 69: "preadv", 70: "pwritev", 71: "sendfile", 72: "pselect6", 73: "ppoll", 76: "splice", 77: "tee",
	79: "newfstatat", 80: "fstat", 81: "sync", 82: "fsync", 83: "fdatasync", 84: "sync_file_range", 93: "exit", 94: "exit_group",
	95: "waitid", 98: "futex", 101: "nanosleep", 115: "clock_nanosleep", 117: "ptrace", 124: "sched_yield", 128: "restart_syscall",
	133: "rt_sigsuspend", 137: "rt_sigtimedwait", 183: "mq_timedreceive", 188: "msgrcv", 192: "semtimedop", 202: "accept", 203: "connect",
	206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 214: "brk", 215: "munmap", 216: "mremap", 220: "clone", 221: "execve",
	222: "mmap", 226: "mprotect", 227: "msync", 233: "madvise", 242: "accept4", 243: "recvmmsg", 260: "wait4", 267: "syncfs",
	270: "process_vm_readv", 276: "renameat2", 278: "getrandom", 285: "copy_file_range", 291: "statx", 426: "io_uring_enter", 431: "fsconfig",
	435: "clone3",
}
