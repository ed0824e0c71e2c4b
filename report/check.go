package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// CheckValid reports the first promise of the contract that r breaks, naming the field, or nil: parts add up to what
// they are parts of, bands contain each other, shares are in 0..1, nothing is counted negatively, percentiles are in
// order, names are those of the vocabulary. ReadJSON calls it; Explain's reports keep it. It takes time in proportion to
// the report.
func (r *Report) CheckValid() error {
	c := checker{sampled: r.Input.Sampled != nil}
	c.input(&r.Input)
	ids := map[string]bool{"": true}
	for i := range r.Groups {
		ids[r.Groups[i].ID] = true
		c.group(&r.Groups[i], i)
	}
	for i := range r.Findings {
		c.finding(&r.Findings[i], i, ids)
	}
	c.judged(r.Judged)
	for i := range r.WhatIf {
		c.predicted(&r.WhatIf[i].Predicted, "what_if", i)
	}
	c.runtime(&r.Runtime)
	for i := range r.Moments {
		c.moment(&r.Moments[i], i, ids)
	}
	if r.Host != nil {
		c.host(r.Host)
	}
	return c.err
}

// shareSlack is what rounding may add to a sum of shares.
const shareSlack = 1e-6

// routeSlack is what rounding may add to the sum of a row's routes, in ns: time that is moved from one row to another is
// split over their routes.
const routeSlack = 64

// A checker keeps the first error. Places are spelled only for it.
type checker struct {
	err     error
	sampled bool // not all requests were followed
}

// say keeps an error about the field at a path: names, and the indices of lists behind their names.
func (c *checker) say(format string, args []any, path ...any) {
	if c.err != nil {
		return
	}
	where := ""
	for _, p := range path {
		switch p := p.(type) {
		case int:
			where += fmt.Sprintf("[%d]", p)
		case string:
			if where != "" {
				where += "."
			}
			where += p
		}
	}
	c.err = fmt.Errorf("%s: %s", where, fmt.Sprintf(format, args...))
}

func (c *checker) notNegative(n int64, path ...any) {
	if n < 0 {
		c.say("%d is negative", []any{n}, path...)
	}
}

func (c *checker) share(v float64, path ...any) {
	if !(v >= 0 && v <= 1+shareSlack) { // catches NaN as well
		c.say("%g is not in 0..1", []any{v}, path...)
	}
}

// one holds a name to its vocabulary.
func one[S ~string](c *checker, name S, all []S, path ...any) {
	if !slices.Contains(all, name) {
		c.say("%.40q is none of %s", []any{name, Join(all)}, path...)
	}
}

// same holds a sum to the whole.
func (c *checker) same(sum, whole int64, path ...any) {
	if sum != whole {
		c.say("its parts add up to %d of %d", []any{sum, whole}, path...)
	}
}

func (c *checker) input(in *Input) {
	c.notNegative(in.Bytes, "input", "bytes")
	c.notNegative(in.Events, "input", "events")
	c.notNegative(in.DurationNS, "input", "duration_ns")
	c.notNegative(int64(in.GOMAXPROCS), "input", "gomaxprocs")
	c.notNegative(int64(in.Observer), "input", "observer")
	if s := in.Sampled; s != nil && (s.Walked <= 0 || s.Walked >= s.Of) {
		c.say("of %d requests %d were walked", []any{s.Of, s.Walked}, "input", "sampled")
	}
	for i := range in.LeftOut {
		c.notNegative(int64(in.LeftOut[i].Count), "input", "left_out", i, "count")
		one(c, in.LeftOut[i].Kind, Kinds(), "input", "left_out", i, "kind")
		one(c, in.LeftOut[i].Why, LeftOutReasons(), "input", "left_out", i, "why")
	}
}

