package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/output/words"
)

// CheckValid returns an error that names the first field of r that breaks the contract, or nil. The contract: parts add up to their
// whole, bands are in order, shares are in 0..1, no count is negative, percentiles are in order, names are in the vocabulary. ReadJSON
// calls CheckValid; reports from Explain are valid. It takes time in proportion to the report.
func (r *Report) CheckValid() error {
	var err error
	c := checker{first: &err, sampled: r.Input.Sampled != nil}
	c.field("input").checkInput(&r.Input)
	ids := map[string]bool{"": true}
	for i := range r.Groups {
		ids[r.Groups[i].ID] = true
		c.field("groups", i).checkGroup(&r.Groups[i])
	}
	for i := range r.Findings {
		c.field("findings", i).checkFinding(&r.Findings[i], ids)
	}
	c.field("judged").checkJudged(r.Judged)
	for i := range r.WhatIf {
		c.field("what_if", i).checkPredicted(&r.WhatIf[i].Predicted)
	}
	c.field("runtime").checkRuntime(&r.Runtime)
	for i := range r.Moments {
		c.field("moments", i).checkMoment(&r.Moments[i], ids)
	}
	if r.Host != nil {
		c.field("host").checkHost(r.Host)
	}
	return err
}

// shareSlack is the largest rounding error of a sum of shares.
const shareSlack = 1e-6

// routeSlack is the largest rounding error of the sum of a row's routes, in ns. If time is moved from one row to another, it is
// divided over their routes.
const routeSlack = 64

// A checker checks the field at a path. The path consists of names, each followed by an index if it is a list. The checker keeps the
// first error, and formats the path only for that error.
type checker struct {
	first   *error
	sampled bool // not all requests were followed, or not all parts of a run
	path    []any
}

// field returns a checker for a field below this one.
func (c checker) field(path ...any) checker {
	c.path = append(slices.Clip(c.path), path...)
	return c
}

// failIf keeps an error about the field at the checker's path if bad is true, unless there is one already.
func (c checker) failIf(bad bool, format string, args ...any) {
	if !bad || *c.first != nil {
		return
	}
	field := ""
	for _, p := range c.path {
		switch p := p.(type) {
		case int:
			field += fmt.Sprintf("[%d]", p)
		case string:
			field = strings.TrimPrefix(field+"."+p, ".")
		}
	}
	*c.first = fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...))
}

// checkNotNegative checks fields, given as pairs of name and number. A nil number is valid: it is unknown.
func (c checker) checkNotNegative(fields ...any) {
	for i := 0; i < len(fields); i += 2 {
		n := int64(0)
		switch v := fields[i+1].(type) {
		case int:
			n = int64(v)
		case int64:
			n = v
		case *int64:
			if v != nil {
				n = *v
			}
		}
		if n < 0 {
			c.field(fields[i]).failIf(true, "%d is negative", n)
		}
	}
}

// checkShare checks that the field at path, v, is within 0 and 1.
func (c checker) checkShare(v float64, path ...any) {
	if !(v >= 0 && v <= 1+shareSlack) { // catches NaN as well
		c.field(path...).failIf(true, "%g is not in 0..1", v)
	}
}

// checkName checks that the field at path, name, is one of all names of its vocabulary.
func checkName[S ~string](c checker, name S, all []S, path ...any) {
	if !slices.Contains(all, name) {
		c.field(path...).failIf(true, "%.40q is none of %s", name, words.List(all))
	}
}

// checkSum checks that the sum of a whole's parts is the whole; path is the field of the parts.
func (c checker) checkSum(parts, whole int64, path ...any) {
	if parts != whole {
		c.field(path...).failIf(true, "its parts add up to %d of %d", parts, whole)
	}
}

