package traps

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/must"
)

var update = flag.Bool("update", false, "write the golden files")

// TestGrid compares the traps of processes at and next to the thresholds with a golden file.
func TestGrid(t *testing.T) {
	var b bytes.Buffer
	type change struct {
		name string
		set  func(*Facts)
	}
	var whats []string
	fixes := map[string]bool{} // each is written once
	find := func(changes ...change) {
		l := &cgroup.Limits{CPU: cgroup.CPU{QuotaLevel: -1, Parallelism: 4, Levels: []cgroup.CPULevel{{}, {Level: cgroup.Level{Depth: 1}, File: "/up/cpu.max"}}},
			Memory: cgroup.Memory{MaxLevel: -1, HighLevel: -1, Levels: []cgroup.MemoryLevel{{}, {File: "/up/memory.max"}}}}
		l.CPU.Version, l.Memory.Version, l.CPU.MountPoint, l.CPU.MountRoot = cgroup.V2, cgroup.V2, "/sys/fs/cgroup", "/"
		f := Facts{Go: "go1.26.8", Aware: true, Limits: l, ProcsBy: SetByRuntime, NumCPU: 4}
		whats = whats[:0]
		for _, c := range changes {
			c.set(&f)
			whats = append(whats, c.name)
		}
		fmt.Fprintf(&b, "%s:", strings.Join(whats, ", "))
		for _, trap := range Find(f) {
			fmt.Fprintf(&b, "\n  %s %s: %s", trap.Severity, trap.Code, trap.Text)
			if !fixes[trap.Fix] {
				fixes[trap.Fix] = true
				b.WriteString(" -> " + trap.Fix)
			}
		}
		b.WriteByte('\n')
	}
	quota := func(level int, q float64) change {
		return change{fmt.Sprintf("quota %g at %d", q, level), func(f *Facts) {
			c := &f.Limits.CPU
			c.Quota, c.QuotaLevel, c.Levels[level].CPUs, c.Levels[level].Period = q, level, q, 50*time.Millisecond
			if level == 0 {
				c.RuntimeQuota = q
			}
		}}
	}
	with := func(name string, set func(*Facts)) change { return change{name, set} }
	for _, q := range []float64{0.5, 1, 2, 2.1, 3.5, 4, 4.5} {
		for _, procs := range []int{0, 1, 3, 4} {
			find(quota(0, q), with(fmt.Sprint("GOMAXPROCS ", procs), func(f *Facts) { f.Procs = procs }))
		}
		find(quota(0, q), with("by auto", func(f *Facts) { f.ProcsBy = SetByAuto }))
		find(quota(1, q), with("by auto", func(f *Facts) { f.ProcsBy = SetByAuto }))
		find(quota(0, q), with("by the program", func(f *Facts) { f.ProcsBy = SetByProgram }))
		find(quota(0, q), with("go 1.24", func(f *Facts) { f.Go, f.Aware = "go1.24.9", false }))
		find(quota(0, q), with("not Go", func(f *Facts) { f.Go, f.Aware, f.NumCPU = "", false, 0 }))
		for _, env := range []int{2, 3, 6} {
			find(quota(0, q), with(fmt.Sprint("GOMAXPROCS=", env), func(f *Facts) { f.EnvProcs, f.ProcsBy = env, SetByEnvironment }))
		}
		find(quota(0, q), with("automaxprocs", func(f *Facts) { f.Automaxprocs = "v1.6.0" }))
		find(quota(0, q), with("automaxprocs of old Go", func(f *Facts) {
			f.Automaxprocs, f.Go, f.Aware, f.ProcsBy = "v1.6.0", "go1.24", false, SetByAutomaxprocs
		}))
	}
	find(quota(0, 2), with("automaxprocs and the environment", func(f *Facts) { f.Automaxprocs, f.EnvProcs = "v1.6.0", 2 }))
	for _, procs := range []int{0, 1, 4} {
		find(with(fmt.Sprint("no quota, by auto, GOMAXPROCS ", procs), func(f *Facts) { f.ProcsBy, f.Procs = SetByAuto, procs }))
	}
	find(with("automaxprocs", func(f *Facts) { f.Automaxprocs = "v1.6.0" }))
	find(quota(0, 2), with("another mount", func(f *Facts) { f.Automaxprocs, f.Limits.CPU.MountPoint = "v1.6.0", "/cgroup" }))
	find(quota(0, 2), with("a mount of a group", func(f *Facts) { f.Automaxprocs, f.Limits.CPU.MountRoot = "v1.6.0", "/pod" }))
	find(quota(0, 2), with("a namespace", func(f *Facts) {
		f.Automaxprocs, f.Namespaced, f.Limits.CPU.MountRoot, f.Limits.CPU.Levels[0].Dir = "v1.6.0", true, "/pod", "/sys/fs/cgroup"
	}))
	find(quota(0, 2), with("by /proc", func(f *Facts) {
		f.Automaxprocs, f.Limits.PID, f.Limits.CPU.MountPoint = "v1.6.0", 7, "/proc/7/root/sys/fs/cgroup"
	}))
	find(quota(0, 2), with("version 1", func(f *Facts) {
		f.Automaxprocs, f.Limits.CPU.Version, f.Limits.CPU.MountPoint = "v1.6.0", cgroup.V1, "/x"
	}))
	for _, v := range []string{"go1.24.9", "go1.25", "go1.25.4", "go1.26", "go1.x", "devel", "go1.99999999999"} {
		find(quota(0, 2), with(v+" and a mount of a group", func(f *Facts) { f.Go, f.Limits.CPU.MountRoot = v, "/pod" }))
		find(quota(0, 2), with(v+" that does not look", func(f *Facts) { f.Go, f.Aware = v, false }))
		fmt.Fprintf(&b, "%s is 1.%d\n", v, Minor(v))
	}
	find(quota(0, 2), with("missed", func(f *Facts) { f.Limits.CPU.RuntimeQuota = 0 }))
	find(quota(0, 2), with("another one seen", func(f *Facts) { f.Limits.CPU.RuntimeQuota = 3 }))
	find(quota(1, 2), with("not seen inside", func(f *Facts) { f.Inside = &cgroup.Limits{} }))
	find(quota(1, 2), quota(0, 4), with("tighter above", func(f *Facts) { f.Limits.CPU.Quota, f.Limits.CPU.QuotaLevel = 2, 1 }))
	find(quota(1, 2), with("its level is out of range", func(f *Facts) { f.Limits.CPU.QuotaLevel = 2 }))
	for _, s := range []cgroup.Throttling{{}, {Verdict: cgroup.VerdictAncestor, Ancestor: 1234567 * time.Microsecond}, {Verdict: cgroup.VerdictOwn, Own: time.Second}, {ThrottledPeriods: 1, Periods: 3, Own: time.Millisecond}} {
		throttling := with(fmt.Sprintf("%s, %d of %d", s.Verdict, s.ThrottledPeriods, s.Periods), func(f *Facts) { f.Throttling = &s })
		find(throttling)
		find(throttling, with("hidden", func(f *Facts) { f.Limits.CPU.Hidden = true }))
		find(throttling, with("hidden", func(f *Facts) { f.Limits.CPU.Hidden = true }), quota(0, 2))
	}
	find(with("nothing seen", func(f *Facts) { f.Limits.CPU.Hidden, f.Limits.CPU.Levels = true, nil }))
	const m = 1 << 30
	for level := -1; level <= 2; level++ {
		for _, limit := range []int64{0, m - 1, m, m + 1, math.MaxInt64} {
			find(with(fmt.Sprintf("memory at %d, GOMEMLIMIT %d", level, limit), func(f *Facts) {
				f.GOMEMLIMIT, f.Limits.Memory.Max, f.Limits.Memory.MaxLevel = limit, m, level
				f.Limits.Memory.Levels[0].Limited, f.Limits.Memory.Levels[0].Max = level == 1, 2*m
			}))
		}
	}
	for depth := range 2 {
		find(with(fmt.Sprint("memory out of sight, one level at ", depth), func(f *Facts) {
			f.Limits.Memory.Max, f.Limits.Memory.Levels = m, []cgroup.MemoryLevel{{Level: cgroup.Level{Depth: depth}, Limited: true, Max: 2 * m}}
		}))
	}
	for _, high := range []int64{0, m - 1, m} {
		find(with(fmt.Sprint("memory.high ", high), func(f *Facts) {
			f.Limits.Memory.Max, f.Limits.Memory.MaxLevel, f.Limits.Memory.High, f.Limits.Memory.HighLevel = m, 0, high, 0
		}))
	}
	for _, v := range []cgroup.Version{cgroup.V1, cgroup.V2} {
		find(with(fmt.Sprint("memory hidden, version ", v), func(f *Facts) { f.Limits.Memory.Hidden, f.Limits.Memory.Version = true, v }))
	}
	find(with("memory hidden, no level", func(f *Facts) { f.Limits.Memory.Hidden, f.Limits.Memory.Levels = true, nil }))
	must.Golden(t, *update, "testdata/grid.txt", b.Bytes())
}
