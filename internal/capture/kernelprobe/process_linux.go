package kernelprobe

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/whylate/whylate/internal/capture/kernelevents"
	"github.com/whylate/whylate/service/cgroup"
)

// A process is what /proc says about a process when it is first seen.
type process struct {
	name   string
	cgroup uint64
}

// processOf reads about a process once. Its number is that on the host, so nothing can be read inside of another PID namespace.
func (l *eventLog) processOf(pid int32) process {
	p, ok := l.processes[pid]
	if ok || len(l.processes) >= maxNames {
		return p
	}
	if l.hasHostPIDs {
		dir := "/proc/" + strconv.Itoa(int(pid))
		if b, err := os.ReadFile(dir + "/comm"); err == nil {
			p.name = string(bytes.TrimSpace(b))
		}
		if b, err := os.ReadFile(dir + "/cgroup"); err == nil {
			p.cgroup = l.cgroupNumber(cpuGroup(string(b)))
		}
	}
	l.processes[pid] = p
	return p
}

// cpuGroup returns the control group for CPU time from a process's list of groups: that of the cpu controller of version 1, else that of
// version 2.
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

// cgroupNumber returns the number of a group in the tables. A group of other processes gets the hash of its path, because the
// kernel's number says nothing more.
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

// containerHash is the identifier that Docker, containerd and CRI-O give containers; it is part of the group's name.
var containerHash = regexp.MustCompile(`[0-9a-f]{64}`)

// containerID returns the short identifier of the container that a group belongs to, as docker ps shows it.
func containerID(group string) string {
	for dir := group; dir != "/" && dir != "."; dir = path.Dir(dir) {
		if id := containerHash.FindString(path.Base(dir)); id != "" {
			return id[:12]
		}
	}
	return ""
}

// timeOffset returns by how much the monotonic clock of a process differs from that of the host, in ns.
func timeOffset(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/timens_offsets", pid))
	if err != nil {
		return 0 // Linux 5.5 or earlier: no time namespaces
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == "monotonic" {
			seconds, _ := strconv.ParseInt(f[1], 10, 64)
			ns, _ := strconv.ParseInt(f[2], 10, 64)
			return seconds*1e9 + ns
		}
	}
	return 0
}
