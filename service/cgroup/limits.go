package cgroup

import (
	"errors"
	"io/fs"
	"path"
	"time"
)

// Limits are the limits of one process at one moment, each with the file that sets it.
type Limits struct {
	// PID is the process, 0 for the calling one.
	PID    int    `json:"pid"`
	CPU    CPU    `json:"cpu"`
	Memory Memory `json:"memory"`
	// Notes are sentences about files that cannot be read and about unusual settings.
	Notes []string `json:"notes,omitempty"`
}

// Read finds the groups of a process and reads every limit that applies to it.
//
// Files that cannot be read are left out and reported in Notes. Read returns an error only if
// it can read nothing at all: the error wraps ErrNotMeasurable, or the process does not exist. Read
// opens about ten files, allocates, and is safe for concurrent use. To read limits repeatedly,
// use a Sampler.
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

// CPU has the limits of a process's CPU time.
type CPU struct {
	Hierarchy
	// Levels are the process's own group and its visible ancestors, innermost first.
	// Levels[0].Depth is above 0 if the own group's directory is not visible.
	Levels []CPULevel `json:"levels"`

	// Quota is the tightest quota of all visible levels in CPUs, which is quota divided by period;
	// 0 means that no visible level has one.
	Quota float64 `json:"quota_cpus"`
	// QuotaLevel is the index in Levels of the one with Quota, -1 without a quota.
	QuotaLevel int `json:"quota_level"`
	// Sight distinguishes a quota that does not exist from one that may be hidden; SightText is a sentence about it.
	Sight     Sight  `json:"sight"`
	SightText string `json:"seen"`

	// Parallelism is the number of CPUs that the process may use at the same time: Affinity,
	// which the kernel keeps inside the CPU set, else Cpuset, else Online; 0 if none is readable.
	Parallelism int `json:"parallelism"`
	// Affinity, Cpuset and Online are the numbers of CPUs in the process's affinity mask, in its
	// group's effective CPU set, and in the machine. 0 means not readable.
	Affinity int `json:"affinity"`
	Cpuset   int `json:"cpuset"`
	Online   int `json:"online"`

	// RuntimeQuota is the quota that the runtime of Go 1.25 and later sees, in CPUs: only that of
	// the process's own group, and only if the first matching line of mountinfo is the mount that
	// shows it; 0 means that it sees none.
	RuntimeQuota float64 `json:"runtime_quota_cpus"`

	// Effective is the tightest of Bounds, in CPUs; 0 if nothing could be read.
	Effective float64 `json:"effective_cpus"`
	// Bounds are all limits found, innermost first, each with the reason why it is the tightest or
	// not.
	Bounds []CPUBound `json:"bounds"`

	// CpusetHierarchy is the hierarchy with the CPU set.
	CpusetHierarchy Hierarchy `json:"cpuset_hierarchy"`
}

// CPULevel is the quota of one group.
type CPULevel struct {
	Level
	// File is the file with the quota, and Text its content, made printable.
	File string `json:"file"`
	Text string `json:"text,omitempty"`
	// CPUs is Quota divided by Period; 0 without a quota.
	CPUs float64 `json:"cpus"`
	// Quota is the CPU time per period, over all CPUs; 0 means no limit.
	Quota  time.Duration `json:"quota_ns"`
	Period time.Duration `json:"period_ns"`
	// Burst is how much unused quota may be carried over into a period.
	Burst time.Duration `json:"burst_ns"`
	// Weight decides the group's share of busy CPUs: v2 cpu.weight (1 to 10000, default 100), v1
	// cpu.shares (2 to 262144, default 1024); 0 means unknown. It limits nothing on an idle machine.
	Weight int64 `json:"weight"`
	// Missing reports that the cpu controller is not enabled in this group: its processes are
	// scheduled as those of the nearest ancestor in which it is.
	Missing bool `json:"missing,omitempty"`
	// Err is why the file cannot be used.
	Err string `json:"error,omitempty"`
}

// CPUBound is one limit on how many CPUs the process may use.
type CPUBound struct {
	Kind string `json:"kind"`
	// File sets it, with the content Text.
	File string `json:"file"`
	Text string `json:"text,omitempty"`
	// Depth is the level of a quota; -1 for the others.
	Depth int     `json:"depth"`
	CPUs  float64 `json:"cpus"` // 0: no limit
	Won   bool    `json:"won"`
	Why   string  `json:"why"`
}

