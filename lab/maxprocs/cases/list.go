//go:build linux

package main

import (
	"time"

	"github.com/whylate/whylate/lab/vm/check"
)

// A testCase is a place and what the service does there.
type testCase struct {
	name string
	// quotas are CPUs, the own group's first and then each ancestor's; 0 is none.
	quotas []float64
	// memory are limits in MiB and high are memory.high, in the same order.
	memory, high []int64
	// cpus bounds the affinity mask; 0 does not. cpuset is a CPU set of one.
	cpus   int
	cpuset bool
	needs  []string // controllers besides cpu and memory
	// how the hierarchies are mounted.
	how check.Surroundings
	// hide spoils files of the own group: see files.
	hide []spoiled
	// neighbours is how many busy threads of a group of the same weight there are.
	neighbours int
	// crowd says that the three ways are each other's neighbours: they run at the
	// same time, so that all meet the same.
	crowd bool
	env   []string
	load  load
	// change comes after a quarter of the length.
	change func(*scene)
	// length in seconds; 0 is the usual.
	length float64
	// short is in the short form.
	short bool
	// known is why whylate may be worse here.
	known string
	// here says that it is run on a real machine only: elsewhere it would say what
	// another case says.
	here bool
}

// spoiled is a file of the own group that tells no limit.
type spoiled struct {
	controller string
	text       string // in place of what it says
	blind      bool   // not readable
}

type spoiledFile struct {
	spoiled
	name string
}

// files names the spoiled files in this machine's layout.
func (c *testCase) files(e *check.Env) []spoiledFile {
	var list []spoiledFile
	for _, s := range c.hide {
		var name string
		switch {
		case s.controller == "cpu" && e.V2("cpu"):
			name = "cpu.max"
		case s.controller == "cpu":
			name = "cpu.cfs_quota_us"
		case e.V2("memory"):
			name = "memory.max"
		default:
			name = "memory.limit_in_bytes"
		}
		list = append(list, spoiledFile{s, name})
	}
	return list
}

// together reports whether the three ways may run at the same time: they share
// the CPUs, so only memory may be scarce.
func (c *testCase) together() bool {
	return c.crowd || len(c.quotas) == 0 && c.cpus == 0 && !c.cpuset && c.neighbours == 0 && len(c.memory)+len(c.high) > 0
}

func (c *testCase) seconds() float64 {
	switch {
	case c.length > 0:
		return c.length
	case c.together():
		return 4
	}
	return 1.5
}

// takes is about how long a round lasts.
func (c *testCase) takes(scale float64) time.Duration {
	d := time.Duration((c.seconds()*scale + 0.3) * float64(time.Second))
	if !c.together() {
		d *= time.Duration(len(arms))
	}
	return d
}

func (c *testCase) skip(e *check.Env) string {
	for _, need := range append([]string{"cpu", "memory"}, c.needs...) {
		if !e.HasController(need) {
			return "no " + need + " controller"
		}
	}
	if len(c.high) > 0 && !e.V2("memory") {
		return "v1 has no memory.high"
	}
	return ""
}

// A limit lowered at once below what is in use: nobody can do anything then.
const lowered = "the limit falls below what a raised GOGC uses, and the kernel kills at once (docs/tune.md)"

// Where no file tells the limit.
const blind = "nobody can know the limit, so all ways are alike, and who dies is chance"

