package sweep

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
)

// prepare finds out what can be limited and pinned. restore undoes what it did to this process.
func (s *sweeper) prepare() (restore func(), err error) {
	if err := s.tryGroups(); err != nil {
		return nil, err
	}
	all := cpugroup.OwnCPUs()
	if err := s.share(all); err != nil {
		return nil, err
	}
	s.res.CPUs, s.res.LoadCPUs = s.cpus, s.loadCPUs
	// A goroutine that sleeps in the kernel holds a P for a moment.
	was := runtime.GOMAXPROCS(s.loadCPUs + 1)
	return func() {
		runtime.GOMAXPROCS(was)
		_ = cpugroup.PinSelf(all)
	}, nil
}

// tryGroups finds out whether cgroups can be made, and removes those that an earlier sweep left.
func (s *sweeper) tryGroups() (err error) {
	if s.o.Group != "" {
		if s.above, err = cpugroup.At(s.o.Group); err != nil {
			return err
		}
	}
	if n, err := cpugroup.RemoveLeft(owner, s.above); err != nil {
		s.noteOnce("left", "removing the cgroups of an earlier sweep: %v", err)
	} else if n > 0 {
		s.note(fmt.Sprintf("removed %d cgroups of an earlier sweep", n))
	}
	trial, err := cpugroup.New(cpugroup.Options{Above: s.above, Usage: true, Owner: owner})
	if err == nil {
		err = trial.Remove()
	}
	if s.canGroup = err == nil; !s.canGroup && s.o.Group == "" {
		s.noteOnce("no-cgroup", "no cgroup can be made, so --quota and --memory have no effect: only GOMAXPROCS, the other settings and the choice of CPUs apply (%v); run as root, or name a cgroup that is delegated to you with --cgroup", err)
		return nil
	}
	return err
}

// share gives the service and the generator CPUs of their own, if there are enough.
func (s *sweeper) share(all []int) error {
	quota, procs := 0.0, 0
	for _, a := range s.arms {
		q, _ := strconv.ParseFloat(a.Get(Quota), 64)
		p, _ := strconv.Atoi(a.Get(GOMAXPROCS))
		quota, procs = max(quota, q), max(procs, p)
	}
	need := int(math.Ceil(quota))
	if need == 0 {
		need = min(max(procs, 1), len(all))
	}
	own := max(1, len(all)/4)
	s.loadCPUs = len(all)
	switch {
	case len(s.o.CPUs) > 0 || len(s.o.LoadCPUs) > 0:
		s.cpus = s.o.CPUs
		if len(s.o.LoadCPUs) == 0 {
			return nil
		}
		s.loadCPUs = len(s.o.LoadCPUs)
		s.apart = len(s.cpus) > 0 && !slices.ContainsFunc(s.cpus, func(c int) bool { return slices.Contains(s.o.LoadCPUs, c) })
		return cpugroup.PinSelf(s.o.LoadCPUs)
	case len(all)-own >= need && len(all) > 1:
		s.cpus, s.apart, s.loadCPUs = all[:len(all)-own], true, own
		return cpugroup.PinSelf(all[len(all)-own:])
	}
	s.noteOnce("shared-cpus", "the load generator shares the service's %d CPUs, so its work is part of the measurement: use more CPUs than the service may use, or --cpus and --load-cpus", len(all))
	return nil
}
