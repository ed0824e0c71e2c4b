package debugz

import (
	"math"
	"slices"
	"testing"

	"github.com/whylate/whylate/service/cgroup"
)

func TestTraps(t *testing.T) {
	well := self{version: "go1.26", since125: true, aware: true, procs: 4, numCPU: 4, memoryLimit: math.MaxInt64}
	limits := func(f func(*cgroup.Limits)) *cgroup.Limits {
		l := &cgroup.Limits{
			CPU:    cgroup.CPU{QuotaLevel: -1, Levels: []cgroup.CPULevel{{}, {Level: cgroup.Level{Depth: 1}}}},
			Memory: cgroup.Memory{MaxLevel: -1},
		}
		f(l)
		return l
	}
	quota := func(level int, q float64) *cgroup.Limits {
		return limits(func(l *cgroup.Limits) {
			l.CPU.Quota, l.CPU.QuotaLevel, l.CPU.Levels[level].CPUs = q, level, q
		})
	}
	with := func(f func(*self)) self {
		s := well
		f(&s)
		return s
	}
	for _, c := range []struct {
		name string
		self self
		l    *cgroup.Limits
		want []string
	}{
		{"nothing", well, limits(func(*cgroup.Limits) {}), nil},
		{"nothing can be read", well, nil, nil},
		{"environment", with(func(s *self) { s.envProcs, s.aware = "8", false }), nil, []string{"env-gomaxprocs"}},
		{"old go.mod", with(func(s *self) { s.aware = false }), nil, []string{"old-go-mod"}},
		{"old Go", with(func(s *self) { s.aware, s.since125 = false, false }), nil, []string{"old-go"}},
		{"automaxprocs", with(func(s *self) { s.automaxprocs = "v1.6.0" }), nil, []string{"leftover-automaxprocs"}},
		{"ancestor", with(func(s *self) { s.numCPU = 4 }), quota(1, 4), []string{"ancestor-tighter"}},
		{"whole quota", well, quota(0, 4), nil},
		{"fraction", well, quota(0, 3.5), []string{"fractional-quota"}},
		{"far too many CPUs", well, quota(0, 2), []string{"fractional-quota", "numcpu-frozen"}},
		{"hidden", well, limits(func(l *cgroup.Limits) { l.CPU.Hidden = true }), []string{"hidden-ancestors"}},
		{"memory", well, limits(func(l *cgroup.Limits) { l.Memory.Max, l.Memory.MaxLevel = 1<<30, 1 }), []string{"no-gomemlimit", "memory-ancestor"}},
		{"memory limit too high", with(func(s *self) { s.memoryLimit = 2 << 30 }), limits(func(l *cgroup.Limits) { l.Memory.Max, l.Memory.MaxLevel = 1<<30, 0 }), []string{"gomemlimit-too-high"}},
	} {
		var got []string
		for _, x := range traps(c.self, c.l) {
			got = append(got, x.Code)
			if x.Text == "" || x.Fix == "" {
				t.Errorf("%s: %+v", c.name, x)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
