package predict

import (
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// CallSum is what a trace shows of the calls to peers that a group's requests make one after the other from one source line.
type CallSum struct {
	Site, Via    *report.Site // where a goroutine waits for the answer, and where the request waits for that goroutine; nil if it is its own
	PerRequest   float64      // mean number of calls
	LineShare    float64      // share of these calls in the time of all calls of a request at Site
	LongestShare float64      // share of the longest of all
	SiteShare    float64      // share of all in the time for which the group's requests wait at Site
}

// SetCalls sets the calls of each group, by its id.
func (m *Model) SetCalls(calls map[string][]CallSum) { m.calls = calls }

// resolveCalls translates a change of the number or order of calls (calls@SITE=N, parallel@SITE) to a share of the network waits at that
// site: N divided by the present number of calls, or the share of the longest call. The time between calls is unchanged, apart from
// their writes. Where most requests make one or two calls, the number of each request's own waits counts (Count). If several lines match
// the site, the greatest reduction is used. Any other change is returned as it is.
func (m *Model) resolveCalls(groupID string, c Change) Change {
	if c.Kind != report.ChangeCalls && c.Kind != report.ChangeParallel {
		return c
	}
	out := Change{Cause: report.CauseNetwork, Site: c.Site, Relative: true, Scale: 1, OwnWork: true, WithWrites: c.Kind == report.ChangeCalls}
	matcher := m.parseSite(c.Site)
	for i := range m.calls[groupID] {
		calls := &m.calls[groupID][i]
		if !matcher.matchesSite(calls.Site) && !matcher.matchesSite(calls.Via) {
			continue
		}
		scale := min(1, calls.LongestShare)
		if c.Kind == report.ChangeCalls {
			scale = 1 - (1-min(1, float64(c.Count)/calls.PerRequest))*calls.LineShare
		}
		if scale = 1 - (1-scale)*calls.SiteShare; scale < out.Scale {
			if out.Count = 0; calls.PerRequest < threshold.Repeats {
				out.Count = c.Count
			}
			out.Scale, out.Site = scale, SiteText(calls.Site, report.CauseNetwork)
		}
	}
	if out.Scale == 1 {
		return c
	}
	return out
}

// matchesSite reports whether the text of a change's site names this site of the report, by function or by line. The site
// itself or its caller may match; if the text names a caller ("from"), both must.
func (s *siteMatcher) matchesSite(site *report.Site) bool {
	if site == nil {
		return false
	}
	matchesLine := func(m *siteMatcher, fn, file string, line int) bool {
		if m.line != 0 {
			return m.line == line && (hasNameSuffix(file, m.file) || hasNameSuffix(fn, m.file))
		}
		return hasNameSuffix(fn, m.function)
	}
	switch from := site.CalledFrom; {
	case s.matchesAny:
		return true
	case from == nil:
		return matchesLine(s, site.Func, site.File, site.Line)
	case s.caller != nil:
		return matchesLine(s, site.Func, site.File, site.Line) && matchesLine(s.caller, from.Func, from.File, from.Line)
	default:
		return matchesLine(s, site.Func, site.File, site.Line) || matchesLine(s, from.Func, from.File, from.Line)
	}
}
