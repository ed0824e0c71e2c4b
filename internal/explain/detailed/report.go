package detailed

import (
	"encoding/hex"
	"iter"
	"sort"
	"strconv"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/report"
)

// Report spells a request out as a report holds it, group is its group's id.
func (r *Request) Report(group string, sp *spell.Speller) report.Request {
	return r.settled(sp.Settled).report(group, sp)
}

func (r *Request) report(group string, sp *spell.Speller) report.Request {
	out := report.Request{
		ID:      spell.RequestID(group, r.Start-sp.Start, r.G),
		StartNS: r.Start - sp.Start, LatencyNS: r.End - r.Start, Goroutine: r.G,
		Segments: make([]report.Segment, 0, min(len(r.Segments), maxSegments)+1),
	}
	if id := r.Identity; id != nil {
		out.Status = sp.Syms.String(id.Status)
		out.TraceID, out.SpanID, out.ParentSpanID = hexID(id.TraceID[:]), hexID(id.SpanID[:]), hexID(id.ParentSpanID[:])
		if id.DatadogSpanID != 0 {
			out.DatadogSpanID = strconv.FormatUint(id.DatadogSpanID, 10)
		}
	}
	for from, to := range stretches(r.Segments, maxSegments) {
		if to-from > 1 {
			out.Segments = append(out.Segments, r.joined(from, to, sp))
		} else {
			out.Segments = append(out.Segments, sp.Segment(&r.Segments[from], r.Vias[from], r.By))
		}
	}
	// Of a request over many generations only so many segments were kept.
	if n := len(r.Segments); n > 0 && r.Segments[n-1].End < r.End {
		last := r.Segments[n-1].End
		out.Segments = append(out.Segments, report.Segment{StartNS: last - sp.Start, DurationNS: r.End - last, Goroutine: r.G, Cause: report.CauseUnknown, Via: []report.Via{}, Kind: "left out"})
	}
	for _, w := range r.Wakes {
		out.Wakes = append(out.Wakes, report.Wake{TimeNS: w.Time - sp.Start, From: w.From, To: w.To, Site: sp.Site(w.Site)})
	}
	for _, l := range r.Lanes {
		lane := report.Lane{Goroutine: l.G, Spans: []report.LaneSpan{}}
		if f := sp.Syms.Stack(l.Start); len(f) > 0 {
			lane.Name = sp.Syms.String(sp.Syms.Frame(f[0]).Func)
		}
		for _, x := range l.Spans {
			a, b := max(x.Start, r.Start), min(x.End, r.End)
			if a >= b || x.State == timeline.Gone {
				continue
			}
			if lane.Name == "" {
				if f := sp.Syms.Stack(x.Stack); len(f) > 0 && x.How != timeline.HowCreated {
					lane.Name = sp.Syms.String(sp.Syms.Frame(f[len(f)-1]).Func)
				}
			}
			ls := report.LaneSpan{StartNS: a - sp.Start, DurationNS: b - a, State: x.State.String(), Reason: sp.Syms.String(x.Reason), Site: sp.Site(sp.Sites.SiteOf(x.Stack))}
			if n := len(lane.Spans); n > 0 {
				// A running stretch cut at events is one bar for the eye.
				if last := &lane.Spans[n-1]; last.State == ls.State && last.State == "running" && last.StartNS+last.DurationNS == ls.StartNS {
					last.DurationNS += ls.DurationNS
					continue
				}
			}
			lane.Spans = append(lane.Spans, ls)
		}
		out.Lanes = append(out.Lanes, lane)
	}
	return out
}

// hexID writes an id of a tracing system; one that is all zero is none.
func hexID(id []byte) string {
	for _, b := range id {
		if b != 0 {
			return hex.EncodeToString(id)
		}
	}
	return ""
}

// maxSegments bounds the segments of a slow request in a report.
const maxSegments = 2000

// stretches divides a path into at most most parts, as index ranges. Neighbours
// are joined as long as together they last no longer than some time, the
// shortest that is enough: the whole path stays in sight, at one resolution,
// and what is longer than that time stays as it is.
func stretches(segs []cause.Segment, most int) iter.Seq2[int, int] {
	if len(segs) <= most {
		return parts(segs, -1)
	}
	total := segs[len(segs)-1].End - segs[0].Start
	count := func(limit int64) (n int) {
		for range parts(segs, limit) {
			n++
		}
		return n
	}
	// Two neighbouring parts last longer than the limit together, so limits
	// beyond twice the mean are always enough.
	limit := sort.Search(int(2*total/int64(most)+1), func(limit int) bool { return count(int64(limit)) <= most })
	return parts(segs, int64(limit))
}

func parts(segs []cause.Segment, limit int64) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		for from := 0; from < len(segs); {
			to := from + 1
			for to < len(segs) && segs[to].End-segs[from].Start <= limit {
				to++
			}
			if !yield(from, to) {
				return
			}
			from = to
		}
	}
}

// joined is one segment for segments from to to-1. It says of which
// causes they are; only what they have in common is said of the whole.
func (r *Request) joined(from, to int, sp *spell.Speller) report.Segment {
	list := r.Segments[from:to]
	j := &report.Joined{Count: len(list), Causes: map[report.CauseName]int64{}}
	same, longest := true, from
	ran := map[uint64]int64{}
	for i := range list {
		g := &list[i]
		j.Causes[spell.Cause(g.Code.Cause())] += g.End - g.Start
		ran[g.G] += g.End - g.Start
		same = same && g.Code == list[0].Code && g.Site == list[0].Site
		if l := &r.Segments[longest]; g.End-g.Start > l.End-l.Start {
			longest = from + i
		}
	}
	seg := sp.Segment(&r.Segments[longest], r.Vias[longest], r.By)
	seg.StartNS, seg.DurationNS, seg.Joined = list[0].Start-sp.Start, list[len(list)-1].End-list[0].Start, j
	for g, ns := range ran {
		if ns > ran[seg.Goroutine] || ns == ran[seg.Goroutine] && g < seg.Goroutine {
			seg.Goroutine = g
		}
	}
	if !same {
		seg.Site, seg.Via, seg.Kind = nil, []report.Via{}, ""
	}
	if len(j.Causes) > 1 {
		seg.Cause = report.CauseOther
	}
	return seg
}
