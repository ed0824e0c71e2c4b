package check

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Env is the machine that checks run on.
type Env struct {
	// Layout is v1, v2 or hybrid; Kernel is its release.
	Layout, Kernel string
	// Self is the path of the guest program, which is also every child.
	Self string

	mounts map[string]hierarchy // by controller
	serial int
}

type hierarchy struct {
	dir string
	v2  bool
}

// Controllers that checks make groups for.
var controllers = [...]string{"cpu", "cpuacct", "cpuset", "memory"}

// NewEnv finds the mounted hierarchies. It parses mountinfo without escapes, because the machine's own mounts have ordinary
// names.
func NewEnv(self string) (*Env, error) {
	e := &Env{Self: self, mounts: map[string]hierarchy{}}
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return nil, err
	}
	e.Kernel = strings.TrimSpace(string(b))
	mi, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var v1, v2 bool
	for line := range strings.Lines(string(mi)) {
		head, tail, ok := strings.Cut(strings.TrimSpace(line), " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if !ok || len(h) < 5 || len(t) < 3 {
			continue
		}
		switch t[0] {
		case "cgroup":
			v1 = true
			for _, c := range controllers {
				if slices.Contains(strings.Split(t[2], ","), c) {
					e.mounts[c] = hierarchy{dir: h[4]}
				}
			}
		case "cgroup2":
			v2 = true
			list, err := os.ReadFile(filepath.Join(h[4], "cgroup.controllers"))
			if err != nil {
				return nil, err
			}
			for _, c := range strings.Fields(string(list)) {
				if slices.Contains(controllers[:], c) {
					e.mounts[c] = hierarchy{dir: h[4], v2: true}
				}
			}
		}
	}
	switch {
	case v1 && v2:
		e.Layout = "hybrid"
	case v1:
		e.Layout = "v1"
	case v2:
		e.Layout = "v2"
	default:
		return nil, errors.New("no cgroup hierarchy is mounted")
	}
	return e, nil
}

// HasController reports whether a controller can be used.
func (e *Env) HasController(controller string) bool {
	_, ok := e.mounts[controller]
	return ok
}

// V2 reports whether a controller is on the v2 hierarchy.
func (e *Env) V2(controller string) bool { return e.mounts[controller].v2 }

// HasLocal reports whether the kernel counts throttling by ancestors.
func (e *Env) HasLocal(g *Group) bool {
	_, err := os.Stat(filepath.Join(g.dirs["cpu"], "cpu.stat.local"))
	return err == nil
}

// A Group is one group in all hierarchies.
type Group struct {
	env  *Env
	path string
	dirs map[string]string // by controller
}

// Group makes a fresh top group for a check; it and its children go with the
// check.
func (e *Env) Group(t *T) *Group {
	e.serial++
	g, err := e.group(fmt.Sprintf("whylate-%d-%d", os.Getpid(), e.serial))
	if err != nil {
		t.Fatalf("making a group: %v", err)
	}
	t.Cleanup(func() { g.remove(t) })
	return g
}

// Sub makes a group inside g. Its name may be anything a directory's may.
func (g *Group) Sub(t *T, name string) *Group {
	s, err := g.env.group(g.path + "/" + name)
	if err != nil {
		t.Fatalf("making group %q in %s: %v", name, g.path, err)
	}
	t.Cleanup(func() { s.remove(t) })
	return s
}

func (e *Env) group(path string) (*Group, error) {
	g := &Group{env: e, path: path, dirs: map[string]string{}}
	for c, h := range e.mounts {
		dir := filepath.Join(h.dir, path)
		g.dirs[c] = dir
		if h.v2 {
			// A group has a controller's files only if its parent hands the
			// controller down.
			parent := filepath.Dir(dir)
			if err := write(parent, "cgroup.subtree_control", "+"+c); err != nil {
				return nil, err
			}
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		if c == "cpuset" && !h.v2 {
			// A v1 CPU set begins empty and takes no process until filled.
			for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
				b, err := os.ReadFile(filepath.Join(filepath.Dir(dir), f))
				if err != nil {
					return nil, err
				}
				if err := write(dir, f, strings.TrimSpace(string(b))); err != nil {
					return nil, err
				}
			}
		}
	}
	return g, nil
}

