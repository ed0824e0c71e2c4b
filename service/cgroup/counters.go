package cgroup

import (
	"bytes"
	"time"
)

// Fields is the set of fields of a Stat that were measured.
type Fields uint

const (
	// HasUsage: Usage, and on v2 User and System.
	HasUsage Fields = 1 << iota
	// HasBandwidth: Periods, ThrottledPeriods, Throttled, Bursts and Burst of the process's own
	// group. All are zero if that group cannot have a quota.
	HasBandwidth
	// HasLocal: Local.
	HasLocal
	// HasAncestors: the Ancestor fields cover every group up to the root. Without it they cover
	// the visible ones.
	HasAncestors
)

// Stat is one reading of the CPU counters of a process's group. All counters start at the
// group's creation.
type Stat struct {
	Has Fields

	// Usage is the CPU time of the group and all groups below it, User and System its parts (v2
	// only).
	Usage, User, System time.Duration

	// Periods counts the quota's periods in which the group was runnable, ThrottledPeriods those
	// in which it used up its own quota.
	Periods, ThrottledPeriods int64
	// Throttled is how long the group's own quota throttled it, summed over CPUs.
	Throttled time.Duration
	// Bursts counts periods that used quota carried over from others, and Burst is how much.
	Bursts int64
	Burst  time.Duration

	// Local is how long the group was runnable and throttled, by its own quota or an ancestor's,
	// summed over CPUs (cpu.stat.local, Linux 6.6 and later).
	Local time.Duration

	// AncestorThrottledPeriods and AncestorThrottled are the sums over the visible ancestors,
	// for their own quotas. The kernel does not report this group's share.
	AncestorThrottledPeriods int64
	AncestorThrottled        time.Duration
}

// Sample overwrites st with the CPU counters; st.Has says which could be read. It fails only if none can, for example after the group was removed. It
// does not allocate.
func (s *Sampler) Sample(st *Stat) error {
	// cpu.stat and cpu.stat.local are compared with each other, so no throttling may end between
	// the two readings: repeat them until cpu.stat has not changed in between. Three attempts
	// suffice unless the machine is overloaded.
	for try := 0; try < 3; try++ {
		*st = Stat{}
		s.sampleOnce(st)
		b := s.read(s.localStat)
		if b == nil {
			break
		}
		local := readCounters(b)
		st.Local = local.Throttled
		st.Has |= local.Has & HasLocal
		var second Stat
		s.sampleOnce(&second)
		if second.Throttled == st.Throttled && second.AncestorThrottled == st.AncestorThrottled {
			break
		}
	}
	if b := s.read(s.usage); b != nil {
		if n, err := parseNumber(b); err == nil && n >= 0 {
			st.Usage = time.Duration(n)
			st.Has |= HasUsage
		}
	}
	if st.Has&^HasAncestors == 0 {
		return errNothing
	}
	return nil
}

// sampleOnce sets, in st, the counters in cpu.stat of the process's own group and of its ancestors.
func (s *Sampler) sampleOnce(st *Stat) {
	complete := !s.hidden
	for i := range s.cpu {
		c := &s.cpu[i]
		n := readCounters(s.read(c.stat))
		if i == 0 && s.version == V2 {
			st.Usage, st.User, st.System = n.Usage, n.User, n.System
			st.Has |= n.Has & HasUsage
		}
		switch {
		case c.Depth == 0 && !c.controlled:
			st.Has |= HasBandwidth // no controller, no quota
		case c.Depth == 0:
			st.Periods, st.ThrottledPeriods, st.Throttled, st.Bursts, st.Burst = n.Periods, n.ThrottledPeriods, n.Throttled, n.Bursts, n.Burst
			st.Has |= n.Has & HasBandwidth
		case c.controlled:
			st.AncestorThrottledPeriods += n.ThrottledPeriods
			st.AncestorThrottled += n.Throttled
			complete = complete && n.Has&HasAncestors != 0
		}
	}
	if complete {
		st.Has |= HasAncestors
	}
}

