package main

import (
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/lab/truth/catalog"
)

// startInPlace starts a service with the CPUs and quota of its Place. The caller must call release after the service has
// ended.
func startInPlace(cmd *exec.Cmd, p *catalog.Place) (release func(), err error) {
	// A process inherits the affinity of the thread that starts it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, fmt.Errorf("%w: %w", errPlace, err)
	}
	if n := all.Count(); n < max(p.OfCPUs, p.CPUs) {
		return nil, fmt.Errorf("%w: it has %d CPUs, %d are needed", errPlace, n, max(p.OfCPUs, p.CPUs))
	}
	if p.CPUs > 0 {
		var allowed unix.CPUSet
		for cpu := 0; allowed.Count() < p.CPUs; cpu++ {
			if all.IsSet(cpu) {
				allowed.Set(cpu)
			}
		}
		if err := unix.SchedSetaffinity(0, &allowed); err != nil {
			return nil, fmt.Errorf("%w: %w", errPlace, err)
		}
		defer func() { _ = unix.SchedSetaffinity(0, &all) }()
	}
	release = func() {}
	if p.QuotaCPUs > 0 {
		g, err := cpugroup.New(cpugroup.Options{CPUs: p.QuotaCPUs, HighWeight: true})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errPlace, err)
		}
		release = func() { _ = g.Remove() }
		g.Attach(cmd)
	}
	if err := cmd.Start(); err != nil {
		release()
		return nil, err
	}
	return release, nil
}
