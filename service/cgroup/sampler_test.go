package cgroup

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

// The sampler is called from probes that run many times a second inside other
// people's services.
func TestSamplerAllocatesNothing(t *testing.T) {
	s, err := NewSampler(Options{})
	if err != nil {
		t.Skipf("no cgroup to sample here: %v", err)
	}
	defer s.Close()
	var st, old Stat
	var b Tightest
	var m MemoryStat
	var p Pressure
	levels := s.SampleLevels(nil)
	n := testing.AllocsPerRun(100, func() {
		levels = s.SampleLevels(levels[:0])
		s.Sample(&st)
		s.SampleLimits(&b)
		s.SampleMemory(&m)
		s.SamplePressure(&p)
		s.Moved()
		Compare(&old, &st)
	})
	check.Equal(t, n, 0, "allocations a round, want 0")
}

func TestSamplerAfterClose(t *testing.T) {
	s, err := NewSampler(Options{})
	if err != nil {
		t.Skipf("no cgroup to sample here: %v", err)
	}
	must.Do(t, s.Close())
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	var b Tightest
	var m MemoryStat
	check.Error(t, s.SampleLimits(&b), "SampleLimits after Close: no error")
	check.Error(t, s.SampleMemory(&m), "SampleMemory after Close: no error")
	check.False(t, s.Moved(), "Moved after Close")
}

func BenchmarkSample(b *testing.B) {
	s, err := NewSampler(Options{})
	if err != nil {
		b.Skip(err)
	}
	defer s.Close()
	var st Stat
	b.ReportAllocs()
	for b.Loop() {
		s.Sample(&st)
	}
}

func BenchmarkBounds(b *testing.B) {
	s, err := NewSampler(Options{})
	if err != nil {
		b.Skip(err)
	}
	defer s.Close()
	var bo Tightest
	b.ReportAllocs()
	for b.Loop() {
		s.SampleLimits(&bo)
	}
}

