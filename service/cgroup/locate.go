package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Version is the cgroup version of a hierarchy.
type Version int

const (
	// VersionNone: the controller is on no hierarchy that can be seen.
	VersionNone Version = iota
	V1
	V2
)

func (v Version) String() string {
	switch v {
	case V1:
		return "v1"
	case V2:
		return "v2"
	}
	return "none"
}

// MarshalText makes the version readable in JSON.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (v *Version) UnmarshalText(b []byte) error {
	for _, w := range []Version{VersionNone, V1, V2} {
		if string(b) == w.String() {
			*v = w
			return nil
		}
	}
	return fmt.Errorf("cgroup version %q: want v1, v2 or none", clip(string(b)))
}

// Options select the process whose limits are read, and the file system.
type Options struct {
	// PID is the process; 0 is this one. Another process's groups are looked
	// for in this process's own mounts first (which usually show more
	// ancestors), then through /proc/PID/root, which needs the right to
	// ptrace it.
	PID int
	// Inside uses the other process's mounts only, so that the result contains
	// the limits that this process can see.
	Inside bool
	// FS replaces the machine's root directory in tests; nil is the real one.
	FS fs.FS

	root string // tests: prefix of every name of the real file system
}

// Hierarchy has the location of one controller's files for the process.
type Hierarchy struct {
	Controller string  `json:"controller"`
	Version    Version `json:"version"`
	// Group is the process's group as /proc/PID/cgroup names it.
	Group string `json:"group,omitempty"`
	// MountPoint and MountRoot are the mount that was chosen: the directory,
	// and the group that it shows.
	MountPoint string `json:"mount_point,omitempty"`
	MountRoot  string `json:"mount_root,omitempty"`
	// Hidden reports that groups exist above the outermost visible one.
	Hidden bool `json:"hidden"`

	levels []Level
	files  []limitFile // one for each level
	// problem is the kind of reason if there are no levels, and reason its text.
	problem Sight
	reason  string
}

// A Level is one group on the path from the process's own group to the root.
type Level struct {
	// Depth is 0 for the process's own group, 1 for its parent, and so on.
	Depth int `json:"depth"`
	// Group is its path in the hierarchy, as /proc/PID/cgroup would name it.
	Group string `json:"group"`
	// Dir is the directory that shows it.
	Dir string `json:"dir"`
}

// maxLevels bounds how far up a path is walked. Real hierarchies have fewer
// than ten levels; a path of 4096 bytes could have 2048.
const maxLevels = 256

// A finder has the contents of /proc for one process.
type finder struct {
	src     source
	proc    string // /proc/self or /proc/PID
	members []membership
	notes   []string
	views   []view
}

// A view is a set of mounts with the directory under which their mount
// points are found.
type view struct {
	prefix string
	mounts []mount
}

// newFinder reads the process's groups and the mounts in which they may be visible.
func newFinder(opts Options) (*finder, error) {
	f := &finder{proc: "/proc/self"}
	if opts.PID < 0 {
		return nil, fmt.Errorf("cgroup limits of process %d: a process id is positive", opts.PID)
	}
	if opts.PID > 0 {
		f.proc = "/proc/" + strconv.Itoa(opts.PID)
	}
	src, err := opts.source()
	if err != nil {
		return nil, err
	}
	f.src = src
	b, err := readFile(f.src, f.proc+"/cgroup", maxSmall)
	if err != nil {
		if opts.PID > 0 && errors.Is(err, fs.ErrNotExist) && f.src.isDir("/proc/self") {
			return nil, fmt.Errorf("cgroup limits of process %d: no such process, or no cgroups in this kernel: %w", opts.PID, err)
		}
		return nil, fmt.Errorf("cgroup limits: %w: %w", ErrNotMeasurable, err)
	}
	var bad int
	f.members, bad = parseMembership(b)
	if bad > 0 {
		f.addNote("%s/cgroup: %d lines are not in the kernel's format and were skipped", f.proc, bad)
	}
	for _, m := range f.members {
		if m.deleted {
			f.addNote("group %s was removed while the process is in it", clip(m.path))
			break
		}
	}
	if len(f.members) == 0 {
		return nil, fmt.Errorf("cgroup limits: %w: %s/cgroup names no group", ErrNotMeasurable, f.proc)
	}
	if opts.PID == 0 || !opts.Inside {
		f.addView("", "/proc/self/mountinfo")
	}
	if opts.PID > 0 {
		f.addView(f.proc+"/root", f.proc+"/mountinfo")
	}
	if len(f.views) == 0 {
		return nil, fmt.Errorf("cgroup limits: %w: %s", ErrNotMeasurable, strings.Join(f.notes, "; "))
	}
	return f, nil
}

