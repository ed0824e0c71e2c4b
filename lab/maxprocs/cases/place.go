//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// A testCase is a place and what the service does there.
type testCase struct {
	name string
	// quotas are CPUs, the own group's first and then each ancestor's; 0 is none.
	quotas []float64
	// memory are limits in MiB, in the same order.
	memory []int64
	// cpus bounds the affinity mask; 0 does not.
	cpus   int
	load   load
	change func(*place)
}

var cases = []testCase{
	{name: "no limit"},
	{name: "quota 0.25", quotas: []float64{0.25}},
	{name: "quota 0.5", quotas: []float64{0.5}},
	{name: "quota 1", quotas: []float64{1}},
	{name: "quota 1.5", quotas: []float64{1.5}},
	{name: "quota above the CPUs", quotas: []float64{2.5}},
	{name: "quota 0.5 on the parent (ECS task, pod limit)", quotas: []float64{0, 0.5}},
	{name: "quotas 0.5, 0.75, 1 upwards (slices)", quotas: []float64{0.5, 0.75, 1}},
	{name: "own 0.5 below a parent of 1 (nested)", quotas: []float64{0.5, 1}},
	{name: "four levels, the outermost 0.5", quotas: []float64{0, 0, 0, 0.5}},
	{name: "one CPU in the affinity mask", cpus: 1},
	{name: "one CPU and quota 1.5", cpus: 1, quotas: []float64{1.5}},
	{name: "quota 0.5 lifted while running", quotas: []float64{0.5}, change: func(p *place) { p.quota(0, 0) }},
	{name: "quota 0.5 set while running (resize)", quotas: []float64{0}, change: func(p *place) { p.quota(0, 0.5) }},
	{name: "parent's quota 1 becomes 0.5", quotas: []float64{0, 1}, change: func(p *place) { p.quota(1, 0.5) }},
	{name: "64 MiB, 25 live", memory: []int64{64}, load: load{From: 25}},
	{name: "64 MiB, 30 live", memory: []int64{64}, load: load{From: 30}},
	{name: "128 MiB, 40 live", memory: []int64{128}, load: load{From: 40}},
	{name: "256 MiB, 60 live", memory: []int64{256}, load: load{From: 60}},
	{name: "256 MiB on the parent, 90 live", memory: []int64{0, 256}, load: load{From: 90}},
	{name: "512 MiB, 40 live", memory: []int64{512}, load: load{From: 40}},
	{name: "256 MiB, a file of 150 in use, live 30 to 110", memory: []int64{256}, load: load{From: 30, To: 110, File: 150}},
	{name: "128 MiB, a file of 90 in use, 35 live", memory: []int64{128}, load: load{From: 35, File: 90}},
	{name: "256 MiB, 96 of C memory, live 20 to 55", memory: []int64{256}, load: load{From: 20, To: 55, C: 96}},
	{name: "256 MiB, 80 of shared memory, 60 live", memory: []int64{256}, load: load{From: 60, Shared: 80}},
	{name: "512 MiB, live 60 to 180 in steps", memory: []int64{512}, load: load{From: 60, To: 180, Steps: 3}},
	{name: "512 MiB, live 60 to 190 in one step", memory: []int64{512}, load: load{From: 60, To: 190, Steps: 1}},
	{name: "512 MiB, live 30 to 180 steadily", memory: []int64{512}, load: load{From: 30, To: 180}},
	{name: "256 MiB, 60 live, bursts", memory: []int64{256}, load: load{From: 60, Bursts: true}},
	{name: "128 becomes 256 MiB, live 40 to 90 (resize)", memory: []int64{128}, load: load{From: 40, To: 90, Late: true}, change: func(p *place) { p.memory(0, 256) }},
	{name: "512 becomes 256 MiB, 50 live", memory: []int64{512}, load: load{From: 50}, change: func(p *place) { p.memory(0, 256) }},
	{name: "quota 0.5 and 128 MiB, 40 live", quotas: []float64{0.5}, memory: []int64{128}, load: load{From: 40}},
	{name: "quota 1 on the parent and 256 MiB, live 40 to 90", quotas: []float64{0, 1}, memory: []int64{256}, load: load{From: 40, To: 90}},
}

// A place is a chain of groups of each controller, the innermost first.
type place struct {
	cpu, mem []string
	cpus     int
}

const root = "/sys/fs/cgroup"

func newPlace(c testCase) (*place, error) {
	p := &place{cpus: c.cpus}
	make := func(controller string, levels int) ([]string, error) {
		parent := filepath.Join(root, controller)
		if _, err := os.Stat(filepath.Join(parent, "cgroup.procs")); err != nil {
			return nil, fmt.Errorf("no v1 hierarchy of %s: %w", controller, err)
		}
		var dirs []string
		for range levels {
			dir, err := os.MkdirTemp(parent, "whylate-cases-")
			if err != nil {
				return dirs, fmt.Errorf("making a group (root is needed): %w", err)
			}
			dirs = append([]string{dir}, dirs...)
			parent = dir
		}
		return dirs, nil
	}
	var err error
	if p.cpu, err = make("cpu", max(1, len(c.quotas))); err == nil {
		p.mem, err = make("memory", max(1, len(c.memory)))
	}
	// The largest weight at each level, so that neighbours on the machine disturb
	// less: beside busy ones a service with fewer threads gets less.
	for _, dir := range p.cpu {
		_ = os.WriteFile(filepath.Join(dir, "cpu.shares"), []byte("262144"), 0)
	}
	// The kernel refuses an inner quota above an outer one: the outermost first.
	for i := len(c.quotas) - 1; i >= 0 && err == nil; i-- {
		err = p.quota(i, c.quotas[i])
	}
	for i := len(c.memory) - 1; i >= 0 && err == nil; i-- {
		if c.memory[i] > 0 {
			err = p.memory(i, c.memory[i])
		}
	}
	if err != nil {
		p.remove()
		return nil, err
	}
	return p, nil
}

func (p *place) quota(level int, cpus float64) error {
	text := "-1"
	if cpus > 0 {
		text = strconv.Itoa(int(cpus * 100000))
	}
	if err := os.WriteFile(filepath.Join(p.cpu[level], "cpu.cfs_quota_us"), []byte(text), 0); err != nil {
		return fmt.Errorf("setting a quota of %v CPUs, %d levels up: %w", cpus, level, err)
	}
	return nil
}

func (p *place) memory(level int, mib int64) error {
	text := []byte(strconv.FormatInt(mib<<20, 10))
	// Memory and swap together are never less than memory alone.
	for range 2 {
		_ = os.WriteFile(filepath.Join(p.mem[level], "memory.memsw.limit_in_bytes"), text, 0)
		if err := os.WriteFile(filepath.Join(p.mem[level], "memory.limit_in_bytes"), text, 0); err != nil {
			continue
		}
		return nil
	}
	return os.WriteFile(filepath.Join(p.mem[level], "memory.limit_in_bytes"), text, 0)
}

// command runs the program in the place from its first instruction.
func (p *place) command(exe string) *exec.Cmd {
	script := `echo $$ > "$1/cgroup.procs" && echo $$ > "$2/cgroup.procs" && `
	if p.cpus > 0 {
		script += `exec taskset -c 0-` + strconv.Itoa(p.cpus-1) + ` "$3"`
	} else {
		script += `exec "$3"`
	}
	return exec.Command("/bin/sh", "-c", script, "sh", p.cpu[0], p.mem[0], exe)
}

func (p *place) remove() {
	for _, dir := range append(append([]string{}, p.cpu...), p.mem...) {
		for range 200 {
			if os.Remove(dir) == nil {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}
