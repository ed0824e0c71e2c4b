package load

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Schema is the value of Result.Schema. Fields may be added, never renamed.
const Schema = "whylate.load/v1"

// Percentiles are points of a distribution in ns, to three significant digits, including the maximum.
type Percentiles struct {
	P50  int64 `json:"p50_ns"`
	P90  int64 `json:"p90_ns"`
	P99  int64 `json:"p99_ns"`
	P999 int64 `json:"p999_ns"`
	Max  int64 `json:"max_ns"`
}

// A Warning is a reason to trust a result less, with advice.
type Warning struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// A Result is the result of a run. Rates are requests per second. The package comment defines
// Intended, Service and Lateness.
type Result struct {
	Schema   string      `json:"schema"`
	Intended Percentiles `json:"intended"`
	Service  Percentiles `json:"service"`
	Lateness Percentiles `json:"lateness"`
	Requests int64       `json:"requests"` // sent, including failed ones, without the warm-up
	Errors   int64       `json:"errors"`   // requests without a successful answer
	TimedOut int64       `json:"timed_out"`
	// Dropped requests were not sent, because too many were in flight. Unanswered ones were in flight
	// when the run was interrupted.
	Dropped    int64 `json:"dropped"`
	Unanswered int64 `json:"unanswered"`
	// RequestedPerS is the rate of the schedule; 0 in a closed loop without a rate. AchievedPerS is the
	// rate of successful answers until the last of them, less the time of one answer (the first half's
	// p99, but at most a twentieth of the run). So a service that keeps up achieves the requested rate,
	// and one that falls behind its capacity.
	RequestedPerS float64   `json:"asked_per_s"`
	AchievedPerS  float64   `json:"achieved_per_s"`
	Valid         bool      `json:"valid"`
	Warnings      []Warning `json:"warnings"`

	Loop       string         `json:"loop"` // open or closed
	Clients    int            `json:"clients,omitempty"`
	Arrivals   Arrivals       `json:"arrivals"`
	Seed       uint64         `json:"seed"`
	DurationNS int64          `json:"duration_ns"` // of the schedule
	MeanNS     int64          `json:"mean_ns"`     // of intended
	Halves     [2]Percentiles `json:"halves"`      // of intended, by due time
	Phases     []PhaseResult  `json:"phases,omitempty"`
	Targets    []TargetResult `json:"targets,omitempty"`
	Status     map[int]int64  `json:"status"` // answers by HTTP status
	// Reasons are the errors by text, the most frequent first.
	Reasons []Reason `json:"reasons,omitempty"`
	Client  Client   `json:"client"`

	Start    time.Time      `json:"start"`
	intended *hdr.Histogram // for the spectrum and the log
	answered int64
}

// A PhaseResult is the part of a result with requests due in one phase.
type PhaseResult struct {
	FromPerS float64     `json:"from_per_s"`
	ToPerS   float64     `json:"to_per_s"`
	Requests int64       `json:"requests"` // with a latency
	Intended Percentiles `json:"intended"`
}

// A TargetResult is the part of a result with requests to one target.
type TargetResult struct {
	Name     string      `json:"name"`
	Requests int64       `json:"requests"`
	Errors   int64       `json:"errors"`
	Intended Percentiles `json:"intended"`
}

// A Reason is an error text with the number of requests that failed with it.
type Reason struct {
	Text  string `json:"text"`
	Count int64  `json:"count"`
}

// Client is the resource usage of the generator.
type Client struct {
	CPUs int `json:"cpus"`
	// CPUShare is the used share of these CPUs, without intended spinning; 0 if unknown.
	CPUShare float64 `json:"cpu_share"`
	// ThrottledNS is how long the generator's own quota throttled it, summed over CPUs; null if
	// unknown.
	ThrottledNS *int64 `json:"throttled_ns"`
}

// percentiles returns the percentiles of a histogram in ns; zeros without values.
func percentiles(h *hdr.Histogram) Percentiles {
	if h == nil || h.TotalCount() == 0 {
		return Percentiles{}
	}
	return Percentiles{quantile(h, 0.5), quantile(h, 0.9), quantile(h, 0.99), quantile(h, 0.999), h.Max()}
}

// quantile returns the value at the nearest rank: the smallest value such that at least the share q of
// all values is at or below it. The library rounds the rank instead, which gives the value before that
// if there are few values.
func quantile(h *hdr.Histogram, q float64) int64 {
	n := float64(h.TotalCount())
	return h.ValueAtPercentile(100 * math.Ceil(q*n-1e-6) / n)
}

