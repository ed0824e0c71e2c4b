package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/whylate/whylate/service/cgroup"
)

// group is a cgroup with a CPU quota.
type group struct {
	dir string
	v2  bool
}

// newGroup makes one below the root of the hierarchy that has the cpu
// controller; 0 CPUs is no limit.
func newGroup(cpus float64) (*group, error) {
	l, err := cgroup.Read(cgroup.Options{})
	if err != nil {
		return nil, err
	}
	g := &group{v2: l.CPU.Version == cgroup.V2}
	if l.CPU.Version == cgroup.VersionNone {
		return nil, errors.New("no cgroup hierarchy with the cpu controller is mounted")
	}
	if g.v2 {
		if err := os.WriteFile(filepath.Join(l.CPU.MountPoint, "cgroup.subtree_control"), []byte("+cpu"), 0); err != nil {
			return nil, fmt.Errorf("enabling the cpu controller: %w", err)
		}
	}
	if g.dir, err = os.MkdirTemp(l.CPU.MountPoint, "whylate-maxprocs-"); err != nil {
		return nil, fmt.Errorf("making a cgroup (root is needed): %w", err)
	}
	const period = 100000
	quota := strconv.Itoa(int(cpus * period))
	if cpus == 0 {
		quota = map[bool]string{true: "max", false: "-1"}[g.v2]
	}
	if g.v2 {
		err = os.WriteFile(filepath.Join(g.dir, "cpu.max"), []byte(quota+" "+strconv.Itoa(period)), 0)
	} else {
		err = os.WriteFile(filepath.Join(g.dir, "cpu.cfs_quota_us"), []byte(quota), 0)
	}
	if err != nil {
		g.remove()
		return nil, fmt.Errorf("setting a quota of %v CPUs: %w", cpus, err)
	}
	// Neighbours on the machine get a twentieth of the service's share, so that
	// they disturb less. A kernel without weights measures all the same.
	file, weight := "cpu.shares", "20480"
	if g.v2 {
		file, weight = "cpu.weight", "2000"
	}
	_ = os.WriteFile(filepath.Join(g.dir, file), []byte(weight), 0)
	return g, nil
}

// child makes a group without a quota below g.
func (g *group) child() (*group, error) {
	c := &group{dir: filepath.Join(g.dir, "child"), v2: g.v2}
	return c, os.Mkdir(c.dir, 0o755)
}

// throttled is the time the kernel held the group back, summed over CPUs.
func (g *group) throttled() time.Duration {
	b, err := os.ReadFile(filepath.Join(g.dir, "cpu.stat"))
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(b), "\n") {
		k, v, _ := strings.Cut(line, " ")
		n, _ := strconv.ParseInt(v, 10, 64)
		switch k {
		case "throttled_time":
			return time.Duration(n)
		case "throttled_usec":
			return time.Duration(n) * time.Microsecond
		}
	}
	return 0
}

func (g *group) remove() {
	for range 100 {
		if os.Remove(g.dir) == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// stat returns the periods in which the group ran, and those in which it was
// throttled.
func (g *group) stat() (periods, throttled int64) {
	b, err := os.ReadFile(filepath.Join(g.dir, "cpu.stat"))
	if err != nil {
		return 0, 0
	}
	for _, line := range strings.Split(string(b), "\n") {
		k, v, _ := strings.Cut(line, " ")
		n, _ := strconv.ParseInt(v, 10, 64)
		switch k {
		case "nr_periods":
			periods = n
		case "nr_throttled":
			throttled = n
		}
	}
	return periods, throttled
}

// apart reports whether the load gets a CPU of its own.
func apart() bool { return onlineCPUs() >= 4 }

// onlineCPUs is runtime.NumCPU of a process that was not bound.
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

// settleLoad gives all threads of this process the last CPU for themselves, or
// where there are too few, a higher priority than the service's.
func settleLoad() error {
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
		if apart() {
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

// settleThread undoes settleLoad for the calling thread, which will be the
// service.
func settleThread() error {
	if n := onlineCPUs(); apart() {
		return setAffinity(0, 0, n-1)
	}
	return syscall.Setpriority(syscall.PRIO_PROCESS, 0, 0)
}

// machineCPU is the CPU time all of the machine used since it was started.
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

func kernel() string {
	b, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(b))
}

func model() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for _, line := range strings.Split(string(b), "\n") {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return "unknown CPU"
}
