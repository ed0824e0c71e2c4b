// Package container is the story of services that started as many Ps as the host has CPUs, in containers with a few: at low
// load nothing shows, at high load they take twice the CPU time and are frozen.
package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/internal/experiment/freeport"
	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/stories/stage"
)

// ratio is of Ps to CPUs in the incident: 96 Ps in a limit of 4 CPUs.
const ratio = 24

type arm struct {
	name     string
	procs    string
	env      []string
	expected stage.Place // at the load that is judged
	steps    []float64   // loads
}

// Run compares settings of GOMAXPROCS at several loads.
func Run(ctx context.Context, s *stage.Stage) (*stage.Result, error) {
	service, err := s.BuildHere(ctx, "container/service")
	if err != nil {
		return nil, err
	}
	// A third of the machine is the generator's.
	quota := max(0.5, float64(runtime.NumCPU())/2)
	host := "GOMAXPROCS=" + strconv.Itoa(int(ratio*quota))
	// What a request of a loaded service meets: freezes of the quota, or threads of more Ps than CPUs that wait for each other. Both are
	// by the number of Ps, and both say so.
	throttled := stage.Place{Code: "WL4001|WL1005"}
	// One P that is in use for most of the time has a queue.
	saturated := stage.Place{Code: "WL1002", Site: `main\.`}
	if quota > 1 {
		saturated = stage.Place{}
	}
	before := arm{name: "before", procs: "runtime", env: []string{host}, expected: throttled}
	judged, err := calibrate(ctx, s, service, before, quota)
	if err != nil {
		return nil, err
	}
	swept := math.Round(0.7*judged/100) * 100
	steps := []float64{low, knownLoad, judged, 2 * judged}
	before.steps = steps
	arms := []arm{
		before,
		{"as Go 1.26 sets it", "runtime", nil, stage.Place{Code: "|WL4001|WL1002"}, steps},
		{"automaxprocs", "automaxprocs", nil, saturated, steps},
		{"after", "tune", nil, saturated, steps},
	}
	var procs []string
	for n := 1; n <= 8*int(quota+0.5); n *= 2 {
		procs = append(procs, strconv.Itoa(n))
		arms = append(arms, arm{"GOMAXPROCS " + strconv.Itoa(n), "runtime", []string{"GOMAXPROCS=" + strconv.Itoa(n)}, stage.Place{}, []float64{swept}})
	}
	if s.Short {
		arms = []arm{arms[0], arms[3]}
		steps = []float64{low, judged}
		arms[0].steps, arms[1].steps = steps, steps
	}
	r := &stage.Result{
		Story: "container", Versions: map[string]string{"automaxprocs": "v1.6.0"}, Published: 2.2,
		Notes: []string{
			fmt.Sprintf("The factor is of CPU time a request at %.0f requests a second: %.1f times as many as the kernel throttled in a third of the periods before the fix. It is the median of %d, measured by turns.", judged, margin, turns),
			"Times, CPU time and the scheduler's share are measured without a trace, which costs CPU time itself; then the same load is recorded at the lowest load and at that one.",
		},
	}
	if s.Healthy {
		arms[0].env, arms[0].procs = nil, "tune"
	}
	var rows []row
	costs := map[string]float64{} // s of CPU time a request
	for _, a := range arms {
		if !s.Wants(a.name, false) {
			continue
		}
		for _, step := range a.steps {
			got, row, err := runArm(ctx, s, service, a, step, judged, quota)
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
			if got != nil {
				r.Arms = append(r.Arms, *got)
			}
			if step == judged {
				if a.name == "before" && !isThrottled(row.measured) {
					r.Void = fmt.Sprintf("the kernel throttled the loaded service in %d of %d periods only", row.measured.Throttled, row.measured.Periods)
				} else if a.name == "before" && !isThrottled(row.recorded) {
					r.Void = fmt.Sprintf("while the loaded service was recorded, the kernel throttled it in %d of %d periods only", row.recorded.Throttled, row.recorded.Periods)
				}
				costs[a.name] = row.cpuPerRequest()
				if a.name == "after" {
					r.Measured = row.p50
					if row.achieved < 0.9*judged && r.Void == "" { // what a request costs above the capacity is no part of the incident
						r.Void = fmt.Sprintf("the service answered %.0f of %.0f requests a second after the fix", row.achieved, judged)
					}
				}
			}
		}
	}
	if costs["before"] > 0 && costs["after"] > 0 {
		factors := []float64{costs["before"] / costs["after"]}
		for len(factors) < turns {
			for _, a := range arms {
				if a.name != "before" && a.name != "after" {
					continue
				}
				_, row, err := runArm(ctx, s, service, a, judged, 0, quota)
				if err != nil {
					return nil, err
				}
				costs[a.name] = row.cpuPerRequest()
			}
			factors = append(factors, costs["before"]/costs["after"])
		}
		slices.Sort(factors)
		r.Factor = factors[turns/2]
		if factors[0] < 1 && factors[turns-1] > 1 && r.Void == "" {
			r.Void = fmt.Sprintf("the CPU time of a request before by after was %.2f to %.2f by turns", factors[0], factors[turns-1])
		}
	}
	r.Table = table(rows)
	r.Charts = charts(rows, arms, steps, swept, procs)
	return r, nil
}

