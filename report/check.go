package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/output/words"
)

// CheckValid reports the first promise of the contract that r breaks, naming the field, or nil: parts add up to what
// they are parts of, bands contain each other, shares are in 0..1, nothing is counted negatively, percentiles are in
// order, names are those of the vocabulary. ReadJSON calls it; Explain's reports keep it. It takes time in proportion to
// the report.
func (r *Report) CheckValid() error {
	var err error
	c := checker{first: &err, sampled: r.Input.Sampled != nil}
	c.in("input").input(&r.Input)
	ids := map[string]bool{"": true}
	for i := range r.Groups {
		ids[r.Groups[i].ID] = true
		c.in("groups", i).group(&r.Groups[i])
	}
	for i := range r.Findings {
		c.in("findings", i).finding(&r.Findings[i], ids)
	}
	c.in("judged").judged(r.Judged)
	for i := range r.WhatIf {
		c.in("what_if", i).predicted(&r.WhatIf[i].Predicted)
	}
	c.in("runtime").runtime(&r.Runtime)
	for i := range r.Moments {
		c.in("moments", i).moment(&r.Moments[i], ids)
	}
	if r.Host != nil {
		c.in("host").host(r.Host)
	}
	return err
}

// shareSlack is what rounding may add to a sum of shares.
const shareSlack = 1e-6

// routeSlack is what rounding may add to the sum of a row's routes, in ns: time that is moved from one row to another is
// split over their routes.
const routeSlack = 64

// A checker looks at the field at a path: names, and the indices of lists behind their names. It keeps the first error. Paths are
// spelled only for it.
type checker struct {
	first   *error
	sampled bool // not all requests were followed
	path    []any
}

// in returns a checker for what lies below a field.
func (c checker) in(path ...any) checker {
	c.path = append(slices.Clip(c.path), path...)
	return c
}

// refuse keeps an error about the field if it is bad.
func (c checker) refuse(bad bool, format string, args ...any) {
	if !bad || *c.first != nil {
		return
	}
	where := ""
	for _, p := range c.path {
		switch p := p.(type) {
		case int:
			where += fmt.Sprintf("[%d]", p)
		case string:
			where = strings.TrimPrefix(where+"."+p, ".")
		}
	}
	*c.first = fmt.Errorf("%s: %s", where, fmt.Sprintf(format, args...))
}

// notNegative checks fields, given as names and numbers. A nil number is not known.
func (c checker) notNegative(fields ...any) {
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
			c.in(fields[i]).refuse(true, "%d is negative", n)
		}
	}
}

func (c checker) share(v float64, path ...any) {
	if !(v >= 0 && v <= 1+shareSlack) { // catches NaN as well
		c.in(path...).refuse(true, "%g is not in 0..1", v)
	}
}

// one holds a name to its vocabulary.
func one[S ~string](c checker, name S, all []S, path ...any) {
	if !slices.Contains(all, name) {
		c.in(path...).refuse(true, "%.40q is none of %s", name, words.List(all))
	}
}

// same holds a sum to the whole.
func (c checker) same(sum, whole int64, path ...any) {
	if sum != whole {
		c.in(path...).refuse(true, "its parts add up to %d of %d", sum, whole)
	}
}

func (c checker) input(in *Input) {
	c.notNegative("bytes", in.Bytes, "events", in.Events, "duration_ns", in.DurationNS, "gomaxprocs", in.GOMAXPROCS, "observer", in.Observer)
	if s := in.Sampled; s != nil && (s.Walked <= 0 || s.Walked >= s.Of) {
		c.in("sampled").refuse(true, "of %d requests %d were walked", s.Of, s.Walked)
	}
	for i := range in.LeftOut {
		l, c := &in.LeftOut[i], c.in("left_out", i)
		c.notNegative("count", l.Count)
		one(c, l.Kind, Kinds(), "kind")
		one(c, l.Why, LeftOutReasons(), "why")
	}
}

