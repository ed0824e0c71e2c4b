package stage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/internal/experiment/guard"
)

// Environment variables that start this program again as a helper process.
const (
	asGuard   = "WHYLATE_STORIES_GUARD"
	asJanitor = "WHYLATE_STORIES_JANITOR" // the directory to remove
)

// Helper does the work of a helper process and does not return, if this process was started as one.
func Helper() {
	switch dir := os.Getenv(asJanitor); {
	case os.Getenv(asGuard) != "":
		if err := guard.Run(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case dir != "":
		var b [1]byte
		_, _ = os.Stdin.Read(b[:]) // ends with the stage's process
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if os.RemoveAll(dir) == nil { // servers may still be ending
				os.Exit(0)
			}
		}
		os.Exit(1)
	}
}

// helperCommand returns the command that starts this program as a helper.
func helperCommand(env string) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program, to start it as a helper: %w", err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), env)
	return cmd, nil
}

// makeTempDir creates the stage's directory, and a process that removes it when this one ends, for any reason.
func (s *Stage) makeTempDir() error {
	dir, err := os.MkdirTemp("", "whylate-story-")
	if err != nil {
		return err
	}
	s.dir = dir
	janitor, err := helperCommand(asJanitor + "=" + dir)
	if err != nil {
		return err
	}
	janitor.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := janitor.StdinPipe()
	if err == nil {
		err = janitor.Start()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("starting the cleanup process: %w", err), os.RemoveAll(dir))
	}
	s.ends = append(s.ends, func() error {
		in.Close()
		return janitor.Wait()
	})
	return nil
}

// A Program is a program to start on a stage.
type Program struct {
	Name string // for messages
	Args []string
	Env  []string // in addition to this process's
	Dir  string
	// Quota in CPUs and Memory in bytes are limits of its cgroup; without both it has no cgroup.
	Quota  float64
	Memory int64
	CPUs   []int // CPUs that it may use; all if empty
	Net    *Net  // its own network namespace; nil for this process's
	// Ready is a URL that answers, or host:port that accepts, once the program is ready; "" if it is ready at once.
	Ready string
}

// A Server is a running program.
type Server struct {
	name    string
	process *guard.Process
	group   *cpugroup.Group
	mu      sync.Mutex
	lines   []string
	stopped bool
}

// newGroup creates a cgroup with limits for a program.
func newGroup(name string, quota float64, memory int64) (*cpugroup.Group, error) {
	g, err := cpugroup.New(cpugroup.Options{CPUs: quota, Memory: memory, CountUsage: true, Owner: "whylate-story"})
	if err != nil {
		return nil, &Missing{"cgroup for " + name, "run as root on a machine with cgroups that can be written (" + err.Error() + ")"}
	}
	return g, nil
}

// NeedQuota checks whether this process may give a program a CPU quota.
func NeedQuota() error {
	g, err := newGroup("a quota", 1, 0)
	if err != nil {
		return err
	}
	return g.Remove()
}

// Start starts a program and waits until it is ready. The program ends with the stage at the latest.
func (s *Stage) Start(ctx context.Context, p Program) (_ *Server, err error) {
	s.Say("starting %s", p.Name)
	v := &Server{name: p.Name}
	if p.Net != nil {
		p.Args = p.Net.wrapArgs(p.Args)
	}
	c := guard.Command{Args: p.Args, Env: append(os.Environ(), p.Env...), Dir: p.Dir, CPUs: p.CPUs, RemoveGroup: true}
	if p.Quota > 0 || p.Memory > 0 {
		if v.group, err = newGroup(p.Name, p.Quota, p.Memory); err != nil {
			return nil, err
		}
		c.GroupDirs = v.group.Dirs()
	}
	g, err := helperCommand(asGuard + "=1")
	if err == nil {
		v.process, err = guard.Start(g, c, v.addLine)
	}
	if err != nil {
		if v.group != nil {
			err = errors.Join(err, v.group.Remove())
		}
		return nil, fmt.Errorf("starting %s: %w", p.Name, err)
	}
	s.ends = append(s.ends, v.Stop)
	if p.Net != nil {
		if err := p.Net.connect(ctx, s, v.PID()); err != nil {
			return nil, fmt.Errorf("%w; %s said:\n%s", err, p.Name, v.lastLines())
		}
	}
	return v, v.waitReady(ctx, p.Ready)
}

// Wait waits until the program ends, and returns an error if it failed.
func (v *Server) Wait(ctx context.Context) error {
	for {
		switch exit := v.process.ExitText(); exit {
		case "":
		case "exit status 0":
			return v.Stop()
		default:
			return fmt.Errorf("%s failed (%s); it said:\n%s", v.name, exit, v.lastLines())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Ended reports whether the program has ended.
func (v *Server) Ended() bool { return v.process.ExitText() != "" }

// Stop ends the program and all its child processes.
func (v *Server) Stop() error {
	if v.stopped {
		return nil
	}
	v.stopped = true
	err := v.process.Stop()
	if v.group != nil { // the guard has removed it, unless the guard was killed
		err = v.group.KillAndRemove()
	}
	return err
}

// Group returns the program's cgroup, nil if it has none.
func (v *Server) Group() *cpugroup.Group { return v.group }

// PID returns the program's process id.
func (v *Server) PID() int { return v.process.PID }

// Memory returns the program's resident memory in bytes, 0 if it has ended.
func (v *Server) Memory() int64 { return v.status("VmRSS") << 10 }

// Threads returns the number of the program's threads.
func (v *Server) Threads() int64 { return v.status("Threads") }

// status returns a number of /proc/PID/status.
func (v *Server) status(name string) int64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(v.PID()) + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		k, text, _ := strings.Cut(line, ":")
		if k == name {
			text, _, _ = strings.Cut(strings.TrimSpace(text), " ")
			n, _ := strconv.ParseInt(text, 10, 64)
			return n
		}
	}
	return 0
}

func (v *Server) addLine(line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lines = append(v.lines, line); len(v.lines) > 10 {
		v.lines = v.lines[1:]
	}
}

// LastLines returns the last output of the program.
func (v *Server) LastLines() string { return v.lastLines() }

// lastLines returns the last output of the program.
func (v *Server) lastLines() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return strings.Join(v.lines, "\n")
}

func (v *Server) waitReady(ctx context.Context, address string) error {
	if address == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var last error
	for {
		if last = checkAddress(ctx, address); last == nil {
			return nil
		}
		if exit := v.process.ExitText(); exit != "" {
			return fmt.Errorf("%s ended before it was ready (%s); it said:\n%s", v.name, exit, v.lastLines())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (%w); it said:\n%s", v.name, last, context.Cause(ctx), v.lastLines())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func checkAddress(ctx context.Context, address string) error {
	if !strings.Contains(address, "://") {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
		if err == nil {
			c.Close()
		}
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}
