package host

import (
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/service/cgroup"
)

// TestAddLimits: the facts name the tightest quota with the level that has it, and the memory limit
// that applies; without limits they have none.
func TestAddLimits(t *testing.T) {
	limited := &cgroup.Limits{
		CPU:    cgroup.CPU{QuotaLevel: 1, Quota: 1.5, Online: 8, Parallelism: 4, Levels: []cgroup.CPULevel{{File: "/a/cpu.max", Period: 1}, {Level: cgroup.Level{Depth: 2}, File: "/cpu.max", Period: 100 * time.Millisecond}}},
		Memory: cgroup.Memory{Max: 1 << 30, Bounds: []cgroup.MemoryBound{{File: "/a/memory.max"}, {File: "/memory.max", Won: true}, {File: "/x"}}},
	}
	limited.CPU.Hidden, limited.CPU.Version, limited.CPU.Group = true, cgroup.V2, "/a"
	unlimited := &cgroup.Limits{CPU: cgroup.CPU{QuotaLevel: -1, Levels: limited.CPU.Levels}, Memory: cgroup.Memory{Bounds: limited.Memory.Bounds}}
	for _, c := range []struct {
		l    *cgroup.Limits
		want bundle.Host
	}{
		{limited, bundle.Host{CPUs: 8, Parallelism: 4, HasHiddenGroups: true, CgroupVersion: "v2", Group: "/a", QuotaCPUs: 1.5, QuotaPeriodNS: 100e6, QuotaFile: "/cpu.max", QuotaDepth: 2, MemoryBytes: 1 << 30, MemoryFile: "/memory.max"}},
		{unlimited, bundle.Host{CgroupVersion: "none"}},
	} {
		var got bundle.Host
		addLimits(&got, c.l)
		check.True(t, reflect.DeepEqual(got, c.want), "%+v, want %+v", got, c.want)
	}
}

// TestOwnFacts: the facts of this process agree with the runtime's.
func TestOwnFacts(t *testing.T) {
	h := facts(os.Getpid(), func(code, text string) { t.Logf("%s: %s", code, text) })
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err == nil && h.Kernel != strings.TrimSpace(string(kernel)) || h.PID != os.Getpid() || h.OS != runtime.GOOS || h.Arch != runtime.GOARCH || h.OtherNetwork || h.Go != runtime.Version() && h.Go != "" || h.GOGC != os.Getenv("GOGC") || h.Parallelism < 1 || h.Parallelism > h.CPUs {
		t.Errorf("%+v", h)
	}
	warned := ""
	if h := facts(1<<30, func(_, text string) { warned = text }); h.PID != 1<<30 || h.OtherNetwork || h.CPUs != 0 || !strings.HasPrefix(warned, "the process's limits were not read") {
		t.Errorf("of no process: %+v, %s", h, warned)
	}
}