func (c checker) group(g *Group) {
	if *c.first != nil {
		return
	}
	one(c, g.Kind, Kinds(), "kind")
	one(c, g.Role, Roles(), "role")
	c.notNegative("count", g.Count, "total_ns", g.TotalNS, "cut_at_start", g.CutAtStart)
	if p := g.Peer; p != nil {
		c := c.in("peer")
		c.notNegative("wait_ns", p.WaitNS, "served_ns", p.ServedNS, "late_ns", p.LateNS, "there_ns", p.ThereNS, "unseen_ns", p.UnseenNS, "back_ns", p.BackNS)
		c.refuse(p.Held < 0 || p.Held > p.Waits || !(p.ByChance >= 0 && p.ByChance <= 1) || !(p.Confidence >= 0 && p.Confidence <= 1), "%d of %d waits, %v by chance, confidence %v", p.Held, p.Waits, p.ByChance, p.Confidence)
	}
	c.in("open").open(&g.Open)
	l := &g.LatencyNS
	c.in("latency_ns").notNegative("mean", l.Mean)
	c.ordered([]*int64{l.P50, l.P90, l.P99, l.P999, l.Max}, "latency_ns")
	c.ordered([]*int64{g.ReadyToRunNS.P50, g.ReadyToRunNS.P99, g.ReadyToRunNS.Max}, "ready_to_run_ns")
	c.ordered([]*int64{g.PollGapNS.P50, g.PollGapNS.P99, g.PollGapNS.Max}, "poll_gap_ns")
	if n := c.histogram(g.Histogram); len(g.Histogram) > 0 {
		c.same(n, int64(g.Count), "histogram")
	}
	for name, list := range g.HistogramCauses {
		one(c, name, Causes(), "histogram_causes")
		c.in("histogram_causes").refuse(len(list) != len(g.Histogram), "%d buckets of %s, %d of latency", len(list), name, len(g.Histogram))
		for _, ns := range list {
			c.in("histogram_causes").notNegative(string(name), ns)
		}
	}
	for k := range g.Blocks {
		b, c := &g.Blocks[k], c.in("blocks", k)
		c.notNegative("duration_ns", b.DurationNS, "count", b.Count, "total_ns", b.TotalNS)
		c.histogram(b.Histogram)
		for name, ns := range b.Causes {
			one(c, name, Causes(), "causes")
			c.in("causes").notNegative(string(name), ns)
		}
	}
	c.bands(g)
	for k := range g.Slowest {
		c.in("slowest", k).request(&g.Slowest[k])
	}
	if g.Typical != nil {
		c.in("typical").request(g.Typical)
	}
}

// open holds the places of open requests to their number.
func (c checker) open(o *Open) {
	c.notNegative("count", o.Count, "oldest_ns", o.OldestNS)
	n := 0
	for k := range o.Waits {
		w, c := &o.Waits[k], c.in("waits", k)
		one(c, w.Cause, Causes(), "cause")
		c.notNegative("count", w.Count, "oldest_ns", w.OldestNS)
		for _, ns := range append(slices.Clone(w.StuckNS), w.AgesNS...) {
			c.notNegative("", ns)
		}
		n += w.Count
	}
	c.in("waits").refuse(n > o.Count, "%d requests stand at places, of %d", n, o.Count)
}

// ordered holds points of a distribution, each of which may be unknown, to their order.
func (c checker) ordered(points []*int64, path ...any) {
	last := int64(0)
	for _, p := range points {
		if p == nil {
			continue
		}
		if *p < last {
			c.in(path...).refuse(true, "percentiles are not in order: %d after %d", *p, last)
		}
		last = *p
	}
}

// histogram returns the sum of the counts.
func (c checker) histogram(pairs [][2]int64) (sum int64) {
	last := int64(-1)
	for _, p := range pairs {
		c.in("histogram").refuse(p[0] <= last, "buckets are not in order: %d after %d", p[0], last)
		c.notNegative("histogram", p[1])
		last = p[0]
		sum += p[1]
	}
	return sum
}

func (c checker) bands(g *Group) {
	if len(g.Bands) == 0 {
		return
	}
	all := &g.Bands[0]
	c.in("bands", 0).refuse(all.Band != BandAll, "the first band is %.40q, not %s", all.Band, BandAll)
	c.same(int64(all.Count), int64(g.Count), "bands", 0, "count")
	last, rank := int64(0), -1
	for k := range g.Bands {
		b, c := &g.Bands[k], c.in("bands", k)
		one(c, b.Band, BandNames(), "band")
		if at := slices.Index(BandNames(), b.Band); at <= rank {
			c.refuse(true, "bands are not in order")
		} else {
			rank = at
		}
		c.notNegative("count", b.Count, "from_ns", b.FromNS)
		c.refuse(b.ToNS < b.FromNS, "it ends at %d ns, before %d", b.ToNS, b.FromNS)
		// The slowest requests are always in the last band, also where there are so few that they belong to the one before.
		if b.Band == BandOutliers {
			last = all.FromNS // they are among those of the bands before
			c.in("count").refuse(b.Count == 0, "%d are missing", b.Count)
		}
		if k > 0 && b.Count > 0 {
			c.refuse(b.FromNS < max(last, all.FromNS) || b.ToNS > all.ToNS || b.Count > all.Count, "%d requests of %d to %d ns are not within all and after the band before", b.Count, b.FromNS, b.ToNS)
			last = b.FromNS
		}
		c.rows(b)
	}
}