// readCounters reads cpu.stat or cpu.stat.local. v1 counts in nanoseconds (throttled_time, burst_time), v2 in microseconds.
// In Has, HasAncestors means that the file has throttled periods, and HasLocal that it has throttled time.
func readCounters(b []byte) (st Stat) {
	for k, v := range keyValues(b) {
		switch string(k) {
		case "usage_usec":
			st.Usage = micros(v)
			st.Has |= HasUsage
		case "user_usec":
			st.User = micros(v)
		case "system_usec":
			st.System = micros(v)
		case "nr_periods":
			st.Periods = v
			st.Has |= HasBandwidth
		case "nr_throttled":
			st.ThrottledPeriods = v
			st.Has |= HasAncestors
		case "throttled_time":
			st.Throttled = time.Duration(v)
			st.Has |= HasLocal
		case "throttled_usec":
			st.Throttled = micros(v)
			st.Has |= HasLocal
		case "nr_bursts":
			st.Bursts = v
		case "burst_time":
			st.Burst = time.Duration(v)
		case "burst_usec":
			st.Burst = micros(v)
		}
	}
	return st
}

// LevelStat counts what the quota of one group has throttled since the group was created.
type LevelStat struct {
	Level
	Periods, ThrottledPeriods int64
	// Throttled is summed over CPUs.
	Throttled time.Duration
}

// SampleLevels appends to dst the counters of the quotas of the process's own group and its
// visible ancestors, innermost first, and returns it. Counters that cannot be read are left
// out. It does not allocate if dst has room.
func (s *Sampler) SampleLevels(dst []LevelStat) []LevelStat {
	for i := range s.cpu {
		c := &s.cpu[i]
		st := readCounters(s.read(c.stat))
		if c.controlled && st.Has&HasBandwidth != 0 {
			dst = append(dst, LevelStat{c.Level, st.Periods, st.ThrottledPeriods, st.Throttled})
		}
	}
	return dst
}

// MemoryStat is one reading, in bytes, of the memory counters of the group that a process's
// memory is charged to: its own, or on v2 the nearest ancestor with the memory controller.
type MemoryStat struct {
	// Current is the memory charged to the group, including page cache.
	Current int64
	// InactiveFile is the page cache in it that the kernel frees first, and ActiveFile the page
	// cache that was used more than once. The usual "working set" is Current less InactiveFile,
	// but the kernel frees both before it kills. Shared memory and tmpfs are in neither. 0 if
	// unknown.
	InactiveFile, ActiveFile int64
	// SlabReclaimable is kernel memory that it frees as well: cached names and inodes (v2 only).
	SlabReclaimable int64
	// Swap is the group's swapped memory.
	Swap int64
	// AtHigh and AtMax count how often the kernel had to reclaim memory because the group reached
	// memory.high (v2) and its hard limit (v1: failcnt).
	AtHigh, AtMax int64
	// OOMKills counts the group's processes that the kernel killed because memory ran out (v1
	// since Linux 4.13).
	OOMKills int64
}

// Unreclaimable returns the charged memory that the kernel cannot free: all but the page cache
// and reclaimable kernel caches.
func (m *MemoryStat) Unreclaimable() int64 {
	return max(0, m.Current-m.InactiveFile-m.ActiveFile-m.SlabReclaimable)
}

// SampleMemory reads the memory counters into m. It fails if MemoryStat.Current cannot be read.
// It does not allocate, but the kernel must add up its counters, which costs about ten times
// as much as Sample.
func (s *Sampler) SampleMemory(m *MemoryStat) error { return s.sampleCharge(&s.ownCharge, m) }

