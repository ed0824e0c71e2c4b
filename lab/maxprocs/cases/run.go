//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/whylate/whylate/lab/vm/check"
)

// A scene is the groups of one way in one run, the innermost first.
type scene struct {
	e      *check.Env
	levels []*check.Group

	mu  sync.Mutex
	err error // of a change while it runs
}

// runOnce runs a case once each way: at the same time, or in an order that turn
// says.
func runOnce(ctx context.Context, e *check.Env, c testCase, scale float64, turn int) (round, error) {
	errs := make([]error, len(arms))
	r := round{}
	for _, arm := range arms {
		r[arm] = &result{}
	}
	told := check.RunOne(e, check.Check{Name: c.name, Run: func(e *check.Env, t *check.T) {
		if !c.together() {
			for i := range arms {
				arm := (i + turn) % len(arms)
				if errs[arm] = try(ctx, e, t, c, arm, scale, r[arms[arm]]); errs[arm] != nil {
					return
				}
			}
			return
		}
		var wg sync.WaitGroup
		scenes := make([]*scene, len(arms))
		for i := range arms {
			scenes[i] = newScene(e, t, c)
		}
		for i, arm := range arms {
			wg.Go(func() { errs[i] = tryIn(ctx, scenes[i], c, i, scale, r[arm]) })
		}
		wg.Wait()
	}})
	if told.Failed {
		return nil, errors.New(strings.Join(told.Log, "; "))
	}
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", arms[i], err)
		}
	}
	return r, nil
}

func try(ctx context.Context, e *check.Env, t *check.T, c testCase, arm int, scale float64, o *result) error {
	return tryIn(ctx, newScene(e, t, c), c, arm, scale, o)
}

func newScene(e *check.Env, t *check.T, c testCase) *scene {
	s := &scene{e: e}
	g := e.Group(t)
	n := max(1, len(c.quotas), len(c.memory), len(c.high))
	s.levels = []*check.Group{g}
	for i := range n - 1 {
		g = g.Sub(t, "level"+strconv.Itoa(i))
		s.levels = append([]*check.Group{g}, s.levels...)
	}
	if !c.together() && c.neighbours == 0 {
		// The largest weight at each level, so that the machine's neighbours
		// disturb less.
		for _, g := range s.levels {
			if e.V2("cpu") {
				g.Set(t, "cpu", "cpu.weight", "10000")
			} else {
				g.Set(t, "cpu", "cpu.shares", "262144")
			}
		}
	}
	// The kernel refuses an inner v1 quota above an outer one: the outermost
	// first.
	for i := len(c.quotas) - 1; i >= 0; i-- {
		s.quota(i, c.quotas[i])
	}
	for i := len(c.memory) - 1; i >= 0; i-- {
		s.memory(i, c.memory[i])
	}
	for i, high := range c.high {
		if high > 0 {
			s.write(i, "memory", "memory.high", strconv.FormatInt(high<<20, 10))
		}
	}
	if c.cpuset {
		s.cpus("0")
	}
	for _, f := range c.files(e) {
		if f.blind {
			if err := os.Chmod(filepath.Join(s.levels[0].Dir(f.controller), f.name), 0); err != nil {
				s.fail(err)
			}
		}
	}
	if s.err != nil {
		t.Fatalf("%v", s.err)
	}
	if c.neighbours > 0 {
		s.neighbours(t, c.neighbours)
	}
	return s
}

func (s *scene) fail(err error) {
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.err = errors.Join(s.err, err)
	}
}

func (s *scene) write(level int, controller, file, value string) {
	s.fail(os.WriteFile(filepath.Join(s.levels[level].Dir(controller), file), []byte(value), 0))
}

// quota sets a quota of so many CPUs; 0 is none.
func (s *scene) quota(level int, cpus float64) {
	q := strconv.Itoa(int(cpus * 100000))
	if s.e.V2("cpu") {
		if cpus == 0 {
			q = "max"
		}
		s.write(level, "cpu", "cpu.max", q+" 100000")
		return
	}
	if cpus == 0 {
		q = "-1"
	}
	s.write(level, "cpu", "cpu.cfs_quota_us", q)
}

func (s *scene) memoryFile() string {
	if s.e.V2("memory") {
		return "memory.max"
	}
	return "memory.limit_in_bytes"
}

// memory sets a limit in MiB; 0 is none.
func (s *scene) memory(level int, mib int64) {
	if mib > 0 {
		s.write(level, "memory", s.memoryFile(), strconv.FormatInt(mib<<20, 10))
	}
}

