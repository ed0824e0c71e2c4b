package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"time"

	"github.com/whylate/whylate/service/internal/quantity"
)

// Limits is what bounds one process at one moment, and who says so.
type Limits struct {
	// PID is the process asked for; 0 is the one that asked.
	PID    int    `json:"pid"`
	CPU    CPU    `json:"cpu"`
	Memory Memory `json:"memory"`
	// Notes tell what could not be read, and what looked odd, in sentences.
	Notes []string `json:"notes,omitempty"`
}

// CPU is what bounds a process's CPU time.
type CPU struct {
	Hierarchy
	// Levels are the process's own group and its visible ancestors, innermost
	// first. Levels[0].Depth is above 0 if the own group's directory cannot
	// be seen.
	Levels []CPULevel `json:"levels"`

	// Quota is the tightest quota divided by its period over all visible
	// levels, in CPUs; 0 means that no visible level has one.
	Quota float64 `json:"quota_cpus"`
	// QuotaLevel is the index in Levels of the one that Quota is from, -1
	// without a quota.
	QuotaLevel int `json:"quota_level"`
	// Sight says whether there is no quota or whether it cannot be seen, and
	// Seen says so in a phrase.
	Sight Sight  `json:"sight"`
	Seen  string `json:"seen"`

	// Parallelism is the number of CPUs that the process may run on at the
	// same moment: its affinity mask where that can be read, which the kernel
	// keeps inside the CPU set; 0 where nothing could be read.
	Parallelism int `json:"parallelism"`
	// Affinity, Cpuset and Online count CPUs: the process's mask, its group's
	// effective CPU set, the machine's. 0 means not readable.
	Affinity int `json:"affinity"`
	Cpuset   int `json:"cpuset"`
	Online   int `json:"online"`

	// RuntimeQuota is the quota that the Go runtime of 1.25 and later sees,
	// in CPUs: that of the process's own group alone, and not even that where
	// the first fitting line of mountinfo is not the mount that shows it; 0
	// means that it sees none.
	RuntimeQuota float64 `json:"runtime_quota_cpus"`

	// Effective is the tightest of all, in CPUs; 0 where nothing could be
	// read.
	Effective float64 `json:"effective_cpus"`
	// Bounds are all statements about CPUs, innermost first, with the reason
	// why each won or did not.
	Bounds []CPUBound `json:"bounds"`

	// CpusetHierarchy says where the CPU set came from.
	CpusetHierarchy Hierarchy `json:"cpuset_hierarchy"`
}

// CPULevel is the CPU bandwidth setting of one group.
type CPULevel struct {
	Level
	// File is the file that holds the quota, and Text what it said, made
	// printable.
	File string `json:"file"`
	Text string `json:"text,omitempty"`
	// CPUs is Quota divided by Period; 0 without a quota.
	CPUs float64 `json:"cpus"`
	// Quota is the CPU time a period grants to all CPUs together; 0 means no
	// limit.
	Quota  time.Duration `json:"quota_ns"`
	Period time.Duration `json:"period_ns"`
	// Burst is unused quota that may be carried over into a period.
	Burst time.Duration `json:"burst_ns"`
	// Weight is the share under contention: v2 cpu.weight (1 to 10000,
	// default 100), v1 cpu.shares (2 to 262144, default 1024); 0 means
	// unknown. It limits nothing on an idle machine.
	Weight int64 `json:"weight"`
	// Missing says that the cpu controller is not enabled in this group: its
	// processes are scheduled as the nearest ancestor's.
	Missing bool `json:"missing,omitempty"`
	// Err says why the file could not be used.
	Err string `json:"error,omitempty"`

	problem Sight
}

// Bound kinds.
const (
	BoundQuota        = "quota"
	BoundCpuset       = "cpuset"
	BoundAffinity     = "affinity"
	BoundOnline       = "online"
	BoundMax          = "max"
	BoundHierarchical = "hierarchical"
	BoundTotal        = "total"
)

