package verdict

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// firstFault returns the finding that a reader is advised to act on first: the first one of medium or high severity about a
// group's requests, and one about a job for which no request waits (unawaited, by group) only if there is no other; nil if there is
// none.
func firstFault(r *report.Report, unawaited map[string]bool) (first *report.Finding) {
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Severity.IsMajor() && f.Ignored == "" && !f.Code.OfMachine() && (first == nil || unawaited[first.Group] && !unawaited[f.Group]) {
			first = f
		}
	}
	if first == nil || r.Group(first.Group) == nil {
		return nil
	}
	return first
}

// isAbout reports whether finding f is about group g as well, which is not its own group: the same fault is reported for g, or g
// calls the finding's group.
func isAbout(r *report.Report, f *report.Finding, g *report.Group) bool {
	return slices.ContainsFunc(f.AskedBy, func(a report.AskedBy) bool { return a.Group == g.ID }) ||
		slices.ContainsFunc(r.Findings, func(o report.Finding) bool {
			return o.Group == g.ID && o.Code == f.Code && sameTitle(o.Title, f.Title) && o.Site.Equal(f.Site)
		})
}

// remarkOn returns a sentence, without capital and full stop, which warns that the first finding f is not about the largest cause
// of verdict v; "" if it is, or if it is about another group.
func remarkOn(v *report.Verdict, f *report.Finding) string {
	if f == nil || f.Group != v.Group || len(v.Causes) == 0 || v.Open != nil && v.Open.Late {
		return ""
	}
	largest := &v.Causes[0]
	share := 0.0
	for i := range v.Causes {
		share += shareOfFinding(&v.Causes[i], f)
	}
	if f.Decided != nil && slices.ContainsFunc(f.Changes, func(c report.Change) bool { return c.Kind == report.ChangeReuse }) {
		share = max(share, f.Decided.Share) // of all work and waits that open connections, wherever they are
	}
	switch {
	case 2*shareOfFinding(largest, f) >= largest.Share, share >= largest.Share, len(largest.Sites) > 0 && isAt(f, &largest.Sites[0]) && !isBacklog(f):
		return ""
	case share > 0:
	case isOfRuntime(f.Cause) && f.Decided != nil:
		if share = f.Decided.Share; share >= largest.Share {
			return "" // it makes the largest part longer
		}
	default:
		return "the first change below is about time that is not in these latencies"
	}
	return "the first change below is about " + words.Percent(share) + " of the time and not about the largest part"
}

// medianRemark returns a sentence which says that the first finding f has a far larger share of the time of the faster half of the
// requests than of verdict v's requests, so that its change mostly shortens the median; "" if it does not.
func medianRemark(r *report.Report, v *report.Verdict, f *report.Finding) string {
	if f == nil || f.Group != v.Group || f.Predicted == nil || v.Band == report.BandAll || v.Band == report.Band5090 {
		return ""
	}
	g := r.Group(v.Group)
	p50 := cmp.Or(f.Predicted.WasP50NS, g.LatencyNS.P50)
	if g.Backlog != nil || p50 == nil || float64(f.Predicted.P50NS.Est) > 0.7*float64(*p50) {
		return ""
	}
	var ns, totalNS float64 // of the faster half: of all less those of the slower bands
	count := 0
	for i := range g.Bands {
		b, sign := &g.Bands[i], -1
		switch b.Band {
		case report.BandAll:
			sign = 1
		case report.Band5090, report.Band9099, report.Band99:
		default:
			continue
		}
		bandNS := float64(sign) * float64(b.TotalNS())
		ns, totalNS, count = ns+bandNS*shareOfFault(Causes(r, g, b), f), totalNS+bandNS, count+sign*b.Count
	}
	slow := shareOfFault(v.Causes, f)
	if count < report.TailRequests || totalNS <= 0 || ns < (slow+threshold.MajorShare)*totalNS {
		return ""
	}
	return "the first change below is about " + words.Percent(slow) + " of this time, and about " + words.Percent(min(1, ns/totalNS)) + " of that of the faster half of the requests (" +
		words.Duration(int64(ns)/int64(count)) + ")"
}

// shareOfFault returns the share of the band's time that the causes have at the places of finding f. If requests queue, their own turns
// do not count.
func shareOfFault(causes []report.VerdictCause, f *report.Finding) (sum float64) {
	for i := range causes {
		if c := &causes[i]; f.Queue == nil || c.Queue != nil && c.Queue.For == f.Queue.For {
			sum += shareOfFinding(c, f)
		}
	}
	return min(sum, 1)
}

// shareOfFinding returns the share of the band's time that cause c has at the places of finding f: its queue, its site, or
// anywhere if f is about the runtime.
func shareOfFinding(c *report.VerdictCause, f *report.Finding) (share float64) {
	hasCause := slices.Contains(report.Family(f.Cause), c.Cause) || c.AheadWork != nil && slices.Contains(report.Family(f.Cause), c.AheadWork.Cause)
	if hasCause && isOfRuntime(f.Cause) {
		return c.Share
	}
	if (f.Cause == report.FamilyGC || slices.Contains(report.Family(report.FamilyGC), f.Cause)) && c.Cause == report.CauseSched { // the collector's workers had the Ps
		for _, ran := range c.RanMeanwhile {
			if ran.Site != nil && knowledge.Has(ran.Site.Func, knowledge.GCMark) {
				share += ran.Share * c.Share
			}
		}
		return share
	}
	if isBacklog(f) && (c.Queue == nil || f.Queue.For != c.Queue.For) {
		return 0 // the work itself takes as long if no message queues
	}
	if f.Queue != nil && c.Queue != nil && f.Queue.For == c.Queue.For || f.Site == nil && hasCause {
		return c.Share
	}
	for i := range c.Sites {
		if s := &c.Sites[i]; isAt(f, s) {
			share += s.Share
		}
	}
	return share
}

// isBacklog reports whether a finding is about messages that wait until a goroutine reads them.
func isBacklog(f *report.Finding) bool { return f.Queue != nil && len(f.Queue.Waits) == 0 }

// isOfRuntime reports whether a cause is computing, scheduling or collecting: its time is spread over all lines, and the site of
// a finding is elsewhere.
func isOfRuntime(c report.CauseName) bool {
	return c == report.CauseCPU || c == report.FamilySched || c == report.FamilyGC
}

// isAt reports whether a site of a verdict, or a wait that leads to it, is at the line of a finding, or at a line of a dependency that
// the finding's change is about, whichever line of the service leads there, unless the change names it.
func isAt(f *report.Finding, s *report.VerdictSite) bool {
	isSame := func(o *report.Site) bool {
		return o != nil && f.Site != nil && (f.Site.Matches(o) || f.Site.OwnLine().Matches(o.OwnLine()))
	}
	isOfChange := func(c report.Change) bool {
		line, caller, hasCaller := strings.Cut(c.Site, " from ")
		return line == s.Site.Func+":"+strconv.Itoa(s.Site.Line) && (!hasCaller || s.Site.CalledFrom != nil && caller == s.Site.CalledFrom.Func+":"+strconv.Itoa(s.Site.CalledFrom.Line))
	}
	return isSame(s.Site) || slices.ContainsFunc(s.Via, func(v report.Via) bool { return isSame(v.Site) }) ||
		s.Site != nil && s.Site.Module != "" && slices.ContainsFunc(f.Changes, isOfChange)
}
