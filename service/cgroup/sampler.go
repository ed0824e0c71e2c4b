package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"
)

// Fields says which parts of a Stat were measured.
type Fields uint

const (
	// HasUsage: Usage, and on v2 User and System.
	HasUsage Fields = 1 << iota
	// HasBandwidth: Periods, ThrottledPeriods, Throttled, Bursts, Burst of the
	// process's own group; all zero if that group cannot have a quota.
	HasBandwidth
	// HasLocal: Local.
	HasLocal
	// HasAncestors: the Ancestor fields, and they cover every group up to the
	// root. Without it they hold what the visible ones show.
	HasAncestors
)

// Stat holds one reading of the CPU counters of a process's group. All counters
// grow from the group's creation.
type Stat struct {
	Has Fields

	// Usage is the CPU time of the group and all groups below it. User and
	// System are its parts (v2 only).
	Usage, User, System time.Duration

	// Periods counts the enforcement periods in which the group was runnable,
	// ThrottledPeriods those in which it used its own quota up.
	Periods, ThrottledPeriods int64
	// Throttled is the time the group was held back by its own quota, summed
	// over CPUs.
	Throttled time.Duration
	// Bursts counts periods that used carried-over quota, Burst is how much.
	Bursts int64
	Burst  time.Duration

	// Local is the time the group had something to run and was held back, by
	// its own quota or by an ancestor's, summed over CPUs (cpu.stat.local,
	// Linux 6.6 and later).
	Local time.Duration

	// AncestorThrottledPeriods and AncestorThrottled are the sums over the
	// visible ancestors of what their own quotas held back: this group's part
	// in it is not told.
	AncestorThrottledPeriods int64
	AncestorThrottled        time.Duration
}

// MemoryStat is one reading of the memory counters of the group that a
// process's memory is charged to: its own, or on v2 the nearest ancestor that
// has the memory controller. In bytes.
type MemoryStat struct {
	// Current is what the group is charged for, page cache included.
	Current int64
	// InactiveFile and ActiveFile are the page cache in it, the part that the
	// kernel gives up first and the part that was used more than once: Current
	// less InactiveFile is the usual "working set", but the kernel gives up both
	// before it kills. Shared memory and tmpfs are in neither. 0 if unknown.
	InactiveFile, ActiveFile int64
	// SlabReclaimable is kernel memory that it gives up as well: cached names
	// and inodes (v2 only).
	SlabReclaimable int64
	// Swap is swapped out.
	Swap int64
	// AtHigh and AtMax count how often the group reached memory.high (v2) and
	// its hard limit (v1: failcnt), so that the kernel had to reclaim.
	AtHigh, AtMax int64
	// OOMKills counts processes of the group that the kernel killed for want
	// of memory (v1 since Linux 4.13).
	OOMKills int64
}

// Unreclaimable is what the group is charged for that the kernel cannot drop:
// without page cache and caches of its own.
func (m *MemoryStat) Unreclaimable() int64 {
	return max(0, m.Current-m.InactiveFile-m.ActiveFile-m.SlabReclaimable)
}

// Pressure is how long tasks stood still for want of something (pressure stall
// information, the kernel's accounting/psi.rst), all together since the group
// was made or the machine was started.
type Pressure struct {
	// Machine says that these are the whole machine's numbers: v1 has none for
	// a group.
	Machine bool `json:"machine"`
	// HasCPU and HasMemory say which were read.
	HasCPU    bool `json:"has_cpu"`
	HasMemory bool `json:"has_memory"`
	// CPU is time in which some task waited for a CPU, because of a quota or of
	// other processes. Memory is time in which some task waited for memory to be
	// reclaimed or read back, and MemoryFull that in which all did.
	CPU        time.Duration `json:"cpu_some_ns"`
	Memory     time.Duration `json:"memory_some_ns"`
	MemoryFull time.Duration `json:"memory_full_ns"`
}

