//go:build linux

package testchild

import (
	"os"
	"testing"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
)

// NewGroup creates a CPU cgroup below parent or, for nil, below the hierarchy's root, with a quota in
// CPUs, 0 for none. It skips the test if that is impossible.
func NewGroup(t testing.TB, parent *cpugroup.Group, cpus float64) *cpugroup.Group {
	t.Helper()
	testfull.Need(t, "a CPU cgroup")
	if os.Getuid() != 0 {
		t.Skip("making a cgroup needs root")
	}
	g, err := cpugroup.New(cpugroup.Options{Parent: parent, CPUs: cpus, HighWeight: true})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// Throttled returns the kernel's counters of a group: throttled periods, and throttled time in ns,
// summed over CPUs.
func Throttled(t testing.TB, g *cpugroup.Group) (periods, lost int64) {
	t.Helper()
	s := must.Have(cpugroup.ReadStat(g.Dir))(t)
	return s.Throttled, s.ThrottledNS
}
