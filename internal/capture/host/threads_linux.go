package host

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxThreads bounds how many threads' files stay open. Go programs have some
// tens; those with more are read once a second, file by file.
const maxThreads = 512

// threads adds up the schedstat of all threads of a process: time run and time
// runnable without running, in ns (Documentation/scheduler/sched-stats.rst).
// The process's own file counts its first thread only. What ended threads
// had, as last seen, stays in the sums: they only grow.
type threads struct {
	dir  int
	tids map[int]*thread
	gone [2]int64
	// waited are the threads that had to wait for a CPU for leastWaited and more since the sums were read last.
	waited []Waited
	list   []byte
	text   [128]byte
}

type thread struct {
	fd   int
	last [2]int64
	seen bool
	read bool // once at least
}

const leastWaited = 1e6

func openThreads(pid int) (*threads, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	return &threads{dir: fd, tids: map[int]*thread{}, list: make([]byte, 16<<10)}, nil
}

func (t *threads) close() {
	for _, th := range t.tids {
		if th.fd >= 0 {
			unix.Close(th.fd)
		}
	}
	unix.Close(t.dir)
}

// relist finds new threads, and drops those that have ended.
func (t *threads) relist() error {
	if _, err := unix.Seek(t.dir, 0, 0); err != nil {
		return err
	}
	for _, th := range t.tids {
		th.seen = false
	}
	names := make([]string, 0, 64)
	for {
		n, err := unix.ReadDirent(t.dir, t.list)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(t.list[:n], -1, names)
	}
	for _, name := range names {
		tid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		th := t.tids[tid]
		if th == nil {
			th = &thread{fd: -1}
			if len(t.tids) < maxThreads {
				th.fd = t.open(tid)
			}
			t.tids[tid] = th
		}
		th.seen = true
	}
	for tid, th := range t.tids {
		if !th.seen {
			t.drop(tid, th)
		}
	}
	return nil
}

func (t *threads) open(tid int) int {
	fd, err := unix.Openat(t.dir, strconv.Itoa(tid)+"/schedstat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

func (t *threads) drop(tid int, th *thread) {
	if th.fd >= 0 {
		unix.Close(th.fd)
	}
	t.gone[0] += th.last[0]
	t.gone[1] += th.last[1]
	delete(t.tids, tid)
}

var errNoSchedstat = errors.New("the kernel has no schedstat of threads")

// read returns the sums. Count is the number of threads that the process has
// by its own file: when it differs from those known, or one of those has
// ended, they are listed again.
func (t *threads) read(count int) (run, delay int64, err error) {
	if count != len(t.tids) {
		if err := t.relist(); err != nil {
			return 0, 0, err
		}
	}
	ended, readable := false, 0
	t.waited = nil
	for tid, th := range t.tids {
		v, ok := t.one(tid, th)
		if !ok {
			ended = true
			continue
		}
		readable++
		if d := v[1] - th.last[1]; th.read && d >= leastWaited {
			t.waited = append(t.waited, Waited{int64(tid), d, v[0] - th.last[0]})
		}
		th.last, th.read = v, true
	}
	if readable == 0 {
		return 0, 0, errNoSchedstat
	}
	if ended {
		if err := t.relist(); err != nil {
			return 0, 0, err
		}
	}
	run, delay = t.gone[0], t.gone[1]
	for _, th := range t.tids {
		run += th.last[0]
		delay += th.last[1]
	}
	return run, delay, nil
}

func (t *threads) one(tid int, th *thread) ([2]int64, bool) {
	fd := th.fd
	if fd < 0 {
		if fd = t.open(tid); fd < 0 {
			return [2]int64{}, false
		}
		defer unix.Close(fd)
	}
	n, err := unix.Pread(fd, t.text[:], 0)
	if err != nil || n <= 0 {
		return [2]int64{}, false
	}
	return parseSchedstat(t.text[:n])
}
