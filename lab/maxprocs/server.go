//go:build linux

package main

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/automaxprocs/maxprocs"

	"github.com/whylate/whylate/service/probe"
)

const roleVariable = "WHYLATE_MAXPROCS_ROLE"

// Arms, as named in the environment and in the table.
const (
	armGo           = "go"
	armAutomaxprocs = "automaxprocs"
	armWhylate      = "whylate"
)

// enterPrefix begins the role of a process that enters its group and then becomes the arm after the prefix.
const enterPrefix = "settle:"

// environment returns the environment variables of an arm's process in addition to the usual.
func environment(arm string) []string {
	env := []string{roleVariable + "=" + enterPrefix + arm, "WHYLATE_LOG=off"}
	if arm != armWhylate {
		env = append(env, "WHYLATE_GOMAXPROCS=off", "WHYLATE_GOMEMLIMIT=off", "WHYLATE_GOGC=off")
	}
	return env
}

type item struct {
	ID    int     `json:"id"`
	Name  string  `json:"name"`
	Price float64 `json:"price"`
	Tags  []string
}

// servePage does the work of a typical HTTP service: it waits for a backend, processes the answer and encodes it.
func servePage(w http.ResponseWriter, r *http.Request) {
	seed, _ := strconv.ParseUint(r.URL.Query().Get("seed"), 10, 64)
	rnd := rand.New(rand.NewPCG(seed, 1))
	time.Sleep(time.Millisecond + time.Duration(rnd.Int64N(int64(2*time.Millisecond))))
	items := make([]item, 150)
	for i := range items {
		items[i] = item{ID: i, Name: "item " + strconv.Itoa(rnd.IntN(1000)), Price: rnd.Float64(), Tags: []string{"a", "b"}}
	}
	slices.SortFunc(items, func(a, b item) int {
		switch {
		case a.Price < b.Price:
			return -1
		case a.Price > b.Price:
			return 1
		}
		return 0
	})
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Encoding", "gzip")
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(z).Encode(items)
	_ = z.Close()
}

// stats has the service's measurements of itself.
type stats struct {
	GOMAXPROCS int
	CPU        time.Duration
	// The probe's measurements, if there is a probe.
	Counted, FreezeCPU, FreezeTime time.Duration
	Freezes                        uint64
}

// probeVariable starts a probe in the service.
const probeVariable = "WHYLATE_MAXPROCS_PROBE"

// execInGroup moves this process to the group dir, gives it the usual priority and the service's CPUs, and executes the
// program again as an arm, because the runtime reads its limits only at its start.
func execInGroup(arm, dir string) error {
	runtime.LockOSThread() // priority and affinity are a thread's
	if err := os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return err
	}
	if err := settleThread(); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Setenv(roleVariable, arm); err != nil {
		return err
	}
	return syscall.Exec(exe, []string{exe}, os.Environ())
}

func runRole(role string) {
	arm := role
	if a, ok := strings.CutPrefix(role, enterPrefix); ok {
		fmt.Fprintln(os.Stderr, "maxprocs: starting the service:", execInGroup(a, os.Args[len(os.Args)-1]))
		os.Exit(1)
	}
	if arm == armAutomaxprocs {
		if _, err := maxprocs.Set(); err != nil {
			fmt.Fprintln(os.Stderr, "automaxprocs:", err)
		}
	}
	var p *probe.Probe
	if os.Getenv(probeVariable) != "" {
		p = probe.Start(probe.Options{})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /page", servePage)
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, r *http.Request) {
		st := stats{GOMAXPROCS: runtime.GOMAXPROCS(0), CPU: cpuTime()}
		if p != nil {
			var s probe.Snapshot
			p.Snapshot(&s)
			st.Counted, st.FreezeCPU, st.FreezeTime, st.Freezes = s.Throttled.Own+s.Throttled.Ancestor, s.FreezeCPU, s.FreezeTime, s.Freezes.Count
		}
		_ = json.NewEncoder(w).Encode(st)
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(l.Addr())
	fmt.Fprintln(os.Stderr, http.Serve(l, mux))
	os.Exit(1)
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
