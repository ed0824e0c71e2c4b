// Package schedstat reads how long the threads of this process ran, and waited for a CPU.
package schedstat

import (
	"bytes"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// A Reader adds up the schedstat files of the process's threads (Documentation/scheduler/sched-stats.rst). Ended threads keep
// their last values, so that the sums never fall. It allocates only for new threads.
//
// It uses plain system calls: the os package would allocate for each file.
type Reader struct {
	dir        int // /proc/self/task
	maxOpen    int // maximum number of files that stay open: opening one costs several times as much as reading it
	threads    map[string]*thread
	ended      times
	reads      uint64
	dirBuffer  [8 << 10]byte
	fileBuffer [256]byte
	nameBuffer [32]byte
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
	return &Reader{dir: fd, maxOpen: open, threads: make(map[string]*thread)}
}

// Close closes all files. A reader that is nil has none.
func (r *Reader) Close() {
	if r == nil {
		return
	}
	for _, x := range r.threads {
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

// Read returns, summed over all threads of the process since the reader was created, also ended ones, how long they ran and how long they were
// runnable without running, including throttled time. n is the number of threads now. ok is false if no thread can be read or r is nil.
func (r *Reader) Read() (run, delay time.Duration, n int, ok bool) {
	if r == nil {
		return 0, 0, 0, false
	}
	r.reads++
	var sum times
	listed := r.forEachThread(func(name []byte) {
		entry := r.threads[string(name)]
		isKnown := entry != nil
		if !isKnown {
			entry = &thread{fd: -1}
			if len(r.threads) < r.maxOpen {
				entry.fd = r.openFile(name) // readThread reports an error
			}
		}
		entry.read = r.reads
		current, ok := r.readThread(name, entry)
		if !ok { // it has just ended, or there are too many open files
			sum.add(entry.times)
			entry.close()
			return
		}
		if current.run < entry.run { // another thread may have got its id
			r.ended.add(entry.times)
		}
		entry.times = current
		if !isKnown {
			r.threads[string(name)] = entry
		}
		sum.add(current)
		n++
	})
	if !listed {
		return 0, 0, 0, false
	}
	for name, entry := range r.threads {
		if entry.read != r.reads {
			r.ended.add(entry.times)
			entry.close()
			delete(r.threads, name)
		}
	}
	sum.add(r.ended)
	return sum.run, sum.delay, n, n > 0
}

func (t *times) add(u times) {
	t.run += u.run
	t.delay += u.delay
}

// forEachThread calls f with the id of each thread, and reports whether they could be listed.
func (r *Reader) forEachThread(f func(name []byte)) bool {
	if _, err := syscall.Seek(r.dir, 0, 0); err != nil {
		return false
	}
	for {
		n, err := syscall.ReadDirent(r.dir, r.dirBuffer[:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return err == nil
		}
		for rest := r.dirBuffer[:n]; len(rest) > 0; {
			var name []byte
			if name, rest = nextDirent(rest); len(name) > 0 && name[0] >= '0' && name[0] <= '9' { // not . and ..
				f(name)
			}
		}
	}
}

// nextDirent returns the name of the first entry in a buffer of struct linux_dirent64 (getdents64(2)), and the rest of the buffer. An entry has inode
// and offset of 8 bytes each, its length in 2, its type in 1, then the name up to a zero byte. A damaged entry ends the buffer.
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

// openFile opens a thread's file. It returns -1 if the thread has ended, or the kernel has no such file.
func (r *Reader) openFile(name []byte) int {
	const file = "/schedstat\x00"
	if len(name)+len(file) > len(r.nameBuffer) {
		return -1
	}
	copy(r.nameBuffer[copy(r.nameBuffer[:], name):], file)
	fd, _, errno := syscall.Syscall6(syscall.SYS_OPENAT, uintptr(r.dir), uintptr(unsafe.Pointer(&r.nameBuffer[0])), syscall.O_RDONLY|syscall.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return -1
	}
	return int(fd)
}

// readThread reads a thread's times, from its open file if there is one; false if the thread has ended or its file cannot be opened.
func (r *Reader) readThread(name []byte, x *thread) (times, bool) {
	if x.fd >= 0 {
		if n, err := syscall.Pread(x.fd, r.fileBuffer[:], 0); err == nil && n > 0 {
			return parseTimes(r.fileBuffer[:n])
		}
		x.close() // the thread has ended, and another one may have its id
	}
	fd := r.openFile(name)
	if fd < 0 {
		return times{}, false
	}
	defer syscall.Close(fd)
	n, err := syscall.Pread(fd, r.fileBuffer[:], 0)
	if err != nil {
		return times{}, false
	}
	return parseTimes(r.fileBuffer[:n])
}

// parseTimes parses a thread's schedstat: its time on CPUs and its time in run queues, both in ns; false for another form.
func parseTimes(b []byte) (t times, ok bool) {
	first, rest, _ := bytes.Cut(bytes.TrimSuffix(b, []byte("\n")), []byte(" "))
	second, _, _ := bytes.Cut(rest, []byte(" "))
	run, err := strconv.ParseUint(string(first), 10, 63)
	if err != nil {
		return times{}, false
	}
	delay, err := strconv.ParseUint(string(second), 10, 63)
	return times{time.Duration(run), time.Duration(delay)}, err == nil
}