// checkInput checks the counts of the input, of its sample and of the requests that were left out.
func (c checker) checkInput(in *Input) {
	c.checkNotNegative("bytes", in.Bytes, "events", in.Events, "duration_ns", in.DurationNS, "gomaxprocs", in.GOMAXPROCS, "observer", in.Observer)
	if s := in.Sampled; s != nil && (s.Walked <= 0 || s.Walked >= s.Requests) {
		c.field("sampled").failIf(true, "of %d requests %d were walked", s.Requests, s.Walked)
	}
	for i := range in.LeftOut {
		l, c := &in.LeftOut[i], c.field("left_out", i)
		c.checkNotNegative("count", l.Count)
		checkName(c, l.Kind, Kinds(), "kind")
		checkName(c, l.Reason, LeftOutReasons(), "why")
	}
}

// checkGroup checks a group: its counts, order of percentiles, histogram, blocks, bands and requests in full.
func (c checker) checkGroup(g *Group) {
	if *c.first != nil {
		return
	}
	c.sampled = c.sampled || g.Kind == KindRun
	checkName(c, g.Kind, Kinds(), "kind")
	checkName(c, g.Role, Roles(), "role")
	c.checkNotNegative("count", g.Count, "total_ns", g.TotalNS, "cut_at_start", g.CutAtStart)
	if p := g.Peer; p != nil {
		c := c.field("peer")
		c.checkNotNegative("wait_ns", p.WaitNS, "served_ns", p.ServedNS, "late_ns", p.LateNS, "there_ns", p.ThereNS, "unseen_ns", p.UnseenNS, "back_ns", p.BackNS)
		c.failIf(p.Held < 0 || p.Held > p.Waits || !(p.ByChance >= 0 && p.ByChance <= 1) || !(p.Confidence >= 0 && p.Confidence <= 1), "%d of %d waits, %v by chance, confidence %v", p.Held, p.Waits, p.ByChance, p.Confidence)
	}
	c.field("open").checkOpen(&g.Open)
	l := &g.LatencyNS
	c.field("latency_ns").checkNotNegative("mean", l.Mean)
	c.checkOrder([]*int64{l.P50, l.P90, l.P99, l.P999, l.Max}, "latency_ns")
	c.checkOrder([]*int64{g.ReadyToRunNS.P50, g.ReadyToRunNS.P99, g.ReadyToRunNS.Max}, "ready_to_run_ns")
	c.checkOrder([]*int64{g.PollGapNS.P50, g.PollGapNS.P99, g.PollGapNS.Max}, "poll_gap_ns")
	if n := c.checkHistogram(g.Histogram); len(g.Histogram) > 0 {
		c.checkSum(n, int64(g.Count), "histogram")
	}
	for name, list := range g.HistogramCauses {
		checkName(c, name, Causes(), "histogram_causes")
		c.field("histogram_causes").failIf(len(list) != len(g.Histogram), "%d buckets of %s, %d of latency", len(list), name, len(g.Histogram))
		for _, ns := range list {
			c.field("histogram_causes").checkNotNegative(string(name), ns)
		}
	}
	for k := range g.Blocks {
		b, c := &g.Blocks[k], c.field("blocks", k)
		c.checkNotNegative("duration_ns", b.DurationNS, "count", b.Count, "total_ns", b.TotalNS)
		c.checkHistogram(b.Histogram)
		for name, ns := range b.Causes {
			checkName(c, name, Causes(), "causes")
			c.field("causes").checkNotNegative(string(name), ns)
		}
	}
	c.checkBands(g)
	for k := range g.Slowest {
		c.field("slowest", k).checkRequest(&g.Slowest[k])
	}
	if g.Typical != nil {
		c.field("typical").checkRequest(g.Typical)
	}
}

// checkOpen checks that no more requests are at places than are open.
func (c checker) checkOpen(o *Open) {
	c.checkNotNegative("count", o.Count, "oldest_ns", o.OldestNS)
	n := 0
	for k := range o.Waits {
		w, c := &o.Waits[k], c.field("waits", k)
		checkName(c, w.Cause, Causes(), "cause")
		c.checkNotNegative("count", w.Count, "oldest_ns", w.OldestNS)
		for _, ns := range append(slices.Clone(w.StuckNS), w.AgesNS...) {
			c.checkNotNegative("", ns)
		}
		n += w.Count
	}
	c.field("waits").failIf(n > o.Count, "%d requests stand at places, of %d", n, o.Count)
}