// Tightest is the cheap part of Limits, for following a limit that changes.
type Tightest struct {
	// Quota is the tightest visible quota in CPUs and QuotaDepth the level it
	// is from; 0 and -1 without one.
	Quota      float64
	QuotaDepth int
	// Period is that quota's period.
	Period time.Duration
	// OwnQuota is the quota of the process's own group, in CPUs, which is all
	// that the Go runtime looks at; 0 without one.
	OwnQuota float64
	// Memory is the tightest hard limit in bytes and MemoryDepth its level; 0
	// and -1 without one. Where v1's hierarchical limit of a hidden ancestor
	// is the tightest, MemoryDepth is -1 and Memory is that limit.
	Memory      int64
	MemoryDepth int
	// High is the tightest v2 memory.high in bytes, beyond which the kernel
	// slows allocations down, and HighDepth its level; 0 and -1 without one.
	High      int64
	HighDepth int
	// Unread counts the limit files that could be read when the sampler was made
	// and cannot be now: what they said is not in here, which is no reason to think
	// that it no longer holds.
	Unread int
}

// A Sampler reads the counters and limits of one process's group
// repeatedly. It keeps their files open and allocates nothing after NewSampler.
// Its methods must not be called concurrently.
//
// A process that is moved to another group leaves the sampler with the old
// one: see Moved.
type Sampler struct {
	src source
	buf []byte

	// unread is how many limit files told nothing from the start.
	unread int

	membership      handle
	membershipBytes []byte

	version    Version
	hidden     bool
	cpu        []samplerCPU
	local      handle
	usage      handle // v1 cpuacct.usage
	memory     []samplerMemory
	memVersion Version
	charged    samplerCharge // the group that the process is charged to
	above      samplerCharge // another level, opened when it was first asked for

	cpuPressure, memPressure handle
	machinePressure          bool
}

// samplerCharge is where a group's memory is counted.
type samplerCharge struct {
	depth                       int
	current, stat, swap, events handle
	failures                    handle // v1
}

type samplerCPU struct {
	level         Level
	depth         int
	controlled    bool // the cpu controller is enabled in this group
	stat          handle
	quota, period handle // v2: quota is cpu.max
}

type samplerMemory struct {
	level     Level
	depth     int
	max, high handle
}

// maxSampled bounds the levels whose files stay open, so that no odd
// hierarchy uses up a service's file descriptors. Kubernetes has five.
const maxSampled = 16

// NewSampler finds the process's group and opens its files. The error wraps
// ErrNotMeasurable if there is nothing to sample. Close must be called.
func NewSampler(opts Options) (*Sampler, error) {
	f, err := newFinder(opts)
	if err != nil {
		return nil, err
	}
	// memory.stat is the longest, some 2 KiB today.
	s := &Sampler{src: f.src, buf: make([]byte, 16<<10)}
	cpu := f.locate("cpu")
	s.version, s.hidden = cpu.Version, cpu.Hidden || len(cpu.levels) == 0
	if len(cpu.levels) > maxSampled {
		cpu.levels, s.hidden = cpu.levels[:maxSampled], true
	}
	for _, lv := range cpu.levels {
		c := samplerCPU{level: lv, depth: lv.Depth, stat: s.try(lv.Dir, "cpu.stat")}
		quota := "cpu.max"
		if cpu.Version == V1 {
			quota = "cpu.cfs_quota_us"
			c.period = s.try(lv.Dir, "cpu.cfs_period_us")
		}
		var err error
		c.quota, err = s.src.open(path.Join(lv.Dir, quota))
		c.controlled = err == nil || !errors.Is(err, fs.ErrNotExist) || bytes.Contains(s.read(c.stat), []byte("nr_periods"))
		// Where v2's cpu controller is not enabled, tasks are scheduled as
		// those of the nearest ancestor that has it.
		if c.controlled && s.local == nil {
			s.local = s.try(lv.Dir, "cpu.stat.local")
		}
		s.cpu = append(s.cpu, c)
	}
	if cpu.Version == V1 {
		// Usage is a controller of its own in v1; it counts the same
		// processes only if its group is the same.
		if acct := f.locateQuietly("cpuacct"); len(acct.levels) > 0 && acct.Group == cpu.Group && acct.levels[0].Depth == 0 {
			s.usage = s.try(acct.levels[0].Dir, "cpuacct.usage")
		}
	}
	mem := f.locate("memory")
	s.memVersion = mem.Version
	mem.levels = mem.levels[:min(len(mem.levels), maxSampled)]
	for i, lv := range mem.levels {
		m := samplerMemory{level: lv, depth: lv.Depth}
		if mem.Version == V1 {
			m.max = s.try(lv.Dir, "memory.limit_in_bytes")
		} else {
			m.max, m.high = s.try(lv.Dir, "memory.max"), s.try(lv.Dir, "memory.high")
		}
		s.memory = append(s.memory, m)
		// Where v2's memory controller is not enabled, the nearest ancestor
		// that has it is charged.
		if s.charged.current == nil && (mem.Version == V2 || i == 0) {
			s.charged = s.openCharge(lv)
		}
	}
	s.openPressure(cpu, mem)
	s.membership, _ = s.src.open(f.proc + "/cgroup")
	if s.membership != nil {
		s.membershipBytes = append(s.membershipBytes, s.read(s.membership)...)
	}
	var st Stat
	var b Tightest
	var m MemoryStat
	limitsErr := s.SampleLimits(&b)
	s.unread = b.Unread
	if s.Sample(&st) != nil && limitsErr != nil && s.SampleMemory(&m) != nil {
		s.Close()
		return nil, fmt.Errorf("sampling the cgroup: %w: no counter and no limit can be read (%v)", ErrNotMeasurable, f.notes)
	}
	return s, nil
}

