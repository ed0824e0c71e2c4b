package kernelprobe

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// A process is what /proc says about a process when it is first seen.
type process struct {
	name   string
	cgroup uint64
}

// processOf returns the name and the number of the control group of a process, read at the first call for it. pid is that on the host, so both are
// empty if this process is in another PID namespace, and if the process has ended.
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

// containerHash is the identifier that Docker, containerd and CRI-O give containers; it is part of the group's name.
var containerHash = regexp.MustCompile(`[0-9a-f]{64}`)

// timeOffset returns the ns that a process's time namespace adds to the host's monotonic clock; 0 if there is none or that is not known.
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
