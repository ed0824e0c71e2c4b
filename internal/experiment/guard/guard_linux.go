package guard

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
)

// event is what a guard says, a line of JSON each on its standard output: the service's pid, then how it ended.
type event struct {
	PID   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"` // it could not be started
	Exit  string `json:"exit,omitempty"`
}

// Run is the guard's own process: it runs the command that it reads from in. It returns when the command and all processes
// that it started have ended, after it has killed them if in ends first. The command writes to this process's standard
// error.
func Run(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading what to guard: %w", err)
	}
	var command Command
	if err := json.Unmarshal(line, &command); err != nil || len(command.Args) == 0 {
		return fmt.Errorf("reading what to guard: %q: %w", line, err)
	}
	// The kernel sends the parent's death signal when the thread that started the service ends, and a new process has
	// that thread's CPUs.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopting what the service leaves behind: %w", err)
	}
	// Nobody may be left to read what the guard says, just when its work begins: the write fails then, and the guard goes on. A
	// signal that were ignored instead would be so in the command too.
	brokenPipe := make(chan os.Signal, 1)
	signal.Notify(brokenPipe, syscall.SIGPIPE)
	defer signal.Stop(brokenPipe)
	events := json.NewEncoder(out)
	var group *cpugroup.Group
	if len(command.GroupDirs) > 0 {
		if group, err = cpugroup.Open(command.GroupDirs); err != nil {
			return err
		}
	}
	cmd := exec.Command(command.Args[0], command.Args[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = command.Env, command.Dir, os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if len(command.CPUs) > 0 {
		if err := cpugroup.Pin(0, command.CPUs); err != nil {
			return err
		}
	}
	if cmd.Err == nil && group != nil {
		group.Attach(cmd)
	}
	if err := cmd.Start(); err != nil {
		_ = events.Encode(event{Error: err.Error()})
		return nil
	}
	pid := cmd.Process.Pid
	_ = events.Encode(event{PID: pid})
	exits := make(chan string, 1)
	allReaped := make(chan struct{})
	go reap(pid, exits, allReaped)
	inputClosed := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		close(inputClosed)
	}()
	select {
	case exitText := <-exits:
		_ = events.Encode(event{Exit: exitText})
	case <-inputClosed:
	}
	return killRemaining(group, command.RemoveGroup, pid, allReaped)
}

// reap waits for all children, also adopted ones, and tells how the service ended, and when none is left.
func reap(pid int, exits chan<- string, allReaped chan<- struct{}) {
	defer close(allReaped)
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
				exits <- "killed by " + status.Signal().String()
			default:
				exits <- fmt.Sprintf("exit status %d", status.ExitStatus())
			}
		}
	}
}

// killRemaining kills everything that the service started, and removes its group.
func killRemaining(group *cpugroup.Group, removeGroup bool, pid int, allReaped <-chan struct{}) error {
	deadline := time.After(10 * time.Second)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		if group != nil && removeGroup {
			_ = group.Kill()
		}
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		for _, child := range Descendants(os.Getpid()) {
			_ = syscall.Kill(child, syscall.SIGKILL)
		}
		select {
		case <-allReaped:
			if group != nil && removeGroup {
				return group.KillAndRemove()
			}
			return nil
		case <-deadline:
			return fmt.Errorf("the processes %v do not end", Descendants(os.Getpid()))
		case <-time.After(wait):
		}
	}
}

// Descendants returns the processes that a process started, and those that they did.
func Descendants(pid int) []int {
	children := map[int][]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		child, _ := strconv.Atoi(filepath.Base(dir))
		if p, ok := cpugroup.ReadProcess(child); ok && p.State() != "Z" {
			parent := int(p.Field(4))
			children[parent] = append(children[parent], child)
		}
	}
	var all []int
	for next := children[pid]; len(next) > 0; {
		all = append(all, next...)
		var grandchildren []int
		for _, p := range next {
			grandchildren = append(grandchildren, children[p]...)
		}
		next = grandchildren
	}
	return all
}
