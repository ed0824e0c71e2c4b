// Package compare compares two reports: which groups of requests became slower or faster, and which parts of their time
// changed. It only reads reports, so it works on saved ones. Its functions depend only on their arguments, and give the same
// result in every run.
//
// Evidence. A difference is evidence only if its confidence interval does not contain zero (see intervals.go) and if it is
// larger than the resolution of the reports. The interval covers how much latency varied *within* the two recordings. It does
// not cover differences between starts of a program, nor another load or another machine: warnings name those that can be
// detected, and the others need recordings of several runs.
package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// Schema is the value of Diff.Schema. Fields may be added, never renamed.
const Schema = "whylate.diff/v1"

// A Diff is the changes from one report to another. Deltas are new minus old, so positive ones are growth.
type Diff struct {
	Schema     string           `json:"schema"`
	Old        Input            `json:"old"`
	New        Input            `json:"new"`
	Confidence float64          `json:"confidence"` // of all intervals of one number, 0..1
	Warnings   []report.Warning `json:"warnings"`
	// Servers compare all requests of a server, for each kind of which a report has several groups. They come first: requests can move
	// between groups, but not away from their server. Their rows have no Tail.
	Servers []Group `json:"servers"`
	// Groups are the groups of both reports: changed ones first, then by the time that the change of the mean is, summed over
	// all requests.
	Groups   []Group    `json:"groups"`
	Appeared []GroupRef `json:"appeared"` // only in the new report, by total latency
	Vanished []GroupRef `json:"vanished"` // only in the old one
	// Findings above info that only one of the reports has, the most severe first.
	NewFindings  []FindingRef `json:"new_findings"`
	GoneFindings []FindingRef `json:"gone_findings"`
}