// site checks a place: a caller has a name, and a version belongs to a module.
func (c checker) site(s *Site) {
	switch {
	case s == nil:
	case s.CalledFrom != nil && (s.CalledFrom.Func == "" || s.CalledFrom.Line < 0):
		c.in("site", "called_from").refuse(true, "what called %.80q has no name, or a line of %d", s.Func, s.CalledFrom.Line)
	case s.Version != "" && s.Module == "":
		c.in("site").refuse(true, "%.80q has a version and no module", s.Func)
	}
}

func (c checker) via(via []Via) {
	for i := range via {
		c.in("via", i).site(via[i].Site)
	}
}

func (c checker) rows(b *Band) {
	var total, sum = int64(0), 0.0
	for j := range b.Causes {
		row, c := &b.Causes[j], c.in("causes", j)
		total += row.TotalNS
		sum += row.Share
		if *c.first != nil {
			return
		}
		one(c, row.Cause, Causes(), "cause")
		c.site(row.Site)
		c.via(row.Via)
		c.share(row.Share, "share")
		c.in("share_error").refuse(!(row.ShareError >= 0) || row.ShareError > 0 && !c.sampled, "%g, of requests that were sampled: %t", row.ShareError, c.sampled)
		c.notNegative("total_ns", row.TotalNS, "requests", row.Requests, "samples", row.Samples)
		c.refuse(row.Samples > 0 && row.Cause != CauseCPU && row.Cause != CauseOther, "%d CPU samples of %s", row.Samples, row.Cause)
		c.refuse(row.Requests > b.Count, "%d requests of a band of %d", row.Requests, b.Count)
		var byRoute int64
		for _, r := range row.Routes {
			c.notNegative("routes", r.TotalNS)
			byRoute += r.TotalNS
		}
		c.refuse(byRoute > row.TotalNS+routeSlack, "its routes take %d of %d ns", byRoute, row.TotalNS)
		ran := 0.0
		for _, s := range row.RanMeanwhile {
			c.share(s.Share, "ran_meanwhile")
			ran += s.Share
		}
		c.refuse(ran > 1+shareSlack, "what ran meanwhile has %g of the time", ran)
	}
	c.in("causes").refuse(len(b.Causes) > 0 && total > 0 && math.Abs(sum-1) > shareSlack, "shares add up to %g", sum)
}

// request holds a request's segments to it: they follow each other and make up its latency.
func (c checker) request(q *Request) {
	c.notNegative("latency_ns", q.LatencyNS)
	c.hexID(q.TraceID, 32, "trace_id")
	c.hexID(q.SpanID, 16, "span_id")
	c.hexID(q.ParentSpanID, 16, "parent_span_id")
	at := q.StartNS
	for j := range q.Segments {
		s, c := &q.Segments[j], c.in("segments", j)
		if *c.first != nil {
			return
		}
		c.refuse(!slices.Contains(Causes(), s.Cause), "there is no cause %.40q", s.Cause)
		c.site(s.Site)
		c.via(s.Via)
		c.refuse(s.StartNS != at || s.DurationNS < 0, "it begins at %d ns for %d, the one before ends at %d", s.StartNS, s.DurationNS, at)
		at += s.DurationNS
		if s.Joined != nil {
			var sum int64
			for _, ns := range s.Joined.Causes {
				sum += ns
			}
			c.same(sum, s.DurationNS, "joined")
		}
	}
	if len(q.Segments) > 0 {
		c.same(at-q.StartNS, q.LatencyNS, "segments")
	}
}

// hexID holds an id of a tracing system to its form, so that it can be pasted there; empty is none.
func (c checker) hexID(id string, digits int, path ...any) {
	if id != "" && (len(id) != digits || strings.Trim(id, "0123456789abcdef") != "") {
		c.in(path...).refuse(true, "%.40q is not an id of %d hexadecimal digits", id, digits)
	}
}

