package prometheus

import (
	"bytes"
	"log/slog"
	"runtime"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/tune"
)

func machine() cgroup.Options {
	return cgroup.Options{FS: fstest.MapFS{
		"proc/self/cgroup":                     {Data: []byte("0::/pod/app\n")},
		"proc/self/mountinfo":                  {Data: []byte("30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n")},
		"proc/self/status":                     {Data: []byte("Cpus_allowed_list:\t0-7\n")},
		"proc/meminfo":                         {Data: []byte("MemTotal:  16777216 kB\n")},
		"sys/devices/system/cpu/online":        {Data: []byte("0-15\n")},
		"sys/fs/cgroup/cgroup.procs":           {},
		"sys/fs/cgroup/pod/cpu.max":            {Data: []byte("250000 100000\n")},
		"sys/fs/cgroup/pod/app/cpu.max":        {Data: []byte("max 100000\n")},
		"sys/fs/cgroup/pod/app/memory.max":     {Data: []byte("1073741824\n")},
		"sys/fs/cgroup/pod/app/memory.current": {Data: []byte("73741824\n")},
		"sys/fs/cgroup/pod/app/memory.stat":    {Data: []byte("inactive_file 3741824\n")},
	}}
}

func tuner(t *testing.T, o cgroup.Options) *tune.Tuner {
	x := tune.Start(tune.Options{Cgroup: o, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(x.Stop)
	return x
}

func TestLimits(t *testing.T) {
	c := NewCollector(nil, tuner(t, machine()))
	want := `
# HELP whylate_cpu_quota_cpus The tightest visible CPU quota; absent without one.
# TYPE whylate_cpu_quota_cpus gauge
whylate_cpu_quota_cpus 2.5
# HELP whylate_cpu_affinity_cpus CPUs that the process may run on.
# TYPE whylate_cpu_affinity_cpus gauge
whylate_cpu_affinity_cpus 8
# HELP whylate_host_cpus CPUs of the machine.
# TYPE whylate_host_cpus gauge
whylate_host_cpus 16
# HELP whylate_memory_limit_bytes The tightest visible memory limit; absent without one.
# TYPE whylate_memory_limit_bytes gauge
whylate_memory_limit_bytes 1.073741824e+09
# HELP whylate_memory_headroom_bytes The memory limit less what is used; absent without a limit.
# TYPE whylate_memory_headroom_bytes gauge
whylate_memory_headroom_bytes 1.003741824e+09
# HELP whylate_host_memory_bytes Memory of the machine.
# TYPE whylate_host_memory_bytes gauge
whylate_host_memory_bytes 1.7179869184e+10
`
	if err := testutil.CollectAndCompare(c, bytes.NewBufferString(want), "whylate_cpu_quota_cpus", "whylate_cpu_affinity_cpus", "whylate_host_cpus",
		"whylate_memory_limit_bytes", "whylate_memory_headroom_bytes", "whylate_host_memory_bytes"); err != nil {
		t.Error(err)
	}
}

func TestNamesFollowTheConventions(t *testing.T) {
	p := probe.Start(probe.Options{})
	defer p.Stop()
	problems, err := testutil.CollectAndLint(NewCollector(p, tuner(t, machine())))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range problems {
		t.Errorf("%s: %s", x.Metric, x.Text)
	}
}

// Without cgroups unknown values must be absent.
func TestAbsentIsNotZero(t *testing.T) {
	empty := cgroup.Options{FS: fstest.MapFS{}}
	p := probe.Start(probe.Options{Cgroup: empty})
	defer p.Stop()
	c := NewCollector(p, tuner(t, empty))
	for _, name := range []string{"whylate_cpu_quota_cpus", "whylate_memory_limit_bytes", "whylate_memory_headroom_bytes", "whylate_throttled_cpu_seconds_total", "whylate_gc_quota_ratio"} {
		if n := testutil.CollectAndCount(c, name); n != 0 {
			t.Errorf("%s: %d series of something unknown", name, n)
		}
	}
	// An alert on one verdict's freezes needs a series of it before the first.
	for s := new(probe.Snapshot); s.Ticks == 0; runtime.Gosched() {
		p.Snapshot(s)
	}
	if n := testutil.CollectAndCount(c, "whylate_freeze_seconds"); n != len(cgroup.Verdicts()) {
		t.Errorf("whylate_freeze_seconds: %d series, want one for each verdict", n)
	}
	if n := testutil.CollectAndCount(c, "whylate_gomaxprocs"); n != 1 {
		t.Errorf("whylate_gomaxprocs: %d series", n)
	}
}

func TestHistogram(t *testing.T) {
	var h probe.Histogram
	for _, d := range []time.Duration{time.Microsecond, 64 * time.Microsecond, 100 * time.Microsecond, 75 * time.Millisecond, 9 * time.Second, time.Minute} {
		h.Record(d)
	}
	var m dto.Metric
	x, err := histogram(prometheus.NewDesc("x_seconds", "x", nil, nil), &h)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Write(&m); err != nil {
		t.Fatal(err)
	}
	got := m.GetHistogram()
	if got.GetSampleCount() != 6 || got.GetSampleSum() != h.Sum.Seconds() {
		t.Errorf("%d samples, sum %v", got.GetSampleCount(), got.GetSampleSum())
	}
	cumulative := map[float64]uint64{}
	for _, b := range got.GetBucket() {
		cumulative[b.GetUpperBound()] = b.GetCumulativeCount()
	}
	for bound, want := range map[float64]uint64{64e-6: 1, 128e-6: 3, 65.536e-3: 3, 131.072e-3: 4, 8.388608: 4} {
		if got, ok := cumulative[bound]; !ok || got != want {
			t.Errorf("below %v s: %d (%v), want %d", bound, got, ok, want)
		}
	}
	if len(cumulative) != 18 {
		t.Errorf("%d buckets: %v", len(cumulative), cumulative)
	}
}

// Scrapes run while the probe and the tuner do.
func TestConcurrentScrapes(t *testing.T) {
	p := probe.Start(probe.Options{Interval: time.Millisecond, IdleInterval: time.Millisecond})
	defer p.Stop()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(NewCollector(p, tuner(t, cgroup.Options{}))); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	for range 4 {
		go func() {
			for range 20 {
				if _, err := r.Gather(); err != nil {
					done <- err
					return
				}
				runtime.Gosched()
			}
			done <- nil
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