// Memory has the limits of a process's memory, in bytes.
type Memory struct {
	Hierarchy
	// Levels are the process's own group and its visible ancestors, innermost first.
	Levels []MemoryLevel `json:"levels"`

	// Max is the tightest hard limit, above which the kernel kills; 0 means that none was found.
	Max int64 `json:"max"`
	// MaxLevel is the index in Levels of the one with Max; -1 if there is none, or if only v1's
	// hierarchical_memory_limit shows it.
	MaxLevel int `json:"max_level"`
	// Sight distinguishes a limit that does not exist from one that may be hidden; SightText is a sentence about it.
	Sight     Sight  `json:"sight"`
	SightText string `json:"seen"`
	// High is the tightest v2 memory.high, above which the kernel slows allocations down and
	// reclaims; 0 means none. v1 has no limit of this kind.
	High int64 `json:"high"`
	// HighLevel is the index in Levels of the one with High; -1 without.
	HighLevel int `json:"high_level"`
	// Swap is the tightest v2 memory.swap.max, which may be 0: HasSwap reports whether there is
	// one. v1 limits memory and swap together: see MemoryLevel.MemSwap.
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

	// complete reports that v1's minimum over all ancestors was read, so that no limit is hidden.
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
	// High is v2's memory.high. Soft is v1's soft limit, which has an effect only if the machine
	// runs out of memory.
	High int64 `json:"high"`
	Soft int64 `json:"soft"`
	// Swap is v2's memory.swap.max. MemSwap is v1's limit of memory and swap together.
	Swap    int64 `json:"swap"`
	HasSwap bool  `json:"has_swap"`
	MemSwap int64 `json:"memsw"`
	// Missing reports that the memory controller is not enabled in this group.
	Missing bool   `json:"missing,omitempty"`
	Err     string `json:"error,omitempty"`
}

// MemoryBound is one limit on the process's memory.
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

// cpuNames and memoryNames are the kernel's names of a group's files; "" if a version has no such file.
type (
	cpuNames    struct{ quota, period, burst, weight string }
	memoryNames struct{ max, high, soft, swapMax, memswMax, current, swap, events, failures string }
)

var cpuFiles = map[Version]cpuNames{
	V1: {quota: "cpu.cfs_quota_us", period: "cpu.cfs_period_us", burst: "cpu.cfs_burst_us", weight: "cpu.shares"},
	V2: {quota: "cpu.max", burst: "cpu.max.burst", weight: "cpu.weight"},
}

var memoryFiles = map[Version]memoryNames{
	V1: {
		max: "memory.limit_in_bytes", soft: "memory.soft_limit_in_bytes", memswMax: "memory.memsw.limit_in_bytes",
		current: "memory.usage_in_bytes", events: "memory.oom_control", failures: "memory.failcnt",
	},
	V2: {
		max: "memory.max", high: "memory.high", swapMax: "memory.swap.max",
		current: "memory.current", swap: "memory.swap.current", events: "memory.events",
	},
}

// A limitFile is the file with a level's limit, and the result of reading it.
type limitFile struct {
	name, text string
	depth      int // of the level
	missing    bool
	err        string
	problem    Sight
}

// limitFile reads the file name in a level's directory and passes its content to parse. A missing, unreadable or malformed file is no error but part
// of the result.
func (f *finder) limitFile(l Level, name string, parse func([]byte) error) limitFile {
	file := limitFile{name: path.Join(l.Dir, name), depth: l.Depth}
	b, ok, err := f.optionalText(l.Dir, name)
	switch {
	case err != nil:
		file.err, file.problem = reason(err), SightUnreadable
	case !ok:
		file.missing = true
	default:
		file.text = clip(string(b))
		if err := parse(b); err != nil {
			file.err, file.problem = err.Error(), SightMalformed
		}
	}
	return file
}

// unlimitedReason returns why a level's file sets no limit; "" if it sets one, which limited says of a file that was read.
func (h *Hierarchy) unlimitedReason(file limitFile, limited bool) string {
	switch {
	case file.err != "":
		return "not usable: " + file.err
	case file.missing && h.Version != V2:
		return "no such file"
	case file.missing && !h.Hidden && file.depth == h.levels[len(h.levels)-1].Depth:
		return "no such file: the root group has no limits"
	case file.missing:
		return "no such file: the " + h.Controller + " controller is not enabled in this group"
	case !limited:
		return "no limit"
	}
	return ""
}

// optionalText reads a small file (name) in a directory. If the file is missing or the name is empty, ok is false without an error.
func (f *finder) optionalText(dir, name string) (b []byte, ok bool, err error) {
	if name == "" {
		return nil, false, nil
	}
	b, err = readFile(f.src, path.Join(dir, name), maxSmall)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return b, err == nil, err
}

// optionalNumber reads a file (name) in a directory with one number; 0 if there is none.
func (f *finder) optionalNumber(dir, name string) int64 {
	b, _, _ := f.optionalText(dir, name)
	n, _ := parseNumber(b)
	return max(0, n)
}

// locateQuietly is locate, but adds no notes to the result.
func (f *finder) locateQuietly(controller string) Hierarchy {
	n := len(f.notes)
	h := f.locate(controller)
	f.notes = f.notes[:n]
	return h
}

// reason returns an error's text, clipped, without the file's name, which is shown separately.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return clip(err.Error())
}

// joinReason joins two reasons by a semicolon; the first may be empty.
func joinReason(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