var cases = []testCase{
	{name: "no limit"},
	{name: "quota 0.25", here: true, quotas: []float64{0.25}},
	{name: "quota 0.5", quotas: []float64{0.5}, short: true},
	{name: "quota 1", quotas: []float64{1}, short: true},
	{name: "quota 1.5", quotas: []float64{1.5}},
	{name: "quota above the CPUs", here: true, quotas: []float64{2.5}},
	{name: "quota 0.5 on the parent (ECS task, pod limit)", quotas: []float64{0, 0.5}},
	{name: "quotas 0.5, 0.75, 1 upwards (systemd slices)", quotas: []float64{0.5, 0.75, 1}},
	{name: "own 0.5 below a parent of 1 (nested)", quotas: []float64{0.5, 1}},
	{name: "four levels, the outermost 0.5", quotas: []float64{0, 0, 0, 0.5}, short: true},
	{name: "one CPU in the affinity mask", cpus: 1},
	{name: "one CPU in the CPU set", cpuset: true, needs: []string{"cpuset"}},
	{name: "one CPU and quota 1.5", here: true, cpus: 1, quotas: []float64{1.5}},
	{name: "quota 0.5, a cgroup namespace (Docker, v2)", quotas: []float64{0.5}, how: check.Namespaced},
	{name: "quota 0.5, bind mounts (Docker, v1)", here: true, quotas: []float64{0.5}, how: check.Bound},
	{name: "quota 0.5, the mount is covered", quotas: []float64{0.5}, how: check.Covered},
	{name: "quota 0.5 on the parent, out of sight (ECS, LXC)", quotas: []float64{0, 0.5}, how: check.Namespaced},
	{name: "quota 0.5, no hierarchy is mounted", quotas: []float64{0.5}, how: check.Bare},
	{name: "quota 0.5, not readable", quotas: []float64{0.5}, hide: []spoiled{{controller: "cpu", blind: true}}},
	{name: "quota 0.5, malformed", quotas: []float64{0.5}, hide: []spoiled{{controller: "cpu", text: "a lot\n"}}},
	{name: "quota 1 beside two busy threads of the same weight", quotas: []float64{1}, neighbours: 2, length: 12},
	{name: "quota 1 in a crowd: the three ways at once, a busy thread of the same weight beside each", quotas: []float64{1}, neighbours: 1, crowd: true, length: 12},
	{name: "quota 0.5 lifted while running", quotas: []float64{0.5}, change: func(s *scene) { s.quota(0, 0) }, length: 6},
	{name: "quota 0.5 set while running (resize)", quotas: []float64{0}, change: func(s *scene) { s.quota(0, 0.5) }, length: 6},
	{name: "parent's quota 1 becomes 0.5", quotas: []float64{0, 1}, change: func(s *scene) { s.quota(1, 0.5) }, length: 6},
	{name: "pod and container from 0.5 to 1.5 CPUs, one after the other (in-place resize)", quotas: []float64{0.5, 0.5, 0}, length: 6,
		change: func(s *scene) { s.quota(1, 1.5); s.quota(0, 1.5) }},
	{name: "CPU set narrowed to one CPU while running", length: 6, needs: []string{"cpuset"}, change: func(s *scene) { s.cpus("0") }},

	{name: "32 MiB, 8 live", here: true, memory: []int64{32}, load: load{From: 8}},
	{name: "32 MiB, 12 live", memory: []int64{32}, load: load{From: 12}, short: true},
	{name: "64 MiB, 25 live", here: true, memory: []int64{64}, load: load{From: 25}},
	{name: "64 MiB, 30 live", memory: []int64{64}, load: load{From: 30}, short: true},
	{name: "128 MiB, 40 live", memory: []int64{128}, load: load{From: 40}},
	{name: "256 MiB, 60 live", memory: []int64{256}, load: load{From: 60}, short: true},
	{name: "256 MiB on the parent, 90 live", memory: []int64{0, 256}, load: load{From: 90}},
	{name: "256 MiB on the pod, 200 on the container, in slices", memory: []int64{200, 256, 0}, load: load{From: 60}},
	{name: "512 MiB, 40 live", here: true, memory: []int64{512}, load: load{From: 40}},
	{name: "256 MiB, a file of 150 in use, live 30 to 110", memory: []int64{256}, load: load{From: 30, To: 110, File: 150}, short: true},
	{name: "128 MiB, a file of 90 in use, 35 live", here: true, memory: []int64{128}, load: load{From: 35, File: 90}},
	{name: "256 MiB, 96 of C memory, live 20 to 55", memory: []int64{256}, load: load{From: 20, To: 55, C: 96}, short: true},
	{name: "256 MiB, 80 of shared memory, 60 live", memory: []int64{256}, load: load{From: 60, Shared: 80}},
	{name: "memory.high 200 of 256 MiB, live 40 to 90", memory: []int64{256}, high: []int64{200}, load: load{From: 40, To: 90}, short: true},
	{name: "memory.high 160 alone, 70 live (systemd MemoryHigh)", high: []int64{160}, load: load{From: 70}},
	{name: "memory.high 150 on the parent, 60 live", memory: []int64{256, 0}, high: []int64{0, 150}, load: load{From: 60}},
	{name: "512 MiB, live 60 to 180 in steps", here: true, memory: []int64{512}, load: load{From: 60, To: 180, Steps: 3}, length: 6},
	{name: "512 MiB, live 60 to 190 in one step", memory: []int64{512}, load: load{From: 60, To: 190, Steps: 1}, length: 8, short: true},
	{name: "512 MiB, live 30 to 180 steadily", memory: []int64{512}, load: load{From: 30, To: 180}, length: 6},
	{name: "256 MiB, 60 live, bursts", here: true, memory: []int64{256}, load: load{From: 60, Bursts: true}},
	{name: "128 becomes 256 MiB, live 40 to 90 (resize)", memory: []int64{128}, load: load{From: 40, To: 90, Late: true}, change: func(s *scene) { s.memory(0, 256) }},
	{name: "pod and container from 128 to 256 MiB, one after the other (in-place resize)", memory: []int64{128, 128, 0}, load: load{From: 40, To: 90, Late: true},
		change: func(s *scene) { s.memory(1, 256); s.memory(0, 256) }},
	{name: "512 becomes 256 MiB, 50 live, by an engine that looks first", memory: []int64{512}, load: load{From: 50}, change: func(s *scene) { s.lower(256) }, length: 6},
	{name: "512 becomes 256 MiB at once, 50 live", memory: []int64{512}, load: load{From: 50}, change: func(s *scene) { s.force(256) }, length: 6, known: lowered},
	{name: "128 MiB, not readable, 40 live", known: blind, memory: []int64{128}, load: load{From: 40}, hide: []spoiled{{controller: "memory", blind: true}}},
	{name: "128 MiB, malformed, 40 live", known: blind, memory: []int64{128}, load: load{From: 40}, hide: []spoiled{{controller: "memory", text: "plenty\n"}}},
	{name: "128 MiB, bind mounts, 40 live", here: true, memory: []int64{128}, load: load{From: 40}, how: check.Bound},
	{name: "128 MiB on the parent, out of sight, 40 live", known: blind, memory: []int64{0, 128}, load: load{From: 40}, how: check.Namespaced},
	{name: "256 MiB, 60 live, GOGC=off by hand", here: true, memory: []int64{256}, load: load{From: 60}, env: []string{"GOGC=off"}},
	{name: "256 MiB, 60 live, GOMEMLIMIT=off by hand", here: true, memory: []int64{256}, load: load{From: 60}, env: []string{"GOMEMLIMIT=off"}},
	{name: "256 MiB, 60 live, automaxprocs and automemlimit linked as well", memory: []int64{256}, load: load{From: 60, Both: true}},
	{name: "256 MiB, 60 live, other code changes GOGC and GOMEMLIMIT each 0.3 s", memory: []int64{256}, load: load{From: 60, Meddle: true}},
	{name: "quota 0.5 and 128 MiB, 40 live", quotas: []float64{0.5}, memory: []int64{128}, load: load{From: 40}, length: 2.5},
	{name: "quota 1 on the parent and 256 MiB, live 40 to 90", quotas: []float64{0, 1}, memory: []int64{256}, load: load{From: 40, To: 90}, length: 2.5},
}
