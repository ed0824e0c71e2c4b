package uprobes

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/capture/gobinary"
	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/service/cgroup"
)

// A target is the process to record.
type target struct {
	pid     int
	exe     string // path by which the kernel opens the executable
	file    *os.File
	program *gobinary.Program
	base    uint64 // see gobinary.Program.Base
	points  []point
	cpus    float64
}

// A point is the place of a probe.
type point struct {
	program string // name of the BPF program
	offset  uint64 // in the file
}

// runtimeFunctions are the functions with probes, and their BPF programs.
var runtimeFunctions = []struct {
	function, program string
	isOptional        bool // programs without it never do this
}{
	{"runtime.gopark", "block", false},
	{"runtime.execute", "start", false},
	{"runtime.ready", "make_ready", false},
	{"runtime.injectglist", "make_list_ready", false},
	{"runtime.gdestroy", "destroy", false},
	{"runtime.goschedImpl", "stop", false},
	{"runtime.goyield_m", "yield", true},
	{"runtime.preemptPark", "preempt", true},
	{"runtime.coroswitch_m", "coroutine", true},
}

// openTarget opens the program of a process and finds its base address, the points to probe and the number of CPUs that it may
// use. The error wraps ErrNoProcess or ErrPermission where that is the reason.
func openTarget(pid int) (_ *target, err error) {
	t := &target{pid: pid, exe: fmt.Sprintf("/proc/%d/exe", pid)}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
		return nil, fmt.Errorf("%w: %d", ErrNoProcess, pid)
	}
	t.file, err = os.Open(t.exe)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w to read the program of process %d: run as root, or with the capability CAP_SYS_PTRACE", ErrPermission, pid)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w with a program: %d is a thread of the kernel, or has ended", ErrNoProcess, pid)
	case err != nil:
		return nil, fmt.Errorf("opening the program of process %d: %w", pid, err)
	}
	defer func() {
		if err != nil {
			t.file.Close()
		}
	}()
	if t.program, err = gobinary.Open(t.file); err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	if t.base, err = findBase(pid, t.program); err != nil {
		return nil, err
	}
	if err := t.findPoints(); err != nil {
		return nil, err
	}
	t.cpus = 1
	if l, err := cgroup.Read(cgroup.Options{PID: pid}); err == nil {
		t.cpus = float64(max(1, l.CPU.Parallelism))
		if l.CPU.Quota > 0 {
			t.cpus = min(t.cpus, l.CPU.Quota)
		}
	}
	return t, nil
}

// findBase returns the number to add to an address in the program's file for that in the process.
func findBase(pid int, p *gobinary.Program) (uint64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, fmt.Errorf("%w to read the mappings of process %d: run as root, or with the capability CAP_SYS_PTRACE", ErrPermission, pid)
	}
	defer f.Close()
	path, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	for s := bufio.NewScanner(f); s.Scan(); {
		// start-end permissions offset device inode path
		fields := strings.Fields(s.Text())
		if len(fields) < 6 || !strings.Contains(fields[1], "x") || !strings.HasSuffix(s.Text(), path) {
			continue
		}
		start, _, _ := strings.Cut(fields[0], "-")
		address, err1 := strconv.ParseUint(start, 16, 64)
		offset, err2 := strconv.ParseUint(fields[2], 16, 64)
		if base, ok := p.Base(address, offset); ok && err1 == nil && err2 == nil {
			return base, nil
		}
	}
	return 0, fmt.Errorf("%w: process %d has no mapping of its program", ErrSystem, pid)
}

// findPoints sets t.points: which BPF program runs at which offset of the file. Only functions marked isOptional may be missing.
func (t *target) findPoints() error {
	names := []string{"runtime.newproc.func1", "runtime.runqput"}
	for _, f := range runtimeFunctions {
		names = append(names, f.function)
	}
	entries := t.program.Addresses(names...)
	add := func(program string, address uint64, err error) error {
		if err != nil {
			return fmt.Errorf("process %d (%s): no place for a probe: %w", t.pid, t.program.Version, err)
		}
		offset, ok := t.program.FileOffset(address)
		if !ok {
			return fmt.Errorf("process %d: the runtime's functions are not in the program's file", t.pid)
		}
		t.points = append(t.points, point{program, offset})
		return nil
	}
	for _, f := range runtimeFunctions {
		entry, ok := entries[f.function]
		if !ok && f.isOptional {
			continue
		}
		if !ok {
			return fmt.Errorf("process %d (%s): the program has no function %s", t.pid, t.program.Version, f.function)
		}
		address, err := t.program.PushOf(f.function, entry)
		if err := add(f.program, address, err); err != nil {
			return err
		}
	}
	address, err := t.program.CallOf("runtime.newproc.func1", entries["runtime.newproc.func1"], entries["runtime.runqput"])
	return add("create", address, err)
}

// threadIDs returns the ids by which the process knows its threads, by thread id on the host, for those threads where the two differ.
func (t *target) threadIDs() map[uint64]uint64 {
	ids := map[uint64]uint64{}
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", t.pid))
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if inner := int(host.InnermostPID(tid)); inner != 0 && inner != tid {
			ids[uint64(tid)] = uint64(inner)
		}
	}
	return ids
}
