package cpugroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// namePrefix returns the prefix of a group's name, which identifies the owning process by pid and
// start time, because pids are reused.
func namePrefix(owner string) string {
	return fmt.Sprintf("%s-%d-%d-", owner, os.Getpid(), startTicks(os.Getpid()))
}

// startTicks returns when a process started, in clock ticks since boot; 0 if it does not exist.
func startTicks(pid int) int64 {
	p, ok := ReadProcess(pid)
	if !ok || p.State() == "Z" {
		return 0
	}
	return p.Field(22)
}

// RemoveOrphaned kills the processes of an owner's groups whose creator has ended, and removes these groups. It returns their
// number. It searches below parent; if that is nil, in the roots of all hierarchies.
func RemoveOrphaned(owner string, parent *Group) (removed int, err error) {
	var mounts []string
	if parent != nil {
		mounts = append(mounts, parent.Dir)
	} else {
		for _, c := range []string{"cpu", "cpuacct", "memory"} {
			if dir, _, err := findMount(c); err == nil && !slices.Contains(mounts, dir) {
				mounts = append(mounts, dir)
			}
		}
	}
	names := map[string]bool{}
	var errs []error
	for _, mount := range mounts {
		dirs, _ := filepath.Glob(filepath.Join(mount, owner+"-*"))
		for _, dir := range dirs {
			var pid int
			var start int64
			if n, _ := fmt.Sscanf(strings.TrimPrefix(filepath.Base(dir), owner+"-"), "%d-%d-", &pid, &start); n < 2 || startTicks(pid) == start {
				continue
			}
			e := (&Group{Dir: dir}).KillAndRemove()
			if e == nil && !names[filepath.Base(dir)] {
				names[filepath.Base(dir)] = true
				removed++
			}
			errs = append(errs, e)
		}
	}
	return removed, errors.Join(errs...)
}
