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

// An event is a guard's report, a line of JSON on its standard output: first the command's pid, then
// how the command ended.
type event struct {
	PID   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"` // why the command did not start
	Exit  string `json:"exit,omitempty"`
}

// Run is the main function of a guard process. It runs the command that it reads from in, and returns
// when the command and all its descendants have ended; it kills them when in ends. The command writes
// to this process's standard error.
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
	// The kernel sends the parent's death signal when the thread that started the command ends, and the command inherits
	// that thread's CPUs.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopting what the service leaves behind: %w", err)
	}
	// The reader of the guard's reports may have ended, and then the guard must kill the command. So a failed write must not end
	// the guard. SIGPIPE is received instead of ignored, because the command would inherit an ignored signal.
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

// reap waits for all children, including adopted ones. It sends to exits how the command ended, and
// closes allReaped when there is no child left.
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

// killRemaining kills the command with this process id, its process group and all descendants of this process, until allReaped
// is closed or 10 s have passed. With removeGroup it also kills and removes the control group.
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

// Descendants returns the ids of the children of a process, their children, and so on, without zombies; parents precede their children.
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