// CPUBound is one file's statement about how many CPUs the process may use.
type CPUBound struct {
	Kind string `json:"kind"`
	// File says so, with Text.
	File string `json:"file"`
	Text string `json:"text,omitempty"`
	// Depth is the level of a quota; -1 for the others.
	Depth int     `json:"depth"`
	CPUs  float64 `json:"cpus"` // 0: no limit
	Won   bool    `json:"won"`
	Why   string  `json:"why"`
}

// Memory is what bounds a process's memory, in bytes.
type Memory struct {
	Hierarchy
	// Levels are the process's own group and its visible ancestors, innermost
	// first.
	Levels []MemoryLevel `json:"levels"`

	// Max is the tightest hard limit: beyond it the kernel kills. 0 means
	// that none was found.
	Max int64 `json:"max"`
	// MaxLevel is the index in Levels that Max is from; -1 when there is none,
	// or when only v1's hierarchical_memory_limit shows it.
	MaxLevel int `json:"max_level"`
	// Sight says whether there is no limit or whether it cannot be seen, and
	// Seen says so in a phrase.
	Sight Sight  `json:"sight"`
	Seen  string `json:"seen"`
	// High is the tightest v2 memory.high, beyond which the kernel slows
	// allocations down and reclaims; 0 means none. v1 has no such limit.
	High int64 `json:"high"`
	// HighLevel is the index in Levels that High is from; -1 without.
	HighLevel int `json:"high_level"`
	// Swap is the tightest v2 memory.swap.max, and Swap limited to 0 bytes is
	// a limit: see HasSwap. v1 limits memory and swap together: see
	// MemoryLevel.MemSwap.
	Swap    int64 `json:"swap"`
	HasSwap bool  `json:"has_swap"`
	// Hierarchical is v1's hierarchical_memory_limit of the innermost level;
	// 0 means none.
	Hierarchical int64 `json:"hierarchical"`
	// Total is the machine's memory; 0 means not readable.
	Total int64 `json:"total"`
	// Effective is the smaller of Max and Total; 0 where neither is known.
	Effective int64 `json:"effective"`

	Bounds []MemoryBound `json:"bounds"`

	// complete says that v1's minimum over all ancestors was read, so that
	// nothing is out of sight.
	complete bool
}

// MemoryLevel is the memory setting of one group, in bytes; 0 means no limit.
type MemoryLevel struct {
	Level
	File string `json:"file"`
	Text string `json:"text,omitempty"`
	// Limited distinguishes a limit of 0 bytes from none.
	Limited bool  `json:"limited"`
	Max     int64 `json:"max"`
	// High is v2's memory.high; Soft is v1's soft limit, which only matters
	// when the machine runs out.
	High int64 `json:"high"`
	Soft int64 `json:"soft"`
	// Swap is v2's memory.swap.max. MemSwap is v1's limit of memory and swap
	// together.
	Swap    int64 `json:"swap"`
	HasSwap bool  `json:"has_swap"`
	MemSwap int64 `json:"memsw"`
	// Missing says that the memory controller is not enabled in this group.
	Missing bool   `json:"missing,omitempty"`
	Err     string `json:"error,omitempty"`

	problem Sight
}

// MemoryBound is one file's statement about how much memory there is.
type MemoryBound struct {
	Kind  string `json:"kind"`
	File  string `json:"file"`
	Text  string `json:"text,omitempty"`
	Depth int    `json:"depth"`
	Bytes int64  `json:"bytes"` // 0 and not Limited: no limit
	// Limited distinguishes a limit of 0 bytes from none.
	Limited bool   `json:"limited"`
	Won     bool   `json:"won"`
	Why     string `json:"why"`
}