// source returns the files to read: those of FS, if that is set, else the machine's.
func (o Options) source() (source, error) {
	if o.FS != nil {
		return fsSource{o.FS}, nil
	}
	return hostSource(o.root)
}

func (f *finder) addNote(format string, args ...any) {
	f.notes = append(f.notes, fmt.Sprintf(format, args...))
}

// addView appends the cgroup mounts in the mountinfo file name to the views; if it cannot be read, only a note. prefix is the directory at which
// their paths begin, as this process sees them.
func (f *finder) addView(prefix, name string) {
	b, err := readFile(f.src, name, maxMountinfo)
	if err != nil {
		f.addNote("mounts: %v", err)
		return
	}
	ms, bad := parseMounts(b)
	if bad > 0 {
		f.addNote("%s: %d lines are not in the kernel's format and were skipped", name, bad)
	}
	f.views = append(f.views, view{prefix: prefix, mounts: ms})
}

// member returns the line of /proc/PID/cgroup for a controller: a v1 hierarchy that names it, else the v2 hierarchy. The kernel never has a
// controller on both. Without either the version is VersionNone.
func (f *finder) member(controller string) (membership, Version) {
	v2Index := -1
	for i, m := range f.members {
		if m.id == 0 && len(m.controllers) == 0 {
			v2Index = i
			continue
		}
		if slices.Contains(m.controllers, controller) {
			return m, V1
		}
	}
	if v2Index >= 0 {
		return f.members[v2Index], V2
	}
	return membership{}, VersionNone
}

// locate finds the directories of a controller's groups, from the process's
// own up to the outermost visible. On failure the hierarchy has no levels
// and a note has the reason.
func (f *finder) locate(controller string) Hierarchy {
	member, version := f.member(controller)
	h := Hierarchy{Controller: controller, Version: version, Group: member.path}
	if version == VersionNone {
		h.problem, h.reason = SightAbsent, fmt.Sprintf("%s/cgroup has no hierarchy with the %s controller", f.proc, controller)
		f.addNote("%s: %s/cgroup has no hierarchy with this controller", controller, f.proc)
		return h
	}

	// Of all mounts that show the group, take the one that shows the most
	// ancestors; of equals the last one, which covers the others.
	type candidate struct {
		mount  mount
		point  string
		rel    string // path below the mount root, without a leading slash
		exists bool   // the process's own directory is there
	}
	var best *candidate
	var found int
	covered := ""
	for _, vw := range f.views {
		for _, mt := range vw.mounts {
			if mt.version != version || version == V1 && !slices.Contains(mt.controllers, controller) {
				continue
			}
			found++
			rel, ok := relativeTo(member.path, mt.root)
			if !ok {
				continue
			}
			c := candidate{mount: mt, point: vw.prefix + mt.point, rel: rel}
			c.exists = f.isGroup(path.Join(c.point, rel), version)
			if !c.exists && !f.isGroup(c.point, version) {
				covered = c.point
				continue // unmounted since, hidden by another mount, or not ours to see
			}
			switch {
			case best == nil,
				c.exists && !best.exists,
				c.exists == best.exists && len(mt.root) <= len(best.mount.root):
				best = &c
			}
		}
		if best != nil && best.exists {
			break // the reader's own view shows at least as much
		}
	}
	if best == nil {
		h.Hidden = true
		note := fmt.Sprintf("none of the %d mounts of cgroup %v shows group %s", found, version, clip(member.path))
		switch {
		case covered != "":
			h.problem, h.reason = SightCovered, fmt.Sprintf("cgroup %v is mounted at %s, but its directory there is covered by another mount", version, clip(covered))
		case found == 0:
			h.problem, h.reason = SightUnmounted, fmt.Sprintf("no cgroup %v hierarchy with the %s controller is mounted here", version, controller)
			note = fmt.Sprintf("the controller is on cgroup %v, and no such hierarchy is mounted here", version)
		default:
			h.problem, h.reason = SightUnmounted, fmt.Sprintf("none of the mounts of cgroup %v shows group %s", version, clip(member.path))
		}
		f.addNote("%s: %s", controller, note)
		return h
	}
	h.MountPoint, h.MountRoot = best.point, best.mount.root
	h.addLevels(f, best.rel)
	h.Hidden = f.isHidden(&h)
	return h
}

