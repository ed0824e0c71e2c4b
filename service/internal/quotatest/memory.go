//go:build linux

package quotatest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/whylate/whylate/service/internal/must"
)

// NewMemory makes a group with a hard memory limit in bytes and no swap, below
// the root of the memory controller's hierarchy. It skips the test, saying why,
// where that is not possible.
func NewMemory(t testing.TB, limit int64) *Group {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making a cgroup needs root")
	}
	mount, v2, err := findMount("memory")
	if err != nil {
		t.Skipf("no memory controller to make a group in: %v", err)
	}
	if v2 {
		if err := enable(mount, "memory"); err != nil {
			t.Skipf("cannot enable the memory controller: %v", err)
		}
	}
	g := makeGroup(t, mount, v2)
	file, swap, swapLimit := "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", strconv.FormatInt(limit, 10)
	if v2 {
		file, swap, swapLimit = "memory.max", "memory.swap.max", "0"
	}
	if err := os.WriteFile(filepath.Join(g.Dir, file), strconv.AppendInt(nil, limit, 10), 0); err != nil {
		t.Skipf("cannot set a memory limit: %v", err)
	}
	_ = os.WriteFile(filepath.Join(g.Dir, swap), []byte(swapLimit), 0) // a machine without swap has no such file
	return g
}

// Kills reads how many processes of the group the kernel killed for want of
// memory.
func (g *Group) Kills(t testing.TB) int {
	t.Helper()
	file := "memory.oom_control"
	if g.v2 {
		file = "memory.events"
	}
	b := must.Have(os.ReadFile(filepath.Join(g.Dir, file)))(t)
	for line := range bytes.Lines(b) {
		if v, ok := strings.CutPrefix(string(line), "oom_kill "); ok {
			return must.Have(strconv.Atoi(strings.TrimSpace(v)))(t)
		}
	}
	t.Skip("this kernel does not count kills")
	return 0
}

// Killed reports whether a command that ended was killed by SIGKILL, as the
// kernel does to a process that does not fit its group's memory.
func Killed(err error) bool {
	e, ok := err.(*exec.ExitError)
	if !ok {
		return false
	}
	w, ok := e.Sys().(syscall.WaitStatus)
	return ok && w.Signaled() && w.Signal() == syscall.SIGKILL
}