// Read finds the groups of a process and reads every limit that binds it.
//
// What cannot be read is left out and told in Notes; an error is returned
// only if nothing is known at all, and then wraps ErrNotMeasurable or says
// that there is no such process. It opens some ten files, allocates, and is
// safe for concurrent use. For repeated readings see Sampler.
func Read(opts Options) (*Limits, error) {
	f, err := newFinder(opts)
	if err != nil {
		return nil, err
	}
	l := &Limits{PID: opts.PID}
	f.readCPU(&l.CPU)
	f.readMemory(&l.Memory)
	l.Notes = f.notes
	return l, nil
}

// text reads a small file; missing files give ok false and no note.
func (f *finder) text(dir, name string) (b []byte, ok bool, err error) {
	b, err = readFile(f.src, path.Join(dir, name), maxSmall)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, false, nil
		}
		return nil, false, err
	}
	return b, true, nil
}

// number reads an optional file with one number; 0 if there is none.
func (f *finder) number(dir, name string) int64 {
	b, ok, err := f.text(dir, name)
	if !ok || err != nil {
		return 0
	}
	n, err := parseNumber(b)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

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
	f.readCpuset(c)
	c.judge()
	c.see()
}

// setting reads the file that holds a level's limit, and says what became of it.
func (f *finder) setting(name string, text, problem *string, missing *bool, sight *Sight, parse func([]byte) error) {
	b, ok, err := f.text("", name)
	switch {
	case err != nil:
		*problem, *sight = reason(err), SightUnreadable
	case !ok:
		*missing = true
	default:
		*text = clip(string(b))
		if err := parse(b); err != nil {
			*problem, *sight = err.Error(), SightMalformed
		}
	}
}

// cpuLevel reads the CPU files of a group. A missing one is no error: v2's root has no cpu.max, nor has a group in which the
// controller is not enabled, nor v1 without CONFIG_CFS_BANDWIDTH.
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

// missing says why a group has no limit file.
func (h *Hierarchy) missing(l Level) string {
	switch {
	case h.Version == V2 && !h.Hidden && l.Depth == h.levels[len(h.levels)-1].Depth:
		return "no such file: the root group has no limits"
	case h.Version == V2:
		return "no such file: the " + h.Controller + " controller is not enabled in this group"
	}
	return "no such file"
}

func ratio(quota, period time.Duration) float64 {
	if quota <= 0 || period <= 0 {
		return 0
	}
	return float64(quota) / float64(period)
}

// readCpuset reads the affinity mask, the CPU set and the machine's CPUs.
func (f *finder) readCpuset(c *CPU) {
	c.CpusetHierarchy = f.locateQuietly("cpuset")
	names := []string{"cpuset.cpus.effective"}
	if c.CpusetHierarchy.Version == V1 {
		names = []string{"cpuset.effective_cpus", "cpuset.cpus"}
	}
	var cpuset, affinity, online CPUBound
	// v2 shows the file only where the controller is enabled; the nearest
	// ancestor that has it binds.
search:
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
				continue // v1: not set up; the group cannot hold processes then
			}
			c.Cpuset = n
			cpuset = CPUBound{Kind: BoundCpuset, File: path.Join(lv.Dir, name), Text: clip(string(b)), Depth: -1, CPUs: float64(n)}
			break search
		}
	}
	const field = "Cpus_allowed_list"
	name := f.proc + "/status"
	if b, err := readFile(f.src, name, maxSmall); err != nil {
		f.note("affinity: %v", err)
	} else if v, ok := statusField(b, field); ok {
		if n, err := parseCPUList(v); err != nil || n == 0 {
			f.note("affinity: %s: %s %q is not a list of CPUs", name, field, clip(v))
		} else {
			c.Affinity = n
			affinity = CPUBound{Kind: BoundAffinity, File: name, Text: clip(v), Depth: -1, CPUs: float64(n)}
		}
	}
	name = "/sys/devices/system/cpu/online"
	if b, err := readFile(f.src, name, maxSmall); err == nil {
		if n, err := parseCPUList(string(b)); err == nil && n > 0 {
			c.Online = n
			online = CPUBound{Kind: BoundOnline, File: name, Text: clip(string(b)), Depth: -1, CPUs: float64(n)}
		} else {
			f.note("CPUs online: %s: %q is not a list of CPUs", name, clip(string(b)))
		}
	}
	for _, l := range c.Levels {
		b := CPUBound{Kind: BoundQuota, File: l.File, Text: l.Text, Depth: l.Depth, CPUs: l.CPUs}
		switch {
		case l.Err != "":
			b.Why = "not usable: " + l.Err
		case l.Missing:
			b.Why = c.missing(l.Level)
		case l.CPUs == 0:
			b.Why = "no limit"
		}
		c.Bounds = append(c.Bounds, b)
	}
	for _, b := range []CPUBound{cpuset, affinity, online} {
		if b.Kind != "" {
			c.Bounds = append(c.Bounds, b)
		}
	}
	c.Parallelism = cmp.Or(c.Affinity, c.Cpuset, c.Online)
}