// Input is one of the two reports.
type Input struct {
	Name       string `json:"name"`
	DurationNS int64  `json:"duration_ns"`
	Go         string `json:"go"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	Truncated  bool   `json:"truncated"`
	Groups     int    `json:"groups"`
	Requests   int    `json:"requests"`
}

// A GroupRef is a group that only one of the reports has.
type GroupRef struct {
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Kind      report.Kind    `json:"kind"`
	Unit      string         `json:"unit,omitempty"` // as in report.Group
	Count     int            `json:"count"`
	Open      int            `json:"open"` // requests that were still running at the end of the trace
	LatencyNS report.Latency `json:"latency_ns"`
}

// A Group is a group of requests in both reports. ID and Name are those of the new one.
type Group struct {
	ID   string      `json:"id"`
	Name string      `json:"name"`
	Kind report.Kind `json:"kind"`
	Unit string      `json:"unit,omitempty"` // as in report.Group
	// Changed reports whether there is evidence of any change, in a latency or in a cause.
	Changed bool `json:"changed"`
	// Confidence is that of each interval, 0..1. With more groups, their intervals are wider.
	Confidence float64 `json:"confidence"`
	// Moved says that requests moved between this group and others of its server: its numbers are those of other requests than before,
	// so they have no intervals and are no evidence.
	Moved bool `json:"moved,omitempty"`
	// Members are, of a server, its groups, the one whose number of requests changed most first.
	Members  []Member `json:"members,omitempty"`
	OldCount int      `json:"old_count"`
	NewCount int      `json:"new_count"`
	OldOpen  int      `json:"old_open"` // requests that were still running at the end of the trace
	NewOpen  int      `json:"new_open"`
	Mean     Change   `json:"mean"`
	P50      Change   `json:"p50"`
	P90      Change   `json:"p90"`
	P99      Change   `json:"p99"`
	// Causes divides the change of the mean: each row is time per request of band all, the largest change first. Rows without
	// time on either side do not exist, so the deltas add up to that of the mean, except for rounding.
	Causes []Row `json:"causes"`
	// Tail divides the mean of band p99-max in the same way. Its rows rank the causes of the slowest requests;
	// they have no intervals, because the blocks of a report are not divided by band. P99 shows whether the tail changed.
	Tail []Row `json:"tail"`
}

// A Member is a group of a server's requests.
type Member struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	OldCount int    `json:"old_count"`
	NewCount int    `json:"new_count"`
	// Moved says that its share of the requests changed by more than chance explains, in a server some of whose requests show no
	// handler.
	Moved bool `json:"moved,omitempty"`
}

// A Change is one number of a group, before and after, in ns. Unknown values are null.
type Change struct {
	Old   *int64 `json:"old_ns"`
	New   *int64 `json:"new_ns"`
	Delta *int64 `json:"delta_ns"`
	// Low and High bound the delta; null if a recording is too short for an interval.
	Low      *int64 `json:"low_ns"`
	High     *int64 `json:"high_ns"`
	Evidence bool   `json:"evidence"`
	// Episodes is set for a percentile that is half as long again on one side, without evidence.
	Episodes *Episodes `json:"episodes,omitempty"`
	// Probable says of a number that is half as long again on one side, without evidence, that a narrower interval of its change does not contain
	// 0, or that chance rarely divides its episodes so unevenly. That is a hint, which a longer recording may make evidence.
	Probable bool `json:"probable,omitempty"`
}

// Episodes are numbers of times, each of one or more of a report's blocks in turn, in which some requests were slower than the middle
// of both sides' percentiles. Few episodes may be chance, however many requests each of them made slow.
type Episodes struct {
	Old int `json:"old"`
	New int `json:"new"`
	// Chance is the probability that chance divides them at least as unevenly between the recordings, if nothing changed.
	Chance float64 `json:"chance"`
}

// String returns the numbers and, where it is small, the chance.
func (e *Episodes) String() string {
	text := fmt.Sprintf("slow requests in %s before, %d after", words.Count(e.Old, "episode", "episodes"), e.New)
	if e.Chance <= maxHintChance {
		text += fmt.Sprintf(", which chance alone does once in %.0f", 1/e.Chance)
	}
	return text
}

// A Number is a latency of a group, with its name in a budget.
type Number struct {
	Name string
	*Change
}

// Numbers returns the latencies of a group.
func (g *Group) Numbers() []Number {
	return []Number{{"mean", &g.Mean}, {"p50", &g.P50}, {"p90", &g.P90}, {"p99", &g.P99}}
}

// Latencies returns the latencies before and after.
func (g *Group) Latencies() (old, new report.Latency) {
	return report.Latency{Mean: g.Mean.Old, P50: g.P50.Old, P90: g.P90.Old, P99: g.P99.Old}, report.Latency{Mean: g.Mean.New, P50: g.P50.New, P90: g.P90.New, P99: g.P99.New}
}

// Ratio returns delta/old, 0 if it is unknown.
func (c *Change) Ratio() float64 {
	if c.Old == nil || c.Delta == nil || *c.Old == 0 {
		return 0
	}
	return float64(*c.Delta) / float64(*c.Old)
}

// A Row is the time of one cause at one site, in ns per request.
type Row struct {
	Cause report.CauseName `json:"cause"`
	Kind  string           `json:"kind,omitempty"`
	// OldSite and NewSite differ if lines moved; null on a side that does not have the row, or if the site is unknown.
	OldSite *report.Site `json:"old_site"`
	NewSite *report.Site `json:"new_site"`
	OldNS   int64        `json:"old_ns"`
	NewNS   int64        `json:"new_ns"`
	DeltaNS int64        `json:"delta_ns"`
	LowNS   *int64       `json:"low_ns"`
	HighNS  *int64       `json:"high_ns"`
	// Evidence is valid for all rows of a group together: with more rows, their intervals are wider.
	Evidence bool `json:"evidence"`
	// Via is the wait chain to the cause on the side on which it takes more time.
	Via []report.Via `json:"via"`
	// AheadWork is, for cause queue, the work of those ahead at the end of Via.
	AheadWork *report.Work `json:"behind,omitempty"`
}

// Site returns the site on the side on which the row takes more time. It may be nil.
func (r *Row) Site() *report.Site {
	if r.NewSite == nil || r.OldSite != nil && r.OldNS > r.NewNS {
		return r.OldSite
	}
	return r.NewSite
}

// Populations returns the servers, then the groups, as pointers into d.
func (d *Diff) Populations() []*Group {
	var list []*Group
	for i := range d.Servers {
		list = append(list, &d.Servers[i])
	}
	for i := range d.Groups {
		list = append(list, &d.Groups[i])
	}
	return list
}

// IsEmpty reports whether no server and no group changed, and no group appeared or vanished.
func (d *Diff) IsEmpty() bool {
	return len(d.Appeared) == 0 && len(d.Vanished) == 0 && !slices.ContainsFunc(d.Populations(), func(g *Group) bool { return g.Changed })
}

// Reports compares two reports, the earlier one first. It does not change them, but the result shares parts of them.
func Reports(old, new *report.Report) *Diff {
	d := &Diff{
		Schema: Schema, Old: inputOf(old), New: inputOf(new), Confidence: Confidence, Warnings: comparabilityWarnings(old, new),
		Servers: []Group{}, Groups: []Group{}, Appeared: []GroupRef{}, Vanished: []GroupRef{},
	}
	moved := map[*report.Group]bool{}
	quiet := isQuiet(old) && isQuiet(new)
	d.compareServers(old, new, quiet, moved)
	pairs, vanished, appeared := matchGroups(old.Groups, new.Groups)
	// The probability of a false alarm is divided between the servers and the groups, and among the groups that can be judged.
	alpha, judged := 1-Confidence, 0
	if len(d.Servers) > 0 {
		alpha /= 2
	}
	for _, p := range pairs {
		if hasInterval(p[0]) && hasInterval(p[1]) && !moved[p[0]] {
			judged++
		}
	}
	for _, p := range pairs {
		g := compareGroups(p[0], p[1], test{alpha / float64(max(judged, 1)), quiet})
		if moved[p[0]] {
			g.withdraw()
		}
		d.Groups = append(d.Groups, g)
	}
	weight := func(g *Group) float64 {
		if g.Mean.Delta == nil {
			return 0
		}
		return math.Abs(float64(*g.Mean.Delta)) * float64(g.OldCount+g.NewCount)
	}
	slices.SortStableFunc(d.Groups, func(a, b Group) int {
		if a.Changed != b.Changed {
			if a.Changed {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(weight(&b), weight(&a)), cmp.Compare(a.ID, b.ID))
	})
	for _, g := range vanished {
		d.Vanished = append(d.Vanished, refOf(g))
	}
	for _, g := range appeared {
		d.Appeared = append(d.Appeared, refOf(g))
	}
	d.NewFindings, d.GoneFindings = onlyIn(new, old), onlyIn(old, new)
	return d
}

// withdraw marks a group as one to or from which requests moved, and removes the intervals, hints and evidence from its numbers and causes.
func (g *Group) withdraw() {
	g.Moved, g.Changed = true, false
	for _, n := range g.Numbers() {
		n.Low, n.High, n.Evidence, n.Probable = nil, nil, false, false
	}
	for i := range g.Causes {
		g.Causes[i].LowNS, g.Causes[i].HighNS, g.Causes[i].Evidence = nil, nil, false
	}
}

// inputOf returns the facts of a report's recording, and its numbers of groups and requests.
func inputOf(r *report.Report) Input {
	in := Input{
		Name: r.Input.Name, DurationNS: r.Input.DurationNS, Go: r.Input.Go, GOMAXPROCS: r.Input.GOMAXPROCS, Truncated: r.Input.Truncated,
		Groups: len(r.Groups),
	}
	for i := range r.Groups {
		in.Requests += r.Groups[i].Count
	}
	return in
}

func refOf(g *report.Group) GroupRef {
	return GroupRef{ID: g.ID, Name: g.Name, Kind: g.Kind, Unit: g.Unit, Count: g.Count, Open: g.Open.Count, LatencyNS: g.LatencyNS}
}

// matchGroups pairs groups by id, then by kind and name. A pair is [old, new]. The others are in the order of their report. All point into old and
// new.
func matchGroups(old, new []report.Group) (pairs [][2]*report.Group, onlyOld, onlyNew []*report.Group) {
	partner := make([]int, len(new)) // index into old, +1
	used := make([]bool, len(old))
	for _, isSame := range []func(a, b *report.Group) bool{
		func(a, b *report.Group) bool { return a.ID != "" && a.ID == b.ID },
		func(a, b *report.Group) bool { return a.Kind == b.Kind && a.Name == b.Name },
	} {
		for j := range new {
			for i := 0; i < len(old) && partner[j] == 0; i++ {
				if !used[i] && isSame(&old[i], &new[j]) {
					partner[j], used[i] = i+1, true
				}
			}
		}
	}
	for j := range new {
		if partner[j] > 0 {
			pairs = append(pairs, [2]*report.Group{&old[partner[j]-1], &new[j]})
		} else {
			onlyNew = append(onlyNew, &new[j])
		}
	}
	for i := range old {
		if !used[i] {
			onlyOld = append(onlyOld, &old[i])
		}
	}
	return pairs, onlyOld, onlyNew
}

// latencies returns a group's latencies, in the order of Group.Numbers.
func latencies(g *report.Group) [4]*int64 {
	l := &g.LatencyNS
	return [4]*int64{l.Mean, l.P50, l.P90, l.P99}
}

// roundBound rounds a bound to whole ns, within the range of an int64.
func roundBound(v float64) *int64 {
	return new(int64(math.Round(max(min(v, math.MaxInt64/2), math.MinInt64/2))))
}

// slowestBand returns the band of the slowest 1 %, whose mean Group.Tail divides; an empty one if the group has none.
func slowestBand(g *report.Group) *report.Band {
	if b := g.Band(report.Band99); b != nil {
		return b
	}
	return &report.Band{Band: report.Band99}
}
