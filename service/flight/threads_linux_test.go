package flight

import (
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// TestThreads holds the sums, with files that stay open, to those of files opened anew, while threads come
// and end; and nothing stays open after.
func TestThreads(t *testing.T) {
	open := func() int {
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(files)
	}
	before := open()
	kept := newThreads()
	if kept == nil {
		t.Skip("no /proc")
	}
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
		fresh := newThreads()
		want, _, wantN, _ := fresh.sum()
		fresh.close()
		if !ok || run < last[0] || delay < last[1] || n == 0 {
			t.Fatalf("sums %d and %d of %d threads after %v", run, delay, n, last)
		}
		// Those that live have used at least what was read of them a moment before.
		if live := run - kept.gone[0]; live > want+kept.gone[0] || n > wantN+30 {
			t.Errorf("%d ns of %d threads, anew %d of %d", live, n, want, wantN)
		}
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
