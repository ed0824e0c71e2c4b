package watch

import (
	"time"

	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/report"
)

// Schema is the value of State.Schema. Fields may be added, never renamed.
const Schema = "whylate.watch/v1"

// A State is all that is shown of a service after a look. It shares nothing with the Service that changes.
type State struct {
	Schema  string    `json:"schema"`
	Service string    `json:"service"`
	At      time.Time `json:"at"` // of the last try
	// Looks counts those that gave a report.
	Looks int `json:"looks"`
	// Trouble says why the last try gave none, TriedSince since when none did, Failures how often in a row. What else is
	// told is then of the last report, from ReportAt.
	Trouble    string     `json:"trouble,omitempty"`
	Failures   int        `json:"failures,omitempty"`
	TriedSince *time.Time `json:"tried_since,omitempty"`
	ReportAt   *time.Time `json:"report_at"`
	Note       string     `json:"note,omitempty"`

	Snapshot   bool      `json:"snapshot"`    // of the service's flight recorder, no trace
	DurationNS int64     `json:"duration_ns"` // of the part of the recording that is shown
	Bytes      int64     `json:"bytes"`
	Requests   int       `json:"requests"`
	Observer   int       `json:"observer"` // requests of whoever watches, which are left out
	Cost       CostState `json:"cost"`
	Groups     []Group   `json:"groups"`
	Findings   []Finding `json:"findings"`
	// Verdict says in a sentence what the slow requests of the first group spent their time on.
	Verdict string `json:"verdict,omitempty"`
}

// CostState is what watching costs the service, by estimate (docs/watch.md).
type CostState struct {
	CPUNS      int64   `json:"cpu_ns"` // of one look, of the service's CPUs
	WhileShare float64 `json:"while_share"`
	Share      float64 `json:"share"` // of its CPUs, over all the time
	Budget     float64 `json:"budget"`
	EveryNS    int64   `json:"every_ns"` // from look to look
	Over       bool    `json:"over"`     // the budget cannot be kept
}

// A Group is requests of one kind.
type Group struct {
	Name string      `json:"name"`
	Kind report.Kind `json:"kind"`
	// Count is of the last look, PerSecond likewise; Open had not ended in it.
	Count     int     `json:"count"`
	PerSecond float64 `json:"per_second"`
	Open      int     `json:"open"`
	// Percentiles are of the last look, or of as many before it as it takes to know them, a minute at most: of Joined
	// looks with Of requests. What is not known is null.
	P50NS  *int64 `json:"p50_ns"`
	P99NS  *int64 `json:"p99_ns"`
	MaxNS  *int64 `json:"max_ns"`
	Of     int    `json:"of"`
	Joined int    `json:"joined"`
	// Causes are the largest of the slow requests', of the last look with any; Idle says that this is not the last one.
	Causes  []Part  `json:"causes"`
	Idle    bool    `json:"idle,omitempty"`
	History []Point `json:"history"`
}

// A Part is what slow requests spent a part of their time on.
type Part struct {
	Cause report.CauseName `json:"cause"`
	Kind  string           `json:"kind,omitempty"`
	Share float64          `json:"share"`
	Words string           `json:"words"`
	Site  *report.Site     `json:"site"`
	Place string           `json:"place,omitempty"`
}

// A Point is a group in one look: its p99, or its slowest request where there were too few; null if there were none.
type Point struct {
	At    time.Time        `json:"at"`
	NS    *int64           `json:"ns"`
	Cause report.CauseName `json:"cause,omitempty"`
	Share float64          `json:"share,omitempty"`
}

// A Finding is what a rule says, or said until a while ago.
type Finding struct {
	Code     report.RuleCode `json:"code"`
	Severity report.Severity `json:"severity"`
	Title    string          `json:"title"`
	Fix      string          `json:"fix"`
	Site     *report.Site    `json:"site"`
	Groups   []string        `json:"groups"` // in which it shows, the weightiest first
	State    FindingState    `json:"state"`
	Since    time.Time       `json:"since"`
	Last     time.Time       `json:"last"`
	// Seen of the Of looks since then had it.
	Seen int `json:"seen"`
	Of   int `json:"of"`
}

// Same reports whether both are one fault, in whichever groups it shows: from look to look these may be others.
func (f *Finding) Same(o *Finding) bool {
	return f.Code == o.Code && f.Site.LineKey() == o.Site.LineKey()
}

// A FindingState says how a finding stands after the last look.
type FindingState string

// States.
const (
	StateNew   FindingState = "new"   // for the first time
	StateAgain FindingState = "again" // the look before had it not, an earlier one had
	StateStill FindingState = "still"
	StateGone  FindingState = "gone"
)

// State returns what there is to show.
func (s *Service) State() State {
	out := State{Schema: Schema, Service: s.name, At: s.tried.At, Looks: s.looks, Failures: s.failures, Trouble: s.tried.Trouble, Groups: []Group{}, Findings: []Finding{}}
	if s.failures > 0 {
		out.TriedSince = new(s.since)
	}
	out.Cost = CostState{CPUNS: int64(s.cost.CPU), WhileShare: s.cost.While(), Budget: s.budget.Share, Over: s.over}
	every, _ := s.budget.Every(s.cost)
	out.Cost.EveryNS = int64(every)
	if s.last == nil {
		return out
	}
	at := s.good.At
	out.ReportAt = &at
	out.Cost.Share = s.cost.share(every)
	out.Snapshot, out.Bytes, out.Note = s.good.Snapshot, s.good.Bytes, s.good.Note
	in := &s.last.Input
	out.DurationNS, out.Observer = in.DurationNS, in.Observer
	if s.good.Of > 0 {
		out.DurationNS = min(int64(s.good.Of), in.DurationNS)
	}
	for _, v := range s.last.Verdict[:min(len(s.last.Verdict), 1)] {
		out.Verdict = v.Text
	}
	for _, g := range s.groups {
		out.Groups = append(out.Groups, g.state(at, out.DurationNS))
		out.Requests += out.Groups[len(out.Groups)-1].Count
	}
	for _, f := range s.findings {
		out.Findings = append(out.Findings, f.state(s.looks))
	}
	return out
}

func (g *group) state(now time.Time, window int64) Group {
	out := Group{Name: g.name, Kind: g.kind, Causes: g.causes, Idle: true, History: append([]Point(nil), g.history...)}
	if out.Causes == nil {
		out.Causes = []Part{}
	}
	if r := g.now; r != nil {
		out.Name = names.GroupName(r, wide)
		out.Count, out.Open, out.Idle = r.Count, r.Open.Count, r.Count == 0
		if window > 0 {
			out.PerSecond = float64(r.Count) / (float64(window) / 1e9)
		}
	} else {
		out.Name = names.GroupName(&report.Group{Name: g.name, Kind: g.kind}, wide)
	}
	sum, looks := g.joined(now, forP99)
	out.Of, out.Joined = sum.count, looks
	if sum.count > 0 {
		out.MaxNS = new(sum.max)
	}
	if sum.count >= forP99 {
		out.P99NS = sum.quantile(99)
	}
	if sum, _ := g.joined(now, forP50); sum.count >= forP50 {
		out.P50NS = sum.quantile(50)
	}
	return out
}

func (f *finding) state(looks int) Finding {
	out := f.Finding
	out.Groups, out.Of, out.State = append([]string{}, f.Groups...), looks-f.begin+1, StateStill
	switch {
	case !f.now:
		out.State = StateGone
	case f.Seen == 1:
		out.State = StateNew
	case f.back:
		out.State = StateAgain
	}
	return out
}
