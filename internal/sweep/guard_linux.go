package sweep

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/internal/cpugroup"
)

// command is what a guard is to start, a line of JSON on its standard input.
type command struct {
	Args   []string `json:"args"`
	Env    []string `json:"env"`
	Groups []string `json:"groups,omitempty"` // the directories of its cgroup
	// Remove says that the group is the sweep's own: the guard removes it.
	Remove bool  `json:"remove"`
	CPUs   []int `json:"cpus,omitempty"`
}

// event is what a guard says, a line of JSON each on its standard output: the service's pid, then how it ended.
type event struct {
	PID   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"` // it could not be started
	Exit  string `json:"exit,omitempty"`
}

// Guard runs one service: what it reads from in says which. It returns when the service and all processes that it started
// have ended, after it has killed them if in ends first. The service writes to this process's standard error.
func Guard(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading what to guard: %w", err)
	}
	var c command
	if err := json.Unmarshal(line, &c); err != nil || len(c.Args) == 0 {
		return fmt.Errorf("reading what to guard: %q: %w", line, err)
	}
	// The kernel sends the parent's death signal when the thread that started the service ends, and a new process has
	// that thread's CPUs.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopting what the service leaves behind: %w", err)
	}
	tell := json.NewEncoder(out)
	var group *cpugroup.Group
	if len(c.Groups) > 0 {
		if group, err = cpugroup.Open(c.Groups); err != nil {
			return err
		}
	}
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = c.Env, os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if len(c.CPUs) > 0 {
		if err := pin(0, c.CPUs); err != nil {
			return err
		}
	}
	if cmd.Err == nil && group != nil {
		group.Take(cmd)
	}
	if err := cmd.Start(); err != nil {
		_ = tell.Encode(event{Error: err.Error()})
		return nil
	}
	pid := cmd.Process.Pid
	_ = tell.Encode(event{PID: pid})
	ended := make(chan string, 1)
	gone := make(chan struct{})
	go reap(pid, ended, gone)
	parent := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		close(parent)
	}()
	select {
	case how := <-ended:
		_ = tell.Encode(event{Exit: how})
	case <-parent:
	}
	return bury(group, c.Remove, pid, gone)
}

// reap waits for all children, also adopted ones, and tells how the service ended, and when none is left.
func reap(pid int, ended chan<- string, gone chan<- struct{}) {
	defer close(gone)
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return
		case got == pid:
			switch {
			case status.Signaled():
				ended <- "killed by " + status.Signal().String()
			default:
				ended <- fmt.Sprintf("exit status %d", status.ExitStatus())
			}
		}
	}
}

// bury kills everything that the service started, and removes its group.
func bury(group *cpugroup.Group, remove bool, pid int, gone <-chan struct{}) error {
	deadline := time.After(10 * time.Second)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		if group != nil && remove {
			_ = group.Kill()
		}
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		for _, child := range descendants(os.Getpid()) {
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
		select {
		case <-gone:
			if group != nil && remove {
				return group.Remove()
			}
			return nil
		case <-deadline:
			return fmt.Errorf("the processes %v do not end", descendants(os.Getpid()))
		case <-time.After(wait):
		}
	}
}

// descendants returns the processes that a process started, and those that they did.
func descendants(pid int) []int {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		text := string(b)
		f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		if len(f) < 2 || f[0] == "Z" {
			continue
		}
		parent, _ := strconv.Atoi(f[1])
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		children[parent] = append(children[parent], child)
	}
	var all []int
	for next := children[pid]; len(next) > 0; {
		all = append(all, next...)
		var below []int
		for _, p := range next {
			below = append(below, children[p]...)
		}
		next = below
	}
	return all
}

// pin lets a thread, 0 for this one, run on these CPUs only.
func pin(tid int, cpus []int) error {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		return fmt.Errorf("pinning to the CPUs %v: %w", cpus, err)
	}
	return nil
}

// pinSelf lets this whole process run on these CPUs only. New threads have the CPUs of those that start them, so a second
// pass gets the ones that started meanwhile.
func pinSelf(cpus []int) error {
	for range 2 {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("pinning the generator: %w", err)
		}
		for _, t := range tasks {
			tid, _ := strconv.Atoi(t.Name())
			if err := pin(tid, cpus); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
	}
	return nil
}

// ownCPUs returns the CPUs that this process may run on.
func ownCPUs() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil
	}
	var cpus []int
	for c := 0; len(cpus) < set.Count(); c++ {
		if set.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	return cpus
}
