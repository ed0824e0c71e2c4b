package cpugroup

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Group is a cgroup of the cpu controller. With v1 it includes cgroups of other controllers.
type Group struct {
	Dir       string
	v2        bool
	otherDirs []string // v1: its directories for memory and CPU time
	file      *os.File // Dir, opened by the first Attach
}

// Options configure a new Group.
type Options struct {
	Parent *Group        // nil: the root of the hierarchy with the cpu controller
	CPUs   float64       // the quota; 0: none
	Period time.Duration // of the quota; 0: 100 ms
	// HighWeight gives the group the highest weight within its quota, so that other processes disturb a
	// measurement less.
	HighWeight bool
	// Memory limits memory and swap together, in bytes; 0: no limit.
	Memory int64
	// CountUsage counts CPU time, for which v1 has a separate controller.
	CountUsage bool
	// Owner is the prefix of the group's name, by which RemoveOrphaned finds it; empty: it never does.
	Owner string
}

// New creates a group. The caller removes it once its processes have ended.
func New(o Options) (*Group, error) {
	parent := o.Parent
	if parent == nil {
		dir, v2, err := findMount("cpu")
		if err != nil {
			return nil, err
		}
		parent = &Group{Dir: dir, v2: v2}
	}
	if parent.v2 {
		controllers := "+cpu"
		if o.Memory > 0 {
			controllers += " +memory"
		}
		if err := parent.writeFile("cgroup.subtree_control", controllers); err != nil {
			return nil, fmt.Errorf("enabling the controllers %s in %s, which must not contain a process itself: %w", controllers, parent.Dir, err)
		}
	}
	name := "whylate-lab-"
	if o.Owner != "" {
		name = namePrefix(o.Owner)
	}
	dir, err := os.MkdirTemp(parent.Dir, name)
	if err != nil {
		return nil, fmt.Errorf("making a cgroup (root is needed, or a cgroup that is delegated to this user): %w", err)
	}
	g := &Group{Dir: dir, v2: parent.v2}
	if err := g.applyLimits(o); err != nil {
		return nil, errors.Join(err, g.Remove())
	}
	return g, nil
}

// applyLimits sets the group's CPU quota, weight and memory limit, and the counting of its CPU time, as far as the options have
// them. A kernel without weights is no error.
func (g *Group) applyLimits(o Options) error {
	if o.CPUs > 0 {
		o.Period = cmp.Or(o.Period, 100*time.Millisecond)
		period := o.Period.Microseconds()
		quota := int(o.CPUs * float64(period))
		var err error
		if g.v2 {
			err = g.writeFile("cpu.max", fmt.Sprintf("%d %d", quota, period))
		} else {
			err = errors.Join(g.writeFile("cpu.cfs_period_us", strconv.FormatInt(period, 10)), g.writeFile("cpu.cfs_quota_us", strconv.Itoa(quota)))
		}
		if err != nil {
			return fmt.Errorf("setting a quota of %v CPUs: %w", o.CPUs, err)
		}
	}
	if o.HighWeight {
		file, weight := "cpu.shares", "262144"
		if g.v2 {
			file, weight = "cpu.weight", "10000"
		}
		_ = g.writeFile(file, weight) // weights are optional: a kernel may lack them
	}
	if !g.v2 && o.CountUsage {
		if _, err := g.makeControllerDir("cpuacct"); err != nil {
			return err
		}
	}
	if o.Memory > 0 {
		limit := strconv.FormatInt(o.Memory, 10)
		var err error
		if g.v2 {
			if err = g.writeFile("memory.max", limit); err == nil {
				_ = g.writeFile("memory.swap.max", "0") // a kernel without swap has no such file
			}
		} else {
			var dir string
			if dir, err = g.makeControllerDir("memory"); err == nil {
				if err = writeDirFile(dir, "memory.limit_in_bytes", limit); err == nil {
					_ = writeDirFile(dir, "memory.memsw.limit_in_bytes", limit)
				}
			}
		}
		if err != nil {
			return fmt.Errorf("setting a memory limit of %d bytes: %w", o.Memory, err)
		}
	}
	return nil
}

// makeControllerDir creates the group's directory in the v1 hierarchy of another controller. That
// hierarchy may be the cpu controller's.
func (g *Group) makeControllerDir(controller string) (string, error) {
	mount, v2, err := findMount(controller)
	if err != nil || v2 {
		return "", errors.Join(fmt.Errorf("there is no v1 hierarchy with the %s controller", controller), err)
	}
	if link, err := os.Stat(filepath.Join(mount, filepath.Base(g.Dir))); err == nil && link.IsDir() {
		return filepath.Join(mount, filepath.Base(g.Dir)), nil
	}
	dir := filepath.Join(mount, filepath.Base(g.Dir))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("making a cgroup of the %s controller: %w", controller, err)
	}
	g.otherDirs = append(g.otherDirs, dir)
	return dir, nil
}

