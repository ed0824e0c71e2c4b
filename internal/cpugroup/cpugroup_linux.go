package cpugroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Group is a cgroup of the cpu controller.
type Group struct {
	Dir  string
	v2   bool
	file *os.File // of Dir, once a command was to run there
}

// Options say what a group is to be like.
type Options struct {
	Above  *Group        // nil: below the root of the hierarchy with the cpu controller
	CPUs   float64       // its quota; 0: none
	Period time.Duration // of the quota; 0: 100 ms
	// Heavy makes it go before neighbours within its quota, so that a busy machine
	// disturbs a measurement less.
	Heavy bool
}

// New makes a group. Remove it once its processes have ended.
func New(o Options) (*Group, error) {
	above := o.Above
	if above == nil {
		dir, v2, err := findMount()
		if err != nil {
			return nil, err
		}
		above = &Group{Dir: dir, v2: v2}
	}
	if above.v2 {
		if err := above.write("cgroup.subtree_control", "+cpu"); err != nil {
			return nil, fmt.Errorf("enabling the cpu controller: %w", err)
		}
	}
	dir, err := os.MkdirTemp(above.Dir, "whylate-lab-")
	if err != nil {
		return nil, fmt.Errorf("making a cgroup (root is needed): %w", err)
	}
	g := &Group{Dir: dir, v2: above.v2}
	if o.CPUs > 0 {
		if o.Period == 0 {
			o.Period = 100 * time.Millisecond
		}
		period := o.Period.Microseconds()
		quota := int(o.CPUs * float64(period))
		if g.v2 {
			err = g.write("cpu.max", fmt.Sprintf("%d %d", quota, period))
		} else {
			err = errors.Join(g.write("cpu.cfs_period_us", strconv.FormatInt(period, 10)), g.write("cpu.cfs_quota_us", strconv.Itoa(quota)))
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("setting a quota of %v CPUs: %w", o.CPUs, err), g.Remove())
	}
	if o.Heavy {
		file, weight := "cpu.shares", "262144"
		if g.v2 {
			file, weight = "cpu.weight", "10000"
		}
		_ = g.write(file, weight) // a kernel without weights measures all the same
	}
	return g, nil
}

func (g *Group) write(file, text string) error {
	return os.WriteFile(filepath.Join(g.Dir, file), []byte(text), 0)
}

// Take makes a command, which must be started before the group is removed, run
// in the group from its first instruction. On v2 the kernel puts it there; on v1
// a shell does, which the command then takes the place of.
func (g *Group) Take(cmd *exec.Cmd) {
	if g.v2 {
		if g.file == nil {
			g.file, _ = os.Open(g.Dir) // if that fails, so does the start
		}
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = new(syscall.SysProcAttr)
		}
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(g.file.Fd())
		return
	}
	cmd.Args = append([]string{"sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, g.Dir, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
}

// Remove removes the group. The kernel may take a moment to let go of
// processes that have ended.
func (g *Group) Remove() (err error) {
	g.file.Close()
	for i := range 50 {
		if err = os.Remove(g.Dir); err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		time.Sleep(time.Duration(i) * time.Millisecond)
	}
	return fmt.Errorf("removing a cgroup: %w", err)
}

// A Stat is what the kernel counts of a group. Throttled time is summed over
// CPUs.
type Stat struct {
	Periods     int64 `json:"periods"`
	Throttled   int64 `json:"throttled"`
	ThrottledNS int64 `json:"throttled_ns"`
}

// Less returns what was counted since b.
func (a Stat) Less(b Stat) Stat {
	return Stat{a.Periods - b.Periods, a.Throttled - b.Throttled, a.ThrottledNS - b.ThrottledNS}
}

// ReadStat reads the counters of the group in dir.
func ReadStat(dir string) (s Stat, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return s, err
	}
	known := false
	for line := range bytes.Lines(b) {
		k, v, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return s, fmt.Errorf("%s/cpu.stat has the line %q", dir, line)
		}
		switch k {
		case "nr_periods":
			s.Periods = n
		case "nr_throttled":
			s.Throttled = n
		case "throttled_time":
			s.ThrottledNS, known = n, true
		case "throttled_usec":
			s.ThrottledNS, known = 1000*n, true
		}
	}
	if !known {
		return s, fmt.Errorf("%s/cpu.stat tells no throttled time", dir)
	}
	return s, nil
}

// findMount prefers v1: where its cpu controller is mounted, v2 has none.
func findMount() (dir string, v2 bool, err error) {
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
