package cgroup

import "fmt"

// A Sight is the outcome of the search for a limit. It distinguishes a limit that
// does not exist from one that cannot be seen.
type Sight string

const (
	// SightFound: there is a limit.
	SightFound Sight = "found"
	// SightNone: every group up to the root was read, and none has a limit.
	SightNone Sight = "none"
	// SightHidden: no visible group has one; groups above are not visible.
	SightHidden Sight = "hidden"
	// SightUnreadable: a file that may hold one cannot be read.
	SightUnreadable Sight = "unreadable"
	// SightMalformed: a file that should hold one is not in the kernel's format.
	SightMalformed Sight = "malformed"
	// SightCovered: the hierarchy is mounted, but another mount covers the
	// group's directory.
	SightCovered Sight = "covered"
	// SightUnmounted: the hierarchy is not mounted here, or no mount shows the
	// group.
	SightUnmounted Sight = "unmounted"
	// SightAbsent: the process is in no hierarchy with the controller.
	SightAbsent Sight = "absent"
)

// judgeAbsence returns the outcome of a search that found no limit, and a sentence about
// it. An unusable file has precedence over hidden groups. limitName is "CPU quota" or
// "memory limit".
func (h *Hierarchy) judgeAbsence(limitName string) (Sight, string) {
	if h.problem != "" {
		return h.problem, fmt.Sprintf("no %s can be seen: %s", limitName, h.reason)
	}
	for _, want := range []Sight{SightMalformed, SightUnreadable} {
		for _, l := range h.files {
			if l.problem != want {
				continue
			}
			if want == SightMalformed {
				return want, fmt.Sprintf("the %s is malformed: %s (%q)", limitName, l.name, l.text)
			}
			return want, fmt.Sprintf("the %s cannot be read: %s: %s", limitName, l.name, l.err)
		}
	}
	switch {
	case len(h.levels) > 0 && h.levels[0].Depth > 0:
		return SightHidden, fmt.Sprintf("no visible group has a %s; the process's own group is not visible under %s", limitName, clip(h.MountPoint))
	case h.Hidden:
		return SightHidden, fmt.Sprintf("no visible group has a %s; groups above are not visible from here", limitName)
	}
	return SightNone, fmt.Sprintf("no %s: every group up to the root was read", limitName)
}

// judgeSight sets Sight, and in SightText a sentence about it, by the quotas that were found.
func (c *CPU) judgeSight() {
	if c.Quota > 0 {
		c.Sight, c.SightText = SightFound, "a CPU quota was found"
		return
	}
	c.Sight, c.SightText = c.judgeAbsence("CPU quota")
}

// judgeSight sets Sight, and in SightText a sentence about it, by the limits that were found.
func (m *Memory) judgeSight() {
	if m.MaxLevel >= 0 || m.Max > 0 {
		m.Sight, m.SightText = SightFound, "a memory limit was found"
		if m.Max == 0 {
			m.SightText = "a memory limit of 0 bytes"
		}
		return
	}
	m.Sight, m.SightText = m.judgeAbsence("memory limit")
	if m.Sight == SightHidden && m.complete {
		m.Sight, m.SightText = SightNone, "no group has a memory limit, including invisible ones (hierarchical_memory_limit)"
	}
}
