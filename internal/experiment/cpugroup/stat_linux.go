package cpugroup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Stat has the kernel's counters of a group. Throttled time is summed over CPUs.
type Stat struct {
	Periods     int64 `json:"periods"`
	Throttled   int64 `json:"throttled"`
	ThrottledNS int64 `json:"throttled_ns"`
}

// Minus returns the difference of a and an earlier b.
func (a Stat) Minus(b Stat) Stat {
	return Stat{a.Periods - b.Periods, a.Throttled - b.Throttled, a.ThrottledNS - b.ThrottledNS}
}

// Plus returns the sum over two groups.
func (a Stat) Plus(b Stat) Stat {
	return Stat{a.Periods + b.Periods, a.Throttled + b.Throttled, a.ThrottledNS + b.ThrottledNS}
}

// ReadStat reads the CPU counters of the group in dir since it was created.
func ReadStat(dir string) (Stat, error) {
	counts, err := readCounters(dir, "cpu.stat")
	if err != nil {
		return Stat{}, err
	}
	s := Stat{Periods: counts["nr_periods"], Throttled: counts["nr_throttled"]}
	if ns, ok := counts["throttled_time"]; ok { // v1
		s.ThrottledNS = ns
	} else if us, ok := counts["throttled_usec"]; ok {
		s.ThrottledNS = 1000 * us
	} else {
		return Stat{}, fmt.Errorf("%s/cpu.stat has no throttled time", dir)
	}
	return s, nil
}

// readCounters returns the numbers in a file of a group with a name and a number on each line, by name.
func readCounters(dir, file string) (map[string]int64, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil, err
	}
	counts := map[string]int64{}
	for line := range bytes.Lines(b) {
		k, v, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		if counts[k], err = strconv.ParseInt(v, 10, 64); err != nil {
			return nil, fmt.Errorf("%s/%s has the line %q", dir, file, line)
		}
	}
	return counts, nil
}

// CPUTime returns the CPU time of the group. It needs Options.CountUsage.
func (g *Group) CPUTime() (time.Duration, error) {
	for _, dir := range g.Dirs() {
		if b, err := os.ReadFile(filepath.Join(dir, "cpuacct.usage")); err == nil {
			n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
			return time.Duration(n), err
		}
	}
	counts, err := readCounters(g.Dir, "cpu.stat")
	if err != nil {
		return 0, err
	}
	us, ok := counts["usage_usec"]
	if !ok {
		return 0, fmt.Errorf("%s/cpu.stat has no usage", g.Dir)
	}
	return time.Duration(us) * time.Microsecond, nil
}

// OOMKills returns how many processes of the group the kernel killed for lack of memory, 0 if unknown.
func (g *Group) OOMKills() int64 {
	for _, dir := range g.Dirs() {
		for _, name := range []string{"memory.events", "memory.oom_control"} {
			counts, _ := readCounters(dir, name)
			if n, ok := counts["oom_kill"]; ok {
				return n
			}
		}
	}
	return 0
}
