package flight

import (
	"io"
	"os"
	"strconv"
	"strings"
)

// threads sums the schedstat of the process's threads
// (Documentation/scheduler/sched-stats.rst): time on a CPU, and time runnable
// without one, in ns. Threads that have ended keep what they had when last seen,
// so that the sums never fall.
//
// To open a file of /proc costs several times as much as to read it again, so the
// first ones stay open.
type threads struct {
	dir  *os.File
	last map[string]*thread
	gone [2]int64
	n    uint64 // samples
	buf  [128]byte
}

type thread struct {
	v    [2]int64
	file *os.File // nil past mostOpen
	n    uint64   // the last sample that had it
}

// mostOpen is how many files of threads stay open.
const mostOpen = 64

const tasks = "/proc/self/task"

func newThreads() *threads {
	dir, err := os.Open(tasks)
	if err != nil {
		return nil
	}
	return &threads{dir: dir, last: make(map[string]*thread)}
}

func (t *threads) close() {
	if t == nil {
		return
	}
	for _, x := range t.last {
		x.close()
	}
	_ = t.dir.Close()
}

func (x *thread) close() {
	if x.file != nil {
		_ = x.file.Close()
		x.file = nil
	}
}

func (t *threads) sum() (run, delay int64, n int, ok bool) {
	if t == nil {
		return 0, 0, 0, false
	}
	if _, err := t.dir.Seek(0, io.SeekStart); err != nil {
		return 0, 0, 0, false
	}
	names, err := t.dir.Readdirnames(-1)
	if err != nil {
		return 0, 0, 0, false
	}
	t.n++
	for _, name := range names {
		x := t.last[name]
		if x == nil {
			x = new(thread)
			if len(t.last) < mostOpen {
				x.file, _ = os.Open(path(name)) // read says what is wrong
			}
		}
		v, ok := t.read(name, x)
		if !ok {
			x.close()
			continue
		}
		if v[0] < x.v[0] { // another thread may have got its number
			t.gone[0] += x.v[0]
			t.gone[1] += x.v[1]
		}
		x.v, x.n = v, t.n
		t.last[name] = x
		run, delay, n = run+v[0], delay+v[1], n+1
	}
	for name, x := range t.last {
		if x.n != t.n {
			t.gone[0] += x.v[0]
			t.gone[1] += x.v[1]
			x.close()
			delete(t.last, name)
		}
	}
	return run + t.gone[0], delay + t.gone[1], n, n > 0
}

func path(name string) string { return tasks + "/" + name + "/schedstat" }

func (t *threads) read(name string, x *thread) (v [2]int64, ok bool) {
	n, err := 0, os.ErrInvalid
	if x.file != nil {
		if n, err = x.file.ReadAt(t.buf[:], 0); err == io.EOF {
			err = nil
		}
	}
	if err != nil || n == 0 {
		// Not open, or of a thread that has ended whose number another one has.
		x.close()
		f, oerr := os.Open(path(name))
		if oerr != nil {
			return v, false
		}
		n, err = f.Read(t.buf[:])
		f.Close()
		if err != nil {
			return v, false
		}
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
