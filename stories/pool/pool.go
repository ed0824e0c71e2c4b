// Package pool is the story of a service that updates market data behind a semaphore with a place for each of the host's CPUs,
// in a container with fewer: rare freezes, which nearly no tool shows, own its 99th percentile.
package pool

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/internal/experiment/freeport"
	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/stories/stage"
)

// perSecond is how many requests begin, at random.
const perSecond = 300

// Run tells the story: places and Ps of the host, and those of the container.
func Run(ctx context.Context, s *stage.Stage) (*stage.Result, error) {
	service, err := s.BuildHere(ctx, "pool/service")
	if err != nil {
		return nil, err
	}
	// An update on all CPUs uses it up, one on half of them does not.
	quota := max(0.75, 0.75*float64(runtime.NumCPU()))
	r := &stage.Result{Story: "pool", Versions: map[string]string{}, Published: 0.9 / 0.02,
		Notes: []string{"The factor is of the 99th percentile. The published one is of the handler's own time, ours is what a client on the same machine sees."}}
	// The incident's host had twice the container's CPUs.
	host := "GOMAXPROCS=" + strconv.Itoa(max(2, 2*int(quota+0.5)))
	// The update that takes all Ps is what to change; that the quota then freezes it is told beside.
	burst := stage.Place{Code: "WL1002", Site: `main\.\(\*market\)\.(update|compute)`}
	before, err := one(ctx, s, service, "before", quota, []string{host}, nil, burst)
	if err != nil {
		return nil, err
	}
	after, err := one(ctx, s, service, "after", quota, nil, []string{"-follow"}, stage.Place{})
	if err != nil {
		return nil, err
	}
	r.Arms = []stage.Arm{before, after}
	r.Compare("before", "after", stage.P99)
	return r, nil
}

func one(ctx context.Context, s *stage.Stage, service, name string, quota float64, env, args []string, expected stage.Place) (stage.Arm, error) {
	ports, err := freeport.Find(1)
	if err != nil {
		return stage.Arm{}, err
	}
	address := "127.0.0.1:" + ports[0]
	every, long := 8*time.Second, 32*time.Second
	if s.Short {
		every, long = 2*time.Second, 10*time.Second
	}
	server, err := s.Start(ctx, stage.Program{
		Name: "the service, " + name, Ready: "http://" + address + "/ready", Quota: quota, Env: env,
		Args: append([]string{service, "-listen", address, "-every", every.String(), "-work", "5000"}, args...),
	})
	if err != nil {
		return stage.Arm{}, err
	}
	defer server.Stop()
	o := load.Options{
		Targets: []load.Target{{URL: "http://" + address + "/price?id=7"}},
		Phases:  []load.Phase{{From: perSecond, To: perSecond, Duration: long + time.Second}},
		Warmup:  2 * time.Second, Seed: 1,
	}
	var file string
	var counted cpugroup.Stat
	measured, err := stage.While(ctx, o, func() error {
		time.Sleep(o.Warmup)
		before, err := cpugroup.ReadStat(server.Group().Dir)
		if err != nil {
			return err
		}
		if file, err = s.Record(ctx, "pool-"+name, address, long); err != nil {
			return err
		}
		after, err := cpugroup.ReadStat(server.Group().Dir)
		counted = after.Less(before)
		return err
	})
	if err != nil {
		return stage.Arm{}, err
	}
	if err := server.Stop(); err != nil {
		return stage.Arm{}, err
	}
	got, err := s.Judge(ctx, name, file, expected)
	got.Measure(measured)
	got.Counted = fmt.Sprintf("the kernel counted %d of %d periods throttled, %v in all", counted.Throttled, counted.Periods, time.Duration(counted.ThrottledNS))
	return got, err
}
