package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// group is a cgroup with a CPU quota.
type group struct {
	dir string
	v2  bool
}

// newGroup makes one below the root of the hierarchy with the cpu controller.
// A heavy one goes before neighbours within its quota, so that a busy machine
// disturbs it less. 0 CPUs is no limit.
func newGroup(cpus float64, period time.Duration, heavy bool) (*group, error) {
	mount, v2, err := findMount()
	if err != nil {
		return nil, err
	}
	if v2 {
		if err := os.WriteFile(filepath.Join(mount, "cgroup.subtree_control"), []byte("+cpu"), 0); err != nil {
			return nil, fmt.Errorf("enabling the cpu controller: %w", err)
		}
	}
	dir, err := os.MkdirTemp(mount, "whylate-throttle-")
	if err != nil {
		return nil, fmt.Errorf("making a cgroup (root is needed): %w", err)
	}
	g := &group{dir: dir, v2: v2}
	us := period.Microseconds()
	quota := strconv.Itoa(int(cpus * float64(us)))
	if v2 {
		if cpus == 0 {
			quota = "max"
		}
		err = g.write("cpu.max", fmt.Sprintf("%s %d", quota, us))
	} else {
		if cpus == 0 {
			quota = "-1"
		}
		err = errors.Join(g.write("cpu.cfs_period_us", strconv.FormatInt(us, 10)), g.write("cpu.cfs_quota_us", quota))
	}
	if err != nil {
		g.remove()
		return nil, fmt.Errorf("setting a quota of %v CPUs: %w", cpus, err)
	}
	if heavy {
		file, weight := "cpu.shares", "262144"
		if v2 {
			file, weight = "cpu.weight", "10000"
		}
		_ = g.write(file, weight) // a kernel without weights measures all the same
	}
	return g, nil
}

func (g *group) write(file, text string) error {
	return os.WriteFile(filepath.Join(g.dir, file), []byte(text), 0)
}

func (g *group) remove() {
	for range 100 {
		if os.Remove(g.dir) == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A stat is what the kernel counts of a group. Throttled time is summed over
// CPUs.
type stat struct {
	Periods     int64 `json:"periods"`
	Throttled   int64 `json:"throttled"`
	ThrottledNS int64 `json:"throttled_ns"`
}

func (a stat) less(b stat) stat {
	return stat{a.Periods - b.Periods, a.Throttled - b.Throttled, a.ThrottledNS - b.ThrottledNS}
}

// readStat reads the counters of the group in dir; "" has none.
func readStat(dir string) (s stat, err error) {
	if dir == "" {
		return s, nil
	}
	b, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return s, err
	}
	for line := range bytes.Lines(b) {
		k, v, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		n, _ := strconv.ParseInt(v, 10, 64)
		switch k {
		case "nr_periods":
			s.Periods = n
		case "nr_throttled":
			s.Throttled = n
		case "throttled_time":
			s.ThrottledNS = n
		case "throttled_usec":
			s.ThrottledNS = 1000 * n
		}
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
		before, after, ok := strings.Cut(string(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		switch g[0] {
		case "cgroup":
			for _, option := range strings.Split(g[2], ",") {
				if option == "cpu" {
					return f[4], false, nil
				}
			}
		case "cgroup2":
			c, err := os.ReadFile(filepath.Join(f[4], "cgroup.controllers"))
			if err == nil && strings.Contains(" "+strings.TrimSpace(string(c))+" ", " cpu ") {
				dir, v2 = f[4], true
			}
		}
	}
	if dir == "" {
		return "", false, errors.New("no hierarchy with the cpu controller is mounted")
	}
	return dir, v2, nil
}