// Requests a second: at the low load no finding is expected; the known load measures the cost of a request.
const low, knownLoad = 200., 2000.

// The judged load is sought from the one whose requests need overload times the quota before the fix, by what one costs at a lower
// load. A request costs less CPU time the more there are, so the quota may not be used up yet. The load at which it is gets a margin,
// because costs differ from minute to minute.
const overload, margin = 1.1, 1.3

// turns is how often the CPU time of a request is measured before and after the fix, by turns: it differs by a tenth from minute
// to minute on a machine that has neighbours.
const turns = 3

// recordings is how often a service that was throttled while it was measured is recorded at most, until it is throttled again.
const recordings = 3

// calibrate returns the load at which each arm is recorded and judged, in addition to the low load, in requests a second. CPUs
// differ, and so does the load that uses up a quota: the kernel must throttle the service in a third of the periods.
func calibrate(ctx context.Context, s *stage.Stage, service string, before arm, quota float64) (float64, error) {
	before.name = "how much a request costs"
	rate := knownLoad
	for range 6 {
		_, trial, err := runArm(ctx, s, service, before, rate, 0, quota)
		if err != nil {
			return 0, err
		}
		if trial.cpuPerRequest() <= 0 {
			return 0, errors.New("no CPU time was counted for the service")
		}
		if isThrottled(trial.measured) {
			return math.Round(margin*rate/100) * 100, nil
		}
		rate = math.Round(max(overload*quota/trial.cpuPerRequest(), 1.2*rate)/100) * 100
	}
	return rate, nil
}

// A row has the measurements of one arm at one load.
type row struct {
	arm                     string
	rate, achieved          float64
	requests                int64
	p50, p99, p999, meanCPU int64         // ns
	cpu                     time.Duration // while requests were sent for span
	span                    time.Duration
	memory, threads         int64
	scheduler               float64       // share of CPU time
	measured, recorded      cpugroup.Stat // counted by the kernel while the service was measured, and during its recording if there was one
}

// cpuPerRequest returns the CPU time of a request in s.
func (r *row) cpuPerRequest() float64 {
	return r.cpu.Seconds() / max(1, r.achieved*r.span.Seconds())
}

// isThrottled reports whether the kernel throttled a group in a third of its periods.
func isThrottled(s cpugroup.Stat) bool { return s.Periods > 0 && 3*s.Throttled >= s.Periods }