// locateQuietly is locate for a controller of which nothing need be said.
func (f *finder) locateQuietly(controller string) Hierarchy {
	n := len(f.notes)
	h := f.locate(controller)
	f.notes = f.notes[:n]
	return h
}

// judge picks the tightest quota and the tightest bound, and gives each bound
// its reason. Of equal bounds the first wins: the innermost quota, then the
// CPU set, of which the affinity mask usually is the consequence.
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

func (f *finder) readMemory(m *Memory) {
	m.Hierarchy = f.locate("memory")
	m.MaxLevel, m.HighLevel = -1, -1
	m.Levels, m.Bounds = []MemoryLevel{}, []MemoryBound{}
	for _, lv := range m.levels {
		m.Levels = append(m.Levels, f.memoryLevel(m.Version, lv))
	}
	hier := int64(0)
	if m.Version == V1 && len(m.Levels) > 0 {
		b, _, _ := f.text(m.Levels[0].Dir, "memory.stat")
		hier = hierarchical(b)
	}
	known := hier > 0
	m.complete = known
	for i, l := range m.Levels {
		// Where use_hierarchy is off, ancestors do not bind, and the kernel
		// leaves them out of its minimum.
		loose := known && l.Depth > 0 && l.Limited && l.Max < hier
		if l.Limited && !loose && (m.MaxLevel < 0 || l.Max < m.Max) {
			m.Max, m.MaxLevel = l.Max, i
		}
		if l.High > 0 && (m.HighLevel < 0 || l.High < m.High) {
			m.High, m.HighLevel = l.High, i
		}
		if l.HasSwap && (!m.HasSwap || l.Swap < m.Swap) {
			m.Swap, m.HasSwap = l.Swap, true
		}
		b := MemoryBound{Kind: BoundMax, File: l.File, Text: l.Text, Depth: l.Depth, Bytes: l.Max, Limited: l.Limited}
		switch {
		case l.Err != "":
			b.Why = "not usable: " + l.Err
		case l.Missing:
			b.Why = m.missing(l.Level)
		case !l.Limited:
			b.Why = "no limit"
		case loose:
			b.Why = "does not bind: memory.use_hierarchy is off below it"
		}
		m.Bounds = append(m.Bounds, b)
	}
	if known && hier < noLimit {
		m.Hierarchical = hier
		m.Bounds = append(m.Bounds, MemoryBound{
			Kind: BoundHierarchical, File: path.Join(m.Levels[0].Dir, "memory.stat"),
			Text: fmt.Sprintf("hierarchical_memory_limit %d", hier), Depth: -1, Bytes: hier, Limited: true,
		})
		if m.MaxLevel < 0 || hier < m.Max {
			m.Max, m.MaxLevel = hier, -1
		}
	}
	const name = "/proc/meminfo"
	if b, err := readFile(f.src, name, maxSmall); err == nil {
		if n, ok := meminfoTotal(b); ok {
			m.Total = n
			m.Bounds = append(m.Bounds, MemoryBound{Kind: BoundTotal, File: name, Text: "MemTotal", Depth: -1, Bytes: n, Limited: true})
		}
	}
	m.judge()
	m.see()
}

