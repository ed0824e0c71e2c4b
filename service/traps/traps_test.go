package traps

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/check"
)

func TestFind(t *testing.T) {
	well := Facts{Go: "go1.26.8", Aware: true, Procs: 4, ProcsBy: SetByRuntime, NumCPU: 4}
	machine := func(f func(*cgroup.Limits)) *cgroup.Limits {
		l := &cgroup.Limits{
			CPU:    cgroup.CPU{QuotaLevel: -1, Parallelism: 4, Levels: []cgroup.CPULevel{{}, {Level: cgroup.Level{Depth: 1}, File: "/parent/cpu.max"}}},
			Memory: cgroup.Memory{MaxLevel: -1, HighLevel: -1, Levels: []cgroup.MemoryLevel{{}, {}}},
		}
		l.CPU.Version, l.CPU.MountPoint, l.CPU.MountRoot = cgroup.V2, "/sys/fs/cgroup", "/"
		f(l)
		return l
	}
	quota := func(level int, q float64) *cgroup.Limits {
		return machine(func(l *cgroup.Limits) {
			l.CPU.Quota, l.CPU.QuotaLevel, l.CPU.Levels[level].CPUs = q, level, q
			if level == 0 {
				l.CPU.RuntimeQuota = q
			}
		})
	}
	memory := func(level int) *cgroup.Limits {
		return machine(func(l *cgroup.Limits) { l.Memory.Max, l.Memory.MaxLevel = 1<<30, level })
	}
	with := func(l *cgroup.Limits, change func(*Facts)) Facts {
		f := well
		f.Limits = l
		if change != nil {
			change(&f)
		}
		return f
	}
	unlimited := machine(func(*cgroup.Limits) {})
	hidden := machine(func(l *cgroup.Limits) { l.CPU.Hidden = true })
	for _, c := range []struct {
		name string
		f    Facts
		want []Code
	}{
		{"nothing", with(unlimited, nil), nil},
		{"nothing can be read", with(nil, nil), nil},
		{"no facts at all", Facts{}, nil},
		{"environment", with(unlimited, func(f *Facts) { f.EnvProcs, f.Aware, f.ProcsBy = 8, false, SetByEnvironment }), []Code{EnvGOMAXPROCS}},
		{"environment far above the quota comes first", with(quota(1, 2), func(f *Facts) { f.EnvProcs, f.ProcsBy = 8, SetByEnvironment }), []Code{EnvGOMAXPROCS, AncestorTighter, NumCPUFrozen}},
		{"old go.mod", with(unlimited, func(f *Facts) { f.Aware = false }), []Code{OldGoMod}},
		{"old Go", with(unlimited, func(f *Facts) { f.Aware, f.Go = false, "go1.24.2" }), []Code{OldGo}},
		{"old Go, but auto decides", with(unlimited, func(f *Facts) { f.Aware, f.Go, f.ProcsBy = false, "go1.24.2", SetByAuto }), nil},
		{"automaxprocs", with(unlimited, func(f *Facts) { f.Automaxprocs = "v1.6.0" }), []Code{LeftoverAutomaxprocs}},
		{"automaxprocs without the runtime's own eyes is no trap", with(unlimited, func(f *Facts) { f.Automaxprocs, f.Aware, f.ProcsBy = "v1.6.0", false, SetByAutomaxprocs }), nil},
		{"ancestor", with(quota(1, 4), nil), []Code{AncestorTighter}},
		{"covered mount", with(quota(0, 3), func(f *Facts) { f.Limits.CPU.RuntimeQuota = 0 }), []Code{RuntimeMissesQuota}},
		{"whole quota", with(quota(0, 4), nil), nil},
		{"fraction", with(quota(0, 3.5), nil), []Code{FractionalQuota}},
		{"small quota under auto", with(quota(0, 0.5), func(f *Facts) { f.Procs, f.ProcsBy = 1, SetByAuto }), []Code{FractionalQuota, NumCPUFrozen}},
		{"the same of the program's own doing", with(quota(0, 3.5), func(f *Facts) { f.Procs, f.ProcsBy = 2, SetByProgram }), nil},
		{"far too many CPUs", with(quota(0, 2), func(f *Facts) { f.Procs = 2 }), []Code{NumCPUFrozen}},
		{"hidden", with(hidden, nil), []Code{HiddenAncestors}},
		{"hidden and held back", with(hidden, func(f *Facts) {
			f.Throttling = &cgroup.Throttling{Verdict: cgroup.VerdictAncestor, Ancestor: time.Second}
		}), []Code{HiddenAncestorThrottles}},
		{"throttled", with(quota(0, 4), func(f *Facts) {
			f.Throttling = &cgroup.Throttling{Verdict: cgroup.VerdictOwn, Periods: 10, ThrottledPeriods: 1}
		}), []Code{Throttled}},
		{"no GOMEMLIMIT", with(memory(0), func(f *Facts) { f.GOMEMLIMIT = math.MaxInt64 }), []Code{NoGOMEMLIMIT}},
		{"GOMEMLIMIT not known", with(memory(0), nil), nil},
		{"a good one", with(memory(0), func(f *Facts) { f.GOMEMLIMIT = 900 << 20 }), nil},
		{"too high", with(memory(0), func(f *Facts) { f.GOMEMLIMIT = 2 << 30 }), []Code{GOMEMLIMITTooHigh}},
		{"memory of an ancestor", with(memory(1), nil), []Code{MemoryAncestor}},
		{"memory of a hidden one", with(memory(-1), nil), []Code{MemoryAncestor}},
		{"memory.high", with(memory(0), func(f *Facts) { f.Limits.Memory.High, f.Limits.Memory.HighLevel = 800<<20, 0 }), []Code{MemoryHigh}},
		{"memory out of sight", with(machine(func(l *cgroup.Limits) { l.Memory.Hidden, l.Memory.Version = true, cgroup.V2 }), nil), []Code{HiddenMemory}},
	} {
		var got []Code
		for _, x := range Find(c.f) {
			got = append(got, x.Code)
			check.True(t, x.Text != "" && x.Fix != "" && slices.Contains(severities, x.Severity) && slices.Contains(Codes(), x.Code),
				"%s: %+v", c.name, x)
		}
		check.True(t, slices.Equal(got, c.want), "%s: %q, want %q", c.name, got, c.want)
	}
}

// TestFreezeOfAFraction tests the length of freezes under a fractional quota: by the quota's period, or 100 ms if that is
// unknown.
func TestFreezeOfAFraction(t *testing.T) {
	for period, want := range map[time.Duration]string{
		0:                     "every period of 100ms ends in a freeze of 25ms",
		20 * time.Millisecond: "every period of 20ms ends in a freeze of 5ms",
	} {
		l := &cgroup.Limits{CPU: cgroup.CPU{
			Quota: 1.5, RuntimeQuota: 1.5, Parallelism: 4, Levels: []cgroup.CPULevel{{CPUs: 1.5, Period: period}},
		}, Memory: cgroup.Memory{MaxLevel: -1, HighLevel: -1}}
		all := Find(Facts{Limits: l, Go: "go1.26.8", Aware: true, Procs: 2, ProcsBy: SetByRuntime, NumCPU: 4})
		i := slices.IndexFunc(all, func(t Trap) bool { return t.Code == FractionalQuota })
		check.True(t, i >= 0 && strings.Contains(all[i].Text, want), "a period of %v: %+v, want %q", period, all, want)
	}
}
