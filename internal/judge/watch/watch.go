// Package watch follows services that are polled repeatedly. It receives the report of each poll, or the reason why there is
// none, and computes the display: the groups with the causes of their slow requests, findings as they appear and vanish,
// latency over time, the cost of polling, and when the next poll may begin. It does not draw, read a clock or connect to
// services; its memory does not grow with the number of polls.
package watch

import (
	"cmp"
	"slices"
	"time"

	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/report"
)

// Limits of memory.
const (
	maxGroups      = 64  // in memory
	maxFindings    = 64  // including vanished ones
	maxHistory     = 240 // points of a line
	maxJoinedPolls = 12  // polls of a percentile
	maxJoinedAge   = time.Minute
	groupRetention = 5 * time.Minute // without a request
	goneRetention  = 2 * time.Minute // of a finding
	maxParts       = 4               // causes of a group
)

// How many requests percentiles need.
const (
	minForP50 = 10
	minForP99 = 100
)

// A Poll is the result of polling a service once.
type Poll struct {
	Time      time.Time // when it ended
	Report    *report.Report
	Snapshot  bool          // of a flight recorder, not a trace
	Bytes     int64         // of the recording
	Window    time.Duration // the duration of its trace
	ShownPart time.Duration // the shown part of the recording, up to its end; 0 for all
	Note      string        // a remark for the display, such as that it was cut
	// If there is no report, Problem says why. Busy says that another client takes a trace.
	Problem string
	Busy    bool
}

// A Service is a watched service. Its methods may not be called concurrently.
type Service struct {
	name   string
	budget Budget

	polls, failures            int // reports in all; failures in a row
	lastReport, previousReport *report.Report
	lastSuccess, lastPoll      Poll      // the last one that gave a report, and the last one; without their reports
	failingSince               time.Time // of the failures
	cost                       Cost
	exceeded                   bool
	groups                     []*group
	findings                   []*finding
}

// New returns a service without polls. The name is for display.
func New(name string, b Budget) *Service { return &Service{name: name, budget: b} }

// Reports returns the last report and the one before it, nil if there is none.
func (s *Service) Reports() (last, before *report.Report) { return s.lastReport, s.previousReport }

// Add adds a poll, the latest. It returns the time from the poll's start to that of the next one or, if there is no report, the time to wait from
// now; spread is a random number from 0 to 1.
func (s *Service) Add(l Poll, spread float64) time.Duration {
	if l.Report == nil {
		if s.failures++; s.failures == 1 {
			s.failingSince = l.Time
		}
		s.lastPoll = l
		return retryDelay(s.failures, l.Busy, spread)
	}
	s.polls++
	s.failures = 0
	s.previousReport, s.lastReport = s.lastReport, l.Report
	s.lastSuccess = l
	s.lastSuccess.Report = nil
	s.lastPoll = s.lastSuccess
	s.cost = costOf(l.Report.Input.Events, l.Bytes, l.Window, l.Report.Input.GOMAXPROCS, l.Snapshot)
	s.addGroups(l)
	s.addFindings(l)
	interval, exceeded := s.budget.Interval(s.cost)
	s.exceeded = exceeded
	return interval
}

// A group is requests of one kind over several polls.
type group struct {
	kind     report.Kind
	name     string
	weight   float64 // the sum of latencies, in which recent polls weigh more; groups are sorted by it
	lastSeen time.Time
	polls    []pollStats // the last of them
	history  []Point
	current  *report.Group // in the last poll, nil if that has none
	causes   []Part        // of the last poll with requests
}

// pollStats is the contribution of one poll to a group's percentiles.
type pollStats struct {
	time      time.Time
	histogram [][2]int64
	count     int
	max       int64
	p50, p99  *int64 // the report's, of this poll alone
}

// addGroups adds a poll's requests to the groups, whose weights from earlier polls it reduces. It drops groups that were absent
// for long, and the lightest ones beyond maxGroups.
func (s *Service) addGroups(l Poll) {
	r := l.Report
	for _, g := range s.groups {
		g.weight *= 0.7
		g.current = nil
	}
	for i := range r.Groups {
		rg := &r.Groups[i]
		if rg.Role != report.RoleRequests {
			continue
		}
		g := s.group(rg)
		g.current, g.lastSeen = rg, l.Time
		g.weight += float64(rg.TotalNS) / float64(max(r.Input.DurationNS, 1))
		if rg.Count == 0 {
			continue
		}
		g.causes = largestCauses(r, rg)
		g.polls = append(g.polls, pollStats{l.Time, rg.Histogram, rg.Count, valueOr0(rg.LatencyNS.Max), rg.LatencyNS.P50, rg.LatencyNS.P99})
		if extra := len(g.polls) - maxJoinedPolls; extra > 0 {
			g.polls = slices.Delete(g.polls, 0, extra)
		}
	}
	s.groups = slices.DeleteFunc(s.groups, func(g *group) bool { return g.current == nil && l.Time.Sub(g.lastSeen) > groupRetention })
	// Groups with only open requests come last.
	slices.SortStableFunc(s.groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(boolToInt(len(b.polls) > 0), boolToInt(len(a.polls) > 0)), cmp.Compare(b.weight, a.weight))
	})
	if len(s.groups) > maxGroups {
		clear(s.groups[maxGroups:])
		s.groups = s.groups[:maxGroups]
	}
	for _, g := range s.groups {
		// A poll without requests is a gap in the line.
		p := Point{Time: l.Time}
		if g.current != nil && g.current.Count > 0 {
			p.NS = new(int64)
			if *p.NS = valueOr0(g.current.LatencyNS.Max); g.current.LatencyNS.P99 != nil {
				*p.NS = *g.current.LatencyNS.P99
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

// group returns the group of the same kind and name as rg; if there is none, it adds a new one.
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

// largestCauses returns the causes with the largest shares of the time of a group's slow requests, at most maxParts, the largest first.
func largestCauses(r *report.Report, g *report.Group) []Part {
	out := []Part{}
	sums := verdict.Causes(r, g, g.Tail())
	for i := range sums[:min(len(sums), maxParts)] {
		c := &sums[i]
		p := Part{Cause: c.Cause, Kind: c.Kind, Share: c.Share, Words: c.Words}
		if len(c.Sites) > 0 {
			p.Site, p.Place = c.Sites[0].Site, names.SiteText(c.Sites[0].Site.OwnLine(), maxNameWidth)
		}
		out = append(out, p)
	}
	return out
}

// maxNameWidth is the largest width of a name or a site in a state.
const maxNameWidth = 160

// sumPolls sums the polls of a group from the last one backwards, until they have the requests that a percentile needs (need), or the next one is
// older than maxJoinedAge at the given time. looks is the number of polls.
func (g *group) sumPolls(time time.Time, need int) (sum pollStats, looks int) {
	counts := map[int64]int64{}
	for i := len(g.polls) - 1; i >= 0 && sum.count < need && time.Sub(g.polls[i].time) <= maxJoinedAge; i-- {
		p := &g.polls[i]
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

// quantile returns a quantile in ns, given in hundredths, by nearest rank, as in the report. It uses the upper bound of a bucket, but at most the
// longest latency. It is nil without requests.
func (p *pollStats) quantile(hundredths int) *int64 {
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

// boolToInt returns 1 for true and 0 for false.
func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// valueOr0 returns *p, or 0 for nil.
func valueOr0(p *int64) int64 {
	if p == nil {
		return 0
	}
	return *p
}
