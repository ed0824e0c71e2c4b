package probe

import (
	"syscall"
	"time"
	"unsafe"
)

// threads sums the run-queue delay of all threads of this process, keeping its
// buffers, so that it allocates nothing after newThreads.
type threads struct {
	dir  int // /proc/self/task
	list [8 << 10]byte
	text [256]byte
	name [32]byte
}

func newThreads() *threads {
	fd, err := syscall.Open("/proc/self/task", syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &threads{dir: fd}
}

func (t *threads) close() {
	if t != nil && t.dir >= 0 {
		syscall.Close(t.dir)
		t.dir = -1
	}
}

// runDelay is the time the threads that exist now have spent runnable without
// running, since each was made: the second field of their schedstat
// (Documentation/scheduler/sched-stats.rst), in nanoseconds. It contains the
// time they were held back by a quota. n is the number of threads read.
func (t *threads) runDelay() (sum time.Duration, n int, ok bool) {
	if t == nil || t.dir < 0 {
		return 0, 0, false
	}
	if _, err := syscall.Seek(t.dir, 0, 0); err != nil {
		return 0, 0, false
	}
	for {
		m, err := syscall.ReadDirent(t.dir, t.list[:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return 0, 0, false
		}
		if m <= 0 {
			return sum, n, n > 0
		}
		for rest := t.list[:m]; len(rest) > 0; {
			var name []byte
			if name, rest = nextDirent(rest); len(name) == 0 {
				continue
			}
			if name[0] < '0' || name[0] > '9' {
				continue // . and ..
			}
			if d, ok := t.one(name); ok {
				sum += d
				n++
			}
		}
	}
}

// nextDirent takes one entry off a buffer of struct linux_dirent64
// (getdents64(2)): inode and offset of 8 bytes each, the entry's length in 2,
// its type in 1, then the name up to a zero byte.
func nextDirent(b []byte) (name, rest []byte) {
	const lengthAt, nameAt = 16, 19
	if len(b) < nameAt {
		return nil, nil
	}
	n := int(*(*uint16)(unsafe.Pointer(&b[lengthAt])))
	if n < nameAt || n > len(b) {
		return nil, nil
	}
	name = b[nameAt:n]
	for i, c := range name {
		if c == 0 {
			name = name[:i]
			break
		}
	}
	return name, b[n:]
}

func (t *threads) one(tid []byte) (time.Duration, bool) {
	const file = "/schedstat\x00"
	if len(tid)+len(file) > len(t.name) {
		return 0, false
	}
	copy(t.name[copy(t.name[:], tid):], file)
	fd, _, errno := syscall.Syscall6(syscall.SYS_OPENAT, uintptr(t.dir), uintptr(unsafe.Pointer(&t.name[0])), syscall.O_RDONLY|syscall.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return 0, false // the thread has ended, or the kernel has no such file
	}
	n, err := syscall.Read(int(fd), t.text[:])
	syscall.Close(int(fd))
	if err != nil || n <= 0 {
		return 0, false
	}
	return secondField(t.text[:n])
}

// secondField reads the second of some numbers with spaces between.
func secondField(b []byte) (time.Duration, bool) {
	i := 0
	for i < len(b) && b[i] != ' ' {
		i++
	}
	i++
	start := i
	var v uint64
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		if v > 1<<59 {
			return 0, false
		}
		v = v*10 + uint64(b[i]-'0')
		i++
	}
	return time.Duration(v), i > start && v <= 1<<63-1
}

// stolen reads how long the hypervisor ran something else while this machine's
// CPUs wanted to run, summed over all of them: the eighth number of
// /proc/stat's first line, in hundredths of a second (proc_stat(5); USER_HZ is
// 100 on every architecture Go runs on).
type stolen struct {
	fd  int
	buf [512]byte
}

func newStolen() *stolen {
	fd, err := syscall.Open("/proc/stat", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &stolen{fd: fd}
}

func (s *stolen) close() {
	if s != nil && s.fd >= 0 {
		syscall.Close(s.fd)
		s.fd = -1
	}
}

func (s *stolen) read() (time.Duration, bool) {
	if s == nil || s.fd < 0 {
		return 0, false
	}
	n, err := syscall.Pread(s.fd, s.buf[:], 0)
	if err != nil || n <= 0 {
		return 0, false
	}
	return parseSteal(s.buf[:n])
}

func parseSteal(b []byte) (time.Duration, bool) {
	if len(b) < 4 || string(b[:4]) != "cpu " {
		return 0, false
	}
	i, field := 4, 0
	for {
		for i < len(b) && b[i] == ' ' {
			i++
		}
		start := i
		var v int64
		for i < len(b) && b[i] >= '0' && b[i] <= '9' {
			if v > 1<<55 {
				return 0, false
			}
			v = v*10 + int64(b[i]-'0')
			i++
		}
		if i == start {
			return 0, false // fewer fields: a kernel before 2.6.11
		}
		if field++; field == 8 {
			if v > int64(1<<63-1)/int64(10*time.Millisecond) {
				return 0, false
			}
			return time.Duration(v) * 10 * time.Millisecond, true
		}
	}
}