// SampleMemoryAt is SampleMemory for the visible group depth levels up, which is charged for
// other groups below it as well. It fails if that group is not visible. It allocates if depth
// differs from the last call.
func (s *Sampler) SampleMemoryAt(depth int, m *MemoryStat) error {
	if depth == s.ownCharge.depth {
		return s.SampleMemory(m)
	}
	if s.ancestorCharge.current == nil || s.ancestorCharge.depth != depth {
		s.ancestorCharge.close()
		for _, l := range s.memory {
			if l.Depth == depth {
				s.ancestorCharge = s.openCharge(l.Level)
			}
		}
	}
	if s.ancestorCharge.depth != depth {
		*m = MemoryStat{}
		return errNothing
	}
	return s.sampleCharge(&s.ancestorCharge, m)
}

// sampleCharge overwrites m with the memory counters of one group, in bytes and events. It fails only without the current charge; other counters that
// cannot be read are 0.
func (s *Sampler) sampleCharge(c *samplerCharge, m *MemoryStat) error {
	*m = MemoryStat{}
	n, err := parseNumber(s.read(c.current))
	if err != nil || n < 0 {
		return errNothing
	}
	m.Current = n
	if n, err := parseNumber(s.read(c.swap)); err == nil && n >= 0 {
		m.Swap = n
	}
	for k, v := range keyValues(s.read(c.stat)) {
		name, total := bytes.CutPrefix(k, []byte("total_"))
		if total != (s.memVersion == V1) {
			continue // v1's other lines leave out the groups below
		}
		switch string(name) {
		case "inactive_file":
			m.InactiveFile = v
		case "active_file":
			m.ActiveFile = v
		case "slab_reclaimable":
			m.SlabReclaimable = v
		case "swap":
			m.Swap = v
		}
	}
	for k, v := range keyValues(s.read(c.events)) {
		switch string(k) {
		case "oom_kill":
			m.OOMKills = v
		case "high":
			m.AtHigh = v
		case "max":
			m.AtMax = v
		}
	}
	if n, err := parseNumber(s.read(c.failures)); err == nil && n >= 0 {
		m.AtMax = n
	}
	return nil
}

// Pressure is how long tasks could not run because CPUs or memory were short (pressure stall
// information, the kernel's accounting/psi.rst), since the group was created or the machine
// was started.
type Pressure struct {
	// Machine reports that the numbers are the whole machine's: v1 groups have none.
	Machine bool `json:"machine"`
	// HasCPU and HasMemory report which of the two were read.
	HasCPU    bool `json:"has_cpu"`
	HasMemory bool `json:"has_memory"`
	// CPU is how long some task waited for a CPU, because of a quota or of other processes.
	// Memory is how long some task waited for memory to be reclaimed or read back, and MemoryFull
	// how long all did.
	CPU        time.Duration `json:"cpu_some_ns"`
	Memory     time.Duration `json:"memory_some_ns"`
	MemoryFull time.Duration `json:"memory_full_ns"`
}

// SamplePressure reads pressure stall information into p. It fails if the kernel has none, or
// was started without psi=1. It does not allocate.
func (s *Sampler) SamplePressure(p *Pressure) error {
	*p = Pressure{Machine: s.machinePressure}
	p.CPU, _, p.HasCPU = pressure(s.read(s.cpuPressure))
	p.Memory, p.MemoryFull, p.HasMemory = pressure(s.read(s.memPressure))
	if !p.HasCPU && !p.HasMemory {
		return errNothing
	}
	return nil
}

// pressure reads, in the kernel's format, the total times during which some or all tasks waited: lines "some avg10=0.00 ... total=MICROSECONDS" and
// "full ...". ok is false without the first; allTasks is 0 without the second.
func pressure(b []byte) (someTasks, allTasks time.Duration, ok bool) {
	for line := range lines(b) {
		i := bytes.LastIndex(line, []byte(" total="))
		if i < 0 {
			continue
		}
		us, good := parseCount(line[i+len(" total="):])
		if !good || us < 0 {
			continue
		}
		switch {
		case bytes.HasPrefix(line, []byte("some ")):
			someTasks, ok = micros(us), true
		case bytes.HasPrefix(line, []byte("full ")):
			allTasks = micros(us)
		}
	}
	return someTasks, allTasks, ok
}