// checkOrder checks that the known points of a distribution do not decrease.
func (c checker) checkOrder(points []*int64, path ...any) {
	last := int64(0)
	for _, p := range points {
		if p == nil {
			continue
		}
		if *p < last {
			c.field(path...).failIf(true, "percentiles are not in order: %d after %d", *p, last)
		}
		last = *p
	}
}

// checkHistogram checks the order of the buckets, and returns the sum of their counts.
func (c checker) checkHistogram(pairs [][2]int64) (sum int64) {
	last := int64(-1)
	for _, p := range pairs {
		c.field("histogram").failIf(p[0] <= last, "buckets are not in order: %d after %d", p[0], last)
		c.checkNotNegative("histogram", p[1])
		last = p[0]
		sum += p[1]
	}
	return sum
}

// checkBands checks that a group's bands are in order, within the first one, which has all requests, and that their rows are
// valid.
func (c checker) checkBands(g *Group) {
	if len(g.Bands) == 0 {
		return
	}
	all := &g.Bands[0]
	c.field("bands", 0).failIf(all.Band != BandAll, "the first band is %.40q, not %s", all.Band, BandAll)
	c.checkSum(int64(all.Count), int64(g.Count), "bands", 0, "count")
	last, rank := int64(0), -1
	for k := range g.Bands {
		b, c := &g.Bands[k], c.field("bands", k)
		checkName(c, b.Band, BandNames(), "band")
		if position := slices.Index(BandNames(), b.Band); position <= rank {
			c.failIf(true, "bands are not in order")
		} else {
			rank = position
		}
		c.checkNotNegative("count", b.Count, "from_ns", b.FromNS)
		c.failIf(b.ToNS < b.FromNS, "it ends at %d ns, before %d", b.ToNS, b.FromNS)
		// The slowest requests are always in the last band, also where there are so few that they belong to the one before.
		if b.Band == BandOutliers {
			last = all.FromNS // they are among those of the bands before
			c.field("count").failIf(b.Count == 0, "%d are missing", b.Count)
		}
		if k > 0 && b.Count > 0 {
			c.failIf(b.FromNS < max(last, all.FromNS) || b.ToNS > all.ToNS || b.Count > all.Count, "%d requests of %d to %d ns are not within all and after the band before", b.Count, b.FromNS, b.ToNS)
			last = b.FromNS
		}
		c.checkRows(b)
	}
}

// checkSite checks that a caller has a name, and that a site with a version has a module.
func (c checker) checkSite(s *Site) {
	switch {
	case s == nil:
	case s.CalledFrom != nil && (s.CalledFrom.Func == "" || s.CalledFrom.Line < 0):
		c.field("site", "called_from").failIf(true, "what called %.80q has no name, or a line of %d", s.Func, s.CalledFrom.Line)
	case s.Version != "" && s.Module == "":
		c.field("site").failIf(true, "%.80q has a version and no module", s.Func)
	}
}

func (c checker) checkVia(via []Via) {
	for i := range via {
		c.field("via", i).checkSite(via[i].Site)
	}
}

// checkRows checks the causes of a band, and that their shares add up to 1.
func (c checker) checkRows(b *Band) {
	var total, sum = int64(0), 0.0
	for j := range b.Causes {
		row, c := &b.Causes[j], c.field("causes", j)
		total += row.TotalNS
		sum += row.Share
		if *c.first != nil {
			return
		}
		checkName(c, row.Cause, Causes(), "cause")
		c.checkSite(row.Site)
		c.checkVia(row.Via)
		c.checkShare(row.Share, "share")
		c.field("share_error").failIf(!(row.ShareError >= 0) || row.ShareError > 0 && !c.sampled, "%g, of requests that were sampled: %t", row.ShareError, c.sampled)
		c.checkNotNegative("total_ns", row.TotalNS, "requests", row.Requests, "samples", row.Samples)
		c.failIf(row.Samples > 0 && row.Cause != CauseCPU && row.Cause != CauseOther, "%d CPU samples of %s", row.Samples, row.Cause)
		c.failIf(row.Requests > b.Count, "%d requests of a band of %d", row.Requests, b.Count)
		var byRoute int64
		for _, r := range row.Routes {
			c.checkNotNegative("routes", r.TotalNS)
			byRoute += r.TotalNS
		}
		c.failIf(byRoute > row.TotalNS+routeSlack, "its routes take %d of %d ns", byRoute, row.TotalNS)
		ranSum := 0.0
		for _, s := range row.RanMeanwhile {
			c.checkShare(s.Share, "ran_meanwhile")
			ranSum += s.Share
		}
		c.failIf(ranSum > 1+shareSlack, "what ran meanwhile has %g of the time", ranSum)
	}
	c.field("causes").failIf(len(b.Causes) > 0 && total > 0 && math.Abs(sum-1) > shareSlack, "shares add up to %g", sum)
}