func (c *checker) group(g *Group, i int) {
	if c.err != nil {
		return
	}
	one(c, g.Kind, Kinds(), "groups", i, "kind")
	one(c, g.Role, Roles(), "groups", i, "role")
	c.notNegative(int64(g.Count), "groups", i, "count")
	c.notNegative(g.TotalNS, "groups", i, "total_ns")
	c.notNegative(int64(g.CutAtStart), "groups", i, "cut_at_start")
	c.notNegative(int64(g.Open.Count), "groups", i, "open", "count")
	c.notNegative(g.Open.OldestNS, "groups", i, "open", "oldest_ns")
	if p := g.Peer; p != nil {
		c.notNegative(p.WaitNS, "groups", i, "peer", "wait_ns")
		c.notNegative(p.ServedNS, "groups", i, "peer", "served_ns")
		c.notNegative(p.LateNS, "groups", i, "peer", "late_ns")
		for name, ns := range map[string]*int64{"there_ns": p.ThereNS, "unseen_ns": p.UnseenNS, "back_ns": p.BackNS} {
			if ns != nil {
				c.notNegative(*ns, "groups", i, "peer", name)
			}
		}
		if p.Held < 0 || p.Held > p.Waits || !(p.ByChance >= 0 && p.ByChance <= 1) || !(p.Confidence >= 0 && p.Confidence <= 1) {
			c.say("%d of %d waits, %v by chance, confidence %v", []any{p.Held, p.Waits, p.ByChance, p.Confidence}, "groups", i, "peer")
		}
	}
	c.openWaits(&g.Open, i)
	l := &g.LatencyNS
	if l.Mean != nil {
		c.notNegative(*l.Mean, "groups", i, "latency_ns", "mean")
	}
	c.ordered([]*int64{l.P50, l.P90, l.P99, l.P999, l.Max}, "groups", i, "latency_ns")
	c.ordered([]*int64{g.ReadyToRunNS.P50, g.ReadyToRunNS.P99, g.ReadyToRunNS.Max}, "groups", i, "ready_to_run_ns")
	c.ordered([]*int64{g.PollGapNS.P50, g.PollGapNS.P99, g.PollGapNS.Max}, "groups", i, "poll_gap_ns")
	if n := c.histogram(g.Histogram, "groups", i, "histogram"); len(g.Histogram) > 0 {
		c.same(n, int64(g.Count), "groups", i, "histogram")
	}
	for name, list := range g.HistogramCauses {
		one(c, name, Causes(), "groups", i, "histogram_causes")
		if len(list) != len(g.Histogram) {
			c.say("%d buckets of %s, %d of latency", []any{len(list), name, len(g.Histogram)}, "groups", i, "histogram_causes")
		}
		for _, ns := range list {
			c.notNegative(ns, "groups", i, "histogram_causes", string(name))
		}
	}
	for k := range g.Blocks {
		b := &g.Blocks[k]
		c.notNegative(b.DurationNS, "groups", i, "blocks", k, "duration_ns")
		c.notNegative(int64(b.Count), "groups", i, "blocks", k, "count")
		c.notNegative(b.TotalNS, "groups", i, "blocks", k, "total_ns")
		c.histogram(b.Histogram, "groups", i, "blocks", k, "histogram")
		for name, ns := range b.Causes {
			one(c, name, Causes(), "groups", i, "blocks", k, "causes")
			c.notNegative(ns, "groups", i, "blocks", k, "causes", string(name))
		}
	}
	c.bands(g, i)
	for k := range g.Slowest {
		c.request(&g.Slowest[k], "groups", i, "slowest", k)
	}
	if g.Typical != nil {
		c.request(g.Typical, "groups", i, "typical")
	}
}

// openWaits holds the places of open requests to their number.
func (c *checker) openWaits(o *Open, i int) {
	n := 0
	for k := range o.Waits {
		w := &o.Waits[k]
		one(c, w.Cause, Causes(), "groups", i, "open", "waits", k, "cause")
		c.notNegative(int64(w.Count), "groups", i, "open", "waits", k, "count")
		c.notNegative(w.OldestNS, "groups", i, "open", "waits", k, "oldest_ns")
		for _, ns := range append(slices.Clone(w.StuckNS), w.AgesNS...) {
			c.notNegative(ns, "groups", i, "open", "waits", k)
		}
		n += w.Count
	}
	if n > o.Count {
		c.say("%d requests stand at places, of %d", []any{n, o.Count}, "groups", i, "open", "waits")
	}
}

// ordered holds points of a distribution, each of which may be unknown, to their order.
func (c *checker) ordered(points []*int64, path ...any) {
	last := int64(0)
	for _, p := range points {
		if p == nil {
			continue
		}
		if *p < last {
			c.say("percentiles are not in order: %d after %d", []any{*p, last}, path...)
		}
		last = *p
	}
}

