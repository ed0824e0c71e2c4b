package cgroup

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/whylate/whylate/service/internal/check"
)

// TestSight tests the outcomes of the search for a limit.
func TestSight(t *testing.T) {
	machine := func(change func(fstest.MapFS)) Options {
		fsys := fstest.MapFS{
			"proc/self/cgroup":               {Data: []byte("0::/pod/app\n")},
			"proc/self/mountinfo":            {Data: []byte("30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n")},
			"sys/fs/cgroup/cgroup.procs":     {},
			"sys/fs/cgroup/pod/cgroup.procs": {},
			"sys/fs/cgroup/pod/cpu.max":      {Data: []byte("max 100000\n")},
			"sys/fs/cgroup/pod/app/cpu.max":  {Data: []byte("max 100000\n")},
		}
		change(fsys)
		return Options{FS: fsys}
	}
	for _, c := range []struct {
		name   string
		change func(fstest.MapFS)
		want   Sight
		says   string
	}{
		{"no quota", func(fstest.MapFS) {}, SightNone, "no CPU quota: every group"},
		{"a quota", func(f fstest.MapFS) { f["sys/fs/cgroup/pod/cpu.max"] = &fstest.MapFile{Data: []byte("50000 100000\n")} }, SightFound, ""},
		{"malformed", func(f fstest.MapFS) { f["sys/fs/cgroup/pod/app/cpu.max"] = &fstest.MapFile{Data: []byte("a lot\n")} }, SightMalformed, "app/cpu.max (\"a lot\")"},
		{"not readable", func(f fstest.MapFS) {
			delete(f, "sys/fs/cgroup/pod/cpu.max")
			f["sys/fs/cgroup/pod/cpu.max/x"] = &fstest.MapFile{}
		}, SightUnreadable, "/sys/fs/cgroup/pod/cpu.max: not a regular file"},
		{"covered", func(f fstest.MapFS) {
			for name := range f {
				if strings.HasPrefix(name, "sys/") {
					delete(f, name)
				}
			}
		}, SightCovered, "covered by another mount"},
		{"out of sight", func(f fstest.MapFS) { f["sys/fs/cgroup/cgroup.type"] = &fstest.MapFile{} }, SightHidden, "not visible from here"},
		{"not mounted", func(f fstest.MapFS) { f["proc/self/mountinfo"] = &fstest.MapFile{} }, SightUnmounted, "no cgroup v2"},
		{"no controller", func(f fstest.MapFS) {
			f["proc/self/cgroup"] = &fstest.MapFile{Data: []byte("3:memory:/app\n")}
		}, SightAbsent, "cpu controller"},
	} {
		l, err := Read(machine(c.change))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		check.True(t, l.CPU.Sight == c.want && strings.Contains(l.CPU.SightText, c.says),
			"%s: %s (%s), want %s (%s)", c.name, l.CPU.Sight, l.CPU.SightText, c.want, c.says)
	}
	v1 := readFixture(t, "testdata/v1-use-hierarchy-off.txtar")
	if l, err := Read(v1.options(t)); err != nil || l.Memory.Sight != SightFound {
		t.Errorf("%+v, %v", l, err)
	}
}