// checkRequest checks that a request's segments follow each other without gaps and add up to its latency.
func (c checker) checkRequest(q *Request) {
	c.checkNotNegative("latency_ns", q.LatencyNS)
	c.checkHexID(q.TraceID, 32, "trace_id")
	c.checkHexID(q.SpanID, 16, "span_id")
	c.checkHexID(q.ParentSpanID, 16, "parent_span_id")
	end := q.StartNS
	for j := range q.Segments {
		s, c := &q.Segments[j], c.field("segments", j)
		if *c.first != nil {
			return
		}
		c.failIf(!slices.Contains(Causes(), s.Cause), "there is no cause %.40q", s.Cause)
		c.checkSite(s.Site)
		c.checkVia(s.Via)
		c.failIf(s.StartNS != end || s.DurationNS < 0, "it begins at %d ns for %d, the one before ends at %d", s.StartNS, s.DurationNS, end)
		end += s.DurationNS
		if s.Joined != nil {
			var sum int64
			for _, ns := range s.Joined.Causes {
				sum += ns
			}
			c.checkSum(sum, s.DurationNS, "joined")
		}
	}
	if len(q.Segments) > 0 {
		c.checkSum(end-q.StartNS, q.LatencyNS, "segments")
	}
}

// checkHexID checks the form of an id of a tracing system, which users paste there. An empty id is valid: there is none.
func (c checker) checkHexID(id string, digits int, path ...any) {
	if id != "" && (len(id) != digits || strings.Trim(id, "0123456789abcdef") != "") {
		c.field(path...).failIf(true, "%.40q is not an id of %d hexadecimal digits", id, digits)
	}
}

// checkFinding checks a finding. groups has the ids of the report's groups.
func (c checker) checkFinding(f *Finding, groups map[string]bool) {
	checkName(c, f.Severity, Severities(), "severity")
	c.field("cause").failIf(f.Cause != "" && Family(f.Cause) == nil, "%.40q is neither a cause nor a family of causes", f.Cause)
	c.checkSite(f.Site)
	if d := f.Decided; d != nil {
		checkName(c, d.Requests, DecidedBys(), "decided", "by")
		c.field("decided").failIf(d.Share < d.LeastShare || d.NS < d.LeastNS, "it has less than its severity needs")
	}
	c.failIf(f.Code == "", "it has no code")
	c.checkShare(f.Share, "share")
	c.checkShare(f.Confidence, "confidence")
	c.field("group").failIf(!groups[f.Group], "there is no group with the id %.40q", f.Group)
	for k := range f.AskedBy {
		a := &f.AskedBy[k]
		c.field("asked_by", k).failIf(!(a.Share >= 0 && a.Share <= 1) || a.EachNS < 0, "share %v, %d ns", a.Share, a.EachNS)
		if a.Predicted != nil {
			c.field("asked_by", k, "predicted").checkPredicted(a.Predicted)
		}
	}
	for k := range f.Changes {
		checkName(c, f.Changes[k].Kind, ChangeKinds(), "changes", k, "kind")
		c.field("changes", k).failIf(f.Changes[k].Text == "", "it has no text for --what-if")
	}
	if f.Predicted != nil {
		c.field("predicted").checkPredicted(f.Predicted)
	}
}

