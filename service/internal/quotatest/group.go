//go:build linux

// Package quotatest creates real cgroups for tests and runs children in
// them.
package quotatest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/must"
)

// A Group is a cgroup that a test created; it is removed when the test ends.
type Group struct {
	Dir string
	v2  bool
}

// New makes a group below the root of the cpu controller's hierarchy with the
// given limit in CPUs; 0 is no limit. It skips the test, saying why, where
// that is not possible.
func New(t testing.TB, cpus float64) *Group {
	t.Helper()
	if os.Getenv("WHYLATE_FULL") != "1" {
		t.Skip("needs a CPU cgroup and seconds: only with WHYLATE_FULL=1 (.ci/full)")
	}
	if os.Getuid() != 0 {
		t.Skip("making a cgroup needs root")
	}
	mount, v2, err := findMount("cpu")
	if err != nil {
		t.Skipf("no cpu controller to make a group in: %v", err)
	}
	if v2 {
		if err := enable(mount, "cpu"); err != nil {
			t.Skipf("cannot enable the cpu controller: %v", err)
		}
	}
	return makeLimitedGroup(t, mount, v2, cpus)
}

// Child makes a group below g, with the given limit in CPUs (0 for none), until the test ends. It skips the test like New.
func (g *Group) Child(t testing.TB, cpus float64) *Group {
	t.Helper()
	if g.v2 {
		if err := enable(g.Dir, "cpu"); err != nil {
			t.Skipf("cannot enable the cpu controller: %v", err)
		}
	}
	return makeLimitedGroup(t, g.Dir, g.v2, cpus)
}

// makeLimitedGroup makes a group with a quota of CPUs below the directory parent, until the
// test ends. It skips the test if it may not do that.
func makeLimitedGroup(t testing.TB, parent string, v2 bool, cpus float64) *Group {
	t.Helper()
	g := makeGroup(t, parent, v2)
	if err := g.Limit(cpus); err != nil {
		t.Skipf("cannot set a quota: %v", err)
	}
	// A large weight: within its quota the group goes before neighbours, so that a
	// busy machine disturbs the measurement less.
	g.Weight(t, 100)
	return g
}

// Weight sets the group's weight as a multiple of the usual one, at most 100. A
// kernel without weights measures all the same.
func (g *Group) Weight(t testing.TB, times int) {
	t.Helper()
	file, weight := "cpu.shares", times*1024
	if g.v2 {
		file, weight = "cpu.weight", times*100
	}
	if err := os.WriteFile(filepath.Join(g.Dir, file), []byte(strconv.Itoa(weight)), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Logf("setting a weight: %v", err)
	}
}

// Used is the CPU time of the processes that are in the group now.
func (g *Group) Used(t testing.TB) (used time.Duration) {
	t.Helper()
	procs := must.Have(os.ReadFile(filepath.Join(g.Dir, "cgroup.procs")))(t)
	for _, pid := range strings.Fields(string(procs)) {
		b, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			continue // it has ended
		}
		// After the name, which is in parentheses: state is field 3, utime and
		// stime are 14 and 15, in hundredths of a second (proc(5)).
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		for _, i := range []int{14 - 3, 15 - 3} {
			n := must.Have(strconv.ParseInt(f[i], 10, 64))(t)
			used += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return used
}

// makeGroup makes a group below the directory parent and removes it when the test ends. It
// skips the test if it may not do that.
func makeGroup(t testing.TB, parent string, v2 bool) *Group {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "whylate-test-")
	if err != nil {
		t.Skipf("cannot make a cgroup: %v", err)
	}
	g := &Group{Dir: dir, v2: v2}
	t.Cleanup(func() {
		// A group can be removed a moment after its last process is gone.
		for i := range 50 {
			if err = os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
				return
			}
			time.Sleep(time.Duration(i) * time.Millisecond)
		}
		t.Errorf("removing the group: %v", err)
	})
	return g
}

// Limit sets the quota, in CPUs, over the usual period of 100 ms; 0 is none.
func (g *Group) Limit(cpus float64) error {
	const period = 100000
	quota := int(cpus * period)
	if g.v2 {
		text := fmt.Sprintf("%d %d", quota, period)
		if cpus == 0 {
			text = fmt.Sprintf("max %d", period)
		}
		return os.WriteFile(filepath.Join(g.Dir, "cpu.max"), []byte(text), 0)
	}
	if cpus == 0 {
		quota = -1
	}
	if err := os.WriteFile(filepath.Join(g.Dir, "cpu.cfs_period_us"), []byte(strconv.Itoa(period)), 0); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(g.Dir, "cpu.cfs_quota_us"), []byte(strconv.Itoa(quota)), 0)
}

// Command is a command that runs in the group from its first instruction.
func (g *Group) Command(name string, args ...string) *exec.Cmd {
	script := []string{"-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, g.Dir, name}
	return exec.Command("/bin/sh", append(script, args...)...)
}

// Stat reads the kernel's counters: periods, throttled periods, and throttled
// time summed over CPUs.
func (g *Group) Stat(t testing.TB) (periods, throttled int64, lost time.Duration) {
	t.Helper()
	b := must.Have(os.ReadFile(filepath.Join(g.Dir, "cpu.stat")))(t)
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		if len(f) != 2 {
			continue
		}
		n := must.Have(strconv.ParseInt(f[1], 10, 64))(t)
		switch f[0] {
		case "nr_periods":
			periods = n
		case "nr_throttled":
			throttled = n
		case "throttled_time":
			lost = time.Duration(n)
		case "throttled_usec":
			lost = time.Duration(n) * time.Microsecond
		}
	}
	return periods, throttled, lost
}

func enable(dir, controller string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0)
}

// findMount returns the directory at which the hierarchy with a controller is mounted; v2 says of which version it is. It prefers v1: where a
// controller is mounted there, v2 does not have it.
func findMount(controller string) (dir string, v2 bool, err error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", false, err
	}
	for line := range bytes.Lines(b) {
		before, after, ok := strings.Cut(string(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		switch g[0] {
		case "cgroup":
			for _, option := range strings.Split(g[2], ",") {
				if option == controller {
					return f[4], false, nil
				}
			}
		case "cgroup2":
			c, err := os.ReadFile(filepath.Join(f[4], "cgroup.controllers"))
			if err == nil && strings.Contains(" "+strings.TrimSpace(string(c))+" ", " "+controller+" ") {
				dir, v2 = f[4], true
			}
		}
	}
	if dir == "" {
		return "", false, errors.New("no hierarchy with it is mounted")
	}
	return dir, v2, nil
}

// MachineBusyTime returns the CPU time that the whole machine has used. It shows whether
// other processes disturbed a measurement.
func MachineBusyTime(t testing.TB) (busy time.Duration) {
	t.Helper()
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Skip(err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	f := strings.Fields(line)
	for i, v := range f[1:] {
		n := must.Have(strconv.ParseInt(v, 10, 64))(t)
		// user nice system idle iowait irq softirq steal guest guest_nice;
		// guest time is in user already.
		if i != 3 && i != 4 && i < 8 {
			busy += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return busy
}
