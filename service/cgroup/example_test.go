package cgroup_test

import (
	"fmt"
	"testing/fstest"
	"time"

	"github.com/whylate/whylate/service/cgroup"
)

// A container on cgroup v2 whose slice has a tighter quota than itself.
func ExampleRead() {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	machine := fstest.MapFS{
		"proc/self/cgroup":                                file("0::/team.slice/api.scope\n"),
		"proc/self/mountinfo":                             file("31 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
		"proc/self/status":                                file("Cpus_allowed_list:\t0-7\n"),
		"sys/fs/cgroup/cgroup.procs":                      file(""),
		"sys/fs/cgroup/team.slice/cpu.max":                file("150000 100000\n"),
		"sys/fs/cgroup/team.slice/cgroup.procs":           file(""),
		"sys/fs/cgroup/team.slice/api.scope/cpu.max":      file("400000 100000\n"),
		"sys/fs/cgroup/team.slice/api.scope/cgroup.procs": file("1\n"),
	}
	l, err := cgroup.Read(cgroup.Options{FS: machine}) // without FS: this machine
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("quota", l.CPU.Quota, "of", l.CPU.Parallelism, "CPUs; the runtime sees", l.CPU.RuntimeQuota, "and sets", l.CPU.RuntimeDefault())
	for _, b := range l.CPU.Bounds {
		fmt.Printf("%v %s %q: %s\n", b.Won, b.File, b.Text, b.Why)
	}
	// Output:
	// quota 1.5 of 8 CPUs; the runtime sees 4 and sets 4
	// false /sys/fs/cgroup/team.slice/api.scope/cpu.max "400000 100000": looser: 4 against 1.5 CPUs
	// true /sys/fs/cgroup/team.slice/cpu.max "150000 100000": the tightest: quota of an ancestor, 1 up
	// false /sys/fs/cgroup/cpu.max "": no such file: the root group has no limits
	// false /proc/self/status "0-7": looser: 8 against 1.5 CPUs
}

// The leaf's own counters are still, and yet it was held back.
func ExampleCompare() {
	const fields = cgroup.HasBandwidth | cgroup.HasLocal
	before := cgroup.Stat{Has: fields, Local: 10 * time.Millisecond}
	after := cgroup.Stat{Has: fields, Local: 310 * time.Millisecond}
	t := cgroup.Compare(&before, &after)
	fmt.Println(t.Verdict, t.Ancestor)
	// Output: ancestor 300ms
}
