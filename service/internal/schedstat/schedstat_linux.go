// Package schedstat reads how long the threads of this process ran, and waited for a CPU.
package schedstat

import (
	"bytes"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// A Reader adds up the schedstat files of the process's threads (Documentation/scheduler/sched-stats.rst). Threads that have ended
// keep what they had when last seen, so that the sums never fall. It allocates only for threads that it has not seen before.
//
// It uses plain system calls: the os package would allocate for each file.
type Reader struct {
	dir   int // /proc/self/task
	most  int // files that stay open: to open one costs several times as much as to read it again
	last  map[string]*thread
	gone  times
	reads uint64
	list  [8 << 10]byte
	text  [256]byte
	name  [32]byte
}

// times are the first two fields of a schedstat: on a CPU, and runnable without one.
type times struct{ run, delay time.Duration }

type thread struct {
	times
	fd   int    // -1 if not open
	read uint64 // the last read that found it
}

// New returns a reader that keeps the files of the first threads open, at most so many; nil where there are none.
func New(open int) *Reader {
	fd, err := syscall.Open("/proc/self/task", syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &Reader{dir: fd, most: open, last: make(map[string]*thread)}
}

// Close closes all files. A reader that is nil has none.
func (r *Reader) Close() {
	if r == nil {
		return
	}
	for _, x := range r.last {
		x.close()
	}
	syscall.Close(r.dir)
}

func (x *thread) close() {
	if x.fd >= 0 {
		syscall.Close(x.fd)
		x.fd = -1
	}
}

// Read returns how long all threads ran, and how long they were runnable without running, which contains the time that a quota
// held them back. n is the number of threads now.
func (r *Reader) Read() (run, delay time.Duration, n int, ok bool) {
	if r == nil {
		return 0, 0, 0, false
	}
	r.reads++
	var sum times
	listed := r.threads(func(name []byte) {
		x := r.last[string(name)]
		known := x != nil
		if !known {
			x = &thread{fd: -1}
			if len(r.last) < r.most {
				x.fd = r.open(name) // readThread says what is wrong
			}
		}
		x.read = r.reads
		now, ok := r.readThread(name, x)
		if !ok { // it has just ended, or there are too many open files
			sum.add(x.times)
			x.close()
			return
		}
		if now.run < x.run { // another thread may have got its number
			r.gone.add(x.times)
		}
		x.times = now
		if !known {
			r.last[string(name)] = x
		}
		sum.add(now)
		n++
	})
	if !listed {
		return 0, 0, 0, false
	}
	for name, x := range r.last {
		if x.read != r.reads {
			r.gone.add(x.times)
			x.close()
			delete(r.last, name)
		}
	}
	sum.add(r.gone)
	return sum.run, sum.delay, n, n > 0
}

func (t *times) add(u times) {
	t.run += u.run
	t.delay += u.delay
}

// threads calls f with the number of each thread, and reports whether they could be listed.
func (r *Reader) threads(f func(name []byte)) bool {
	if _, err := syscall.Seek(r.dir, 0, 0); err != nil {
		return false
	}
	for {
		n, err := syscall.ReadDirent(r.dir, r.list[:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return err == nil
		}
		for rest := r.list[:n]; len(rest) > 0; {
			var name []byte
			if name, rest = nextDirent(rest); len(name) > 0 && name[0] >= '0' && name[0] <= '9' { // not . and ..
				f(name)
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
	name, _, _ = bytes.Cut(b[nameAt:n], []byte{0})
	return name, b[n:]
}

// open opens a thread's file. It returns -1 if the thread has ended, or the kernel has no such file.
func (r *Reader) open(name []byte) int {
	const file = "/schedstat\x00"
	if len(name)+len(file) > len(r.name) {
		return -1
	}
	copy(r.name[copy(r.name[:], name):], file)
	fd, _, errno := syscall.Syscall6(syscall.SYS_OPENAT, uintptr(r.dir), uintptr(unsafe.Pointer(&r.name[0])), syscall.O_RDONLY|syscall.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return -1
	}
	return int(fd)
}

func (r *Reader) readThread(name []byte, x *thread) (times, bool) {
	if x.fd >= 0 {
		if n, err := syscall.Pread(x.fd, r.text[:], 0); err == nil && n > 0 {
			return parse(r.text[:n])
		}
		x.close() // of a thread that has ended, whose number another one may have
	}
	fd := r.open(name)
	if fd < 0 {
		return times{}, false
	}
	defer syscall.Close(fd)
	n, err := syscall.Pread(fd, r.text[:], 0)
	if err != nil {
		return times{}, false
	}
	return parse(r.text[:n])
}

func parse(b []byte) (t times, ok bool) {
	first, rest, _ := bytes.Cut(bytes.TrimSuffix(b, []byte("\n")), []byte(" "))
	second, _, _ := bytes.Cut(rest, []byte(" "))
	run, err := strconv.ParseUint(string(first), 10, 63)
	if err != nil {
		return times{}, false
	}
	delay, err := strconv.ParseUint(string(second), 10, 63)
	return times{time.Duration(run), time.Duration(delay)}, err == nil
}
