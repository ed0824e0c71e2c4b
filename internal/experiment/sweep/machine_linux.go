package sweep

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
)

// prepare finds out which limits and CPUs are available, pins this process to the generator's CPUs and sets its GOMAXPROCS. restore undoes the
// changes of this process.
func (s *sweeper) prepare() (restore func(), err error) {
	if err := s.probeGroups(); err != nil {
		return nil, err
	}
	all := cpugroup.AllowedCPUs()
	if err := s.divideCPUs(all); err != nil {
		return nil, err
	}
	s.result.CPUs, s.result.LoadCPUs = s.cpus, s.loadCPUs
	// One P more, because a goroutine that sleeps in the kernel keeps its P for a short time.
	previousProcs := runtime.GOMAXPROCS(s.loadCPUs + 1)
	return func() {
		runtime.GOMAXPROCS(previousProcs)
		_ = cpugroup.PinSelf(all)
	}, nil
}

// probeGroups removes cgroups of earlier sweeps and sets hasGroups: whether cgroups can be created. That they cannot is an error only with
// Options.ParentGroup.
func (s *sweeper) probeGroups() (err error) {
	if s.options.ParentGroup != "" {
		if s.parentGroup, err = cpugroup.OpenDir(s.options.ParentGroup); err != nil {
			return err
		}
	}
	if n, err := cpugroup.RemoveOrphaned(owner, s.parentGroup); err != nil {
		s.noteOnce("left", "removing the cgroups of an earlier sweep: %v", err)
	} else if n > 0 {
		s.note(fmt.Sprintf("removed %d cgroups of an earlier sweep", n))
	}
	trial, err := cpugroup.New(cpugroup.Options{Parent: s.parentGroup, CountUsage: true, Owner: owner})
	if err == nil {
		err = trial.Remove()
	}
	if s.hasGroups = err == nil; !s.hasGroups && s.options.ParentGroup == "" {
		s.noteOnce("no-cgroup", "no cgroup can be made, so --quota and --memory have no effect: only GOMAXPROCS, the other settings and the choice of CPUs apply (%v); run as root, or name a cgroup that is delegated to you with --cgroup", err)
		return nil
	}
	return err
}

// divideCPUs sets the CPUs of the service and the generator, of all, and pins this process: to the user's choice, else to separate CPUs if there are
// enough, else it notes that they share.
func (s *sweeper) divideCPUs(all []int) error {
	quota, procs := 0.0, 0
	for _, a := range s.arms {
		q, _ := strconv.ParseFloat(a.Get(Quota), 64)
		p, _ := strconv.Atoi(a.Get(GOMAXPROCS))
		quota, procs = max(quota, q), max(procs, p)
	}
	serviceCPUs := int(math.Ceil(quota))
	if serviceCPUs == 0 {
		serviceCPUs = min(max(procs, 1), len(all))
	}
	generatorCPUs := max(1, len(all)/4)
	s.loadCPUs = len(all)
	switch {
	case len(s.options.CPUs) > 0 || len(s.options.LoadCPUs) > 0:
		s.cpus = s.options.CPUs
		if len(s.options.LoadCPUs) == 0 {
			return nil
		}
		s.loadCPUs = len(s.options.LoadCPUs)
		s.hasOwnCPUs = len(s.cpus) > 0 && !slices.ContainsFunc(s.cpus, func(c int) bool { return slices.Contains(s.options.LoadCPUs, c) })
		return cpugroup.PinSelf(s.options.LoadCPUs)
	case len(all)-generatorCPUs >= serviceCPUs && len(all) > 1:
		s.cpus, s.hasOwnCPUs, s.loadCPUs = all[:len(all)-generatorCPUs], true, generatorCPUs
		return cpugroup.PinSelf(all[len(all)-generatorCPUs:])
	}
	s.noteOnce("shared-cpus", "the load generator shares the service's %d CPUs, so its work is part of the measurement: use more CPUs than the service may use, or --cpus and --load-cpus", len(all))
	return nil
}
