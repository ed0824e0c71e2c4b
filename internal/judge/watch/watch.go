// Package watch follows services that are looked at repeatedly: of each look it is given the report, or why there is none,
// and it says what is to be shown: the groups with what their slow requests spend their time on, findings as they appear and
// go, how latency went on, what looking costs, and when the next look may be. It draws nothing, reads no clock and asks nobody;
// what it keeps does not grow with the number of looks.
package watch

import (
	"cmp"
	"slices"
	"time"

	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/report"
)

// Limits on what is kept.
const (
	maxGroups   = 64  // that are remembered
	maxFindings = 64  // those that are gone included
	maxHistory  = 240 // points of a line
	maxJoined   = 12  // looks that percentiles are made of
	joinedFor   = time.Minute
	keepGroup   = 5 * time.Minute // without a request
	keepGone    = 2 * time.Minute // of a finding
	maxParts    = 4               // causes of a group
)

// How many requests percentiles need.
const (
	forP50 = 10
	forP99 = 100
)

// A Look is what came of looking at a service once.
type Look struct {
	At       time.Time // when it ended
	Report   *report.Report
	Snapshot bool          // of a flight recorder, not a trace
	Bytes    int64         // of the recording
	Window   time.Duration // for how long the service was traced for it
	Of       time.Duration // the part of the recording that is shown, from its end; 0: all
	Note     string        // what is to be known of it, such as that it was cut
	// Where there is no report: what happened. Busy says that somebody else takes a trace.
	Trouble string
	Busy    bool
}

// A Service is one that is watched. Its methods may not be called concurrently.
type Service struct {
	name   string
	budget Budget

	looks, failures int // reports in all; failures in a row
	last, before    *report.Report
	good, tried     Look      // the last one that gave a report, and the last one; without their reports
	since           time.Time // of the failures
	cost            Cost
	over            bool
	groups          []*group
	findings        []*finding
}

// New returns a service that nobody has looked at. The name is for people.
func New(name string, b Budget) *Service { return &Service{name: name, budget: b} }

// Reports returns the last report and the one before it, nil where there is none.
func (s *Service) Reports() (last, before *report.Report) { return s.last, s.before }

// Add takes in a look. It returns how long after the look's start the next one may begin, or, where there is no report, how long
// to wait from now; spread is a random number from 0 to 1.
func (s *Service) Add(l Look, spread float64) time.Duration {
	if l.Report == nil {
		if s.failures++; s.failures == 1 {
			s.since = l.At
		}
		s.tried = l
		return retry(s.failures, l.Busy, spread)
	}
	s.looks++
	s.failures = 0
	s.before, s.last = s.last, l.Report
	s.good = l
	s.good.Report = nil
	s.tried = s.good
	s.cost = costOf(l.Report.Input.Events, l.Bytes, l.Window, l.Report.Input.GOMAXPROCS, l.Snapshot)
	s.addGroups(l)
	s.addFindings(l)
	every, over := s.budget.Every(s.cost)
	s.over = over
	return every
}

// A group is requests of one kind over several looks.
type group struct {
	kind    report.Kind
	name    string
	weight  float64 // latency in all, of recent looks more: the order
	seen    time.Time
	looks   []part // the last of them
	history []Point
	now     *report.Group // in the last look, nil if it has none
	causes  []Part        // of the last look that had requests
}

// part is what one look adds to a group's percentiles.
type part struct {
	at        time.Time
	histogram [][2]int64
	count     int
	max       int64
	p50, p99  *int64 // as the report has them, of one look alone
}

func (s *Service) addGroups(l Look) {
	r := l.Report
	for _, g := range s.groups {
		g.weight *= 0.7
		g.now = nil
	}
	for i := range r.Groups {
		rg := &r.Groups[i]
		if rg.Role != report.RoleRequests {
			continue
		}
		g := s.group(rg)
		g.now, g.seen = rg, l.At
		g.weight += float64(rg.TotalNS) / float64(max(r.Input.DurationNS, 1))
		if rg.Count == 0 {
			continue
		}
		g.causes = parts(r, rg)
		g.looks = append(g.looks, part{l.At, rg.Histogram, rg.Count, value(rg.LatencyNS.Max), rg.LatencyNS.P50, rg.LatencyNS.P99})
		if extra := len(g.looks) - maxJoined; extra > 0 {
			g.looks = slices.Delete(g.looks, 0, extra)
		}
	}
	s.groups = slices.DeleteFunc(s.groups, func(g *group) bool { return g.now == nil && l.At.Sub(g.seen) > keepGroup })
	// Those of which nothing is known but that some are open come last.
	slices.SortStableFunc(s.groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(b2i(len(b.looks) > 0), b2i(len(a.looks) > 0)), cmp.Compare(b.weight, a.weight))
	})
	if len(s.groups) > maxGroups {
		clear(s.groups[maxGroups:])
		s.groups = s.groups[:maxGroups]
	}
	for _, g := range s.groups {
		// A look without requests is a gap in the line.
		p := Point{At: l.At}
		if g.now != nil && g.now.Count > 0 {
			p.NS = new(int64)
			if *p.NS = value(g.now.LatencyNS.Max); g.now.LatencyNS.P99 != nil {
				*p.NS = *g.now.LatencyNS.P99
			}
			if len(g.causes) > 0 {
				p.Cause, p.Share = g.causes[0].Cause, g.causes[0].Share
			}
		}
		g.history = append(g.history, p)
		if extra := len(g.history) - maxHistory; extra > 0 {
			g.history = slices.Delete(g.history, 0, extra)
		}
	}
}

