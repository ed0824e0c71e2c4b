//go:build linux

package testchild

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A Group is a CPU cgroup that a test has made (v1 or v2).
type Group struct {
	Dir string
	v2  bool
}

// NewGroup makes a group below another, or, for nil, below the hierarchy's
// root, with a quota in CPUs, 0 for none. It skips where that cannot be done.
func NewGroup(t testing.TB, above *Group, cpus float64) *Group {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making a cgroup needs root")
	}
	if above == nil {
		dir, v2, err := cpuHierarchy()
		if err != nil {
			t.Skip(err)
		}
		above = &Group{dir, v2}
	}
	if above.v2 {
		if err := above.write("cgroup.subtree_control", "+cpu"); err != nil {
			t.Skipf("enabling the cpu controller: %v", err)
		}
	}
	dir, err := os.MkdirTemp(above.Dir, "whylate-test-")
	if err != nil {
		t.Skipf("making a cgroup: %v", err)
	}
	g := &Group{dir, above.v2}
	t.Cleanup(func() {
		for i := range 50 {
			if err = os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
				return
			}
			time.Sleep(time.Duration(i) * time.Millisecond)
		}
		t.Errorf("removing the group: %v", err)
	})
	// Within its quota it goes before neighbours, so that a busy machine disturbs the measurement less.
	weight, largest := "cpu.shares", "262144"
	if g.v2 {
		weight, largest = "cpu.weight", "10000"
	}
	_ = g.write(weight, largest)
	if cpus > 0 {
		file, text := "cpu.cfs_quota_us", strconv.Itoa(int(cpus*100000)) // the period is 100 ms unless set
		if g.v2 {
			file, text = "cpu.max", text+" 100000"
		}
		if err := g.write(file, text); err != nil {
			t.Skipf("setting a quota: %v", err)
		}
	}
	return g
}

func (g *Group) write(file, text string) error {
	return os.WriteFile(filepath.Join(g.Dir, file), []byte(text), 0)
}

// Take makes a command run in the group from its first instruction. The
// process is the same that the command starts, through a shell.
func (g *Group) Take(cmd *exec.Cmd) {
	cmd.Args = append([]string{"sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, g.Dir, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
}

// Throttled reads the kernel's own account of the group: throttled periods, and
// throttled time in ns, summed over CPUs.
func (g *Group) Throttled(t testing.TB) (periods, lost int64) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(g.Dir, "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	known := false
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		n, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		switch f[0] {
		case "nr_throttled":
			periods = n
		case "throttled_time":
			lost, known = n, true
		case "throttled_usec":
			lost, known = n*1000, true
		}
	}
	if !known {
		t.Fatalf("no throttled time in %q", b)
	}
	return periods, lost
}

// cpuHierarchy prefers v1: where its cpu controller is mounted, v2 has none.
func cpuHierarchy() (dir string, v2 bool, err error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", false, err
	}
	for line := range bytes.Lines(b) {
		before, after, _ := strings.Cut(string(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		switch {
		case len(f) < 5 || len(g) < 3:
		case g[0] == "cgroup" && strings.Contains(","+g[2]+",", ",cpu,"):
			return f[4], false, nil
		case g[0] == "cgroup2":
			if c, err := os.ReadFile(filepath.Join(f[4], "cgroup.controllers")); err == nil && strings.Contains(" "+strings.TrimSpace(string(c))+" ", " cpu ") {
				dir, v2 = f[4], true
			}
		}
	}
	if dir == "" {
		return "", false, errors.New("no hierarchy with the cpu controller is mounted")
	}
	return dir, v2, nil
}
