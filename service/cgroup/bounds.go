package cgroup

import (
	"fmt"

	"github.com/whylate/whylate/service/internal/quantity"
)

// judgeBounds sets the tightest quota and the tightest bound, and each bound's Won and Why. Of equal bounds the first wins: the innermost quota, then
// the CPU set, which usually determines the affinity mask.
func (c *CPU) judgeBounds() {
	for i, l := range c.Levels {
		if l.CPUs > 0 && (c.Quota == 0 || l.CPUs < c.Quota) {
			c.Quota, c.QuotaLevel = l.CPUs, i
		}
	}
	tightest := -1
	for i, b := range c.Bounds {
		if b.CPUs > 0 && (tightest < 0 || b.CPUs < c.Bounds[tightest].CPUs) {
			tightest = i
		}
	}
	if tightest < 0 {
		return
	}
	winner := &c.Bounds[tightest]
	winner.Won = true
	c.Effective = winner.CPUs
	switch {
	case winner.Kind == BoundQuota && winner.Depth > 0:
		winner.Why = fmt.Sprintf("the tightest: quota of an ancestor, %d up", winner.Depth)
	case winner.Kind == BoundQuota:
		winner.Why = "the tightest: quota of the process's own group"
	case winner.Kind == BoundCpuset && float64(c.Online) > winner.CPUs:
		winner.Why = "the tightest: the group's CPU set is smaller than the machine"
	case winner.Kind == BoundAffinity && float64(c.Online) > winner.CPUs:
		winner.Why = "the tightest: the process's affinity mask is smaller than the machine"
	default:
		winner.Why = "all CPUs of the machine: nothing is tighter"
	}
	for i := range c.Bounds {
		b := &c.Bounds[i]
		if i == tightest || b.Why != "" {
			continue
		}
		if b.CPUs == winner.CPUs {
			b.Why = "the same"
		} else {
			b.Why = fmt.Sprintf("looser: %s against %s CPUs", cpusText(b.CPUs), cpusText(winner.CPUs))
		}
	}
}

// judgeBounds sets the tightest memory limit, and each bound's Won and Why. Of equal bounds the first wins.
func (m *Memory) judgeBounds() {
	tightest := -1
	for i, b := range m.Bounds {
		if b.Limited && b.Why == "" && (tightest < 0 || b.Bytes < m.Bounds[tightest].Bytes) {
			tightest = i
		}
	}
	if tightest < 0 {
		return
	}
	winner := &m.Bounds[tightest]
	winner.Won = true
	m.Effective = winner.Bytes
	switch {
	case winner.Kind == BoundHierarchical:
		winner.Why = "the tightest: limit of an ancestor that is not visible from here"
	case winner.Kind == BoundTotal:
		winner.Why = "all memory of the machine: nothing is tighter"
	case winner.Depth > 0:
		winner.Why = fmt.Sprintf("the tightest: limit of an ancestor, %d up", winner.Depth)
	default:
		winner.Why = "the tightest: limit of the process's own group"
	}
	for i := range m.Bounds {
		b := &m.Bounds[i]
		if i == tightest || b.Why != "" {
			continue
		}
		if b.Bytes == winner.Bytes {
			b.Why = "the same"
		} else {
			b.Why = fmt.Sprintf("looser: %s against %s", quantity.Binary(b.Bytes), quantity.Binary(winner.Bytes))
		}
	}
}