func TestSamplerReadsUnits(t *testing.T) {
	v2 := readFixture(t, "testdata/systemd-slices.txtar")
	const ownDir, parent = "sys/fs/cgroup/shop.slice/shop-api.slice/api.service/", "sys/fs/cgroup/shop.slice/shop-api.slice/"
	put := func(f *fixture, name, text string) { f.files[name] = &fstest.MapFile{Data: []byte(text)} }
	put(v2, ownDir+"cpu.stat", "usage_usec 7000000\nuser_usec 5000000\nsystem_usec 2000000\ncore_sched.force_idle_usec 0\nnr_periods 40\nnr_throttled 8\nthrottled_usec 1500000\nnr_bursts 2\nburst_usec 30000\n")
	put(v2, ownDir+"cpu.stat.local", "throttled_usec 1900000\n")
	put(v2, parent+"cpu.stat", "usage_usec 1\nnr_periods 9\nnr_throttled 3\nthrottled_usec 400000\n")
	put(v2, "sys/fs/cgroup/shop.slice/cpu.stat", "usage_usec 1\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n")
	put(v2, ownDir+"memory.current", "104857600\n")
	put(v2, ownDir+"memory.swap.current", "4096\n")
	put(v2, ownDir+"memory.stat", "anon 1\nfile 2\nkernel 3\ninactive_anon 4\ninactive_file 20971520\nactive_file 10485760\nslab_reclaimable 1048576\n")
	put(v2, parent+"memory.current", "209715200\n")
	put(v2, ownDir+"cpu.pressure", "some avg10=1.00 avg60=0.50 avg300=0.10 total=3000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n")
	put(v2, ownDir+"memory.pressure", "some avg10=1.00 avg60=0.50 avg300=0.10 total=2000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n")
	put(v2, ownDir+"memory.events", "low 0\nhigh 7\nmax 3\noom 2\noom_kill 1\noom_group_kill 0\n")

	v1 := readFixture(t, "testdata/hybrid.txtar")
	const g = "system.slice/api.service/"
	put(v1, "sys/fs/cgroup/cpu,cpuacct/"+g+"cpu.stat", "nr_periods 40\nnr_throttled 8\nthrottled_time 1500000000\nnr_bursts 2\nburst_time 30000000\n")
	put(v1, "sys/fs/cgroup/cpu,cpuacct/"+g+"cpu.stat.local", "throttled_time 1900000000\n")
	put(v1, "sys/fs/cgroup/cpu,cpuacct/"+g+"cpuacct.usage", "7000000000\n")
	put(v1, "sys/fs/cgroup/cpu,cpuacct/system.slice/cpu.stat", "nr_periods 9\nnr_throttled 3\nthrottled_time 400000000\n")
	put(v1, "sys/fs/cgroup/memory/"+g+"memory.usage_in_bytes", "104857600\n")
	put(v1, "sys/fs/cgroup/memory/"+g+"memory.stat", "inactive_file 1\nhierarchical_memory_limit 1073741824\ntotal_inactive_file 20971520\nactive_file 5\ntotal_active_file 10485760\ntotal_swap 4096\n")
	put(v1, "sys/fs/cgroup/memory/"+g+"memory.failcnt", "3\n")
	put(v1, "sys/fs/cgroup/memory/system.slice/memory.usage_in_bytes", "209715200\n")
	put(v1, "proc/pressure/cpu", "some avg10=1.00 avg60=0.50 avg300=0.10 total=3000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n")
	put(v1, "proc/pressure/memory", "some avg10=1.00 avg60=0.50 avg300=0.10 total=2000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n")
	put(v1, "sys/fs/cgroup/memory/"+g+"memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")

	want := Stat{
		Has: HasUsage | HasBandwidth | HasLocal | HasAncestors, Usage: 7 * time.Second,
		Periods: 40, ThrottledPeriods: 8, Throttled: 1500 * time.Millisecond, Bursts: 2, Burst: 30 * time.Millisecond,
		Local: 1900 * time.Millisecond, AncestorThrottledPeriods: 3, AncestorThrottled: 400 * time.Millisecond,
	}
	for _, f := range []*fixture{v2, v1} {
		s := must.Have(NewSampler(f.options(t)))(t)
		var st Stat
		must.Do(t, s.Sample(&st))
		w := want
		if f == v2 {
			w.User, w.System = 5*time.Second, 2*time.Second
		}
		check.True(t, st == w, "sampled %+v\nwant    %+v", st, w)
		var m MemoryStat
		must.Do(t, s.SampleMemory(&m))
		wm, unreclaimable := MemoryStat{Current: 100 << 20, InactiveFile: 20 << 20, ActiveFile: 10 << 20, Swap: 4096, AtMax: 3, OOMKills: 1}, int64(70<<20)
		if f == v2 {
			wm.SlabReclaimable, wm.AtHigh, unreclaimable = 1<<20, 7, 69<<20
		}
		check.True(t, m == wm && m.Unreclaimable() == unreclaimable, "memory %+v, unreclaimable %d; want %+v, %d", m, m.Unreclaimable(), wm, unreclaimable)
		for range 2 {
			if err := s.SampleMemoryAt(1, &m); err != nil || m.Current != 200<<20 {
				t.Errorf("memory of the parent: %+v, %v", m, err)
			}
			check.Error(t, s.SampleMemoryAt(9, &m), "memory of a group that is not there: %+v", m)
		}
		var p Pressure
		if err := s.SamplePressure(&p); err != nil {
			t.Error(err)
		}
		if want := (Pressure{Machine: f == v1, HasCPU: true, HasMemory: true, CPU: 3 * time.Millisecond, Memory: 2 * time.Millisecond, MemoryFull: time.Millisecond}); p != want {
			t.Errorf("pressure %+v, want %+v", p, want)
		}
		levels := s.SampleLevels(nil)
		if len(levels) < 2 || levels[0].Depth != 0 || !strings.HasSuffix(levels[0].Group, "/api.service") || levels[0].Periods != 40 ||
			levels[0].ThrottledPeriods != 8 || levels[0].Throttled != 1500*time.Millisecond || levels[1].Depth != 1 || levels[1].Periods != 9 ||
			levels[1].ThrottledPeriods != 3 || levels[1].Throttled != 400*time.Millisecond {
			t.Errorf("levels %+v", levels)
		}
		s.Close()
	}
}

