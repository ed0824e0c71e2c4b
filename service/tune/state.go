package tune

import (
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/whylate/whylate/service/cgroup"
)

// A State has the limits and settings at a tuner's last poll.
type State struct {
	Time time.Time `json:"time"`

	// Quota is the tightest CPU quota in CPUs, 0 for none; CPUSource names
	// where the tightest CPU bound comes from. Affinity is how many CPUs the
	// process may run on, HostCPUs how many the machine has (0: not known).
	Quota     float64 `json:"quota_cpus"`
	CPUSource string  `json:"cpu_source"`
	Affinity  int     `json:"affinity"`
	HostCPUs  int     `json:"host_cpus"`
	// GOMAXPROCS is its value now and ProcsBy who set it: "environment",
	// "program", "whylate" or "runtime".
	GOMAXPROCS int    `json:"gomaxprocs"`
	ProcsBy    string `json:"gomaxprocs_by"`
	ProcsMode  Mode   `json:"gomaxprocs_mode"`
	Policy     Policy `json:"policy"`

	// MemoryLimit is the tightest memory limit in bytes, 0 for none, and
	// MemorySource its file; HostMemory is the machine's.
	MemoryLimit  int64  `json:"memory_limit"`
	MemorySource string `json:"memory_source"`
	HostMemory   int64  `json:"host_memory"`
	// MemoryHigh is the tightest v2 memory.high in bytes, 0 for none.
	MemoryHigh int64 `json:"memory_high"`
	// MemoryUsed is the memory charged to the process's group that the kernel cannot
	// reclaim (all but page cache and some kernel caches). Headroom is the limit less
	// that of the group that has the limit. -1 means unknown.
	MemoryUsed int64 `json:"memory_used"`
	Headroom   int64 `json:"memory_headroom"`
	// Swap is the group's swapped memory. AtHigh and AtMax count how often the group
	// reached memory.high and its limit, and OOMKills counts killed processes, since
	// the group was created.
	Swap     int64 `json:"swap"`
	AtHigh   int64 `json:"at_memory_high"`
	AtMax    int64 `json:"at_memory_max"`
	OOMKills int64 `json:"oom_kills"`
	// Pressure is pressure stall information, null if there is none.
	Pressure *cgroup.Pressure `json:"pressure"`
	// GOMEMLIMIT is its value now, math.MaxInt64 for none, and MemoryBy who
	// set it.
	GOMEMLIMIT int64  `json:"gomemlimit"`
	MemoryBy   string `json:"gomemlimit_by"`
	MemoryMode Mode   `json:"gomemlimit_mode"`

	// GOGC is its value now, -1 for off, and GOGCBy who set it. EffectiveGOGC
	// is what the heap goal amounts to under the memory limit; -1 before the
	// first collection.
	GOGC          int     `json:"gogc"`
	GOGCBy        string  `json:"gogc_by"`
	GOGCMode      Mode    `json:"gogc_mode"`
	EffectiveGOGC float64 `json:"effective_gogc"`
	// GCShare is the collector's share of the CPU time the process used, 0 to
	// 1, and GCQuotaShare its share of the quota, in the last interval between
	// collections; -1 where unknown.
	GCShare      float64 `json:"gc_cpu_share"`
	GCQuotaShare float64 `json:"gc_quota_share"`

	// Throttled is since Start.
	Throttled cgroup.Throttling `json:"throttled"`
	// Limits is the explained reading behind the above; read only.
	Limits *cgroup.Limits `json:"limits"`
	// Events are the last decisions, oldest first.
	Events []Event `json:"events"`
}

// State returns what the tuner knew when it last read the limits, and the settings
// as they are now. It still answers after Stop.
func (t *Tuner) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	in := &t.current
	if in.limits == nil { // the first reading panicked
		in.limits = noLimits("nothing was read")
	}
	s := State{
		Time:       in.readAt.UTC(), // JSON has no form for some of the zones that time.Local may have
		Quota:      in.bounds.Quota,
		Affinity:   in.cpus,
		HostCPUs:   in.limits.CPU.Online,
		CPUSource:  in.cpuSource(),
		GOMAXPROCS: t.runtime.procs(),
		ProcsMode:  t.opts.Procs,
		Policy:     t.opts.Policy,

		MemoryLimit:  in.memoryLimit(),
		MemoryHigh:   in.bounds.High,
		MemorySource: in.memorySource(),
		HostMemory:   in.limits.Memory.Total,
		MemoryUsed:   -1,
		Headroom:     -1,
		GOMEMLIMIT:   in.goStats.memoryLimit,
		MemoryMode:   t.opts.Memory,

		GOGC:          in.goStats.gogc,
		GOGCMode:      t.opts.GC,
		EffectiveGOGC: -1,
		GCShare:       t.gcShare,
		GCQuotaShare:  t.quotaShare,

		Throttled: cgroup.Throttling{Verdict: cgroup.VerdictUnknown, Evidence: "no throttling counter can be read"},
		Limits:    in.limits,
		Events:    slices.Clone(t.events),
	}
	if t.firstStatOK && in.statOK {
		s.Throttled = cgroup.Compare(&t.firstStat, &in.stat)
	}
	if in.memoryOK {
		s.MemoryUsed = in.memory.Unreclaimable()
		s.AtHigh, s.AtMax, s.OOMKills, s.Swap = in.memory.AtHigh, in.memory.AtMax, in.memory.OOMKills, in.memory.Swap
	}
	if limit := in.memoryLimit(); limit > 0 && in.bindingOK {
		s.Headroom = max(0, limit-in.binding.Unreclaimable())
	}
	if in.pressureOK {
		p := in.pressure
		s.Pressure = &p
	}
	if in.goStats.live > 0 && in.goStats.gogc >= 0 {
		w := gcWindow{live: in.goStats.live, stacks: in.goStats.stacks, globals: in.goStats.globals, goal: in.goStats.goal}
		if e := effectiveGOGC(w); !math.IsInf(e, 0) {
			s.EffectiveGOGC = max(0, e)
		}
	}
	s.ProcsBy = t.procs.setBy(s.GOMAXPROCS != t.runtimeChoice() && s.GOMAXPROCS != runtime.NumCPU())
	s.MemoryBy = t.memory.setBy(s.GOMEMLIMIT != noMemoryLimit)
	s.GOGCBy = t.gogc.setBy(s.GOGC != 100)
	return s
}