func (s *Sampler) openCharge(lv Level) samplerCharge {
	c := samplerCharge{depth: lv.Depth}
	if s.memVersion == V1 {
		c.current, c.events = s.try(lv.Dir, "memory.usage_in_bytes"), s.try(lv.Dir, "memory.oom_control")
		c.failures = s.try(lv.Dir, "memory.failcnt")
	} else {
		if c.current = s.try(lv.Dir, "memory.current"); c.current == nil {
			return c
		}
		c.events, c.swap = s.try(lv.Dir, "memory.events"), s.try(lv.Dir, "memory.swap.current")
	}
	c.stat = s.try(lv.Dir, "memory.stat")
	return c
}

// openPressure opens the group's own files, else the machine's: v1 groups have
// none.
func (s *Sampler) openPressure(cpu, mem Hierarchy) {
	for _, h := range []struct {
		hierarchy Hierarchy
		file      string
		to        *handle
	}{{cpu, "cpu.pressure", &s.cpuPressure}, {mem, "memory.pressure", &s.memPressure}} {
		if h.hierarchy.Version == V2 && len(h.hierarchy.levels) > 0 {
			*h.to = s.try(h.hierarchy.levels[0].Dir, h.file)
		}
	}
	if s.cpuPressure == nil && s.memPressure == nil {
		s.machinePressure = true
		s.cpuPressure, s.memPressure = s.try("/proc/pressure", "cpu"), s.try("/proc/pressure", "memory")
	}
}

func (s *Sampler) try(dir, name string) handle {
	h, err := s.src.open(path.Join(dir, name))
	if err != nil {
		return nil
	}
	return h
}

// read returns the content of a file, valid until the next read; nil if it
// cannot be read now.
func (s *Sampler) read(h handle) []byte {
	if h == nil {
		return nil
	}
	n, err := h.sample(s.buf)
	if err != nil || n == len(s.buf) {
		return nil
	}
	return s.buf[:n]
}

var errNothing = errors.New("no counter can be read")

