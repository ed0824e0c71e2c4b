package cgroup

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"time"
)

func (f *finder) readCPU(c *CPU) {
	c.Hierarchy = f.locate("cpu")
	c.QuotaLevel = -1
	c.Levels, c.Bounds = []CPULevel{}, []CPUBound{} // [] rather than null in JSON
	for _, lv := range c.levels {
		c.Levels = append(c.Levels, f.cpuLevel(c.Version, lv))
	}
	if dir := f.runtimeDir(); dir != "" {
		c.RuntimeQuota = f.cpuLevel(c.Version, Level{Dir: dir}).CPUs
	}
	for _, l := range c.Levels {
		c.Bounds = append(c.Bounds, c.quotaBound(&l))
	}
	for _, b := range []CPUBound{f.readCpuset(c), f.readAffinity(c), f.readOnline(c)} {
		if b.Kind != "" {
			c.Bounds = append(c.Bounds, b)
		}
	}
	c.Parallelism = cmp.Or(c.Affinity, c.Cpuset, c.Online)
	c.judge()
	c.see()
}

// cpuLevel reads the CPU files of a group. A missing one is no error: v2's root and groups in which the controller is not
// enabled have none, nor has v1 without CONFIG_CFS_BANDWIDTH.
func (f *finder) cpuLevel(v Version, lv Level) CPULevel {
	l := CPULevel{Level: lv}
	quota, burst, weight := "cpu.max", "cpu.max.burst", "cpu.weight"
	parse := func(b []byte) (err error) { l.Quota, l.Period, err = parseCPUMax(b); return err }
	if v == V1 {
		quota, burst, weight = "cpu.cfs_quota_us", "cpu.cfs_burst_us", "cpu.shares"
		parse = func(b []byte) (err error) { l.Quota, err = parseQuota(b); return err }
	}
	l.File = path.Join(l.Dir, quota)
	f.setting(l.File, &l.Text, &l.Err, &l.Missing, &l.problem, parse)
	if v == V1 {
		if b, ok, err := f.text(l.Dir, "cpu.cfs_period_us"); err != nil {
			l.Err = joinReason(l.Err, "period: "+reason(err))
		} else if ok {
			if l.Period, err = parsePeriod(b); err != nil {
				l.Err = joinReason(l.Err, "period: "+err.Error())
			}
		}
		if l.Quota > 0 && l.Period == 0 {
			l.Err = joinReason(l.Err, "a quota without a readable period")
			l.Quota, l.problem = 0, SightUnreadable
		}
	}
	l.CPUs = ratio(l.Quota, l.Period)
	l.Burst = micros(f.number(l.Dir, burst))
	l.Weight = f.number(l.Dir, weight)
	return l
}

func ratio(quota, period time.Duration) float64 {
	if quota <= 0 || period <= 0 {
		return 0
	}
	return float64(quota) / float64(period)
}

func (c *CPU) quotaBound(l *CPULevel) CPUBound {
	b := CPUBound{Kind: BoundQuota, File: l.File, Text: l.Text, Depth: l.Depth, CPUs: l.CPUs}
	switch {
	case l.Err != "":
		b.Why = "not usable: " + l.Err
	case l.Missing:
		b.Why = c.missing(l.Level)
	case l.CPUs == 0:
		b.Why = "no limit"
	}
	return b
}

// readCpuset reads the group's CPU set. v2 has the file only where the controller is enabled: the set of the nearest ancestor
// with one applies.
func (f *finder) readCpuset(c *CPU) CPUBound {
	c.CpusetHierarchy = f.locateQuietly("cpuset")
	names := []string{"cpuset.cpus.effective"}
	if c.CpusetHierarchy.Version == V1 {
		names = []string{"cpuset.effective_cpus", "cpuset.cpus"}
	}
	for _, lv := range c.CpusetHierarchy.levels {
		for _, name := range names {
			b, ok, err := f.text(lv.Dir, name)
			if err != nil {
				f.note("cpuset: %v", err)
			}
			if !ok {
				continue
			}
			n, err := parseCPUList(string(b))
			if err != nil {
				f.note("cpuset: %s: %v", path.Join(lv.Dir, name), err)
				continue
			}
			if n == 0 {
				continue // v1: not set up, so the group cannot hold processes
			}
			c.Cpuset = n
			return CPUBound{Kind: BoundCpuset, File: path.Join(lv.Dir, name), Text: clip(string(b)), Depth: -1, CPUs: float64(n)}
		}
	}
	return CPUBound{}
}

