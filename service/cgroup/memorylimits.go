package cgroup

import (
	"fmt"
	"path"
)

// readMemory finds the groups and sets all fields of m: levels, bounds, the tightest limits, and whether a limit may be hidden.
func (f *finder) readMemory(m *Memory) {
	m.Hierarchy = f.locate("memory")
	m.MaxLevel, m.HighLevel = -1, -1
	m.Levels, m.Bounds = []MemoryLevel{}, []MemoryBound{}
	for _, lv := range m.levels {
		l, file := f.memoryLevel(m.Version, lv)
		m.Levels, m.files = append(m.Levels, l), append(m.files, file)
	}
	hierMinimum := int64(0)
	if m.Version == V1 && len(m.Levels) > 0 {
		b, _, _ := f.optionalText(m.Levels[0].Dir, "memory.stat")
		hierMinimum = hierarchicalLimit(b)
	}
	m.complete = hierMinimum > 0
	for i, l := range m.Levels {
		// If use_hierarchy is off, ancestors do not bind, and the kernel leaves them out of its minimum.
		unbound := l.Depth > 0 && l.Limited && l.Max < hierMinimum
		if l.Limited && !unbound && (m.MaxLevel < 0 || l.Max < m.Max) {
			m.Max, m.MaxLevel = l.Max, i
		}
		if l.High > 0 && (m.HighLevel < 0 || l.High < m.High) {
			m.High, m.HighLevel = l.High, i
		}
		if l.HasSwap && (!m.HasSwap || l.Swap < m.Swap) {
			m.Swap, m.HasSwap = l.Swap, true
		}
		b := MemoryBound{Kind: BoundMax, File: l.File, Text: l.Text, Depth: l.Depth, Bytes: l.Max, Limited: l.Limited, Why: m.unlimitedReason(m.files[i], l.Limited)}
		if unbound {
			b.Why = "does not bind: memory.use_hierarchy is off below it"
		}
		m.Bounds = append(m.Bounds, b)
	}
	if m.complete && hierMinimum < noLimit {
		m.Hierarchical = hierMinimum
		m.Bounds = append(m.Bounds, MemoryBound{
			Kind: BoundHierarchical, File: path.Join(m.Levels[0].Dir, "memory.stat"),
			Text: fmt.Sprintf("hierarchical_memory_limit %d", hierMinimum), Depth: -1, Bytes: hierMinimum, Limited: true,
		})
		if m.MaxLevel < 0 || hierMinimum < m.Max {
			m.Max, m.MaxLevel = hierMinimum, -1
		}
	}
	const name = "/proc/meminfo"
	if b, err := readFile(f.src, name, maxSmall); err == nil {
		if n, ok := meminfoTotal(b); ok {
			m.Total = n
			m.Bounds = append(m.Bounds, MemoryBound{Kind: BoundTotal, File: name, Text: "MemTotal", Depth: -1, Bytes: n, Limited: true})
		}
	}
	m.judgeBounds()
	m.judgeSight()
}

// hierarchicalLimit returns v1's minimum, in bytes, over all binding ancestors, visible or not, from memory.stat. noLimit or more means no limit; 0
// means that the file has no line for it.
func hierarchicalLimit(stat []byte) (n int64) {
	for k, v := range keyValues(stat) {
		if string(k) == "hierarchical_memory_limit" {
			n = v
		}
	}
	return n
}

// memoryLevel reads the memory limits of a group, in bytes. The limitFile is that of the hard limit; other files that cannot be read count as no
// limit.
func (f *finder) memoryLevel(v Version, lv Level) (MemoryLevel, limitFile) {
	l, names := MemoryLevel{Level: lv}, memoryFiles[v]
	file := f.limitFile(lv, names.max, func(b []byte) (err error) { l.Max, l.Limited, err = parseMemory(b); return err })
	l.File, l.Text, l.Missing, l.Err = file.name, file.text, file.missing, file.err
	l.High, _ = f.optionalMemoryLimit(l.Dir, names.high)
	l.Soft, _ = f.optionalMemoryLimit(l.Dir, names.soft)
	l.Swap, l.HasSwap = f.optionalMemoryLimit(l.Dir, names.swapMax)
	l.MemSwap, _ = f.optionalMemoryLimit(l.Dir, names.memswMax)
	return l, file
}

// optionalMemoryLimit reads a file (name) in a directory with a memory limit in bytes. limited is false, and n is 0, without a file or limit.
func (f *finder) optionalMemoryLimit(dir, name string) (n int64, limited bool) {
	b, ok, err := f.optionalText(dir, name)
	if !ok || err != nil {
		return 0, false
	}
	n, limited, err = parseMemory(b)
	if err != nil {
		f.addNote("memory: %s: %q is %v", path.Join(dir, name), clip(string(b)), err)
		return 0, false
	}
	return n, limited
}
