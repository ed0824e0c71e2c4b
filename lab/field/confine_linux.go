package main

import (
	"os/exec"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
)

// confine makes a command run in a group with a CPU quota, which needs root.
func confine(cmd *exec.Cmd, cpus float64) (leave func(), err error) {
	g, err := cpugroup.New(cpugroup.Options{CPUs: cpus, Heavy: true})
	if err != nil {
		return nil, err
	}
	g.Take(cmd)
	return func() { _ = g.Remove() }, nil
}
