package cgroup

import "time"

// Tightest is the part of Limits that is cheap to read repeatedly, to follow a changing limit.
type Tightest struct {
	// Quota is the tightest visible quota in CPUs, and QuotaDepth its level; 0 and -1 without one.
	Quota      float64
	QuotaDepth int
	// Period is that quota's period.
	Period time.Duration
	// OwnQuota is the quota of the process's own group, in CPUs, which is the only one that the Go
	// runtime reads; 0 without one.
	OwnQuota float64
	// Memory is the tightest hard limit in bytes, and MemoryDepth its level; 0 and -1 without one.
	// If v1's limit of a hidden ancestor is the tightest, MemoryDepth is -1 and Memory is that
	// limit.
	Memory      int64
	MemoryDepth int
	// High is the tightest v2 memory.high in bytes, above which the kernel slows allocations down,
	// and HighDepth its level; 0 and -1 without one.
	High      int64
	HighDepth int
	// Unread counts the limit files that NewSampler could read and that cannot be read now. Their
	// limits are not included here, but most likely still apply.
	Unread int
}

// SampleLimits overwrites b with the tightest limits. It fails only if no limit file can be read; those that could be read at the
// start and now cannot are counted in b.Unread. It does not allocate.
func (s *Sampler) SampleLimits(b *Tightest) error {
	*b = Tightest{QuotaDepth: -1, MemoryDepth: -1, HighDepth: -1}
	readAny := false
	for i := range s.cpu {
		c := &s.cpu[i]
		q, p, ok := s.quota(c)
		if !ok {
			if c.quota != nil {
				b.Unread++
			}
			continue
		}
		readAny = true
		cpus := ratio(q, p)
		if c.Depth == 0 {
			b.OwnQuota = cpus
		}
		if cpus > 0 && (b.QuotaDepth < 0 || cpus < b.Quota) {
			b.Quota, b.Period, b.QuotaDepth = cpus, p, c.Depth
		}
	}
	hierMinimum := int64(0) // v1: the minimum over all groups that bind, visible or not
	if s.memVersion == V1 {
		if hierMinimum = hierarchicalLimit(s.read(s.ownCharge.stat)); hierMinimum == 0 && s.ownCharge.stat != nil {
			b.Unread++
		}
	}
	limit := func(h handle) (n int64, limited, ok bool) {
		if h == nil {
			return 0, false, false
		}
		n, limited, err := parseMemory(s.read(h))
		if err != nil {
			b.Unread++
		}
		return n, limited, err == nil
	}
	for i := range s.memory {
		m := &s.memory[i]
		n, limited, ok := limit(m.max)
		readAny = readAny || ok
		unbound := m.Depth > 0 && n < hierMinimum // use_hierarchy is off
		if limited && ok && !unbound && (b.MemoryDepth < 0 || n < b.Memory) {
			b.Memory, b.MemoryDepth = n, m.Depth
		}
		if n, limited, ok = limit(m.high); limited && ok && n > 0 && (b.HighDepth < 0 || n < b.High) {
			b.High, b.HighDepth = n, m.Depth
		}
	}
	if hierMinimum > 0 && hierMinimum < noLimit && (b.MemoryDepth < 0 || hierMinimum < b.Memory) {
		b.Memory, b.MemoryDepth = hierMinimum, -1
	}
	b.Unread = max(0, b.Unread-s.initiallyUnread)
	if !readAny {
		return errNothing
	}
	return nil
}

// quota reads a group's quota and period; the quota is 0 without a limit. ok is false if they cannot be read.
func (s *Sampler) quota(c *samplerCPU) (q, p time.Duration, ok bool) {
	text := s.read(c.quota)
	if s.version == V2 {
		q, p, err := parseCPUMax(text)
		return q, p, err == nil
	}
	q, err := parseQuota(text)
	if err != nil {
		return 0, 0, false
	}
	p, err = parsePeriod(s.read(c.period))
	return q, p, err == nil || q == 0
}