// warn adds a warning. Unless valid is true, the result is not valid any more.
func (r *Result) warn(valid bool, code, format string, args ...any) {
	r.Warnings = append(r.Warnings, Warning{code, fmt.Sprintf(format, args...)})
	r.Valid = r.Valid && valid
}

// newResult merges all recorders into the first one and returns the result of the run.
func (g *generator) newResult() *Result {
	total := g.recorders[0]
	for _, r := range g.recorders[1:] {
		total.merge(r)
	}
	r := &Result{
		Schema: Schema, Valid: true, Warnings: []Warning{}, Loop: "open", Clients: g.options.ClosedClients, Arrivals: g.options.Arrivals, Seed: g.options.Seed,
		Intended: percentiles(total.intended), Service: percentiles(total.service), Lateness: percentiles(total.lateness),
		Requests: total.sent, Errors: total.failed, TimedOut: total.timedOut, Dropped: g.dropped, Unanswered: g.unanswered.Load(),
		DurationNS: g.schedule.duration, MeanNS: int64(total.intended.Mean()), Status: total.statusCounts, Start: g.start,
		Halves: [2]Percentiles{percentiles(total.halves[0]), percentiles(total.halves[1])}, intended: total.intended, answered: total.answered,
	}
	if g.options.ClosedClients > 0 {
		r.Loop = "closed"
	}
	if g.options.hasRate() {
		r.RequestedPerS = float64(g.schedule.Len()) / (float64(g.schedule.duration) / 1e9)
	}
	achievedTime := max(g.schedule.duration, total.lastEnd-min(r.Halves[0].P99, g.schedule.duration/20))
	if total.answered > 0 && g.requestContext.Err() != nil { // cut short
		achievedTime = max(1, total.lastEnd)
	}
	r.AchievedPerS = float64(total.answered) / (float64(achievedTime) / 1e9)
	for i, h := range total.phases {
		p := g.options.Phases[i]
		res := PhaseResult{FromPerS: p.StartRate, ToPerS: p.EndRate, Intended: percentiles(h)}
		if h != nil {
			res.Requests = h.TotalCount()
		}
		r.Phases = append(r.Phases, res)
	}
	for i, h := range total.targets {
		r.Targets = append(r.Targets, TargetResult{g.options.Targets[i].name(), total.targetCounts[i], total.targetErrors[i], percentiles(h)})
	}
	for text, n := range total.errorCounts {
		r.Reasons = append(r.Reasons, Reason{text, n})
	}
	slices.SortFunc(r.Reasons, func(a, b Reason) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Text, b.Text)) })
	r.Client = Client{CPUs: g.options.CPUs}
	if wall := g.ownUsage.wall.Sub(g.usageBefore.wall); wall > 0 {
		r.Client.CPUShare = max(0, float64(g.ownUsage.cpu-g.spinTime)/float64(wall)/float64(g.options.CPUs))
	}
	if g.ownUsage.hasThrottled {
		r.Client.ThrottledNS = new(int64(g.ownUsage.throttled))
	}
	r.checkGates(g.ownUsage.wall.Sub(g.usageBefore.wall))
	return r
}

// Thresholds of the gates. Beyond a warn threshold the result has a warning, beyond a max or min threshold its figures
// no longer describe the service and it is invalid.
const (
	minAchieved   = 0.99  // of the requested rate
	warnErrors    = 0.001 // of the requests: a warning
	maxErrors     = 0.01  // invalid
	warnLateness  = 0.1   // of the latency, at p50 and at p99: a warning
	maxLateness   = 0.5   // invalid
	warnCPU       = 0.7   // of the generator's CPUs: a warning
	maxCPU        = 0.9   // invalid
	warnThrottled = 0.001 // of the time: a warning
	maxThrottled  = 0.01  // invalid
	// Under a constant load the medians of a run's halves differ by chance, but not by this ratio with 100 requests in each half.
	warnHalvesRatio = 1.5
	minPerHalf      = 100
	minForP99       = 100
	minForP999      = 1000
)

// firstReason returns the most frequent error as text in brackets, "" if there was none.
func (r *Result) firstReason() string {
	if len(r.Reasons) == 0 {
		return ""
	}
	return " (" + r.Reasons[0].Text + ")"
}

func ratio(part, whole int64) float64 { return float64(part) / float64(max(1, whole)) }
