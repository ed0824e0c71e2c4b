package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	_ "net/http/pprof" // registers the endpoints that are recorded
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// sink prevents the compiler from removing work.
var sink atomic.Uint64

// threadTime returns the CPU time of the calling thread.
func threadTime() time.Duration {
	var t syscall.Timespec
	const threadClock = 3 // CLOCK_THREAD_CPUTIME_ID
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&t)), 0)
	return time.Duration(t.Nano())
}

// compute needs an amount of CPU time, whatever other processes do.
func compute(d time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for end := threadTime() + d; threadTime() < end; {
		x := uint64(1)
		for range 20_000 {
			x = x*6364136223846793005 + 1442695040888963407
		}
		sink.Add(x)
	}
}

type node struct {
	next *node
	data [6]uint64
}

// milliseconds returns the parameter ms of a request.
func milliseconds(r *http.Request) time.Duration {
	ms, _ := strconv.ParseFloat(r.URL.Query().Get("ms"), 64)
	return time.Duration(ms * 1e6)
}

// serve is the service of a scenario.
func serve(args []string) {
	f := flag.NewFlagSet("service", flag.ExitOnError)
	addr, data, busy, garbage := f.String("addr", "", ""), f.String("data", "", ""), f.Int("busy", 0, ""), f.Bool("garbage", false, "")
	_ = f.Parse(args)
	file, err := os.OpenFile(*data, os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	state, err := file.Stat()
	if err != nil {
		panic(err)
	}
	pages, err := syscall.Mmap(int(file.Fd()), 0, int(state.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	_ = syscall.Madvise(pages, syscall.MADV_RANDOM)
	log, err := os.Create(*data + ".log")
	if err != nil {
		panic(err)
	}
	var live *node
	if *garbage {
		debug.SetGCPercent(20)
		for range 300_000 {
			live = &node{next: live}
		}
	}
	for range *busy {
		go func() {
			for {
				compute(time.Millisecond)
			}
		}()
	}
	var next atomic.Uint64
	var mu sync.Mutex
	http.HandleFunc("/work", func(w http.ResponseWriter, r *http.Request) { compute(milliseconds(r)); fmt.Fprintln(w, "done") })
	http.HandleFunc("/wait", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(5 * time.Millisecond)
		compute(milliseconds(r))
		fmt.Fprintln(w, "done")
	})
	http.HandleFunc("/lock", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		compute(2 * time.Millisecond)
		mu.Unlock()
		fmt.Fprintln(w, "done")
	})
	http.HandleFunc("/fault", func(w http.ResponseWriter, _ *http.Request) {
		sum := 0
		for range 8 {
			sum += int(pages[next.Add(0x9E3779B97F4A7C15)%uint64(len(pages))])
		}
		fmt.Fprintln(w, sum)
	})
	http.HandleFunc("/sync", func(w http.ResponseWriter, _ *http.Request) {
		_, err := log.Write(make([]byte, 4096))
		if err == nil {
			err = log.Sync()
		}
		fmt.Fprintln(w, err)
	})
	http.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintln(w, n)
	})
	http.HandleFunc("/garbage", func(w http.ResponseWriter, _ *http.Request) {
		var list *node
		for range 10_000 {
			list = &node{next: list}
		}
		runtime.KeepAlive(live)
		fmt.Fprintln(w, list.data[0])
	})
	http.HandleFunc("/exec", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, exec.Command("true").Run()) })
	panic(http.ListenAndServe(*addr, nil))
}
