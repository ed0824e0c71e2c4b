package cgroup

import (
	"fmt"

	"github.com/whylate/whylate/service/internal/quantity"
)

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

// judge picks the tightest limit of memory, and says of each bound why it is or is not that one. Of equal ones the first wins.
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
