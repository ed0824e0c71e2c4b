package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
)

// recordFor is how long each scenario is recorded.
const recordFor = 4 * time.Second

// recordInGroup runs this program again in a group with the highest weight, so that nothing but the scenario disturbs the clients
// and the recorder.
func recordInGroup() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	group, err := cpugroup.New(cpugroup.Options{HighWeight: true})
	if err != nil {
		return err
	}
	defer func() { _ = group.KillAndRemove() }()
	cmd := exec.Command(exe, append(os.Args[1:], "-grouped")...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	group.Attach(cmd)
	return cmd.Run()
}

func recordCases(dir, only, tool string) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := range scenarios {
		if s := &scenarios[i]; match.MatchString(s.name) {
			if err := s.record(filepath.Join(dir, s.name+".whylate"), tool); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	return nil
}

// makeData makes a file whose pages are on the disk and not in memory.
func makeData() (string, error) {
	name := filepath.Join(os.TempDir(), "agreement.data")
	if s, err := os.Stat(name); err != nil || s.Size() == 0 {
		random, err := os.Open("/dev/urandom")
		if err != nil {
			return "", err
		}
		defer random.Close()
		f, err := os.Create(name)
		if err != nil {
			return "", err
		}
		if _, err := io.CopyN(f, random, 400<<20); err != nil {
			return "", err
		}
		if err := f.Close(); err != nil {
			return "", err
		}
	}
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return "", err
	}
	const dontNeed = 4 // POSIX_FADV_DONTNEED
	if _, _, e := syscall.Syscall6(syscall.SYS_FADVISE64, f.Fd(), 0, 0, dontNeed, 0, 0); e != 0 {
		return "", e
	}
	return name, nil
}

// start starts a program with the highest priority: others of this machine shall not disturb it.
func start(group *cpugroup.Group, nice int, env []string, name string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), os.Stderr
	if group != nil {
		group.Attach(cmd)
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd, syscall.Setpriority(syscall.PRIO_PROCESS, cmd.Process.Pid, nice)
}

func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func (s *scenario) record(out, tool string) error {
	data, err := makeData()
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	group, remove, err := s.group()
	if err != nil {
		return err
	}
	defer remove()
	var hogs *cpugroup.Group
	if s.hogs > 0 && !s.isQuiet {
		if hogs, err = cpugroup.New(cpugroup.Options{HighWeight: true}); err != nil {
			return err
		}
		defer func() { _ = hogs.KillAndRemove() }()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := l.Addr().String()
	l.Close()
	var env []string
	if s.procs > 0 {
		env = append(env, "GOMAXPROCS="+strconv.Itoa(s.procs))
	}
	service, err := start(group, -20, env, exe, "service", "-addr", addr, "-data", data, "-busy", strconv.Itoa(s.busy), "-garbage="+strconv.FormatBool(s.path == "/garbage"))
	if err != nil {
		return err
	}
	defer end(service)
	priority := -20
	if s.isQuiet {
		priority = 19
	}
	for range s.hogs {
		hog, err := start(hogs, priority, nil, "python3", "-c", "while True: pass")
		if err != nil {
			return err
		}
		defer end(hog)
	}
	time.Sleep(500 * time.Millisecond)
	ctx, stop := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	for range s.conns {
		clients.Go(func() { s.request(ctx, "http://"+addr+s.path) })
	}
	if s.stop > 0 {
		clients.Go(func() { s.stopRepeatedly(ctx, service.Process.Pid) })
	}
	record := exec.Command(tool, "record", "--kernel", "-d", recordFor.String(), "-o", out, "http://"+addr)
	record.Stdout, record.Stderr = os.Stdout, os.Stderr
	return record.Run()
}

// group makes the group of the service, which has the highest weight: other processes of this machine shall not disturb it.
func (s *scenario) group() (g *cpugroup.Group, remove func(), err error) {
	options, removeParent := cpugroup.Options{CPUs: s.quota, Period: s.period, HighWeight: true}, func() {}
	if s.parent > 0 {
		parent, err := cpugroup.New(cpugroup.Options{CPUs: s.parent, Period: s.period, HighWeight: true})
		if err != nil {
			return nil, nil, err
		}
		options.Parent, removeParent = parent, func() { _ = parent.Remove() }
	}
	if g, err = cpugroup.New(options); err != nil {
		removeParent()
		return nil, nil, err
	}
	return g, func() { _ = g.KillAndRemove(); removeParent() }, nil
}

// request sends requests at a rate until the context ends.
func (s *scenario) request(ctx context.Context, url string) {
	client := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for ctx.Err() == nil {
		var body io.Reader
		if s.slow > 0 {
			body = &slowReader{pause: s.slow}
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
		if err != nil {
			return
		}
		if resp, err := client.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// A slowReader has two halves with a pause between them.
type slowReader struct {
	pause time.Duration
	reads int
}

func (r *slowReader) Read(p []byte) (int, error) {
	switch r.reads++; r.reads {
	case 1:
		return copy(p, strings.Repeat("a", 1000)), nil
	case 2:
		time.Sleep(r.pause)
		return copy(p, strings.Repeat("b", 1000)), nil
	}
	return 0, io.EOF
}

func (s *scenario) stopRepeatedly(ctx context.Context, pid int) {
	time.Sleep(1500 * time.Millisecond)
	for range 5 {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		time.Sleep(s.stop)
		_ = syscall.Kill(pid, syscall.SIGCONT)
		select {
		case <-ctx.Done():
			return
		case <-time.After(450 * time.Millisecond):
		}
	}
}
