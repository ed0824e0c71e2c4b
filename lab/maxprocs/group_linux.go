package main

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/service/cgroup"
)

// newGroup creates a group with a quota and with priority over other groups within it; 0 CPUs means no quota.
func newGroup(cpus float64) (*cpugroup.Group, error) {
	return cpugroup.New(cpugroup.Options{CPUs: cpus, HighWeight: true})
}

// readStat returns the kernel's counters of a group, zeros if they cannot be read.
func readStat(g *cpugroup.Group) cpugroup.Stat {
	s, err := cpugroup.ReadStat(g.Dir)
	if err != nil {
		return cpugroup.Stat{}
	}
	return s
}

// hasLoadCPU reports whether the load gets its own CPU.
func hasLoadCPU() bool { return onlineCPUs() >= 4 }

// onlineCPUs returns runtime.NumCPU of a process without CPU affinity.
func onlineCPUs() int {
	l, err := cgroup.Read(cgroup.Options{})
	if err != nil {
		return 1
	}
	return max(1, l.CPU.Online)
}

func setAffinity(tid int, from, to int) error {
	var mask [16]uint64
	for c := from; c < to && c < 64*len(mask); c++ {
		mask[c/64] |= 1 << (c % 64)
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, uintptr(tid), unsafe.Sizeof(mask), uintptr(unsafe.Pointer(&mask))); errno != 0 {
		return errno
	}
	return nil
}

// prioritizeLoad gives all threads of this process the last CPU or, on a small machine, a higher priority than the service's.
func prioritizeLoad() error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	n := onlineCPUs()
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if hasLoadCPU() {
			err = setAffinity(tid, n-1, n)
		} else {
			err = syscall.Setpriority(syscall.PRIO_PROCESS, tid, -15)
		}
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// settleThread undoes prioritizeLoad for the calling thread, which will be the
// service.
func settleThread() error {
	if n := onlineCPUs(); hasLoadCPU() {
		return setAffinity(0, 0, n-1)
	}
	return syscall.Setpriority(syscall.PRIO_PROCESS, 0, 0)
}

// machineCPU returns the CPU time of the whole machine since its start.
func machineCPU() time.Duration {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	var busy time.Duration
	for i, v := range strings.Fields(line) {
		// cpu user nice system idle iowait irq softirq steal
		if i >= 1 && i <= 8 && i != 4 && i != 5 {
			n, _ := strconv.ParseInt(v, 10, 64)
			busy += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return busy
}

func kernelRelease() string {
	b, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(b))
}

func cpuModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for _, line := range strings.Split(string(b), "\n") {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return "unknown CPU"
}