// OpenDir returns an existing cgroup, to use as Options.Parent.
func OpenDir(dir string) (*Group, error) {
	if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil {
		return nil, fmt.Errorf("%s is not a cgroup: %w", dir, err)
	}
	_, err := os.Stat(filepath.Join(dir, "cgroup.controllers"))
	return &Group{Dir: dir, v2: err == nil}, nil
}

// Dirs returns the group's directories, which another process can pass to Open.
func (g *Group) Dirs() []string { return append([]string{g.Dir}, g.otherDirs...) }

// Open returns a group that another process has created, by its directories: first that of the cpu controller.
func Open(dirs []string) (*Group, error) {
	if len(dirs) == 0 {
		return nil, errors.New("a cgroup needs a directory")
	}
	g, err := OpenDir(dirs[0])
	if err != nil {
		return nil, err
	}
	g.otherDirs = dirs[1:]
	return g, nil
}

func (g *Group) writeFile(file, text string) error { return writeDirFile(g.Dir, file, text) }

func writeDirFile(dir, file, text string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0)
}

// Attach changes a command so that it runs in the group from its first instruction. The command must
// be started before the group is removed. With v2 the kernel starts it there; with v1 a shell joins
// the group and then executes the command.
func (g *Group) Attach(cmd *exec.Cmd) {
	if g.v2 {
		if g.file == nil {
			g.file, _ = os.Open(g.Dir) // after an error the start fails
		}
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = new(syscall.SysProcAttr)
		}
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(g.file.Fd())
		return
	}
	script, dirs := "", g.Dirs()
	for range dirs {
		script += `echo $$ > "$1/cgroup.procs" && shift && `
	}
	cmd.Args = slices.Concat([]string{"sh", "-c", script + `exec "$@"`, "sh"}, dirs, []string{cmd.Path}, cmd.Args[1:])
	cmd.Path = "/bin/sh"
}

// Remove removes the group. It tries for a second, because the kernel may release ended processes
// late.
func (g *Group) Remove() error {
	return g.remove(func() error { return nil })
}

// KillAndRemove kills all processes in the group and removes it. It also handles a process that is
// joining while the group looks empty: with v1 joining takes milliseconds, during which removing
// fails.
func (g *Group) KillAndRemove() error { return g.remove(g.Kill) }

// remove removes the group's directories. It tries up to 50 times within about a second, and calls prepare before each try; an
// error of prepare ends it.
func (g *Group) remove(prepare func() error) (err error) {
	g.file.Close()
	for i := range 50 {
		time.Sleep(time.Duration(i) * time.Millisecond)
		if err = prepare(); err != nil {
			return err
		}
		for _, dir := range g.Dirs() {
			if e := os.Remove(dir); e != nil && !errors.Is(e, os.ErrNotExist) {
				err = errors.Join(err, fmt.Errorf("removing a cgroup: %w", e))
			}
		}
		if err == nil {
			break
		}
	}
	return err
}

// PIDs returns the processes in the group, each once; nil if there are none or they cannot be read.
func (g *Group) PIDs() []int {
	var pids []int
	for _, dir := range g.Dirs() {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue
		}
		for _, f := range bytes.Fields(b) {
			if pid, err := strconv.Atoi(string(f)); err == nil && pid > 0 && !slices.Contains(pids, pid) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// Kill kills all processes in the group, including those that start during the call. It fails after
// two seconds.
func (g *Group) Kill() error {
	_ = g.writeFile("cgroup.kill", "1") // v2, Linux 5.14
	for i := range 100 {
		pids := g.PIDs()
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(time.Duration(min(i, 20)) * time.Millisecond)
	}
	return fmt.Errorf("killing the processes %v in %s: they do not end", g.PIDs(), g.Dir)
}

// findMount returns the directory of the hierarchy of a controller; v2 says of which version it is. It prefers v1, because v2 lacks a controller that
// is mounted with v1.
func findMount(controller string) (dir string, v2 bool, err error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", false, err
	}
	for line := range bytes.Lines(b) {
		before, after, _ := strings.Cut(string(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		switch {
		case len(f) < 5 || len(g) < 3:
		case g[0] == "cgroup" && strings.Contains(","+g[2]+",", ","+controller+","):
			return f[4], false, nil
		case g[0] == "cgroup2":
			if c, err := os.ReadFile(filepath.Join(f[4], "cgroup.controllers")); err == nil && strings.Contains(" "+strings.TrimSpace(string(c))+" ", " "+controller+" ") {
				dir, v2 = f[4], true
			}
		}
	}
	if dir == "" {
		return "", false, fmt.Errorf("no hierarchy with the %s controller is mounted", controller)
	}
	return dir, v2, nil
}
