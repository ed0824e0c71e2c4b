package tune

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

// TestTheGuardOnTheRealRuntime runs a service whose live heap nearly fills its memory
// limit: the collector thrashes, so the guard must raise an alarm and keep the limit
// at nine tenths.
func TestTheGuardOnTheRealRuntime(t *testing.T) {
	if os.Getenv("WHYLATE_FULL") != "1" {
		t.Skip("makes the collector crawl for some seconds: only with WHYLATE_FULL=1 (.ci/full)")
	}
	exe := must.Have(os.Executable())(t)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childVariable+"=thrash", "GOGC=", "GOMEMLIMIT=")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("child: %v\n%s", err, errs.Bytes())
	}
	var r thrashResult
	must.Do(t, json.Unmarshal(out.Bytes(), &r), out.Bytes())
	t.Logf("limit %s, alarm after %v: %s", bytesText(r.Limit), r.Took.Round(time.Millisecond), r.Alarm)
	must.True(t, r.Alarm != "", "no alarm")
	check.True(t, r.Limit == 108*mib && r.After == 108*mib,
		"GOMEMLIMIT %s, after the alarm %s; want nine tenths of 120 MiB", bytesText(r.Limit), bytesText(r.After))
	check.True(t, r.Restored == noMemoryLimit && r.RestoredGOGC == 100,
		"after Stop: GOMEMLIMIT %s, GOGC %d", bytesText(r.Restored), r.RestoredGOGC)
}

type thrashResult struct {
	Limit, After, Restored int64
	RestoredGOGC           int
	Alarm                  string
	Took                   time.Duration
}

// thrash holds 96 MiB under a limit of 108 MiB, nine tenths of 120, and allocates
// until the guard's alarm, at most a minute.
func thrash() thrashResult {
	fsys := fstest.MapFS{
		"proc/self/cgroup":             {Data: []byte("0::/a\n")},
		"proc/self/mountinfo":          {Data: []byte("30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n")},
		"sys/fs/cgroup/a/memory.max":   {Data: fmt.Append(nil, 120*mib)},
		"sys/fs/cgroup/cgroup.procs":   {},
		"sys/fs/cgroup/a/cgroup.procs": {},
	}
	live := make([]*[64 << 10]byte, 96*16)
	for i := range live {
		live[i] = new([64 << 10]byte)
	}
	runtime.GC()
	alarms := make(chan Event, 1)
	t := Start(Options{
		Procs: ModeOff, Memory: ModeApply, GC: ModeApply, Interval: 20 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler), Cgroup: cgroup.Options{FS: fsys},
		OnEvent: func(e Event) {
			if e.Action == ActionAlarm {
				select {
				case alarms <- e:
				default:
				}
			}
		},
	})
	r := thrashResult{Limit: debug.SetMemoryLimit(-1)}
	start := time.Now()
	for r.Alarm == "" && time.Since(start) < time.Minute {
		garbage = make([]byte, 64<<10)
		select {
		case e := <-alarms:
			r.Alarm = e.Reason
		default:
		}
	}
	// A decision takes effect before its event is delivered.
	r.Took, r.After = time.Since(start), debug.SetMemoryLimit(-1)
	t.Stop()
	r.Restored, r.RestoredGOGC = debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	runtime.KeepAlive(live)
	return r
}

// TestHowManyWait runs four busy goroutines on one P: three wait, and sometimes this one.
// The runtime records one wait of eight; without that factor the result would be 0.4.
func TestHowManyWait(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for two seconds")
	}
	exe := must.Have(os.Executable())(t)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childVariable+"=waits")
	out := must.Have(cmd.Output())(t)
	waiting := must.Have(strconv.ParseFloat(strings.TrimSpace(string(out)), 64))(t)
	t.Logf("%.2f wait on average", waiting)
	check.True(t, waiting >= 1.5 && waiting <= 6, "%.2f wait on average, want about 3", waiting)
}

var garbage []byte

const childVariable = "WHYLATE_TUNE_TEST_CHILD"

// TestMain also runs this binary as a child process of a test.
func TestMain(m *testing.M) {
	switch os.Getenv(childVariable) {
	case "":
		os.Exit(m.Run())
	case "thrash":
		if err := json.NewEncoder(os.Stdout).Encode(thrash()); err != nil {
			panic(err)
		}
	case "endure":
		var l load
		if err := json.Unmarshal([]byte(os.Getenv("WHYLATE_TUNE_TEST_LOAD")), &l); err != nil {
			panic(err)
		}
		if err := json.NewEncoder(os.Stdout).Encode(runLoad(l)); err != nil {
			panic(err)
		}
	case "follow":
		follow()
	case "latency":
		startBusyGoroutines(2)
		reportEvents(Options{Interval: 200 * time.Millisecond, Policy: PolicyLatency})
	case "waits":
		runtime.GOMAXPROCS(1)
		startBusyGoroutines(4)
		time.Sleep(100 * time.Millisecond)
		samples := newSamples()
		start, from := time.Now(), readGo(samples).schedWait
		time.Sleep(2 * time.Second)
		fmt.Println((readGo(samples).schedWait - from) / time.Since(start).Seconds())
	case "crowded":
		startBusyGoroutines(4)
		reportEvents(Options{Interval: 200 * time.Millisecond})
	case "neighbour":
		startBusyGoroutines(2)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
}

// A report is one line of output of a child that follows a quota.
type report struct {
	Event Event
	Procs int
	Done  bool
}

// follow prints each event until its standard input ends. Then it stops the tuner
// and prints the result.
func follow() { reportEvents(Options{Interval: 20 * time.Millisecond}) }

// startBusyGoroutines starts n goroutines that never block.
func startBusyGoroutines(n int) {
	for range n {
		go func() {
			for n := 0; ; n++ {
				runtime.KeepAlive(n)
			}
		}()
	}
}

func reportEvents(o Options) {
	out := json.NewEncoder(os.Stdout)
	o.Procs, o.Memory, o.GC = ModeApply, ModeOff, ModeOff
	o.Logger = slog.New(slog.DiscardHandler)
	o.OnEvent = func(e Event) { _ = out.Encode(report{Event: e, Procs: runtime.GOMAXPROCS(0)}) }
	t := Start(o)
	_, _ = io.Copy(io.Discard, os.Stdin)
	t.Stop()
	_ = out.Encode(report{Procs: runtime.GOMAXPROCS(0), Done: true})
}
