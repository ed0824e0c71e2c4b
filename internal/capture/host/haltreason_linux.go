package host

import (
	"bytes"
	"os"
	"path"
	"strconv"
	"strings"
)

// haltReasonOf returns why the kernel runs no thread of a process, given the process's state
// (proc_pid_stat(5)); "" if the kernel may run them.
func haltReasonOf(state byte) HaltReason {
	switch state {
	case 'T':
		return HaltedBySignal
	case 't':
		return HaltedByDebugger
	}
	return ""
}

// openFreezer opens the file that shows whether the process's cgroup, or one above it, is frozen:
// cgroup.events in version 2, freezer.state in version 1. It returns -1 if neither exists.
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

// isFrozen reports whether the content of a freezer file, of either version, means a frozen cgroup.
func isFrozen(b []byte) bool {
	return bytes.HasPrefix(b, []byte("FROZEN")) || bytes.HasPrefix(b, []byte("FREEZING")) || bytes.Contains(b, []byte("frozen 1"))
}