// histogram returns the sum of the counts.
func (c *checker) histogram(pairs [][2]int64, path ...any) (sum int64) {
	last := int64(-1)
	for _, p := range pairs {
		if p[0] <= last {
			c.say("buckets are not in order: %d after %d", []any{p[0], last}, path...)
		}
		c.notNegative(p[1], path...)
		last = p[0]
		sum += p[1]
	}
	return sum
}

func (c *checker) bands(g *Group, i int) {
	if len(g.Bands) == 0 {
		return
	}
	all := &g.Bands[0]
	if all.Band != BandAll {
		c.say("the first band is %.40q, not %s", []any{all.Band, BandAll}, "groups", i, "bands", 0)
	}
	c.same(int64(all.Count), int64(g.Count), "groups", i, "bands", 0, "count")
	last, rank := int64(0), -1
	for k := range g.Bands {
		b := &g.Bands[k]
		one(c, b.Band, BandNames(), "groups", i, "bands", k, "band")
		if at := slices.Index(BandNames(), b.Band); at <= rank {
			c.say("bands are not in order", nil, "groups", i, "bands", k)
		} else {
			rank = at
		}
		c.notNegative(int64(b.Count), "groups", i, "bands", k, "count")
		c.notNegative(b.FromNS, "groups", i, "bands", k, "from_ns")
		if b.ToNS < b.FromNS {
			c.say("it ends at %d ns, before %d", []any{b.ToNS, b.FromNS}, "groups", i, "bands", k)
		}
		// The slowest requests are always in the last band, also where there are so few that they belong to the one before.
		if b.Band == BandOutliers {
			last = all.FromNS // they are among those of the bands before
			if b.Count == 0 {
				c.say("%d are not there", []any{b.Count}, "groups", i, "bands", k, "count")
			}
		}
		if k > 0 && b.Count > 0 {
			if b.FromNS < max(last, all.FromNS) || b.ToNS > all.ToNS || b.Count > all.Count {
				c.say("%d requests of %d to %d ns are not within all and after the band before", []any{b.Count, b.FromNS, b.ToNS}, "groups", i, "bands", k)
			}
			last = b.FromNS
		}
		c.rows(b, i, k)
	}
}

// site holds a place to its promise: who called it is told by name, and a version is a module's.
func (c *checker) site(s *Site, path ...any) {
	switch {
	case s == nil:
	case s.CalledFrom != nil && (s.CalledFrom.Func == "" || s.CalledFrom.Line < 0):
		c.say("what called %.80q has no name, or a line of %d", []any{s.Func, s.CalledFrom.Line}, append(slices.Clip(path), "called_from")...)
	case s.Version != "" && s.Module == "":
		c.say("%.80q has a version and no module", []any{s.Func}, path...)
	}
}

func (c *checker) via(via []Via, path ...any) {
	for i := range via {
		c.site(via[i].Site, append(slices.Clip(path), "via", i, "site")...)
	}
}

func (c *checker) rows(b *Band, i, k int) {
	var total, sum = int64(0), 0.0
	for j := range b.Causes {
		row := &b.Causes[j]
		total += row.TotalNS
		sum += row.Share
		if c.err != nil {
			return
		}
		one(c, row.Cause, Causes(), "groups", i, "bands", k, "causes", j, "cause")
		c.site(row.Site, "groups", i, "bands", k, "causes", j, "site")
		c.via(row.Via, "groups", i, "bands", k, "causes", j)
		c.notNegative(row.TotalNS, "groups", i, "bands", k, "causes", j, "total_ns")
		c.share(row.Share, "groups", i, "bands", k, "causes", j, "share")
		if !(row.ShareError >= 0) || row.ShareError > 0 && !c.sampled {
			c.say("%g, of requests that were sampled: %t", []any{row.ShareError, c.sampled}, "groups", i, "bands", k, "causes", j, "share_error")
		}
		c.notNegative(int64(row.Requests), "groups", i, "bands", k, "causes", j, "requests")
		c.notNegative(int64(row.Samples), "groups", i, "bands", k, "causes", j, "samples")
		if row.Samples > 0 && row.Cause != CauseCPU && row.Cause != CauseOther {
			c.say("%d CPU samples of %s", []any{row.Samples, row.Cause}, "groups", i, "bands", k, "causes", j)
		}
		if row.Requests > b.Count {
			c.say("%d requests of a band of %d", []any{row.Requests, b.Count}, "groups", i, "bands", k, "causes", j)
		}
		var byRoute int64
		for _, r := range row.Routes {
			c.notNegative(r.TotalNS, "groups", i, "bands", k, "causes", j, "routes")
			byRoute += r.TotalNS
		}
		if byRoute > row.TotalNS+routeSlack {
			c.say("its routes take %d of %d ns", []any{byRoute, row.TotalNS}, "groups", i, "bands", k, "causes", j)
		}
		ran := 0.0
		for _, s := range row.RanMeanwhile {
			c.share(s.Share, "groups", i, "bands", k, "causes", j, "ran_meanwhile")
			ran += s.Share
		}
		if ran > 1+shareSlack {
			c.say("what ran meanwhile has %g of the time", []any{ran}, "groups", i, "bands", k, "causes", j)
		}
	}
	if len(b.Causes) > 0 && total > 0 && math.Abs(sum-1) > shareSlack {
		c.say("shares add up to %g", []any{sum}, "groups", i, "bands", k, "causes")
	}
}