// A group without the memory controller is charged through its parent.
func TestSamplerMemoryOfParent(t *testing.T) {
	f := readFixture(t, "testdata/hybrid-memory-on-v2.txtar")
	const parent = "sys/fs/cgroup/unified/system.slice/"
	delete(f.files, parent+"api.service/memory.max")
	f.files[parent+"memory.current"] = &fstest.MapFile{Data: []byte("7340032\n")}
	f.files[parent+"memory.stat"] = &fstest.MapFile{Data: []byte("inactive_file 1048576\n")}
	s := must.Have(NewSampler(f.options(t)))(t)
	defer s.Close()
	var m MemoryStat
	if err := s.SampleMemory(&m); err != nil || m.Current != 7<<20 || m.InactiveFile != 1<<20 {
		t.Errorf("%+v, %v", m, err)
	}
	var b Tightest
	if err := s.SampleLimits(&b); err != nil || b.Memory != 512<<20 || b.MemoryDepth != 1 {
		t.Errorf("%+v, %v", b, err)
	}
}

// SampleLimits agrees with Read on every fixture, and follows what changes.
func TestBoundsAgreeWithRead(t *testing.T) {
	for _, name := range fixtures(t) {
		f := readFixture(t, name)
		l, err := Read(f.options(t))
		s, serr := NewSampler(f.options(t))
		if err != nil || serr != nil {
			check.False(t, err != nil && serr == nil, "%s: Read fails (%v) and NewSampler does not", name, err)
			continue
		}
		var b Tightest
		if err := s.SampleLimits(&b); err != nil {
			// A machine without one limit file: then Read found none either.
			check.True(t, l.CPU.Quota == 0 && l.Memory.Max == 0,
				"%s: %v, but Read found %v CPUs and %d bytes", name, err, l.CPU.Quota, l.Memory.Max)
			continue
		}
		depth, memDepth, ownDir := -1, -1, 0.0
		if l.CPU.QuotaLevel >= 0 {
			depth = l.CPU.Levels[l.CPU.QuotaLevel].Depth
		}
		if len(l.CPU.Levels) > 0 && l.CPU.Levels[0].Depth == 0 {
			ownDir = l.CPU.Levels[0].CPUs
		}
		if l.Memory.MaxLevel >= 0 {
			memDepth = l.Memory.Levels[l.Memory.MaxLevel].Depth
		}
		if b.High != l.Memory.High || b.HighDepth >= 0 && b.HighDepth != l.Memory.Levels[l.Memory.HighLevel].Depth {
			t.Errorf("%s: memory.high %d at %d, Read says %d", name, b.High, b.HighDepth, l.Memory.High)
		}
		check.True(t, b.Quota == l.CPU.Quota && b.QuotaDepth == depth && b.OwnQuota == ownDir && b.Memory == l.Memory.Max && b.MemoryDepth == memDepth,
			"%s: bounds %+v; Read says quota %v at %d, own %v, memory %d at %d", name, b, l.CPU.Quota, depth, ownDir, l.Memory.Max, memDepth)
		s.Close()
	}

	f := readFixture(t, "testdata/systemd-slices.txtar")
	s := must.Have(NewSampler(f.options(t)))(t)
	defer s.Close()
	f.files["sys/fs/cgroup/shop.slice/cpu.max"] = &fstest.MapFile{Data: []byte("20000 50000\n")}
	f.files["proc/self/cgroup"] = &fstest.MapFile{Data: []byte("0::/elsewhere\n")}
	var b Tightest
	if err := s.SampleLimits(&b); err != nil || b.Quota != 0.4 || b.QuotaDepth != 2 || b.Period != 50*time.Millisecond || b.OwnQuota != 3 {
		t.Errorf("after the change: %+v, %v", b, err)
	}
	check.True(t, s.Moved(), "moved elsewhere, and Moved is false")
}