// Sample reads the CPU counters into st. It fails only if not one of them could
// be read, as after the group's removal. It does not allocate.
func (s *Sampler) Sample(st *Stat) error {
	// cpu.stat and cpu.stat.local are compared with each other, so they must
	// not have a throttled stretch's end between them: read again until the
	// first has stood still. Three times suffice but for a machine on which
	// nothing is sure.
	for try := 0; try < 3; try++ {
		*st = Stat{}
		s.sampleLevels(st)
		b := s.read(s.local)
		if b == nil {
			break
		}
		local := readCounters(b)
		st.Local = local.Throttled
		st.Has |= local.Has & HasLocal
		var again Stat
		s.sampleLevels(&again)
		if again.Throttled == st.Throttled && again.AncestorThrottled == st.AncestorThrottled {
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

// sampleLevels reads cpu.stat of the own group and of its ancestors.
func (s *Sampler) sampleLevels(st *Stat) {
	complete := !s.hidden
	for i := range s.cpu {
		c := &s.cpu[i]
		n := readCounters(s.read(c.stat))
		if i == 0 && s.version == V2 {
			st.Usage, st.User, st.System = n.Usage, n.User, n.System
			st.Has |= n.Has & HasUsage
		}
		switch {
		case c.depth == 0 && !c.controlled:
			st.Has |= HasBandwidth // no controller, no quota
		case c.depth == 0:
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

// readCounters reads cpu.stat or cpu.stat.local: v1 counts in nanoseconds (throttled_time, burst_time), v2 in microseconds. Has says
// for HasAncestors that it counts throttled periods, and for HasLocal that it counts throttled time.
func readCounters(b []byte) (st Stat) {
	for k, v := range keyed(b) {
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

// LevelStat is what the quota of one group held back, as counted since the
// group was made.
type LevelStat struct {
	Level
	Periods, ThrottledPeriods int64
	// Throttled is summed over CPUs.
	Throttled time.Duration
}

// SampleLevels appends to dst the quota counters of the process's own group and
// of its visible ancestors, innermost first, leaving out those that cannot be
// read, and returns it. It does not allocate if dst has room.
func (s *Sampler) SampleLevels(dst []LevelStat) []LevelStat {
	for i := range s.cpu {
		c := &s.cpu[i]
		st := readCounters(s.read(c.stat))
		if c.controlled && st.Has&HasBandwidth != 0 {
			dst = append(dst, LevelStat{c.level, st.Periods, st.ThrottledPeriods, st.Throttled})
		}
	}
	return dst
}

// SampleMemory reads the memory counters into m. It fails if what the group
// is charged for cannot be read. It does not allocate, but makes the kernel
// add its counters up: some ten times the cost of Sample.
func (s *Sampler) SampleMemory(m *MemoryStat) error { return s.sampleCharge(&s.charged, m) }

// SampleMemoryAt is SampleMemory for the visible group so many levels up, which
// other groups below it are charged to as well. It fails if that group is not
// visible. It allocates when another level is asked for than the last time.
func (s *Sampler) SampleMemoryAt(depth int, m *MemoryStat) error {
	*m = MemoryStat{}
	if depth == s.charged.depth {
		return s.SampleMemory(m)
	}
	if s.above.current == nil || s.above.depth != depth {
		s.above.close()
		for _, l := range s.memory {
			if l.depth == depth {
				s.above = s.openCharge(l.level)
			}
		}
	}
	if s.above.depth != depth {
		return errNothing
	}
	return s.sampleCharge(&s.above, m)
}

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
	for k, v := range keyed(s.read(c.stat)) {
		switch string(k) {
		case "inactive_file":
			if s.memVersion == V2 {
				m.InactiveFile = v
			}
		case "active_file":
			if s.memVersion == V2 {
				m.ActiveFile = v
			}
		case "slab_reclaimable":
			m.SlabReclaimable = v
		case "total_inactive_file":
			m.InactiveFile = v
		case "total_active_file":
			m.ActiveFile = v
		case "total_swap":
			m.Swap = v
		}
	}
	for k, v := range keyed(s.read(c.events)) {
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

// SamplePressure reads pressure stall information into p. It fails if there is
// none: a kernel without it, or one started without psi=1. It does not allocate.
func (s *Sampler) SamplePressure(p *Pressure) error {
	*p = Pressure{Machine: s.machinePressure}
	p.CPU, _, p.HasCPU = pressure(s.read(s.cpuPressure))
	p.Memory, p.MemoryFull, p.HasMemory = pressure(s.read(s.memPressure))
	if !p.HasCPU && !p.HasMemory {
		return errNothing
	}
	return nil
}

// pressure reads the totals of a file of two lines, "some avg10=0.00 ...
// total=MICROSECONDS" and the same with "full".
func pressure(b []byte) (some, full time.Duration, ok bool) {
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
			some, ok = micros(us), true
		case bytes.HasPrefix(line, []byte("full ")):
			full = micros(us)
		}
	}
	return some, full, ok
}

// SampleLimits reads the limits into b. It fails only if no limit file could
// be read. It does not allocate.
func (s *Sampler) SampleLimits(b *Tightest) error {
	*b = Tightest{QuotaDepth: -1, MemoryDepth: -1, HighDepth: -1}
	any := false
	for i := range s.cpu {
		c := &s.cpu[i]
		q, p, ok := s.quota(c)
		if !ok {
			if c.quota != nil {
				b.Unread++
			}
			continue
		}
		any = true
		cpus := ratio(q, p)
		if c.depth == 0 {
			b.OwnQuota = cpus
		}
		if cpus > 0 && (b.QuotaDepth < 0 || cpus < b.Quota) {
			b.Quota, b.Period, b.QuotaDepth = cpus, p, c.depth
		}
	}
	hier := int64(0) // v1: the minimum over all that bind, seen or not
	if s.memVersion == V1 {
		if hier = hierarchical(s.read(s.charged.stat)); hier == 0 && s.charged.stat != nil {
			b.Unread++
		}
	}
	for i := range s.memory {
		if s.memory[i].max == nil {
			continue
		}
		n, limited, err := parseMemory(s.read(s.memory[i].max))
		if err != nil {
			b.Unread++
			continue
		}
		any = true
		loose := s.memory[i].depth > 0 && n < hier // use_hierarchy is off
		if limited && !loose && (b.MemoryDepth < 0 || n < b.Memory) {
			b.Memory, b.MemoryDepth = n, s.memory[i].depth
		}
	}
	for i := range s.memory {
		if s.memory[i].high == nil {
			continue
		}
		n, limited, err := parseMemory(s.read(s.memory[i].high))
		if err != nil {
			b.Unread++
		}
		if err == nil && limited && n > 0 && (b.HighDepth < 0 || n < b.High) {
			b.High, b.HighDepth = n, s.memory[i].depth
		}
	}
	if hier > 0 && hier < noLimit && (b.MemoryDepth < 0 || hier < b.Memory) {
		b.Memory, b.MemoryDepth = hier, -1
	}
	b.Unread = max(0, b.Unread-s.unread)
	if !any {
		return errNothing
	}
	return nil
}

func (s *Sampler) quota(c *samplerCPU) (q, p time.Duration, ok bool) {
	text := s.read(c.quota)
	if text == nil {
		return 0, 0, false
	}
	var err error
	if s.version == V2 {
		q, p, err = parseCPUMax(text)
		return q, p, err == nil
	}
	if q, err = parseQuota(text); err != nil {
		return 0, 0, false
	}
	if text = s.read(c.period); text == nil {
		return 0, 0, q == 0
	}
	if p, err = parsePeriod(text); err != nil {
		return 0, 0, q == 0
	}
	return q, p, true
}

// Moved reports whether the process is in other groups now than when the
// sampler was made: then a new sampler is needed. It does not allocate.
func (s *Sampler) Moved() bool {
	b := s.read(s.membership)
	return b != nil && !bytes.Equal(b, s.membershipBytes)
}

// Close closes the files. The sampler reads nothing after it.
func (s *Sampler) Close() error {
	var err error
	closing := func(hs ...*handle) {
		for _, h := range hs {
			if *h != nil {
				err = errors.Join(err, (*h).close())
				*h = nil
			}
		}
	}
	for i := range s.cpu {
		closing(&s.cpu[i].stat, &s.cpu[i].quota, &s.cpu[i].period)
	}
	for i := range s.memory {
		closing(&s.memory[i].max, &s.memory[i].high)
	}
	closing(&s.local, &s.usage, &s.membership, &s.cpuPressure, &s.memPressure)
	return errors.Join(err, s.charged.close(), s.above.close())
}

func (c *samplerCharge) close() (err error) {
	for _, h := range []*handle{&c.current, &c.stat, &c.swap, &c.events, &c.failures} {
		if *h != nil {
			err = errors.Join(err, (*h).close())
			*h = nil
		}
	}
	return err
}
