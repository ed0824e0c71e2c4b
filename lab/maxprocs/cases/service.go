//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/automaxprocs/maxprocs"

	"github.com/whylate/whylate/lab/vm/check"
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
	// Both says that the libraries are linked beside whylate, Meddle that other
	// code changes the settings all the time.
	Both, Meddle bool
	// Stride is how many bytes apart a unit writes and reads: 1, or in an emulated
	// machine more. There a collection takes as long as twenty elsewhere, and a run
	// must have some.
	Stride int
	// Disk is a block device that is read in place of a file.
	Disk string

	// Where it is done.
	Dirs   []string
	Mounts string
	How    check.Surroundings
	CPUs   int
	Over   []over
	Blind  bool
}

// over is a file that says something else in the service's namespace.
type over struct{ File, Text string }

func (l *load) text() string {
	b, err := json.Marshal(l)
	must(err)
	return string(b)
}

// answer is what the service says before it ends.
type answer struct {
	Work  float64 // units a second
	Procs int
	Limit int64
	GOGC  int
	// Cycles are its collections, CPU its seconds.
	Cycles int64
	CPU    float64
}

type node struct {
	next *node
	_    [1000]byte
}

// live is the life of a process that has a role: a service, or a neighbour. With
// "join:" before it, it goes to its place first.
func live(role string) {
	var l load
	must(json.Unmarshal([]byte(os.Getenv(loadVariable)), &l))
	if next, ok := strings.CutPrefix(role, "join:"); ok {
		must(enter(&l, next))
	}
	if role == "spin" {
		for range runtime.GOMAXPROCS(0) {
			go func() {
				for {
					unit(1)
				}
			}()
		}
		select {}
	}
	serve(role, l)
}

// peers does what importing both libraries does: that they fail where there is
// no limit is no failure here.
func peers() {
	_, _ = maxprocs.Set()
	_, _ = memlimit.Set(memlimit.WithRatio(0.9), memlimit.WithLogger(slog.New(slog.DiscardHandler)))
}

func serve(arm string, l load) {
	switch arm {
	case "peers":
		peers()
	case "whylate":
		if l.Both {
			peers()
		}
		tune.Start(tune.Options{Procs: tune.ModeApply, Memory: tune.ModeApply, GC: tune.ModeApply, Logger: slog.New(slog.DiscardHandler)})
	}
	if l.Meddle {
		go meddle()
	}
	if l.File > 0 {
		go reread(l.File, l.Disk)
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
				unit(l.Stride)
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
	var m debug.GCStats
	debug.ReadGCStats(&m)
	a.Cycles = m.NumGC
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) == nil {
		a.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
	}
	runtime.KeepAlive(heads)
	must(json.NewEncoder(os.Stdout).Encode(a))
}

var sink atomic.Uint64

// unit allocates 64 KiB in blocks of 1 KiB, writes and reads them.
func unit(stride int) {
	var blocks [64][]byte
	sum := uint64(0)
	for i := range blocks {
		b := make([]byte, 1024)
		for k := 0; k < len(b); k += stride {
			b[k] = byte(i + k)
		}
		blocks[i] = b
	}
	for _, b := range blocks {
		for k := 0; k < len(b); k += stride {
			sum += uint64(b[k])
		}
	}
	sink.Add(sum)
}

// mapped maps memory that the runtime does not know of, and touches it.
func mapped(mib, kind int) []byte {
	b, err := syscall.Mmap(-1, 0, mib<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|kind)
	must(err)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return b
}

// reread writes a file and reads it again and again, by read(2), so that the
// page cache counts it as in use.
func reread(mib int, disk string) {
	block := make([]byte, 256<<10)
	f := open(mib, disk, block)
	for read := 0; ; read += len(block) {
		if n, err := f.Read(block); n == 0 || err != nil || read >= mib<<20 {
			_, err := f.Seek(0, 0)
			must(err)
			read = 0
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func open(mib int, disk string, block []byte) *os.File {
	if disk != "" {
		// Its pages are cache like a file's, which a file system in memory does
		// not have.
		f, err := os.Open(disk)
		must(err)
		return f
	}
	f, err := os.CreateTemp("", "whylate-cases-")
	must(err)
	must(os.Remove(f.Name()))
	for range 4 * mib {
		_, err := f.Write(block)
		must(err)
	}
	must(f.Sync())
	return f
}

// meddle is a library that has its own idea of the settings, and changes it.
func meddle() {
	for i := 0; ; i++ {
		time.Sleep(300 * time.Millisecond)
		debug.SetGCPercent(80 + i%3*10)
		debug.SetMemoryLimit(int64(200+i%3*5) << 20)
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "cases:", err)
		os.Exit(1)
	}
}