func (s *Service) group(rg *report.Group) *group {
	for _, g := range s.groups {
		if g.kind == rg.Kind && g.name == rg.Name {
			return g
		}
	}
	g := &group{kind: rg.Kind, name: rg.Name}
	s.groups = append(s.groups, g)
	return g
}

// parts are the largest causes of a group's slow requests.
func parts(r *report.Report, g *report.Group) []Part {
	out := []Part{}
	sums := verdict.Causes(r, g, g.Tail())
	for i := range sums[:min(len(sums), maxParts)] {
		c := &sums[i]
		p := Part{Cause: c.Cause, Kind: c.Kind, Share: c.Share, Words: c.Words}
		if len(c.Sites) > 0 {
			p.Site, p.Place = c.Sites[0].Site, names.SiteText(c.Sites[0].Site.OwnLine(), wide)
		}
		out = append(out, p)
	}
	return out
}

// wide is room for a place that nothing bounds.
const wide = 160

// joined adds up the last looks until there are as many requests as a percentile needs, or they are too old.
func (g *group) joined(now time.Time, need int) (sum part, looks int) {
	counts := map[int64]int64{}
	for i := len(g.looks) - 1; i >= 0 && sum.count < need && now.Sub(g.looks[i].at) <= joinedFor; i-- {
		p := &g.looks[i]
		for _, b := range p.histogram {
			counts[b[0]] += b[1]
		}
		if looks == 0 {
			sum.p50, sum.p99 = p.p50, p.p99
		} else {
			sum.p50, sum.p99 = nil, nil
		}
		sum.count += p.count
		sum.max = max(sum.max, p.max)
		looks++
	}
	for bound, n := range counts {
		sum.histogram = append(sum.histogram, [2]int64{bound, n})
	}
	slices.SortFunc(sum.histogram, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	return sum, looks
}

// quantile is by nearest rank, as the report's; a bucket stands for its upper bound, but no request took longer than the longest.
func (p *part) quantile(hundredths int) *int64 {
	switch {
	case hundredths == 50 && p.p50 != nil:
		return p.p50
	case hundredths == 99 && p.p99 != nil:
		return p.p99
	}
	rank, n := (int64(p.count)*int64(hundredths)+99)/100, int64(0)
	for _, b := range p.histogram {
		if n += b[1]; n >= rank && n > 0 {
			return new(min(b[0], p.max))
		}
	}
	return nil
}

// A finding is what a rule says, over several looks.
type finding struct {
	Finding     // as it is shown, but for State and Of
	begin   int // the look in which it was first seen
	now     bool
	back    bool // the look before had it not, but an earlier one
	at      int  // the last look that had it
}

func (s *Service) addFindings(l Look) {
	r := l.Report
	for _, f := range s.findings {
		f.now = false
	}
	for i := range r.Findings {
		rf := &r.Findings[i]
		if rf.Ignored != "" {
			continue
		}
		seen := Finding{Code: rf.Code, Site: rf.Site, Since: l.At}
		var in []string
		if g := r.Group(rf.Group); g != nil {
			in = []string{names.GroupName(g, wide)}
		}
		at := slices.IndexFunc(s.findings, func(f *finding) bool { return f.Same(&seen) })
		if at < 0 {
			at = len(s.findings)
			s.findings = append(s.findings, &finding{begin: s.looks, Finding: seen})
		}
		f := s.findings[at]
		if f.now { // in another group; the first one is the weightiest
			if len(in) > 0 && !slices.Contains(f.Groups, in[0]) {
				f.Groups = append(f.Groups, in[0])
			}
			continue
		}
		f.back = f.Seen > 0 && f.at < s.looks-1
		f.now, f.at, f.Last, f.Seen = true, s.looks, l.At, f.Seen+1
		f.Severity, f.Title, f.Fix, f.Site, f.Groups = rf.Severity, rf.Title, rf.Fix, rf.Site, in
	}
	s.findings = slices.DeleteFunc(s.findings, func(f *finding) bool { return !f.now && l.At.Sub(f.Last) > keepGone })
	slices.SortStableFunc(s.findings, func(a, b *finding) int {
		return cmp.Or(cmp.Compare(b2i(b.now), b2i(a.now)), cmp.Compare(severity(a), severity(b)), a.Since.Compare(b.Since))
	})
	if len(s.findings) > maxFindings {
		clear(s.findings[maxFindings:])
		s.findings = s.findings[:maxFindings]
	}
}

func severity(f *finding) int { return slices.Index(report.Severities(), f.Severity) }

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func value(p *int64) int64 {
	if p == nil {
		return 0
	}
	return *p
}