// request holds a request's segments to it: they follow each other and make up its latency.
func (c *checker) request(q *Request, path ...any) {
	c.notNegative(q.LatencyNS, append(slices.Clip(path), "latency_ns")...)
	c.hexID(q.TraceID, 32, append(slices.Clip(path), "trace_id")...)
	c.hexID(q.SpanID, 16, append(slices.Clip(path), "span_id")...)
	c.hexID(q.ParentSpanID, 16, append(slices.Clip(path), "parent_span_id")...)
	at := q.StartNS
	for j := range q.Segments {
		s := &q.Segments[j]
		if c.err != nil {
			return
		}
		if !slices.Contains(Causes(), s.Cause) {
			c.say("there is no cause %.40q", []any{s.Cause}, append(slices.Clip(path), "segments", j)...)
		}
		c.site(s.Site, append(slices.Clip(path), "segments", j, "site")...)
		c.via(s.Via, append(slices.Clip(path), "segments", j)...)
		if s.StartNS != at || s.DurationNS < 0 {
			c.say("it begins at %d ns for %d, the one before ends at %d", []any{s.StartNS, s.DurationNS, at}, append(slices.Clip(path), "segments", j)...)
		}
		at += s.DurationNS
		if s.Joined != nil {
			var sum int64
			for _, ns := range s.Joined.Causes {
				sum += ns
			}
			c.same(sum, s.DurationNS, append(slices.Clip(path), "segments", j, "joined")...)
		}
	}
	if len(q.Segments) > 0 {
		c.same(at-q.StartNS, q.LatencyNS, append(slices.Clip(path), "segments")...)
	}
}

// hexID holds an id of a tracing system to its form, so that it can be pasted there; empty is none.
func (c *checker) hexID(id string, digits int, path ...any) {
	if id != "" && (len(id) != digits || strings.Trim(id, "0123456789abcdef") != "") {
		c.say("%.40q is no id of %d hexadecimal digits", []any{id, digits}, path...)
	}
}

func (c *checker) finding(f *Finding, i int, groups map[string]bool) {
	one(c, f.Severity, Severities(), "findings", i, "severity")
	if f.Cause != "" && Family(f.Cause) == nil {
		c.say("%.40q is no cause and no family of causes", []any{f.Cause}, "findings", i, "cause")
	}
	c.site(f.Site, "findings", i, "site")
	if d := f.Decided; d != nil {
		one(c, d.By, DecidedBys(), "findings", i, "decided", "by")
		if d.Share < d.LeastShare || d.NS < d.LeastNS {
			c.say("it has less than the least of its severity", nil, "findings", i, "decided")
		}
	}
	if f.Code == "" {
		c.say("it has no code", nil, "findings", i)
	}
	c.share(f.Share, "findings", i, "share")
	c.share(f.Confidence, "findings", i, "confidence")
	if !groups[f.Group] {
		c.say("there is no group with the id %.40q", []any{f.Group}, "findings", i, "group")
	}
	for k := range f.AskedBy {
		a := &f.AskedBy[k]
		if !(a.Share >= 0 && a.Share <= 1) || a.EachNS < 0 {
			c.say("share %v, %d ns", []any{a.Share, a.EachNS}, "findings", i, "asked_by", k)
		}
		if a.Predicted != nil {
			c.predicted(a.Predicted, "findings", i, "asked_by", k, "predicted")
		}
	}
	if f.Predicted != nil {
		c.predicted(f.Predicted, "findings", i, "predicted")
	}
}

