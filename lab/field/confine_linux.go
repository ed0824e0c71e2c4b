package main

import (
	"os"
	"os/exec"
	"syscall"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
)

// confineCPU lets a command run in a cgroup with a CPU quota, which needs root.
func confineCPU(cmd *exec.Cmd, cpus float64) (leave func(), err error) {
	g, err := cpugroup.New(cpugroup.Options{CPUs: cpus, HighWeight: true})
	if err != nil {
		return nil, err
	}
	g.Attach(cmd)
	return func() { _ = g.Remove() }, nil
}

// stopOrContinue stops a process or continues it.
func stopOrContinue(p *os.Process, stop bool) error {
	if stop {
		return p.Signal(syscall.SIGSTOP)
	}
	return p.Signal(syscall.SIGCONT)
}