func table(rows []row) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "arm\tasked/s\tachieved/s\tCPUs\tCPU a request\tscheduler\tmean\tp50\tp99\tp99.9\tmemory\tthreads\tperiods throttled\tthrottled\t")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.2f\t%s\t%.0f %%\t%s\t%s\t%s\t%s\t%s\t%d\t%d of %d\t%s\t\n", r.arm, r.rate, r.achieved, r.cpu.Seconds()/r.span.Seconds(), words.Duration(int64(1e9*r.cpuPerRequest())), 100*r.scheduler, words.Duration(r.meanCPU),
			words.Duration(r.p50), words.Duration(r.p99), words.Duration(r.p999), words.Bytes(r.memory), r.threads, r.measured.Throttled, r.measured.Periods, words.Duration(r.measured.ThrottledNS))
	}
	t.Flush()
	return b.String()
}

// charts returns the charts of the table: each arm over the load, and the sweep over the number of Ps.
func charts(rows []row, arms []arm, steps []float64, swept float64, procs []string) (out []stage.Chart) {
	var loads []string
	for _, step := range steps {
		loads = append(loads, fmt.Sprintf("%.0f/s", step))
	}
	for _, c := range []struct {
		title, unit string
		log         bool
		value       func(*row) float64
	}{
		{"CPU time a request", "ns", false, func(r *row) float64 { return 1e9 * r.cpuPerRequest() }},
		{"The scheduler's share of CPU time", " %", false, func(r *row) float64 { return 100 * r.scheduler }},
		{"Median latency", "ns", true, func(r *row) float64 { return float64(r.p50) }},
		{"99th percentile", "ns", true, func(r *row) float64 { return float64(r.p99) }},
		{"Share of periods throttled", " %", false, func(r *row) float64 { return 100 * float64(r.measured.Throttled) / float64(max(1, r.measured.Periods)) }},
		{"Threads", "", false, func(r *row) float64 { return float64(r.threads) }},
		{"Memory", "bytes", false, func(r *row) float64 { return float64(r.memory) }},
	} {
		chart := stage.Chart{Title: c.title + " by load", Unit: c.unit, Log: c.log, X: loads}
		for _, a := range arms {
			line := stage.Line{Name: a.name}
			for i := range rows {
				if rows[i].arm == a.name {
					line.Y = append(line.Y, c.value(&rows[i]))
				}
			}
			if len(line.Y) == len(steps) {
				chart.Lines = append(chart.Lines, line)
			}
		}
		out = append(out, chart)
	}
	sweep := stage.Chart{Title: fmt.Sprintf("Latency by GOMAXPROCS at %.0f requests a second", swept), Unit: "ns", Log: true, X: procs, Lines: []stage.Line{{Name: "p50"}, {Name: "p99"}, {Name: "p99.9"}}}
	for i := range rows {
		if r := &rows[i]; r.rate == swept {
			for k, v := range []int64{r.p50, r.p99, r.p999} {
				sweep.Lines[k].Y = append(sweep.Lines[k].Y, float64(v))
			}
		}
	}
	if len(sweep.Lines[0].Y) == len(procs) {
		out = append(out, sweep)
	}
	return out
}

