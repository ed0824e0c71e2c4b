package watch

import (
	"time"

	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/report"
)

// Schema is the value of State.Schema. Fields may be added, never renamed.
const Schema = "whylate.watch/v1"

// A State contains everything that is shown of a service after a poll. It shares no memory with the Service, which changes.
type State struct {
	Schema  string    `json:"schema"`
	Service string    `json:"service"`
	Time    time.Time `json:"at"` // of the last poll
	// Polls counts the polls that gave a report.
	Polls int `json:"looks"`
	// Problem says why the last poll gave no report, TriedSince is the first poll without one, and Failures the number of such polls.
	// All else is then of the last report, from ReportAt.
	Problem    string     `json:"trouble,omitempty"`
	Failures   int        `json:"failures,omitempty"`
	TriedSince *time.Time `json:"tried_since,omitempty"`
	ReportAt   *time.Time `json:"report_at"`
	Note       string     `json:"note,omitempty"`

	Snapshot   bool      `json:"snapshot"`    // of the service's flight recorder, not a trace
	DurationNS int64     `json:"duration_ns"` // of the shown part of the recording
	Bytes      int64     `json:"bytes"`
	Requests   int       `json:"requests"`
	Observer   int       `json:"observer"` // requests of watchers, which are left out
	Cost       CostState `json:"cost"`
	Groups     []Group   `json:"groups"`
	Findings   []Finding `json:"findings"`
	// Verdict says in a sentence what the slow requests of the first group spent their time on.
	Verdict string `json:"verdict,omitempty"`
}

// CostState is the estimated cost of watching for the service (docs/watch.md).
type CostState struct {
	CPUNS            int64   `json:"cpu_ns"` // of one poll, of the service's CPUs
	ShareDuringTrace float64 `json:"while_share"`
	Share            float64 `json:"share"` // of its CPUs, over all the time
	Budget           float64 `json:"budget"`
	IntervalNS       int64   `json:"every_ns"` // from poll to poll
	Exceeded         bool    `json:"over"`     // the budget cannot be kept
}

// A Group is requests of one kind.
type Group struct {
	Name string      `json:"name"`
	Kind report.Kind `json:"kind"`
	// Count and PerSecond are of the last poll; Open counts the requests that had not ended in it.
	Count     int     `json:"count"`
	PerSecond float64 `json:"per_second"`
	Open      int     `json:"open"`
	// Percentiles are of the last poll, or also of those before it if it has too few requests, of at most a minute: of PercentilePolls
	// polls with PercentileRequests requests. An unknown percentile is null.
	P50NS              *int64 `json:"p50_ns"`
	P99NS              *int64 `json:"p99_ns"`
	MaxNS              *int64 `json:"max_ns"`
	PercentileRequests int    `json:"of"`
	PercentilePolls    int    `json:"joined"`
	// Causes are the largest causes of the slow requests in the last poll with requests; Idle says that this is not the last poll.
	Causes  []Part  `json:"causes"`
	Idle    bool    `json:"idle,omitempty"`
	History []Point `json:"history"`
}

// A Part is a cause of slow requests, with its share of their time.
type Part struct {
	Cause report.CauseName `json:"cause"`
	Kind  string           `json:"kind,omitempty"`
	Share float64          `json:"share"`
	Words string           `json:"words"`
	Site  *report.Site     `json:"site"`
	Place string           `json:"place,omitempty"`
}

// A Point is a group in one poll: its p99, or its slowest request if there were too few; null if there were none.
type Point struct {
	Time  time.Time        `json:"at"`
	NS    *int64           `json:"ns"`
	Cause report.CauseName `json:"cause,omitempty"`
	Share float64          `json:"share,omitempty"`
}

// State returns the current state for the display, which later polls do not change.
func (s *Service) State() State {
	out := State{Schema: Schema, Service: s.name, Time: s.lastPoll.Time, Polls: s.polls, Failures: s.failures, Problem: s.lastPoll.Problem, Groups: []Group{}, Findings: []Finding{}}
	if s.failures > 0 {
		out.TriedSince = new(s.failingSince)
	}
	out.Cost = CostState{CPUNS: int64(s.cost.CPU), ShareDuringTrace: s.cost.ShareDuringTrace(), Budget: s.budget.Share, Exceeded: s.exceeded}
	interval, _ := s.budget.Interval(s.cost)
	out.Cost.IntervalNS = int64(interval)
	if s.lastReport == nil {
		return out
	}
	time := s.lastSuccess.Time
	out.ReportAt = &time
	out.Cost.Share = s.cost.shareOf(interval)
	out.Snapshot, out.Bytes, out.Note = s.lastSuccess.Snapshot, s.lastSuccess.Bytes, s.lastSuccess.Note
	in := &s.lastReport.Input
	out.DurationNS, out.Observer = in.DurationNS, in.Observer
	if s.lastSuccess.ShownPart > 0 {
		out.DurationNS = min(int64(s.lastSuccess.ShownPart), in.DurationNS)
	}
	for _, v := range s.lastReport.Verdict[:min(len(s.lastReport.Verdict), 1)] {
		out.Verdict = v.Text
	}
	for _, g := range s.groups {
		out.Groups = append(out.Groups, g.state(time, out.DurationNS))
		out.Requests += out.Groups[len(out.Groups)-1].Count
	}
	for _, f := range s.findings {
		out.Findings = append(out.Findings, f.state(s.polls))
	}
	return out
}

// state returns the group for the display at a time. window is the length of the last poll's trace in ns, for the rate.
// Percentiles are over as many polls as they need.
func (g *group) state(time time.Time, window int64) Group {
	out := Group{Name: g.name, Kind: g.kind, Causes: g.causes, Idle: true, History: append([]Point(nil), g.history...)}
	if out.Causes == nil {
		out.Causes = []Part{}
	}
	if r := g.current; r != nil {
		out.Name = names.GroupName(r, maxNameWidth)
		out.Count, out.Open, out.Idle = r.Count, r.Open.Count, r.Count == 0
		if window > 0 {
			out.PerSecond = float64(r.Count) / (float64(window) / 1e9)
		}
	} else {
		out.Name = names.GroupName(&report.Group{Name: g.name, Kind: g.kind}, maxNameWidth)
	}
	sum, looks := g.sumPolls(time, minForP99)
	out.PercentileRequests, out.PercentilePolls = sum.count, looks
	if sum.count > 0 {
		out.MaxNS = new(sum.max)
	}
	if sum.count >= minForP99 {
		out.P99NS = sum.quantile(99)
	}
	if sum, _ := g.sumPolls(time, minForP50); sum.count >= minForP50 {
		out.P50NS = sum.quantile(50)
	}
	return out
}