// runtimeDir returns the directory in which the Go runtime looks for the process's own quota: that of the first line in mountinfo whose mount can
// hold the group, whether or not a later mount covers it (internal/runtime/cgroup in the Go tree). It is "" if the runtime has no such directory.
func (f *finder) runtimeDir() string {
	m, v := f.member("cpu")
	if v == VersionNone {
		return ""
	}
	vw := f.views[len(f.views)-1] // the process's own view
	for _, mt := range vw.mounts {
		if mt.version != v || v == V1 && !slices.Contains(mt.controllers, "cpu") {
			continue
		}
		if rel, ok := relativeTo(m.path, mt.root); ok {
			return path.Join(vw.prefix+mt.point, rel)
		}
	}
	return ""
}

// addLevels lists the levels from the group rel below the mount up to the mount's
// root, leaving out those whose directory does not exist.
func (h *Hierarchy) addLevels(f *finder, rel string) {
	var missing int
	for depth := 0; ; depth++ {
		if depth == maxLevels {
			f.addNote("%s: only the %d innermost groups of %s were read", h.Controller, maxLevels, clip(h.Group))
			break
		}
		// Not path.Join: a root above the namespace keeps its "/..".
		group := strings.TrimSuffix(h.MountRoot, "/")
		if rel != "" || group == "" {
			group += "/" + rel
		}
		l := Level{Depth: depth, Group: group, Dir: path.Join(h.MountPoint, rel)}
		if f.src.isDir(l.Dir) {
			h.levels = append(h.levels, l)
		} else {
			missing++
		}
		if rel == "" {
			break
		}
		rel = rel[:max(0, strings.LastIndexByte(rel, '/'))]
	}
	if missing > 0 {
		f.addNote("%s: the %d innermost groups of %s are not visible under %s; only their ancestors were read", h.Controller, missing, clip(h.Group), clip(h.MountPoint))
	}
}

// isGroup reports whether dir is a group's directory, not a mount point that
// another mount covers.
func (f *finder) isGroup(dir string, v Version) bool {
	names := []string{"cgroup.procs", "cgroup.controllers"}
	if v == V1 {
		names[1] = "tasks"
	}
	return slices.ContainsFunc(names, func(n string) bool { return f.exists(path.Join(dir, n)) })
}

// isHidden reports whether groups exist above the outermost visible one. The
// kernel gives the real root files that no other group has, and denies it
// others: v1 release_agent only at the root; v2
// cgroup.events and, since Linux 4.14, cgroup.type everywhere but there.
func (f *finder) isHidden(h *Hierarchy) bool {
	if h.MountRoot != "/" || len(h.levels) == 0 {
		return true
	}
	top := h.levels[len(h.levels)-1].Dir
	if h.Version == V2 {
		return f.exists(path.Join(top, "cgroup.type")) || f.exists(path.Join(top, "cgroup.events"))
	}
	return !f.exists(path.Join(top, "release_agent"))
}

// exists reports whether name is a regular file, also one that this process may not open.
func (f *finder) exists(name string) bool {
	h, err := f.src.open(name)
	if err == nil {
		h.close()
		return true
	}
	return errors.Is(err, fs.ErrPermission)
}

// relativeTo returns group's path relative to root, both as the kernel shows them to this process. A root or group above the cgroup namespace begins
// with "/..": then they match only name by name. ok is false if group is not root and not below it.
func relativeTo(group, root string) (rel string, ok bool) {
	group, root = strings.TrimRight(group, "/"), strings.TrimRight(root, "/")
	if group == root {
		return "", true
	}
	if rel, ok = strings.CutPrefix(group, root+"/"); !ok {
		return "", false
	}
	isDot := func(name string) bool { return name == ".." || name == "." || name == "" }
	return rel, !slices.ContainsFunc(strings.Split(rel, "/"), isDot)
}