func (c checker) finding(f *Finding, groups map[string]bool) {
	one(c, f.Severity, Severities(), "severity")
	c.in("cause").refuse(f.Cause != "" && Family(f.Cause) == nil, "%.40q is neither a cause nor a family of causes", f.Cause)
	c.site(f.Site)
	if d := f.Decided; d != nil {
		one(c, d.By, DecidedBys(), "decided", "by")
		c.in("decided").refuse(d.Share < d.LeastShare || d.NS < d.LeastNS, "it has less than its severity needs")
	}
	c.refuse(f.Code == "", "it has no code")
	c.share(f.Share, "share")
	c.share(f.Confidence, "confidence")
	c.in("group").refuse(!groups[f.Group], "there is no group with the id %.40q", f.Group)
	for k := range f.AskedBy {
		a := &f.AskedBy[k]
		c.in("asked_by", k).refuse(!(a.Share >= 0 && a.Share <= 1) || a.EachNS < 0, "share %v, %d ns", a.Share, a.EachNS)
		if a.Predicted != nil {
			c.in("asked_by", k, "predicted").predicted(a.Predicted)
		}
	}
	if f.Predicted != nil {
		c.in("predicted").predicted(f.Predicted)
	}
}

// judged holds the account of rules to its promise: each of them is in one place.
func (c checker) judged(j *Judged) {
	if j == nil {
		return
	}
	seen := map[RuleCode]bool{}
	each := func(codes []RuleCode, where ...any) {
		for _, code := range codes {
			c.in(where...).refuse(seen[code], "%.20q occurs twice", code)
			seen[code] = true
		}
	}
	each(j.Found, "found")
	each(j.Clear, "clear")
	for i := range j.Blind {
		one(c, j.Blind[i].Reason, BlindReasons(), "blind", i, "reason")
		each(j.Blind[i].Codes, "blind", i)
	}
	c.refuse(len(seen) != j.Rules, "%d of %d rules are listed", len(seen), j.Rules)
}

func (c checker) predicted(p *Predicted) {
	for _, e := range []*Estimate{&p.P50NS, &p.P99NS, p.MaxNS} {
		if e == nil {
			continue
		}
		c.refuse(e.Est < e.Low || e.High < e.Est, "an estimate of %d ns is not within %d to %d", e.Est, e.Low, e.High)
	}
}

func (c checker) moment(m *Moment, ids map[string]bool) {
	c.in("group").refuse(!ids[m.Group] || m.Group == "", "there is no group %.40q", m.Group)
	c.refuse(m.EndNS < m.StartNS || m.UntilNS < m.EndNS || m.StartNS < 0, "it is from %d to %d and until %d", m.StartNS, m.EndNS, m.UntilNS)
	c.in("slow").refuse(m.Slow < 0 || m.Slow > m.Of, "%d of %d", m.Slow, m.Of)
	c.share(m.ShareOfSlow, "share_of_slow")
	c.share(m.CauseShare, "cause_share")
	one(c, m.Cause, Causes(), "cause")
	for k := range m.With {
		one(c, m.With[k].Kind, MomentKinds(), "with", k, "kind")
		c.in("with", k).notNegative("duration_ns", m.With[k].DurationNS)
	}
}

func (c checker) runtime(rt *Runtime) {
	c.in("gc").notNegative("cycles", rt.GC.Cycles, "mark_ns", rt.GC.MarkNS)
	c.in("sched").notNegative("goroutines", rt.Sched.Goroutines)
	c.share(rt.Sched.PsIdle, "sched", "ps_idle")
	for i := range rt.STW {
		s, c := &rt.STW[i], c.in("stw", i)
		c.notNegative("count", s.Count)
		c.refuse(s.MaxNS < 0 || s.TotalNS < s.MaxNS, "the longest stop took %d of %d ns", s.MaxNS, s.TotalNS)
	}
	c.in("throttle").throttle(&rt.Throttle)
}

func (c checker) throttle(t *Throttle) {
	c.refuse(t.Verdict != "" && !slices.Contains(ThrottleVerdicts(), t.Verdict), "there is no verdict %.40q", t.Verdict)
	c.refuse(t.LostWallNS < 0 || t.LostCPUNS < 0, "less than no time was lost")
	c.refuse(!(t.Confidence >= 0 && t.Confidence <= 1+shareSlack), "a confidence of %g is not in 0..1", t.Confidence)
}

func (c checker) host(h *Host) {
	c.share(h.Coverage, "coverage")
	c.refuse(h.ToNS < h.FromNS, "samples end at %d ns, before %d", h.ToNS, h.FromNS)
	one(c, h.Quota.Verdict, ThrottleVerdicts(), "quota", "verdict")
	one(c, h.Network.Verdict, NetworkVerdicts(), "network", "verdict")
	if h.Freezes != nil {
		c.in("freezes").throttle(h.Freezes)
	}
}
