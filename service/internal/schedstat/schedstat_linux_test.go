package schedstat

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

const mostOpen = 64

// TestThreads compares the sums of a reader that keeps files open with those of one that opens them again,
// while threads start and end. No file stays open afterwards.
func TestThreads(t *testing.T) {
	open := func() int {
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(files)
	}
	first := New(mostOpen)
	if first == nil {
		t.Skip("no /proc")
	}
	first.Read() // what the first one opens for good, the poller and the like
	first.Close()
	before := open()
	openReader := New(mostOpen)
	last := times{}
	ended := make(chan bool)
	for i := range 30 {
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			for end := time.Now().Add(2 * time.Millisecond); time.Now().Before(end); {
			}
			ended <- true
		}()
		if i%3 == 0 {
			<-ended
		} else {
			defer func() { <-ended }()
		}
		run, delay, n, ok := openReader.Read()
		must.True(t, ok && run >= last.run && delay >= last.delay && n != 0, "sums %v and %v of %d threads after %v", run, delay, n, last)
		// A thread's times are between those of readings before and after.
		before, after := New(mostOpen), New(mostOpen)
		before.Read()
		openReader.Read()
		after.Read()
		for name, x := range openReader.threads {
			if y := before.threads[name]; y != nil && x.run < y.run {
				t.Errorf("thread %s ran %v, before it was %v", name, x.run, y.run)
			}
			if y := after.threads[name]; y != nil && x.run > y.run {
				t.Errorf("thread %s ran %v, after it was %v", name, x.run, y.run)
			}
		}
		before.Close()
		after.Close()
		last = times{run, delay}
	}
	check.True(t, len(openReader.threads) <= mostOpen+64, "%d threads are remembered", len(openReader.threads))
	openReader.Close()
	if after := open(); after > before+1 { // the directory that is being listed
		t.Errorf("%s files are open, before %s", strconv.Itoa(after), strconv.Itoa(before))
	}
}

func BenchmarkThreads(b *testing.B) {
	t := New(mostOpen)
	defer t.Close()
	for b.Loop() {
		t.Read()
	}
}

// TestThreadsStayOpen tests that a thread's file is opened once, not for each sample: that costs four times as much.
func TestThreadsStayOpen(t *testing.T) {
	openReader := New(mostOpen)
	if openReader == nil {
		t.Skip("no /proc")
	}
	defer openReader.Close()
	openReader.Read()
	files := map[string]int{}
	for name, x := range openReader.threads {
		files[name] = x.fd
	}
	unchanged := 0
	openReader.Read()
	for name, x := range openReader.threads {
		if x.fd >= 0 && x.fd == files[name] {
			unchanged++
		}
	}
	check.True(t, unchanged != 0, "of %d threads all were opened again", len(files))
}

// TestThreadRead tests reading a thread whose file is not open or belongs to an ended thread, and a missing thread.
func TestThreadRead(t *testing.T) {
	openReader := New(mostOpen)
	if openReader == nil {
		t.Skip("no /proc")
	}
	defer openReader.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	self := strconv.AppendInt(nil, int64(syscall.Gettid()), 10)
	fd := openReader.openFile(self)
	if fd < 0 {
		t.Skip("no schedstat")
	}
	syscall.Close(fd)
	for name, x := range map[string]*thread{"no file": {fd: -1}, "a file that cannot be read": {fd: must.Have(syscall.Open("/proc/self/task", syscall.O_RDONLY, 0))(t)}} {
		if v, ok := openReader.readThread(self, x); !ok || x.fd >= 0 || v.run < 0 {
			t.Errorf("with %s: %v, %v", name, v, ok)
		}
	}
	for _, missing := range []string{"0", "12345678901234567890123456789012"} {
		if _, ok := openReader.readThread([]byte(missing), &thread{fd: -1}); ok {
			t.Error("a thread that is none was read")
		}
	}
	var missing *Reader
	if _, _, _, ok := missing.Read(); ok {
		t.Error("without /proc there is a sum")
	}
	missing.Close()
}

// TestAgreesWithProc tests that the sum over all threads is between two sums of package
// os, read before and after.
func TestAgreesWithProc(t *testing.T) {
	sum := func() time.Duration {
		dirs, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Skip("no /proc/self/task: ", err)
		}
		var total time.Duration
		for _, d := range dirs {
			b, err := os.ReadFile("/proc/self/task/" + d.Name() + "/schedstat")
			if err != nil {
				t.Skip("no schedstat: ", err)
			}
			n := must.Have(strconv.ParseInt(strings.Fields(string(b))[1], 10, 64))(t)
			total += time.Duration(n)
		}
		return total
	}
	reader := New(0)
	defer reader.Close()
	before := sum()
	_, got, n, ok := reader.Read()
	after := sum()
	check.True(t, ok && n >= 1 && got >= before && got <= after,
		"%v of %d threads, ok %v, not between %v and %v", got, n, ok, before, after)
}

// TestAllocatesNothing tests allocations: a probe reads once a second, and a recorder twenty times.
func TestAllocatesNothing(t *testing.T) {
	for _, open := range []int{0, mostOpen} {
		r := New(open)
		if r == nil {
			t.Skip("no /proc")
		}
		r.Read()
		if n := testing.AllocsPerRun(100, func() { r.Read() }); n != 0 {
			t.Errorf("with %d files open: %v allocations", open, n)
		}
		r.Close()
	}
}

// TestCannotBeRead tests that threads whose files cannot be opened for a while keep their values and are not counted twice.
func TestCannotBeRead(t *testing.T) {
	r := New(0)
	if r == nil {
		t.Skip("no /proc")
	}
	defer r.Close()
	run, delay, _, ok := r.Read()
	if !ok {
		t.Skip("no schedstat")
	}
	var limit syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	must.Do(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: limit.Max}))
	run2, delay2, n, ok := r.Read()
	must.Do(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	check.True(t, !ok && n == 0 && run2 == run && delay2 == delay && r.ended == (times{}),
		"without files %v and %v of %d threads, %v; before %v and %v", run2, delay2, n, ok, run, delay)
}

// TestParse tests contents of a file, also cut at any byte: the result is two numbers or an error.
func TestParse(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"12 34 5\n": 34, "12 34": 34, "0 0 0\n": 0, "1 9": 9, "1 9\n": 9, "12": -1, "": -1, " ": -1, "12 ": -1, "12 x": -1, "x 7": -1, "1 576460752303423488 1": 576460752303423488,
		"1 99999999999999999999999": -1, "99999999999999999999999 1": -1, "-1 1": -1, "1 -1": -1,
	} {
		got, ok := parseTimes([]byte(text))
		if !ok {
			got.delay = -1
		}
		check.Equal(t, got.delay, want, "%q: %d", text, got)
		for i := range text {
			parseTimes([]byte(text)[:i])
		}
	}
}

func FuzzProcText(f *testing.F) {
	f.Add([]byte("12 34 5\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, ok := parseTimes(b); ok && (v.delay < 0 || v.run < 0) {
			t.Errorf("%v", v)
		}
		for rest := b; len(rest) > 0; {
			_, rest = nextDirent(rest)
		}
	})
}
