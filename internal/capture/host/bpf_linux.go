package host

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What recorders with BPF programs have to know about this process and others.

// FirstPIDNamespace is the number of the host's PID namespace: PROC_PID_INIT_INO of include/linux/proc_ns.h. A process in it has the
// numbers of processes that BPF programs have.
const FirstPIDNamespace = 0xEFFFFFFC

// NamespaceNumber returns the inode number of a process's namespace of a kind, such as "pid". Processes with equal numbers share the namespace.
func NamespaceNumber(pid int, kind string) (uint32, error) {
	text, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(text, kind+":["), "]"), 10, 32)
	return uint32(n), err
}

// InnermostPID returns the id that a process or thread has in its own PID namespace; 0 if that is not known. pid is its id here.
func InnermostPID(pid int) int32 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if list, ok := strings.CutPrefix(line, "NSpid:"); ok {
			numbers := strings.Fields(list)
			n, _ := strconv.ParseInt(numbers[len(numbers)-1], 10, 32)
			return int32(n)
		}
	}
	return 0
}

// MissingBPFCapabilities returns the names of those of CAP_BPF and CAP_PERFMON that this process lacks; nil if it has both.
func MissingBPFCapabilities() (missing []string) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return nil // the kernel decides
	}
	isEffective := func(c int) bool { return data[c/32].Effective&(1<<(c%32)) != 0 }
	if isEffective(unix.CAP_SYS_ADMIN) { // includes both
		return nil
	}
	if !isEffective(unix.CAP_BPF) {
		missing = append(missing, "CAP_BPF")
	}
	if !isEffective(unix.CAP_PERFMON) {
		missing = append(missing, "CAP_PERFMON")
	}
	return missing
}

// MonotonicNS returns CLOCK_MONOTONIC, the clock of BPF programs and of execution traces; 0 if it cannot be read.
func MonotonicNS() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return ts.Nano()
}