// readAffinity reads the process's affinity mask.
func (f *finder) readAffinity(c *CPU) (bound CPUBound) {
	const field = "Cpus_allowed_list"
	name := f.proc + "/status"
	if b, err := readFile(f.src, name, maxSmall); err != nil {
		f.note("affinity: %v", err)
	} else if v, ok := statusField(b, field); ok {
		if n, err := parseCPUList(v); err != nil || n == 0 {
			f.note("affinity: %s: %s %q is not a list of CPUs", name, field, clip(v))
		} else {
			c.Affinity = n
			bound = CPUBound{Kind: BoundAffinity, File: name, Text: clip(v), Depth: -1, CPUs: float64(n)}
		}
	}
	return bound
}

// readOnline reads the machine's CPUs.
func (f *finder) readOnline(c *CPU) (bound CPUBound) {
	const name = "/sys/devices/system/cpu/online"
	if b, err := readFile(f.src, name, maxSmall); err == nil {
		if n, err := parseCPUList(string(b)); err == nil && n > 0 {
			c.Online = n
			bound = CPUBound{Kind: BoundOnline, File: name, Text: clip(string(b)), Depth: -1, CPUs: float64(n)}
		} else {
			f.note("CPUs online: %s: %q is not a list of CPUs", name, clip(string(b)))
		}
	}
	return bound
}

// judge picks the tightest quota and the tightest bound, and says of each bound why it is or is
// not that one. Of equal bounds the first wins: the innermost quota, then the CPU set, which
// usually decides the affinity mask.
func (c *CPU) judge() {
	for i, l := range c.Levels {
		if l.CPUs > 0 && (c.Quota == 0 || l.CPUs < c.Quota) {
			c.Quota, c.QuotaLevel = l.CPUs, i
		}
	}
	win := -1
	for i, b := range c.Bounds {
		if b.CPUs > 0 && (win < 0 || b.CPUs < c.Bounds[win].CPUs) {
			win = i
		}
	}
	if win < 0 {
		return
	}
	w := &c.Bounds[win]
	w.Won = true
	c.Effective = w.CPUs
	switch {
	case w.Kind == BoundQuota && w.Depth > 0:
		w.Why = fmt.Sprintf("the tightest: quota of an ancestor, %d up", w.Depth)
	case w.Kind == BoundQuota:
		w.Why = "the tightest: quota of the process's own group"
	case w.Kind == BoundCpuset && float64(c.Online) > w.CPUs:
		w.Why = "the tightest: the group's CPU set is smaller than the machine"
	case w.Kind == BoundAffinity && float64(c.Online) > w.CPUs:
		w.Why = "the tightest: the process's affinity mask is smaller than the machine"
	default:
		w.Why = "all CPUs of the machine: nothing is tighter"
	}
	for i := range c.Bounds {
		b := &c.Bounds[i]
		if i == win || b.Why != "" {
			continue
		}
		if b.CPUs == w.CPUs {
			b.Why = "the same"
		} else {
			b.Why = fmt.Sprintf("looser: %s against %s CPUs", cpusText(b.CPUs), cpusText(w.CPUs))
		}
	}
}

// RuntimeDefault is the GOMAXPROCS that the runtime of Go 1.25 and later picks with these
// limits, unless containermaxprocs=0: RuntimeQuota rounded up and at least 2, but not more than
// the CPUs of the affinity mask (runtime.defaultGOMAXPROCS). It is 0 if the number of CPUs is
// unknown.
func (c *CPU) RuntimeDefault() int {
	n := c.Parallelism
	if q := c.RuntimeQuota; n > 0 && q > 0 {
		if want := max(2, math.Ceil(q)); want < float64(n) {
			return int(want)
		}
	}
	return n
}
