package flight

import (
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/must"
)

// TestThreads holds the sums, with files that stay open, to those of files opened again, while threads come
// and end; and nothing stays open after.
func TestThreads(t *testing.T) {
	open := func() int {
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(files)
	}
	first := newThreads()
	if first == nil {
		t.Skip("no /proc")
	}
	first.sum() // what the first one opens for good, the poller and the like
	first.close()
	before := open()
	kept := newThreads()
	last := [2]int64{}
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
		run, delay, n, ok := kept.sum()
		if !ok || run < last[0] || delay < last[1] || n == 0 {
			t.Fatalf("sums %d and %d of %d threads after %v", run, delay, n, last)
		}
		// What is read of a thread lies between what is read again before and after.
		before, after := newThreads(), newThreads()
		before.sum()
		kept.sum()
		after.sum()
		for name, x := range kept.last {
			if y := before.last[name]; y != nil && x.v[0] < y.v[0] {
				t.Errorf("thread %s ran %d ns, before it was %d", name, x.v[0], y.v[0])
			}
			if y := after.last[name]; y != nil && x.v[0] > y.v[0] {
				t.Errorf("thread %s ran %d ns, after it was %d", name, x.v[0], y.v[0])
			}
		}
		before.close()
		after.close()
		last = [2]int64{run, delay}
	}
	if len(kept.last) > mostOpen+64 {
		t.Errorf("%d threads are remembered", len(kept.last))
	}
	kept.close()
	if after := open(); after > before+1 { // the directory that is being listed
		t.Errorf("%s files are open, before %s", strconv.Itoa(after), strconv.Itoa(before))
	}
}

func BenchmarkThreads(b *testing.B) {
	t := newThreads()
	defer t.close()
	for b.Loop() {
		t.sum()
	}
}

// TestThreadsStayOpen tests that a thread's file is opened once, not for each sample: that costs four times as much.
func TestThreadsStayOpen(t *testing.T) {
	kept := newThreads()
	if kept == nil {
		t.Skip("no /proc")
	}
	defer kept.close()
	kept.sum()
	files := map[string]*os.File{}
	for name, x := range kept.last {
		files[name] = x.file
	}
	same := 0
	kept.sum()
	for name, x := range kept.last {
		if x.file != nil && x.file == files[name] {
			same++
		}
	}
	if same == 0 {
		t.Errorf("of %d threads all were opened again", len(files))
	}
}

// TestThreadRead: a thread whose file is not open, or is of one that has ended, is read all the same; one that is none is not.
func TestThreadRead(t *testing.T) {
	kept := newThreads()
	if kept == nil {
		t.Skip("no /proc")
	}
	defer kept.close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own := strconv.Itoa(syscall.Gettid())
	if b, err := os.ReadFile(path(own)); err != nil || len(b) == 0 {
		t.Skip("no schedstat")
	}
	closed := must.Have(os.Open(path(own)))(t)
	closed.Close()
	for name, x := range map[string]*thread{"no file": {}, "a closed file": {file: closed}} {
		if v, ok := kept.read(own, x); !ok || x.file != nil || v[0] < 0 {
			t.Errorf("with %s: %v, %v", name, v, ok)
		}
	}
	if _, ok := kept.read("0", &thread{}); ok {
		t.Error("a thread that is none was read")
	}
	var none *threads
	if _, _, _, ok := none.sum(); ok {
		t.Error("without /proc there is a sum")
	}
	none.close()
}