// hierarchical returns v1's minimum over all ancestors that bind, also those that cannot be seen, by memory.stat. noLimit or more
// is none; 0 says that the file has no such line.
func hierarchical(stat []byte) (n int64) {
	for k, v := range keyed(stat) {
		if string(k) == "hierarchical_memory_limit" {
			n = v
		}
	}
	return n
}

// memoryLevel reads the memory files of a group.
func (f *finder) memoryLevel(v Version, lv Level) MemoryLevel {
	l := MemoryLevel{Level: lv}
	hard := "memory.max"
	if v == V1 {
		hard = "memory.limit_in_bytes"
		l.Soft, _ = f.memory(l.Dir, "memory.soft_limit_in_bytes")
		l.MemSwap, _ = f.memory(l.Dir, "memory.memsw.limit_in_bytes")
	} else {
		l.High, _ = f.memory(l.Dir, "memory.high")
		l.Swap, l.HasSwap = f.memory(l.Dir, "memory.swap.max")
	}
	l.File = path.Join(l.Dir, hard)
	f.setting(l.File, &l.Text, &l.Err, &l.Missing, &l.problem, func(b []byte) (err error) { l.Max, l.Limited, err = parseMemory(b); return err })
	return l
}

// memory reads an optional file with a memory limit.
func (f *finder) memory(dir, name string) (n int64, limited bool) {
	b, ok, err := f.text(dir, name)
	if !ok || err != nil {
		return 0, false
	}
	n, limited, err = parseMemory(b)
	if err != nil {
		f.note("memory: %s: %q is %v", path.Join(dir, name), clip(string(b)), err)
		return 0, false
	}
	return n, limited
}

func (m *Memory) judge() {
	win := -1
	for i, b := range m.Bounds {
		if b.Limited && b.Why == "" && (win < 0 || b.Bytes < m.Bounds[win].Bytes) {
			win = i
		}
	}
	if win < 0 {
		return
	}
	w := &m.Bounds[win]
	w.Won = true
	m.Effective = w.Bytes
	switch {
	case w.Kind == BoundHierarchical:
		w.Why = "the tightest: limit of an ancestor that is not visible from here"
	case w.Kind == BoundTotal:
		w.Why = "all memory of the machine: nothing is tighter"
	case w.Depth > 0:
		w.Why = fmt.Sprintf("the tightest: limit of an ancestor, %d up", w.Depth)
	default:
		w.Why = "the tightest: limit of the process's own group"
	}
	for i := range m.Bounds {
		b := &m.Bounds[i]
		if i == win || b.Why != "" {
			continue
		}
		if b.Bytes == w.Bytes {
			b.Why = "the same"
		} else {
			b.Why = fmt.Sprintf("looser: %s against %s", quantity.Binary(b.Bytes), quantity.Binary(w.Bytes))
		}
	}
}

// reason is an error without the file's name, which stands beside it.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return clip(err.Error())
}

func joinReason(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// RuntimeDefault is the GOMAXPROCS that the runtime of Go 1.25 and later
// picks by itself with these limits, when its container awareness is on:
// RuntimeQuota rounded up and at least 2, and at most the CPUs of the affinity
// mask (runtime.defaultGOMAXPROCS in the Go
// tree). It is 0 where the number of CPUs is unknown.
func (c *CPU) RuntimeDefault() int {
	n := c.Parallelism
	if q := c.RuntimeQuota; n > 0 && q > 0 {
		if want := max(2, math.Ceil(q)); want < float64(n) {
			return int(want)
		}
	}
	return n
}
