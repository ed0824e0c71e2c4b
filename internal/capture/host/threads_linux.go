package host

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxThreads bounds the number of open schedstat files. Go programs have some tens of
// threads; the files of further threads are opened for each read.
const maxThreads = 512

// threads sums up the schedstat of all threads of a process: time run and time runnable without
// running, in ns (Documentation/scheduler/sched-stats.rst). The file of the process itself counts its
// first thread only. The last values of ended threads remain in the sums, so the sums only grow.
type threads struct {
	dirFD      int
	byTID      map[int]*thread
	endedTimes [2]int64
	// waits lists the threads that waited for a CPU for minThreadWait or longer between the last two
	// reads.
	waits     []ThreadWait
	direntBuf []byte
	readBuf   [128]byte
}

type thread struct {
	fd        int
	lastTimes [2]int64
	isListed  bool
	hasTimes  bool // lastTimes is set
}

const minThreadWait = 1e6

// openThreads opens the directory of a process's threads. The caller closes it.
func openThreads(pid int) (*threads, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	return &threads{dirFD: fd, byTID: map[int]*thread{}, direntBuf: make([]byte, 16<<10)}, nil
}

// close closes the directory and the files of all threads.
func (t *threads) close() {
	for _, th := range t.byTID {
		if th.fd >= 0 {
			unix.Close(th.fd)
		}
	}
	unix.Close(t.dirFD)
}

// relist adds new threads and drops ended ones.
func (t *threads) relist() error {
	if _, err := unix.Seek(t.dirFD, 0, 0); err != nil {
		return err
	}
	for _, th := range t.byTID {
		th.isListed = false
	}
	names := make([]string, 0, 64)
	for {
		n, err := unix.ReadDirent(t.dirFD, t.direntBuf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(t.direntBuf[:n], -1, names)
	}
	for _, name := range names {
		tid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		th := t.byTID[tid]
		if th == nil {
			th = &thread{fd: -1}
			if len(t.byTID) < maxThreads {
				th.fd = t.openSchedstat(tid)
			}
			t.byTID[tid] = th
		}
		th.isListed = true
	}
	for tid, th := range t.byTID {
		if !th.isListed {
			t.dropEnded(tid, th)
		}
	}
	return nil
}

// openSchedstat opens the schedstat file of a thread and returns its descriptor, -1 if the thread has ended.
func (t *threads) openSchedstat(tid int) int {
	fd, err := unix.Openat(t.dirFD, strconv.Itoa(tid)+"/schedstat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

// dropEnded closes the file of an ended thread, adds its last times to those of ended threads, and forgets it.
func (t *threads) dropEnded(tid int, th *thread) {
	if th.fd >= 0 {
		unix.Close(th.fd)
	}
	t.endedTimes[0] += th.lastTimes[0]
	t.endedTimes[1] += th.lastTimes[1]
	delete(t.byTID, tid)
}

var errNoSchedstat = errors.New("the kernel has no schedstat of threads")

// read returns the sums over all threads, also ended ones, in ns: the time on a CPU, and the time runnable without one. It sets t.waits to the
// threads that waited for at least minThreadWait since the previous call. count is the number of threads in the process's stat file: if it differs
// from the number of known threads, or a known thread has ended, read lists the threads again.
func (t *threads) read(count int) (run, delay int64, err error) {
	if count != len(t.byTID) {
		if err := t.relist(); err != nil {
			return 0, 0, err
		}
	}
	ended, readable := false, 0
	t.waits = nil
	for tid, th := range t.byTID {
		v, ok := t.readThread(tid, th)
		if !ok {
			ended = true
			continue
		}
		readable++
		if d := v[1] - th.lastTimes[1]; th.hasTimes && d >= minThreadWait {
			t.waits = append(t.waits, ThreadWait{int64(tid), d, v[0] - th.lastTimes[0]})
		}
		th.lastTimes, th.hasTimes = v, true
	}
	if readable == 0 {
		return 0, 0, errNoSchedstat
	}
	if ended {
		if err := t.relist(); err != nil {
			return 0, 0, err
		}
	}
	run, delay = t.endedTimes[0], t.endedTimes[1]
	for _, th := range t.byTID {
		run += th.lastTimes[0]
		delay += th.lastTimes[1]
	}
	return run, delay, nil
}

// readThread reads the times of one thread as parseSchedstat returns them; false if the thread has ended.
func (t *threads) readThread(tid int, th *thread) ([2]int64, bool) {
	fd := th.fd
	if fd < 0 {
		if fd = t.openSchedstat(tid); fd < 0 {
			return [2]int64{}, false
		}
		defer unix.Close(fd)
	}
	n, err := unix.Pread(fd, t.readBuf[:], 0)
	if err != nil || n <= 0 {
		return [2]int64{}, false
	}
	return parseSchedstat(t.readBuf[:n])
}
