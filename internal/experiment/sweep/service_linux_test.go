package sweep

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/internal/experiment/guard"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testchild"
)

// TestCounters: the counters are sums of the kernel's counters over the processes, here this one;
// skipThreads leaves out the expensive ones.
func TestCounters(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) { must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)) }
	write("cgroup.procs", fmt.Sprintf("%d\n999999999\n", os.Getpid()))
	in := &instance{group: &cpugroup.Group{Dir: dir}, output: &output{gcs: 3, gcCPU: 4}}
	u := &runningService{instances: []*instance{in}}
	ownMemory := func() (peak, memory int64) {
		text := string(must.Have(os.ReadFile("/proc/self/status"))(t))
		for name, to := range map[string]*int64{"VmHWM:": &peak, "VmRSS:": &memory} {
			_, value, _ := strings.Cut(text, name)
			fmt.Sscan(value, to)
		}
		return peak << 10, memory << 10
	}
	for end := u.readCounters(false).cpu + 20e6; u.readCounters(false).cpu < end; { // CPU time that is ours
	}
	// Before it ends, the kernel may report a lower peak for a moment, because its counters of each CPU lag behind (VmHWM in proc(5)).
	peak := bytes.Repeat([]byte{1}, 64<<20)
	runtime.KeepAlive(peak)
	peak = nil
	debug.FreeOSMemory()
	before, memory := ownMemory()
	c := u.readCounters(false)
	after, _ := ownMemory()
	check.True(t, c.peak >= before && c.peak <= after, "a peak of %d bytes, the kernel had %d before and %d after", c.peak, before, after)
	check.True(t, c.peak > memory+32<<20, "a peak of %d bytes, %d are resident", c.peak, memory)
	check.True(t, c.memory >= memory/2 && c.memory <= 2*memory && c.threads >= 2 && c.threads <= 1000 && c.switches != 0,
		"%+v, of %d bytes", c, memory)
	check.True(t, c.cpu >= 20e6 && !c.hasStat && c.oomKills == 0 && c.gcs == 3 && c.gcCPU == 4, "%+v", c)
	if l := u.readCounters(true); l.peak != 0 || l.switches != 0 || l.cpu != 0 || l.gcs != 0 || l.memory == 0 || l.threads < 2 {
		t.Errorf("at a light look %+v", l)
	}
	// The group's own counters go before those of its processes.
	write("cpu.stat", "usage_usec 7\nnr_periods 5\nnr_throttled 2\nthrottled_usec 3\n")
	write("memory.events", "oom 9\noom_kill 1\n")
	if c := u.readCounters(false); c.cpu != 7000 || !c.hasStat || c.stat != (cpugroup.Stat{Periods: 5, Throttled: 2, ThrottledNS: 3000}) || c.oomKills != 1 {
		t.Errorf("%+v", c)
	}
	u.instances = append(u.instances, in)
	if c := u.readCounters(false); c.cpu != 14000 || !c.hasStat || c.stat != (cpugroup.Stat{Periods: 10, Throttled: 4, ThrottledNS: 6000}) || c.oomKills != 2 || c.gcs != 6 || c.gcCPU != 8 {
		t.Errorf("twice the same: %+v", c)
	}
	u.instances[0] = &instance{group: &cpugroup.Group{Dir: t.TempDir()}, output: new(output)}
	if c := u.readCounters(false); c.hasStat || c.cpu != 7000 {
		t.Errorf("one of two without counters: %+v", c)
	}
}

// TestAlive: a service that has ended is an error with its exit, and with a lack of memory if that was
// the cause.
func TestAlive(t *testing.T) {
	dir := t.TempDir()
	cmd := testchild.Command("guard")
	cmd.Stderr = nil
	p := must.Have(guard.Start(cmd, guard.Command{Args: []string{"sh", "-c", "exit 3"}, Env: os.Environ()}, func(string) {}))(t)
	defer p.Stop()
	for deadline := time.Now().Add(20 * time.Second); p.ExitText() == "" && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	ended := &instance{process: p, output: new(output)}
	ended.output.addLine("no room left")
	for _, c := range []struct {
		events string
		group  bool
		want   string
	}{
		{"", false, "(exit status 3); its last output: no room left"},
		{"oom 3\noom_kill 0\n", true, "(exit status 3); its last output"},
		{"oom_kill 2\n", true, "(exit status 3, out of memory); its last output"},
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, "memory.events"), []byte(c.events), 0o600))
		if ended.group = nil; c.group {
			ended.group = &cpugroup.Group{Dir: dir}
		}
		if err := (&runningService{instances: []*instance{{process: new(guard.Process)}, ended}}).checkAlive(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.events, err, c.want)
		}
	}
	if err := (&runningService{instances: []*instance{{process: new(guard.Process)}}}).checkAlive(); err != nil {
		t.Errorf("a service that runs: %v", err)
	}
}
