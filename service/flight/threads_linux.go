package flight

import (
	"os"
	"strconv"
	"strings"
)

// threads sums the schedstat of the process's threads
// (Documentation/scheduler/sched-stats.rst): time on a CPU, and time runnable
// without one, in ns. Threads that have ended keep what they had when last seen,
// so that the sums never fall.
type threads struct {
	last map[string][2]int64
	gone [2]int64
	buf  [128]byte
}

func newThreads() *threads {
	if _, err := os.Stat("/proc/self/task"); err != nil {
		return nil
	}
	return &threads{last: make(map[string][2]int64)}
}

func (t *threads) close() {}

func (t *threads) sum() (run, delay int64, n int, ok bool) {
	if t == nil {
		return 0, 0, 0, false
	}
	dir, err := os.Open("/proc/self/task")
	if err != nil {
		return 0, 0, 0, false
	}
	names, err := dir.Readdirnames(-1)
	dir.Close()
	if err != nil {
		return 0, 0, 0, false
	}
	now := make(map[string][2]int64, len(names))
	for _, name := range names {
		if v, ok := t.read(name); ok {
			now[name] = v
			run, delay, n = run+v[0], delay+v[1], n+1
		}
	}
	for name, v := range t.last {
		if w, ok := now[name]; !ok || w[0] < v[0] { // another thread may have got its number
			t.gone[0] += v[0]
			t.gone[1] += v[1]
		}
	}
	t.last = now
	return run + t.gone[0], delay + t.gone[1], n, n > 0
}

func (t *threads) read(name string) (v [2]int64, ok bool) {
	f, err := os.Open("/proc/self/task/" + name + "/schedstat")
	if err != nil {
		return v, false
	}
	n, err := f.Read(t.buf[:])
	f.Close()
	if err != nil {
		return v, false
	}
	words := strings.Fields(string(t.buf[:n]))
	if len(words) < 2 {
		return v, false
	}
	for i := range v {
		if v[i], err = strconv.ParseInt(words[i], 10, 64); err != nil {
			return v, false
		}
	}
	return v, true
}
