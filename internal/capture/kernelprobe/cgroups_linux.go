package kernelprobe

import (
	"hash/fnv"
	"path"
	"strings"
	"syscall"

	"github.com/whylate/whylate/internal/capture/kernelevents"
	"github.com/whylate/whylate/service/cgroup"
)

// cpuGroup returns the path of the control group for CPU time from a process's list of groups (/proc/PID/cgroup): that of the cpu controller of
// version 1, else that of version 2; "" without either.
func cpuGroup(text string) (group string) {
	for line := range strings.Lines(text) {
		number, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, name, ok := strings.Cut(rest, ":")
		switch {
		case !ok:
		case number == "0" && group == "":
			group = name
		case number != "0":
			for c := range strings.SplitSeq(controllers, ",") {
				if c == "cpu" {
					return name
				}
			}
		}
	}
	return group
}

// cgroupNumber returns the number of a group in the tables, to which it adds a new one; 0 for "". A group of other processes gets
// the hash of its path, because the kernel's number says nothing more.
func (l *eventLog) cgroupNumber(group string) uint64 {
	if group == "" {
		return 0
	}
	if n := l.groups[group]; n != 0 {
		return n
	}
	h := fnv.New64a()
	h.Write([]byte(group))
	n := h.Sum64() | 1<<62
	n &^= 1 << 63
	l.addGroup(kernelevents.Cgroup{ID: n, Path: group, Container: containerID(group)})
	return n
}

// addGroup adds a control group to the tables, unless they have it or have maxNames.
func (l *eventLog) addGroup(g kernelevents.Cgroup) {
	if l.groups[g.Path] == 0 && len(l.groups) < maxNames {
		l.groups[g.Path] = g.ID
		l.tables.Cgroups = append(l.tables.Cgroups, g)
	}
}

// addServiceGroups names the service's groups and their quotas by the numbers that the kernel uses: the inodes of their directories.
func (l *eventLog) addServiceGroups() {
	limits, err := cgroup.Read(cgroup.Options{PID: l.pid})
	if err != nil {
		return
	}
	l.tables.CPUs = limits.CPU.Online
	for i := range limits.CPU.Levels {
		level := &limits.CPU.Levels[i]
		var s syscall.Stat_t
		if syscall.Stat(level.Dir, &s) != nil {
			continue
		}
		g := kernelevents.Cgroup{ID: s.Ino, Path: level.Group, Container: containerID(level.Group), QuotaNS: int64(level.Quota)}
		if g.QuotaNS > 0 {
			g.PeriodNS = int64(level.Period)
		}
		l.addGroup(g)
	}
}

// containerID returns the short identifier of the container that a group belongs to, as docker ps shows it; "" without one.
func containerID(group string) string {
	for dir := group; dir != "/" && dir != "."; dir = path.Dir(dir) {
		if id := containerHash.FindString(path.Base(dir)); id != "" {
			return id[:12]
		}
	}
	return ""
}