// lower lowers the own limit as a container engine does (runc, and so the
// kubelet): it looks first, and puts the change off while more is in use.
func (s *scene) lower(mib int64) {
	usage := "memory.usage_in_bytes"
	if s.e.V2("memory") {
		usage = "memory.current"
	}
	for range 100 {
		b, err := os.ReadFile(filepath.Join(s.levels[0].Dir("memory"), usage))
		if err != nil {
			return // it has ended
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n < mib<<20 {
			s.memory(0, mib)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// force lowers the own limit whatever is in use, as systemctl does; v1 refuses
// what it cannot reach.
func (s *scene) force(mib int64) {
	_ = os.WriteFile(filepath.Join(s.levels[0].Dir("memory"), s.memoryFile()), []byte(strconv.FormatInt(mib<<20, 10)), 0)
}

func (s *scene) cpus(list string) { s.write(0, "cpuset", "cpuset.cpus", list) }

// neighbours runs so many busy threads in a group of equal weight.
func (s *scene) neighbours(t *check.T, n int) {
	g := s.e.Group(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatalf("%v", err)
	}
	l := load{Dirs: g.Dirs(), Mounts: s.e.Mounts()}
	cmd := exec.Command(exe)
	cmd.Env = append(without(os.Environ(), "GOMAXPROCS"), roleVariable+"=join:spin", loadVariable+"="+l.text(), "GOMAXPROCS="+strconv.Itoa(n))
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting neighbours: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// try runs one case one way.
func tryIn(ctx context.Context, s *scene, c testCase, arm int, scale float64, o *result) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	l := c.load
	l.Length = time.Duration(c.seconds() * scale * float64(time.Second))
	l.Dirs, l.Mounts, l.How, l.CPUs = s.levels[0].Dirs(), s.e.Mounts(), c.how, c.cpus
	for _, f := range c.files(s.e) {
		name := filepath.Join(s.levels[0].Dir(f.controller), f.name)
		if f.blind {
			l.Blind = true
		} else {
			l.Over = append(l.Over, over{name, f.text})
		}
	}
	if disk := fmt.Sprint("/dev/ram", arm); l.File > 0 {
		if _, err := os.Stat(disk); err == nil {
			l.Disk = disk
		}
	}
	// A service that cannot end is as dead as one that was killed. The machine may
	// be stopped for a minute, though, by who owns it.
	limit, cancel := context.WithTimeout(ctx, 4*l.Length+3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(limit, exe)
	cmd.Env = append(without(os.Environ(), "GOGC", "GOMEMLIMIT", "GOMAXPROCS"), roleVariable+"=join:"+arms[arm], loadVariable+"="+l.text())
	cmd.Env = append(cmd.Env, c.env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		return err
	}
	changed := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(changed)
		if c.change == nil {
			return
		}
		select {
		case <-stop:
		case <-time.After(l.Length / 4):
			c.change(s)
		}
	}()
	err = cmd.Wait()
	close(stop)
	<-changed
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if e, ok := err.(*exec.ExitError); ok {
		if w, ok := e.Sys().(syscall.WaitStatus); ok && w.Signaled() && w.Signal() == syscall.SIGKILL {
			o.Killed = true
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, errs.Bytes())
	}
	if s.err != nil {
		return s.err
	}
	if err := json.Unmarshal(out.Bytes(), &o.answer); err != nil {
		return fmt.Errorf("the service said %q: %w", out.Bytes(), err)
	}
	o.High, o.Stall = s.slowed()
	return nil
}

// slowed is how often the kernel slowed the group down at memory.high, and the
// microseconds for which some of it waited for memory.
func (s *scene) slowed() (high, stall int64) {
	read := func(name, before string) (n int64) {
		b, _ := os.ReadFile(filepath.Join(s.levels[0].Dir("memory"), name))
		_, rest, _ := strings.Cut(string(b), before)
		_, _ = fmt.Sscan(rest, &n)
		return n
	}
	return read("memory.events", "high "), read("memory.pressure", "total=")
}

// enter is the first life of a service: it goes to its place and becomes the
// service by exec, because the runtime looks for its limits when it starts.
func enter(l *load, role string) error {
	runtime.LockOSThread() // namespaces and affinity are a thread's
	if err := check.Enter(l.How, l.Mounts, l.Dirs); err != nil {
		return err
	}
	if len(l.Over) > 0 {
		if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
			return err
		}
		if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			return err
		}
	}
	for _, o := range l.Over {
		f, err := os.CreateTemp("", "whylate-cases-")
		if err != nil {
			return err
		}
		if _, err := f.WriteString(o.Text); err != nil {
			return err
		}
		err = syscall.Mount(f.Name(), o.File, "", syscall.MS_BIND, "")
		if err := errors.Join(err, f.Close(), os.Remove(f.Name())); err != nil {
			return fmt.Errorf("covering %s: %w", o.File, err)
		}
	}
	if l.CPUs > 0 {
		var mask [16]uint64
		for i := range l.CPUs {
			mask[0] |= 1 << i
		}
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(mask), uintptr(unsafe.Pointer(&mask))); errno != 0 {
			return errno
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if l.Blind {
		// Root may read any file by these two (capabilities(7)): without them in
		// the bounding set an exec does not give them back.
		const drop, dacOverride, dacReadSearch = 24, 1, 2
		for _, c := range []uintptr{dacOverride, dacReadSearch} {
			if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, drop, c, 0); errno != 0 {
				return errno
			}
		}
	}
	return syscall.Exec(exe, []string{exe}, append(without(os.Environ(), roleVariable), roleVariable+"="+role))
}

// without leaves variables out of an environment: the libraries take an empty
// one for a decision by hand.
func without(env []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(names, name)
	})
}

// loadModule puts a module into the kernel.
func loadModule(name, parameters string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := syscall.BytePtrFromString(parameters)
	if err != nil {
		return err
	}
	const finitModule = 313 // x86-64, which the machines are
	if _, _, errno := syscall.Syscall(finitModule, f.Fd(), uintptr(unsafe.Pointer(text)), 0); errno != 0 {
		return errno
	}
	return nil
}