// checkJudged checks that each rule is in exactly one list.
func (c checker) checkJudged(j *Judged) {
	if j == nil {
		return
	}
	listed := map[RuleCode]bool{}
	addCodes := func(codes []RuleCode, path ...any) {
		for _, code := range codes {
			c.field(path...).failIf(listed[code], "%.20q occurs twice", code)
			listed[code] = true
		}
	}
	addCodes(j.Found, "found")
	addCodes(j.Clear, "clear")
	for i := range j.Blind {
		checkName(c, j.Blind[i].Reason, BlindReasons(), "blind", i, "reason")
		addCodes(j.Blind[i].Codes, "blind", i)
	}
	c.failIf(len(listed) != j.Rules, "%d of %d rules are listed", len(listed), j.Rules)
}

// checkPredicted checks that estimates are within their bounds.
func (c checker) checkPredicted(p *Predicted) {
	for _, e := range []*Estimate{&p.P50NS, &p.P99NS, p.MaxNS} {
		if e == nil {
			continue
		}
		c.failIf(e.Est < e.Low || e.High < e.Est, "an estimate of %d ns is not within %d to %d", e.Est, e.Low, e.High)
	}
}

// checkMoment checks a moment. ids are those of the report's groups.
func (c checker) checkMoment(m *Moment, ids map[string]bool) {
	c.field("group").failIf(!ids[m.Group] || m.Group == "", "there is no group %.40q", m.Group)
	c.failIf(m.EndNS < m.StartNS || m.UntilNS < m.EndNS || m.StartNS < 0, "it is from %d to %d and until %d", m.StartNS, m.EndNS, m.UntilNS)
	c.field("slow").failIf(m.Slow < 0 || m.Slow > m.SlowestRequests, "%d of %d", m.Slow, m.SlowestRequests)
	c.checkShare(m.ShareOfSlow, "share_of_slow")
	c.checkShare(m.CauseShare, "cause_share")
	checkName(c, m.Cause, Causes(), "cause")
	for k := range m.With {
		checkName(c, m.With[k].Kind, MomentKinds(), "with", k, "kind")
		c.field("with", k).checkNotNegative("duration_ns", m.With[k].DurationNS)
	}
}

// checkRuntime checks the counts and times of the garbage collector, the scheduler, stops of the world and throttling.
func (c checker) checkRuntime(rt *Runtime) {
	c.field("gc").checkNotNegative("cycles", rt.GC.Cycles, "mark_ns", rt.GC.MarkNS)
	c.field("sched").checkNotNegative("goroutines", rt.Sched.Goroutines)
	c.checkShare(rt.Sched.PsIdle, "sched", "ps_idle")
	for i := range rt.STW {
		s, c := &rt.STW[i], c.field("stw", i)
		c.checkNotNegative("count", s.Count)
		c.failIf(s.MaxNS < 0 || s.TotalNS < s.MaxNS, "the longest stop took %d of %d ns", s.MaxNS, s.TotalNS)
	}
	c.field("throttle").checkThrottle(&rt.Throttle)
}

// checkThrottle checks the verdict, lost times and confidence of throttling.
func (c checker) checkThrottle(t *Throttle) {
	c.failIf(t.Verdict != "" && !slices.Contains(ThrottleVerdicts(), t.Verdict), "there is no verdict %.40q", t.Verdict)
	c.failIf(t.LostWallNS < 0 || t.LostCPUNS < 0, "less than no time was lost")
	c.failIf(!(t.Confidence >= 0 && t.Confidence <= 1+shareSlack), "a confidence of %g is not in 0..1", t.Confidence)
}

// checkHost checks the facts from host samples: coverage, times, verdicts and freezes.
func (c checker) checkHost(h *Host) {
	c.checkShare(h.Coverage, "coverage")
	c.failIf(h.ToNS < h.FromNS, "samples end at %d ns, before %d", h.ToNS, h.FromNS)
	checkName(c, h.Quota.Verdict, ThrottleVerdicts(), "quota", "verdict")
	checkName(c, h.Network.Verdict, NetworkVerdicts(), "network", "verdict")
	if h.Freezes != nil {
		c.field("freezes").checkThrottle(h.Freezes)
	}
}