// runArm runs the service as an arm at one load and measures it. At the low and the judged load it also records and judges it.
func runArm(ctx context.Context, s *stage.Stage, service string, a arm, step, judged, quota float64) (*stage.Arm, row, error) {
	result := row{arm: a.name, rate: step}
	ports, err := freeport.Find(1)
	if err != nil {
		return nil, result, err
	}
	address := "127.0.0.1:" + ports[0]
	server, err := s.Start(ctx, stage.Program{
		Name: fmt.Sprintf("the service, %s, for %.0f requests a second", a.name, step), Ready: "http://" + address + "/ready",
		Args: []string{service, "-listen", address, "-procs", a.procs}, Env: a.env, Quota: quota,
	})
	if err != nil {
		return nil, result, err
	}
	defer server.Stop()
	body, err := json.Marshal(order())
	if err != nil {
		return nil, result, err
	}
	const long = 4 * time.Second
	o := load.Options{
		Targets: []load.Target{{URL: "http://" + address + "/order", Body: body}},
		Phases:  []load.Phase{{StartRate: step, EndRate: step, Duration: long + time.Second}},
		Warmup:  time.Second, Seed: 1, Timeout: 5 * time.Second,
	}
	measured, err := stage.RunUnderLoad(ctx, o, func() (err error) {
		time.Sleep(o.Warmup)
		before, cpuBefore, err := usedBy(server.Group())
		if err != nil {
			return err
		}
		begin := time.Now()
		profile, err := s.TakeProfile(ctx, address, long)
		if err != nil {
			return err
		}
		result.span = time.Since(begin)
		after, cpuAfter, err := usedBy(server.Group())
		if err != nil {
			return err
		}
		result.measured, result.cpu, result.scheduler = after.Minus(before), cpuAfter-cpuBefore, profile.Scheduler()
		result.memory, result.threads = server.Memory(), server.Threads()
		return nil
	})
	if err != nil {
		return nil, result, err
	}
	result.requests, result.achieved, result.meanCPU = measured.Requests, measured.AchievedPerS, measured.MeanNS
	result.p50, result.p99, result.p999 = measured.Intended.P50, measured.Intended.P99, measured.Intended.P999
	name := fmt.Sprintf("%.0f/s", step)
	switch step {
	case low:
	case judged:
		name = "loaded"
	default:
		return nil, result, server.Stop()
	}
	// The recording is judged by what the kernel counted during it: a neighbour that comes or goes between the measurement and the
	// recording changes what a request costs, and with it whether the quota is used up.
	var file string
	var recorded cpugroup.Stat
	for try := 0; try < recordings && (try == 0 || step == judged && isThrottled(result.measured) && !isThrottled(recorded)); try++ {
		if _, err := stage.RunUnderLoad(ctx, o, func() (err error) {
			time.Sleep(o.Warmup)
			before, err := cpugroup.ReadStat(server.Group().Dir)
			if err != nil {
				return err
			}
			file, err = s.Record(ctx, "container-"+strings.NewReplacer(" ", "-", ".", "", ",", "", "/s", "").Replace(a.name+" "+name), address, long)
			if err != nil {
				return err
			}
			after, err := cpugroup.ReadStat(server.Group().Dir)
			recorded = after.Minus(before)
			return err
		}); err != nil {
			return nil, result, err
		}
	}
	result.recorded = recorded
	if err := server.Stop(); err != nil {
		return nil, result, err
	}
	expected := stage.Place{} // at low load the tool must not cry wolf
	if step == judged {
		expected = a.expected
	}
	got, err := s.Judge(ctx, a.name+", "+name, file, expected)
	got.Measure(measured)
	got.Counted = fmt.Sprintf("the kernel counted %d of %d periods throttled, %s in all; the scheduler took %.0f %% of the CPU time", result.measured.Throttled, result.measured.Periods, words.Duration(result.measured.ThrottledNS), 100*result.scheduler)
	return &got, result, err
}

// usedBy returns a group's counters and CPU time.
func usedBy(g *cpugroup.Group) (cpugroup.Stat, time.Duration, error) {
	stat, err := cpugroup.ReadStat(g.Dir)
	if err != nil {
		return stat, 0, err
	}
	used, err := g.CPUTime()
	return stat, used, err
}

// order is what each request sends.
func order() any {
	type line struct {
		Article string  `json:"article"`
		Count   int     `json:"count"`
		Price   float64 `json:"price"`
	}
	o := struct {
		Customer string `json:"customer"`
		Lines    []line `json:"lines"`
	}{Customer: "a customer of long standing"}
	for i := range 20 {
		o.Lines = append(o.Lines, line{fmt.Sprintf("article number %d of the catalogue", i), i, 1.5 * float64(i)})
	}
	return o
}
