// Judge says what the runtime and each library make of the machine that it
// finds itself in. Started with "run", it plants machines from txtar files,
// starts itself in each, and does the same in real groups.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/automaxprocs/maxprocs"

	"github.com/whylate/whylate/internal/limits"
	"github.com/whylate/whylate/lab/limitscompare"
	"github.com/whylate/whylate/lab/vm/check"
	"github.com/whylate/whylate/service/cgroup"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		args = []string{"run", "/machines"} // as the program of a virtual machine
	}
	switch args[0] {
	case "observe":
		return json.NewEncoder(os.Stdout).Encode(observe())
	case "join":
		runtime.LockOSThread()
		return check.Join("/proc/self/exe", args[1:])
	case "child":
		b, err := json.Marshal(observe())
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(map[string]json.RawMessage{"value": b}); err != nil {
			return err
		}
		// Stay, to be looked at from outside, until the other end closes.
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	case "run":
		return runAll(args[1])
	}
	return fmt.Errorf("no verb is called %q", args[0])
}

// observe must run in a fresh process: the runtime has decided before main.
func observe() *limitscompare.Observation {
	o := &limitscompare.Observation{NumCPU: runtime.NumCPU(), Go: runtime.GOMAXPROCS(0)}

	// A value that no limit leads to shows whether the library set one.
	const sentinel = 251
	runtime.GOMAXPROCS(sentinel)
	if _, err := maxprocs.Set(); err != nil {
		o.AutomaxprocsErr = err.Error()
	}
	if n := runtime.GOMAXPROCS(0); n != sentinel {
		o.Automaxprocs = n
	}
	runtime.GOMAXPROCS(o.Go)

	if _, err := memlimit.Set(memlimit.WithLogger(slog.New(slog.DiscardHandler))); err != nil {
		o.AutomemlimitErr = err.Error()
	}
	if n := debug.SetMemoryLimit(-1); n != 1<<63-1 {
		o.Automemlimit = n
	}

	l, err := cgroup.Read(cgroup.Options{})
	if err != nil {
		o.OursErr = err.Error()
		return o
	}
	o.Limits = l
	return o
}

func runAll(dir string) error {
	enc := json.NewEncoder(os.Stdout)
	out := func(name string, o *limitscompare.Observation, err error) error {
		r := check.Result{Check: name}
		if err != nil {
			r.Failed, r.Log = true, []string{err.Error()}
		} else if r.Data, err = json.Marshal(o); err != nil {
			return err
		}
		return enc.Encode(r)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return errors.New("no machines in " + dir)
	}
	for _, n := range names {
		o, err := inMachine(n)
		if errors.Is(err, errOtherProcess) {
			continue
		}
		if err := out(strings.TrimSuffix(filepath.Base(n), ".txtar"), o, err); err != nil {
			return err
		}
	}
	if err := inGroups(out); err != nil {
		return err
	}
	return enc.Encode(check.Result{Done: true})
}

var errOtherProcess = errors.New("this machine is about another process")

// inMachine plants a machine and observes from inside it.
func inMachine(name string) (*limitscompare.Observation, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if strings.Contains(string(b), "\nexpect: pid=") {
		return nil, errOtherProcess
	}
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	// In the program's directory, so that it can contain a link to the program.
	root, err := os.MkdirTemp(filepath.Dir(exe), "machine-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(root)
	if err := plant(root, string(b)); err != nil {
		return nil, err
	}
	for _, p := range []string{"judge", "withauto"} {
		if err := os.Link(filepath.Join(filepath.Dir(exe), p), filepath.Join(root, p)); err != nil {
			return nil, err
		}
	}
	// As many CPUs as the machine allows, as far as there are.
	n := limitscompare.MachineCPUs(string(b))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	restore, err := limitCPUs(n)
	if err != nil {
		return nil, err
	}
	defer restore()
	inside := func(argv ...string) ([]byte, error) {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = "/"
		cmd.Env = []string{"WHYLATE_LOG=off"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		return cmd.Output()
	}
	var o limitscompare.Observation
	text, err := inside("/judge", "observe")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	if text, err = inside("/withauto"); err != nil {
		return nil, err
	}
	o.Auto, err = strconv.Atoi(strings.TrimSpace(string(text)))
	return &o, err
}

func plant(root, txtar string) error {
	var f *os.File
	defer func() { f.Close() }()
	for line := range strings.Lines(txtar) {
		if s, ok := strings.CutPrefix(line, "-- "); ok && strings.HasSuffix(s, " --\n") {
			f.Close()
			p := filepath.Join(root, strings.TrimSuffix(s, " --\n"))
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				return err
			}
			var err error
			if f, err = os.Create(p); err != nil {
				return err
			}
			continue
		}
		if f != nil {
			if _, err := f.WriteString(line); err != nil {
				return err
			}
		}
	}
	return nil
}

// limitCPUs binds this thread, and its child processes, to n of its CPUs.
func limitCPUs(n int) (restore func(), err error) {
	var old, set [128]uint64
	call := func(nr uintptr, m *[128]uint64) error {
		if _, _, e := syscall.RawSyscall(nr, 0, unsafe.Sizeof(*m), uintptr(unsafe.Pointer(m))); e != 0 {
			return fmt.Errorf("CPU affinity: %w", e)
		}
		return nil
	}
	if err := call(syscall.SYS_SCHED_GETAFFINITY, &old); err != nil {
		return nil, err
	}
	for i := range set {
		for bit := range 64 {
			if n > 0 && old[i]&(1<<bit) != 0 {
				set[i] |= 1 << bit
				n--
			}
		}
	}
	if err := call(syscall.SYS_SCHED_SETAFFINITY, &set); err != nil {
		return nil, err
	}
	return func() { call(syscall.SYS_SCHED_SETAFFINITY, &old) }, nil
}

// inGroups observes in real groups of the machine it runs on.
func inGroups(out func(string, *limitscompare.Observation, error) error) error {
	e, err := check.NewEnv("/proc/self/exe")
	if err != nil || e.Usable() != nil || !e.HasController("cpu") {
		return nil // nothing to compare in: the test says so
	}
	const period = 100 * time.Millisecond
	for _, surroundings := range []check.Surroundings{check.Plain, check.Namespaced, check.Bound, check.Covered} {
		for _, path := range []string{"own", "parent"} {
			name := fmt.Sprintf("real/%s-quota-%v", path, surroundings)
			o := &limitscompare.Observation{}
			r := check.RunOne(e, check.Check{Name: name, Run: func(e *check.Env, t *check.T) {
				top := e.Group(t)
				leaf := top.Sub(t, "leaf")
				g := leaf
				if path == "parent" {
					g = top
				}
				g.SetCPU(t, 250*time.Millisecond, period)
				if e.HasController("memory") {
					g.SetMemory(t, 512<<20)
				}
				c := leaf.Start(t, surroundings, nil, "observe")
				c.Receive(t, o)
				f, err := limits.Gather(c.Pid())
				if err != nil {
					t.Fatalf("%v", err)
				}
				o.Outside = limits.Judge(f)
			}})
			var err error
			if r.Failed {
				err = errors.New(strings.Join(r.Log, "; "))
			}
			if err := out(name, o, err); err != nil {
				return err
			}
		}
	}
	return nil
}
