package cgroup

import (
	"cmp"
	"math"
	"path"
	"time"
)

// readCPU finds the groups and sets all fields of c: levels, bounds, the tightest quota, and whether a limit may be hidden.
func (f *finder) readCPU(c *CPU) {
	c.Hierarchy = f.locate("cpu")
	c.QuotaLevel = -1
	c.Levels, c.Bounds = []CPULevel{}, []CPUBound{} // [] rather than null in JSON
	for _, lv := range c.levels {
		l, file := f.cpuLevel(c.Version, lv)
		c.Levels, c.files = append(c.Levels, l), append(c.files, file)
		c.Bounds = append(c.Bounds, CPUBound{Kind: BoundQuota, File: l.File, Text: l.Text, Depth: l.Depth, CPUs: l.CPUs, Why: c.unlimitedReason(file, l.CPUs > 0)})
	}
	if dir := f.runtimeDir(); dir != "" {
		l, _ := f.cpuLevel(c.Version, Level{Dir: dir})
		c.RuntimeQuota = l.CPUs
	}
	for _, x := range []struct {
		bound CPUBound
		n     *int
	}{{f.cpuset(c), &c.Cpuset}, {f.affinity(), &c.Affinity}, {f.online(), &c.Online}} {
		if x.bound.Kind != "" {
			*x.n = int(x.bound.CPUs)
			c.Bounds = append(c.Bounds, x.bound)
		}
	}
	c.Parallelism = cmp.Or(c.Affinity, c.Cpuset, c.Online)
	c.judgeBounds()
	c.judgeSight()
}

// cpuLevel reads the CPU files of a group. A missing one is no error: v2's root and groups in which the controller is not
// enabled have none, nor has v1 without CONFIG_CFS_BANDWIDTH.
func (f *finder) cpuLevel(v Version, lv Level) (CPULevel, limitFile) {
	l, names := CPULevel{Level: lv}, cpuFiles[v]
	parse := func(b []byte) (err error) { l.Quota, l.Period, err = parseCPUMax(b); return err }
	if v == V1 {
		parse = func(b []byte) (err error) { l.Quota, err = parseQuota(b); return err }
	}
	file := f.limitFile(lv, names.quota, parse)
	if v == V1 {
		b, ok, err := f.optionalText(l.Dir, names.period)
		if ok {
			l.Period, err = parsePeriod(b)
		}
		if err != nil {
			file.err = joinReason(file.err, "period: "+reason(err))
		}
		if l.Quota > 0 && l.Period == 0 {
			file.err = joinReason(file.err, "a quota without a readable period")
			l.Quota, file.problem = 0, SightUnreadable
		}
	}
	l.CPUs = ratio(l.Quota, l.Period)
	l.Burst = micros(f.optionalNumber(l.Dir, names.burst))
	l.Weight = f.optionalNumber(l.Dir, names.weight)
	l.File, l.Text, l.Missing, l.Err = file.name, file.text, file.missing, file.err
	return l, file
}

// ratio returns a quota in CPUs, 0 without a quota or period.
func ratio(quota, period time.Duration) float64 {
	if quota <= 0 || period <= 0 {
		return 0
	}
	return float64(quota) / float64(period)
}

// listBound returns the bound of a kind by a list of CPUs, the content of file, and the
// number of CPUs in it.
func listBound(kind, file, list string) (b CPUBound, n int, err error) {
	n, err = parseCPUList(list)
	return CPUBound{Kind: kind, File: file, Text: clip(list), Depth: -1, CPUs: float64(n)}, n, err
}

// cpuset reads the group's CPU set. v2 has the file only if the controller is enabled; otherwise the set of the nearest ancestor with one applies.
// The bound is empty if none has one.
func (f *finder) cpuset(c *CPU) CPUBound {
	c.CpusetHierarchy = f.locateQuietly("cpuset")
	names := []string{"cpuset.cpus.effective"}
	if c.CpusetHierarchy.Version == V1 {
		names = []string{"cpuset.effective_cpus", "cpuset.cpus"}
	}
	for _, lv := range c.CpusetHierarchy.levels {
		for _, name := range names {
			text, ok, err := f.optionalText(lv.Dir, name)
			if err != nil {
				f.addNote("cpuset: %v", err)
			}
			if !ok {
				continue
			}
			file := path.Join(lv.Dir, name)
			b, n, err := listBound(BoundCpuset, file, string(text))
			if err != nil {
				f.addNote("cpuset: %s: %v", file, err)
			} else if n > 0 { // else v1: not set up, so the group cannot hold processes
				return b
			}
		}
	}
	return CPUBound{}
}

// affinity reads the process's affinity mask. The bound is empty if it is not known.
func (f *finder) affinity() CPUBound {
	const field = "Cpus_allowed_list"
	name := f.proc + "/status"
	text, err := readFile(f.src, name, maxSmall)
	if err != nil {
		f.addNote("affinity: %v", err)
	}
	list, ok := statusField(text, field)
	if !ok {
		return CPUBound{}
	}
	b, n, err := listBound(BoundAffinity, name, list)
	if err != nil || n == 0 {
		f.addNote("affinity: %s: %s %q is not a list of CPUs", name, field, b.Text)
		return CPUBound{}
	}
	return b
}

// online reads the machine's CPUs. The bound is empty if they are not known.
func (f *finder) online() CPUBound {
	const name = "/sys/devices/system/cpu/online"
	text, err := readFile(f.src, name, maxSmall)
	if err != nil {
		return CPUBound{}
	}
	b, n, err := listBound(BoundOnline, name, string(text))
	if err != nil || n == 0 {
		f.addNote("CPUs online: %s: %q is not a list of CPUs", name, b.Text)
		return CPUBound{}
	}
	return b
}

// RuntimeDefault returns the GOMAXPROCS that the runtime of Go 1.25 and later sets with these
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
