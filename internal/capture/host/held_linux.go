package host

import (
	"bytes"
	"os"
	"path"
	"strconv"
	"strings"
)

// haltReasonOf is what a process's state (proc_pid_stat(5)) says of why none of its threads may run.
func haltReasonOf(state byte) HaltReason {
	switch state {
	case 'T':
		return HaltedBySignal
	case 't':
		return HaltedByDebugger
	}
	return ""
}

// openFreezer opens what says whether a process's cgroup is frozen, by itself or with one above it: cgroup.events of version 2,
// else freezer.state of version 1; -1 if there is neither.
func openFreezer(pid int) int {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || f[1] != "" && f[1] != "freezer" {
			continue
		}
		for _, file := range []string{path.Join("/sys/fs/cgroup", f[1], f[2], "freezer.state"), path.Join("/sys/fs/cgroup", f[2], "cgroup.events")} {
			if fd, err := openRead(file); err == nil {
				return fd
			}
		}
	}
	return -1
}

// isFrozen reads either file.
func isFrozen(b []byte) bool {
	return bytes.HasPrefix(b, []byte("FROZEN")) || bytes.HasPrefix(b, []byte("FREEZING")) || bytes.Contains(b, []byte("frozen 1"))
}