// TestPressureText tests that a malformed total does not count as 0.
func TestPressureText(t *testing.T) {
	const avg = " avg10=0.00 avg60=0.00 avg300=0.00 total="
	for _, c := range []struct {
		text            string
		someTasks, full time.Duration
		ok              bool
	}{
		{"some" + avg + "12\nfull" + avg + "3\n", 12 * time.Microsecond, 3 * time.Microsecond, true},
		{"some" + avg + "0\n", 0, 0, true},
		{"some" + avg + "x\n", 0, 0, false},
		{"some" + avg + "\n", 0, 0, false},
		{"some" + avg + "-5\n", 0, 0, false},
		{"some" + avg + "7\nfull" + avg + "x\n", 7 * time.Microsecond, 0, true},
		{"full" + avg + "7\n", 0, 7 * time.Microsecond, false},
		{"some total\n", 0, 0, false},
		{"", 0, 0, false},
	} {
		if someTasks, full, ok := pressure([]byte(c.text)); someTasks != c.someTasks || full != c.full || ok != c.ok {
			t.Errorf("%q: %v, %v, %v", c.text, someTasks, full, ok)
		}
	}
}

// A restless file has other counters at each reading.
type restless struct{ reads int }

func (r *restless) sample(buf []byte) (int, error) {
	r.reads++
	return copy(buf, fmt.Appendf(nil, "nr_periods 9\nnr_throttled %d\nthrottled_usec %d\n", r.reads, r.reads)), nil
}
func (r *restless) readAt(buf []byte, _ int64) (int, error) { return r.sample(buf) }
func (r *restless) close() error                            { return nil }

// TestSampleGivesUp tests that a counter which always changes is read a few times only.
func TestSampleGivesUp(t *testing.T) {
	f := readFixture(t, "testdata/systemd-slices.txtar")
	const ownDir = "sys/fs/cgroup/shop.slice/shop-api.slice/api.service/"
	f.files[ownDir+"cpu.stat.local"] = &fstest.MapFile{Data: []byte("throttled_usec 1\n")}
	s := must.Have(NewSampler(Options{FS: f.files}))(t)
	defer s.Close()
	r := new(restless)
	s.cpu[0].stat, s.cpu[0].controlled = r, true
	var st Stat
	if err := s.Sample(&st); err != nil || r.reads != 6 || st.ThrottledPeriods != 5 {
		t.Errorf("%v after %d readings: %+v", err, r.reads, st)
	}
}

// TestUsageOfEachShape tests that the CPU time is that of the process's group, with and without groups above it.
func TestUsageOfEachShape(t *testing.T) {
	rootOnly := map[Version]int{}
	for _, name := range fixtures(t) {
		f := readFixture(t, name)
		l, err := Read(f.options(t))
		if err != nil || len(l.CPU.Levels) == 0 || l.CPU.Levels[0].Depth != 0 {
			continue
		}
		dir := strings.TrimPrefix(l.CPU.Levels[0].Dir, "/")
		if l.CPU.Version == V1 {
			if !strings.Contains(l.CPU.MountPoint, "cpuacct") {
				continue // cpuacct is a separate hierarchy
			}
			f.files[dir+"/cpuacct.usage"] = &fstest.MapFile{Data: []byte("7000000000\n")}
		} else {
			f.files[dir+"/cpu.stat"] = &fstest.MapFile{Data: []byte("usage_usec 7000000\n")}
		}
		s, err := NewSampler(f.options(t))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var st Stat
		if err := s.Sample(&st); err != nil || st.Usage != 7*time.Second || st.Has&HasUsage == 0 {
			t.Errorf("%s: %v, %v", name, st.Usage, err)
		}
		s.Close()
		if len(l.CPU.Levels) == 1 {
			rootOnly[l.CPU.Version]++
		}
	}
	check.True(t, rootOnly[V1] != 0 && rootOnly[V2] != 0, "groups without any above them: %v", rootOnly)
}