func (g *Group) remove(t *T) {
	for _, dir := range g.dirs {
		// Processes that were killed leave a moment later.
		for i := 0; ; i++ {
			err := os.Remove(dir)
			if err == nil || errors.Is(err, os.ErrNotExist) {
				break
			}
			if i == 100 {
				t.Logf("removing %s: %v", dir, err)
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func write(dir, name, value string) error {
	err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o644)
	if err != nil {
		return fmt.Errorf("writing %q: %w", value, err)
	}
	return nil
}

// Path is the group's path below the hierarchies' roots, without a slash.
func (g *Group) Path() string { return g.path }

// Dir is the group's directory in a controller's hierarchy.
func (g *Group) Dir(controller string) string { return g.dirs[controller] }

// SetCPU gives the group a quota for each period; quota 0 takes it away.
func (g *Group) SetCPU(t *T, quota, period time.Duration) {
	q, p := strconv.FormatInt(quota.Microseconds(), 10), strconv.FormatInt(period.Microseconds(), 10)
	var err error
	if g.env.V2("cpu") {
		if quota == 0 {
			q = "max"
		}
		err = write(g.dirs["cpu"], "cpu.max", q+" "+p)
	} else {
		if quota == 0 {
			q = "-1"
		}
		err = errors.Join(write(g.dirs["cpu"], "cpu.cfs_period_us", p), write(g.dirs["cpu"], "cpu.cfs_quota_us", q))
	}
	if err != nil {
		t.Fatalf("setting the quota of %s: %v", g.path, err)
	}
}

// SetMemory sets the hard memory limit in bytes.
func (g *Group) SetMemory(t *T, n int64) {
	name := "memory.limit_in_bytes"
	if g.env.V2("memory") {
		name = "memory.max"
	}
	g.Set(t, "memory", name, strconv.FormatInt(n, 10))
}

// Set writes a file of a controller.
func (g *Group) Set(t *T, controller, name, value string) {
	if err := write(g.dirs[controller], name, value); err != nil {
		t.Fatalf("setting up %s: %v", g.path, err)
	}
}

// Surroundings are the mounts and namespace in which a child runs.
type Surroundings int

const (
	// Plain: the child has the machine's own mounts.
	Plain Surroundings = iota
	// Namespaced: a cgroup namespace rooted at the child's groups, with the
	// hierarchies mounted again inside, as container engines do by default on
	// v2.
	Namespaced
	// Bound: no cgroup namespace; the child's groups are bind-mounted in
	// place of the hierarchies, as Docker does on v1.
	Bound
	// Covered: as Bound, but the hierarchies stay mounted below, out of reach
	// and still listed in mountinfo.
	Covered
	// Bare: no hierarchy is mounted at all.
	Bare
)

// Child is a process in a group.
type Child struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	err  strings.Builder
}

// message is a line that a child prints.
type message struct {
	Value json.RawMessage `json:"value,omitempty"`
	Err   string          `json:"error,omitempty"`
}

// Start runs a child body inside the group, with extra environment settings
// "K=V" among the arguments' env.
func (g *Group) Start(t *T, surroundings Surroundings, env []string, name string, args ...string) *Child {
	argv := append([]string{"join", strconv.Itoa(int(surroundings))}, g.Dirs()...)
	argv = append(append(argv, "--", name), args...)
	c := &Child{name: name, cmd: exec.Command(g.env.Self, argv...)}
	c.cmd.Env = append(append(os.Environ(), "GOMAXPROCS=", "WHYLATE_MOUNTS="+g.env.Mounts()), env...)
	c.cmd.Env = slices.DeleteFunc(c.cmd.Env, func(s string) bool { return s == "GOMAXPROCS=" })
	c.cmd.Stderr = &c.err
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatalf("starting child %s: %v", name, err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("starting child %s: %v", name, err)
	}
	c.in, c.out = in, bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatalf("starting child %s: %v", name, err)
	}
	t.Cleanup(func() {
		c.in.Close()
		c.cmd.Process.Kill()
		c.cmd.Wait()
	})
	return c
}

// Dirs are the group's directories in all hierarchies, each once.
func (g *Group) Dirs() []string {
	var dirs []string
	for _, c := range controllers {
		if dir := g.dirs[c]; dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Mounts names the hierarchies' mount points, as Enter wants them.
func (e *Env) Mounts() string {
	var list []string
	for _, c := range controllers {
		h, ok := e.mounts[c]
		if !ok {
			continue
		}
		kind := "1:" + c
		if h.v2 {
			kind = "2:"
		}
		list = append(list, kind+":"+h.dir)
	}
	return strings.Join(list, ";")
}

// Receive waits for the child's next message and decodes it into v.
func (c *Child) Receive(t *T, v any) {
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		c.cmd.Wait()
		t.Fatalf("child %s ended without an answer: %v; %s", c.name, err, strings.TrimSpace(c.err.String()))
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		t.Fatalf("child %s: %v in %q", c.name, err, line)
	}
	if m.Err != "" {
		t.Fatalf("child %s: %s", c.name, m.Err)
	}
	if err := json.Unmarshal(m.Value, v); err != nil {
		t.Fatalf("child %s: %v in %s", c.name, err, m.Value)
	}
}

// Send gives the child a line to hear.
func (c *Child) Send(t *T, line string) {
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		t.Fatalf("telling child %s: %v", c.name, err)
	}
}

// Pid is the child's process id.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// ChildIO is the child's end.
type ChildIO struct {
	in  *bufio.Reader
	out *json.Encoder
}

// Say sends a value to the check.
func (c *ChildIO) Say(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.out.Encode(message{Value: b})
}

// Hear waits for a line from the check.
func (c *ChildIO) Hear() (string, error) {
	s, err := c.in.ReadString('\n')
	return strings.TrimSuffix(s, "\n"), err
}

// Join is the first life of a child: it enters the groups, makes the
// surroundings, and becomes the body by exec, so that the Go runtime of the
// body starts inside. args are those that Start made.
func Join(self string, args []string) error {
	if len(args) < 3 {
		return errors.New("join: too few arguments")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	surroundings := Surroundings(n)
	i := slices.Index(args, "--")
	if i < 0 {
		return errors.New("join: no --")
	}
	if err := Enter(surroundings, os.Getenv("WHYLATE_MOUNTS"), args[1:i]); err != nil {
		return err
	}
	return syscall.Exec(self, append([]string{self, "child"}, args[i+1:]...), os.Environ())
}

// Enter moves this process to the groups with these directories and creates the surroundings. mounts is the earlier result of
// Env.Mounts. The namespaces belong to the calling thread, which must be locked and continue with exec.
func Enter(surroundings Surroundings, mounts string, dirs []string) error {
	for _, dir := range dirs {
		if err := write(dir, "cgroup.procs", "0"); err != nil {
			return err
		}
	}
	if surroundings == Plain {
		return nil
	}
	if err := surround(surroundings, mounts, dirs); err != nil {
		return fmt.Errorf("making the surroundings: %w", err)
	}
	return nil
}

// surround makes the mounts of a container. The exec that follows keeps the
// thread's namespaces, because the caller has locked it.
func surround(surroundings Surroundings, mounts string, dirs []string) error {
	flags := syscall.CLONE_NEWNS
	if surroundings == Namespaced {
		flags |= syscall.CLONE_NEWCGROUP
	}
	if err := syscall.Unshare(flags); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	mounted := map[string]bool{}
	for _, m := range strings.Split(mounts, ";") {
		// Version, controller (v1 only), mount point: see Mounts.
		f := strings.SplitN(m, ":", 3)
		if len(f) != 3 {
			return fmt.Errorf("bad mount %q", m)
		}
		point := f[2]
		if mounted[point] {
			continue
		}
		mounted[point] = true
		if surroundings == Bound || surroundings == Covered {
			src := ""
			for _, d := range dirs {
				if strings.HasPrefix(d, point+"/") {
					src = d
				}
			}
			if err := bindOver(src, point, surroundings == Covered); err != nil {
				return fmt.Errorf("binding %s over %s: %w", src, point, err)
			}
			continue
		}
		fstype, data := "cgroup2", ""
		if f[0] == "1" {
			fstype, data = "cgroup", comounted(mounts, point)
		}
		// The kernel refuses a file system on top of itself.
		if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil {
			return fmt.Errorf("unmounting %s: %w", point, err)
		}
		if surroundings == Bare {
			continue
		}
		if err := syscall.Mount("cgroup", point, fstype, 0, data); err != nil {
			return fmt.Errorf("mounting %s %s: %w", fstype, point, err)
		}
	}
	return nil
}

func bindOver(src, point string, cover bool) error {
	if cover {
		return syscall.Mount(src, point, "", syscall.MS_BIND, "")
	}
	tmp, err := os.MkdirTemp("", "whylate-bind-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp)
	if err := syscall.Mount(src, tmp, "", syscall.MS_BIND, ""); err != nil {
		return err
	}
	if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil {
		return err
	}
	return syscall.Mount(tmp, point, "", syscall.MS_MOVE, "")
}

// comounted names all controllers of a mount point: the kernel wants them
// together.
func comounted(mounts, point string) string {
	var cs []string
	for _, m := range strings.Split(mounts, ";") {
		if f := strings.SplitN(m, ":", 3); len(f) == 3 && f[2] == point {
			cs = append(cs, f[1])
		}
	}
	return strings.Join(cs, ",")
}

// RunChild is the second life of a child: its body.
func RunChild(args []string) int {
	c := &ChildIO{in: bufio.NewReader(os.Stdin), out: json.NewEncoder(os.Stdout)}
	if len(args) == 0 {
		c.out.Encode(message{Err: "no child named"})
		return 1
	}
	f, ok := Children()[args[0]]
	if !ok {
		c.out.Encode(message{Err: "no child is called " + args[0]})
		return 1
	}
	v, err := f(c, args[1:])
	if err == nil {
		err = c.Say(v)
	}
	if err != nil {
		c.out.Encode(message{Err: err.Error()})
		return 1
	}
	return 0
}

// Usable returns the reason why the checks cannot run on this machine: they create groups in every hierarchy, and need
// ancestors without limits.
func (e *Env) Usable() error {
	for c, h := range e.mounts {
		// Only the real root lacks cgroup.type (v2), or has release_agent (v1).
		_, err := os.Stat(filepath.Join(h.dir, "cgroup.type"))
		hidden := err == nil
		if !h.v2 {
			_, err = os.Stat(filepath.Join(h.dir, "release_agent"))
			hidden = err != nil
		}
		if hidden {
			return fmt.Errorf("%s: this is a container: groups above it, and their limits, are out of sight", c)
		}
		if h.v2 {
			// A container's root may hold processes, and then hands nothing down.
			if err := write(h.dir, "cgroup.subtree_control", "+"+c); err != nil {
				return err
			}
		}
		dir := filepath.Join(h.dir, fmt.Sprintf("whylate-%d-try", os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		if err := os.Remove(dir); err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
	}
	return nil
}
