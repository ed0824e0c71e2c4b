//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/automaxprocs/maxprocs"

	"github.com/whylate/whylate/service/tune"
)

const (
	roleVariable = "WHYLATE_CASES_ROLE"
	loadVariable = "WHYLATE_CASES_LOAD"
)

// A load is what the service does. Sizes are MiB.
type load struct {
	From, To        int
	Steps           int // the way from From to To; 0 is steady
	Late            bool
	File, C, Shared int
	Bursts          bool
	Length          time.Duration
}

// answer is what the service says before it ends.
type answer struct {
	Work  float64 // units a second
	Procs int
	Limit int64
	GOGC  int
}

type node struct {
	next *node
	_    [1000]byte
}

func serve(arm string) {
	var l load
	check(json.Unmarshal([]byte(os.Getenv(loadVariable)), &l))
	switch arm {
	case "peers":
		_, err := maxprocs.Set()
		check(err)
		// It fails where there is no limit, which is no failure here.
		_, _ = memlimit.Set(memlimit.WithRatio(0.9), memlimit.WithLogger(slog.New(slog.DiscardHandler)))
	case "whylate":
		tune.Start(tune.Options{Procs: tune.ModeApply, Memory: tune.ModeApply, GC: tune.ModeApply, Logger: slog.New(slog.DiscardHandler)})
	}
	if l.File > 0 {
		go reread(l.File)
	}
	if l.C > 0 {
		defer runtime.KeepAlive(mapped(l.C, syscall.MAP_PRIVATE))
	}
	if l.Shared > 0 {
		defer runtime.KeepAlive(mapped(l.Shared, syscall.MAP_SHARED))
	}
	var heads [64]*node
	held := 0
	hold := func(mib int) {
		for ; held < mib<<10; held++ {
			heads[held%64] = &node{next: heads[held%64]}
		}
	}
	hold(l.From)
	var units atomic.Int64
	var wg sync.WaitGroup
	begun := time.Now()
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for passed := time.Duration(0); passed < l.Length; passed = time.Since(begun) {
				if l.Bursts && passed/(100*time.Millisecond)%3 != 0 {
					time.Sleep(5 * time.Millisecond)
					continue
				}
				unit()
				units.Add(1)
			}
		}()
	}
	for passed := time.Duration(0); passed < l.Length; passed = time.Since(begun) {
		if l.To > l.From {
			share := float64(passed) / float64(l.Length)
			if l.Late {
				share = max(0, 2*share-1)
			}
			if l.Steps > 0 {
				share = float64(int(share*float64(l.Steps+1))) / float64(l.Steps)
			}
			hold(l.From + int(float64(l.To-l.From)*min(1, share)))
		}
		time.Sleep(5 * time.Millisecond)
	}
	wg.Wait()
	a := answer{Work: float64(units.Load()) / time.Since(begun).Seconds(), Procs: runtime.GOMAXPROCS(0), Limit: debug.SetMemoryLimit(-1)}
	a.GOGC = debug.SetGCPercent(100)
	runtime.KeepAlive(heads)
	check(json.NewEncoder(os.Stdout).Encode(a))
}

var sink atomic.Uint64

// unit allocates 64 KiB in blocks of 1 KiB, writes and reads them.
func unit() {
	var blocks [64][]byte
	sum := uint64(0)
	for i := range blocks {
		b := make([]byte, 1024)
		for k := range b {
			b[k] = byte(i + k)
		}
		blocks[i] = b
	}
	for _, b := range blocks {
		for _, x := range b {
			sum += uint64(x)
		}
	}
	sink.Add(sum)
}

// mapped maps memory that the runtime does not know of, and touches it.
func mapped(mib, kind int) []byte {
	b, err := syscall.Mmap(-1, 0, mib<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|kind)
	check(err)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return b
}

// reread writes a file and reads it again and again, by read(2), so that the
// page cache counts it as in use.
func reread(mib int) {
	f, err := os.CreateTemp("", "whylate-cases-")
	check(err)
	check(os.Remove(f.Name()))
	block := make([]byte, 256<<10)
	for range 4 * mib {
		_, err := f.Write(block)
		check(err)
	}
	check(f.Sync())
	for {
		if n, err := f.Read(block); n == 0 || err != nil {
			_, err := f.Seek(0, 0)
			check(err)
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "cases:", err)
		os.Exit(1)
	}
}
