// Package pool is the story of a service that updates market data behind a semaphore with a slot for each of the host's CPUs,
// in a container with fewer: rare freezes, which hardly any tool shows, determine its 99th percentile.
package pool

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/internal/experiment/freeport"
	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/stories/stage"
)

// perSecond is the rate of requests, which arrive at random.
const perSecond = 300

// Run compares slots and Ps for the host's CPUs with those for the container's; then it runs the published benchmark.
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
	var table strings.Builder
	for _, a := range []arm{
		// The update that takes all Ps is to be changed; a further finding reports that the quota then freezes it.
		{"before", []string{host}, nil, stage.Place{Code: "WL1002", Site: `main\.\(\*market\)\.(update|compute)`}},
		{"after", nil, []string{"-follow"}, stage.Place{}},
	} {
		if !s.Wants(a.name, false) {
			continue
		}
		if s.Healthy {
			a.env, a.args = nil, []string{"-follow"}
		}
		got, tied, err := runArm(ctx, s, service, quota, a)
		if err != nil {
			return nil, err
		}
		r.Arms = append(r.Arms, got)
		fmt.Fprintf(&table, "%s: %s\n", a.name, tied)
	}
	r.Compare("before", "after", stage.P99)
	if s.Wants("benchmark", true) {
		text, err := runBenchmark(ctx, s, service)
		if err != nil {
			return nil, err
		}
		table.WriteString(text)
	}
	r.Table = table.String()
	return r, nil
}

type arm struct {
	name      string
	env, args []string
	expected  stage.Place
}

// A timedRequest is a request by its client's clock.
type timedRequest struct{ due, end time.Time }

func runArm(ctx context.Context, s *stage.Stage, service string, quota float64, a arm) (got stage.Arm, tied string, err error) {
	ports, err := freeport.Find(1)
	if err != nil {
		return got, "", err
	}
	address := "127.0.0.1:" + ports[0]
	updateInterval, duration := 8*time.Second, 32*time.Second
	if s.Short {
		updateInterval, duration = 2*time.Second, 10*time.Second
	}
	server, err := s.Start(ctx, stage.Program{
		Name: "the service, " + a.name, Ready: "http://" + address + "/ready", Quota: quota, Env: a.env,
		Args: append([]string{service, "-listen", address, "-every", updateInterval.String(), "-work", "5000"}, a.args...),
	})
	if err != nil {
		return got, "", err
	}
	defer server.Stop()
	var mu sync.Mutex
	var requests []load.Sample
	o := load.Options{
		Targets: []load.Target{{URL: "http://" + address + "/price?id=7"}},
		Phases:  []load.Phase{{StartRate: perSecond, EndRate: perSecond, Duration: duration + time.Second}},
		Warmup:  2 * time.Second, Seed: 1,
		Observe: func(t load.Sample) {
			mu.Lock()
			defer mu.Unlock()
			requests = append(requests, t)
		},
	}
	var file string
	var counted cpugroup.Stat
	measured, err := stage.RunUnderLoad(ctx, o, func() error {
		time.Sleep(o.Warmup)
		before, err := cpugroup.ReadStat(server.Group().Dir)
		if err != nil {
			return err
		}
		if file, err = s.Record(ctx, "pool-"+a.name, address, duration); err != nil {
			return err
		}
		after, err := cpugroup.ReadStat(server.Group().Dir)
		counted = after.Minus(before)
		return err
	})
	if err != nil {
		return got, "", err
	}
	frozen, err := freezes(ctx, address)
	if err != nil {
		return got, "", err
	}
	if err := server.Stop(); err != nil {
		return got, "", err
	}
	if got, err = s.Judge(ctx, a.name, file, a.expected); err != nil {
		return got, "", err
	}
	got.Measure(measured)
	got.Counted = fmt.Sprintf("the kernel counted %d of %d periods throttled, %v in all", counted.Throttled, counted.Periods, time.Duration(counted.ThrottledNS))
	var all []timedRequest
	for _, t := range requests {
		all = append(all, timedRequest{measured.Start.Add(time.Duration(t.Due)), measured.Start.Add(time.Duration(t.End))})
	}
	return got, matchFreezes(all, frozen), nil
}

// A freeze is an entry of the probe's record.
type freeze struct {
	Start   time.Time
	End     time.Time
	Likely  time.Duration `json:"likely_ns"`
	Verdict string
}

// freezes fetches the probe's record from a service.
func freezes(ctx context.Context, address string) (all []freeze, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/freezes", nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil {
		return nil, fmt.Errorf("the probe's record: %w", err)
	}
	return all, nil
}

// slowLatency is the latency from which a request is slow: the service answers from memory.
const slowLatency = 10 * time.Millisecond

// matchFreezes returns how many slow requests overlap the probe's freezes.
func matchFreezes(requests []timedRequest, frozen []freeze) string {
	late, hit, fastHit := 0, 0, 0
	for _, r := range requests {
		overlaps := false
		for _, f := range frozen {
			overlaps = overlaps || r.due.Before(f.End) && f.Start.Before(r.end)
		}
		switch isLate := r.end.Sub(r.due) >= slowLatency; {
		case isLate && overlaps:
			late++
			hit++
		case isLate:
			late++
		case overlaps:
			fastHit++
		}
	}
	longest, quota := time.Duration(0), 0
	for _, f := range frozen {
		longest = max(longest, f.Likely)
		if f.Verdict == "own" {
			quota++
		}
	}
	if len(frozen) == 0 {
		return fmt.Sprintf("the probe's record has no freeze; %d of %d requests took %s and more", late, len(requests), words.Duration(int64(slowLatency)))
	}
	return fmt.Sprintf("the probe's record has %s of up to %s, %d of them by the quota; of %d requests, %d took %s and more, and %d of these met one (%d others did)",
		words.Count(len(frozen), "freeze", "freezes"), words.Duration(int64(longest)), quota, len(requests), late, words.Duration(int64(slowLatency)), hit, fastHit)
}

// runBenchmark runs the published benchmark: a million goroutines through a semaphore, with four times as many Ps and slots as
// the quota has CPUs, and with as many.
func runBenchmark(ctx context.Context, s *stage.Stage, service string) (string, error) {
	const n = 1_000_000
	quota := max(0.5, float64(runtime.NumCPU())/2)
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\na million times through a semaphore, quota of %.3g CPUs\teach\tperiods throttled\t\n", quota)
	for _, procs := range []int{4 * int(quota+0.5), max(1, int(quota))} {
		server, err := s.Start(ctx, stage.Program{
			Name: fmt.Sprintf("the benchmark with %d Ps", procs), Args: []string{service, "-benchmark", strconv.Itoa(n)},
			Env: []string{"GOMAXPROCS=" + strconv.Itoa(procs)}, Quota: quota,
		})
		if err != nil {
			return "", err
		}
		var stat cpugroup.Stat
		for ctx.Err() == nil { // its group ends with it
			current, err := cpugroup.ReadStat(server.Group().Dir)
			if err != nil || server.Ended() {
				break
			}
			stat = current
			time.Sleep(5 * time.Millisecond)
		}
		if err := server.Wait(ctx); err != nil {
			return "", err
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(server.LastLines()), 10, 64)
		if err != nil {
			return "", fmt.Errorf("the benchmark said %q: %w", server.LastLines(), err)
		}
		fmt.Fprintf(t, "%d Ps and places\t%s\t%d of %d\t\n", procs, words.Duration(ns/n), stat.Throttled, stat.Periods)
	}
	t.Flush()
	return b.String(), nil
}
