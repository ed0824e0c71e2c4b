package cpugroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// namePrefix makes the beginning of a name that says which process it belongs to: pids are used again, but not at the
// same time of the machine's life.
func namePrefix(owner string) string {
	return fmt.Sprintf("%s-%d-%d-", owner, os.Getpid(), startTicks(os.Getpid()))
}

// startTicks returns when a process started, in clock ticks since boot, 0 if there is none.
func startTicks(pid int) int64 {
	p, ok := ReadProcess(pid)
	if !ok || p.State() == "Z" {
		return 0
	}
	return p.Field(22)
}

// RemoveOrphaned removes groups of an owner whose process is gone, and kills what still runs in them. It returns how many
// there were. above is where they are, as in Options.
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