// judged holds the account of rules to its promise: each of them is in one place.
func (c *checker) judged(j *Judged) {
	if j == nil {
		return
	}
	seen := map[RuleCode]bool{}
	each := func(codes []RuleCode, where ...any) {
		for _, code := range codes {
			if seen[code] {
				c.say("%.20q is told twice", []any{code}, append([]any{"judged"}, where...)...)
			}
			seen[code] = true
		}
	}
	each(j.Found, "found")
	each(j.Clear, "clear")
	for i := range j.Blind {
		one(c, j.Blind[i].Reason, BlindReasons(), "judged", "blind", i, "reason")
		each(j.Blind[i].Codes, "blind", i)
	}
	if len(seen) != j.Rules {
		c.say("%d of %d rules are told", []any{len(seen), j.Rules}, "judged")
	}
}

func (c *checker) predicted(p *Predicted, path ...any) {
	for _, e := range []*Estimate{&p.P50NS, &p.P99NS, p.MaxNS} {
		if e == nil {
			continue
		}
		if e.Est < e.Low || e.High < e.Est {
			c.say("an estimate of %d ns is not within %d to %d", []any{e.Est, e.Low, e.High}, path...)
		}
	}
}

func (c *checker) moment(m *Moment, i int, ids map[string]bool) {
	if !ids[m.Group] || m.Group == "" {
		c.say("there is no group %.40q", []any{m.Group}, "moments", i, "group")
	}
	if m.EndNS < m.StartNS || m.UntilNS < m.EndNS || m.StartNS < 0 {
		c.say("it is from %d to %d and until %d", []any{m.StartNS, m.EndNS, m.UntilNS}, "moments", i)
	}
	if m.Slow < 0 || m.Slow > m.Of {
		c.say("%d of %d", []any{m.Slow, m.Of}, "moments", i, "slow")
	}
	c.share(m.ShareOfSlow, "moments", i, "share_of_slow")
	c.share(m.CauseShare, "moments", i, "cause_share")
	one(c, m.Cause, Causes(), "moments", i, "cause")
	for k := range m.With {
		one(c, m.With[k].Kind, MomentKinds(), "moments", i, "with", k, "kind")
		c.notNegative(m.With[k].DurationNS, "moments", i, "with", k, "duration_ns")
	}
}

func (c *checker) runtime(rt *Runtime) {
	c.notNegative(int64(rt.GC.Cycles), "runtime", "gc", "cycles")
	c.notNegative(rt.GC.MarkNS, "runtime", "gc", "mark_ns")
	c.notNegative(int64(rt.Sched.Goroutines), "runtime", "sched", "goroutines")
	c.share(rt.Sched.PsIdle, "runtime", "sched", "ps_idle")
	for i := range rt.STW {
		s := &rt.STW[i]
		c.notNegative(int64(s.Count), "runtime", "stw", i, "count")
		if s.MaxNS < 0 || s.TotalNS < s.MaxNS {
			c.say("the longest stop took %d of %d ns", []any{s.MaxNS, s.TotalNS}, "runtime", "stw", i)
		}
	}
	c.throttle(&rt.Throttle, "runtime", "throttle")
}

func (c *checker) throttle(t *Throttle, path ...any) {
	if t.Verdict != "" && !slices.Contains(ThrottleVerdicts(), t.Verdict) {
		c.say("there is no verdict %.40q", []any{t.Verdict}, path...)
	}
	if t.LostWallNS < 0 || t.LostCPUNS < 0 {
		c.say("less than no time was lost", nil, path...)
	}
	if !(t.Confidence >= 0 && t.Confidence <= 1+shareSlack) {
		c.say("a confidence of %g is not in 0..1", []any{t.Confidence}, path...)
	}
}

func (c *checker) host(h *Host) {
	c.share(h.Coverage, "host", "coverage")
	if h.ToNS < h.FromNS {
		c.say("samples end at %d ns, before %d", []any{h.ToNS, h.FromNS}, "host")
	}
	one(c, h.Quota.Verdict, ThrottleVerdicts(), "host", "quota", "verdict")
	one(c, h.Network.Verdict, NetworkVerdicts(), "host", "network", "verdict")
	if h.Freezes != nil {
		c.throttle(h.Freezes, "host", "freezes")
	}
}
