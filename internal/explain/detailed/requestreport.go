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

// Report returns the request in the form of the report, with final causes and queues. group is its group's id.
func (r *Request) Report(group string, sp *spell.Speller) report.Request {
	settled := r.withSettledCauses(sp.Settlement)
	settled.findQueueWaits(group, sp)
	return settled.report(group, sp)
}

// report converts a request whose causes are final; long paths are joined to at most maxSegments segments.
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
	for from, to := range joinedRanges(r.Segments, maxSegments) {
		if to-from > 1 {
			out.Segments = append(out.Segments, r.joinedSegment(from, to, sp))
		} else {
			out.Segments = append(out.Segments, r.reportSegment(from, sp))
		}
	}
	// A request over many generations has only the first segments.
	if n := len(r.Segments); n > 0 && r.Segments[n-1].End < r.End {
		last := r.Segments[n-1].End
		out.Segments = append(out.Segments, report.Segment{
			StartNS: last - sp.Start, DurationNS: r.End - last, Goroutine: r.G,
			Cause: report.CauseUnknown, Via: []report.Via{}, Kind: "left out",
		})
	}
	for _, w := range r.Wakes {
		out.Wakes = append(out.Wakes, report.Wake{TimeNS: w.Time - sp.Start, From: w.From, To: w.To, Site: sp.Site(w.Site)})
	}
	for _, l := range r.Lanes {
		lane := report.Lane{Goroutine: l.G, Spans: []report.LaneSpan{}}
		if f := sp.Syms.Stack(l.Start); len(f) > 0 {
			lane.Name = sp.Syms.String(sp.Syms.Frame(f[0]).Func)
		}
		for _, span := range l.Spans {
			start, end := max(span.Start, r.Start), min(span.End, r.End)
			if start >= end || span.State == timeline.NotAlive {
				continue
			}
			if lane.Name == "" {
				if f := sp.Syms.Stack(span.Stack); len(f) > 0 && span.Origin != timeline.OriginCreated {
					lane.Name = sp.Syms.String(sp.Syms.Frame(f[len(f)-1]).Func)
				}
			}
			laneSpan := report.LaneSpan{
				StartNS: start - sp.Start, DurationNS: end - start, State: span.State.String(),
				Reason: sp.Syms.String(span.Reason), Site: sp.Site(sp.Sites.SiteOf(span.Stack)),
			}
			if n := len(lane.Spans); n > 0 {
				// Successive running spans are drawn as one bar.
				if last := &lane.Spans[n-1]; last.State == laneSpan.State && last.State == "running" &&
					last.StartNS+last.DurationNS == laneSpan.StartNS {
					last.DurationNS += laneSpan.DurationNS
					continue
				}
			}
			lane.Spans = append(lane.Spans, laneSpan)
		}
		l.reportThreads(&lane, sp)
		out.Lanes = append(out.Lanes, lane)
	}
	r.reportCPUs(&out, sp)
	return out
}

// hexID formats an id of a tracing system; an id of zeros is "".
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

// joinedRanges divides a path into at most maxRanges index ranges [from, to). Adjacent segments are joined if they last at most some
// time together, the smallest that is sufficient. So the whole path is visible at one resolution, and longer segments stay
// single.
func joinedRanges(segs []cause.Segment, maxRanges int) iter.Seq2[int, int] {
	if len(segs) <= maxRanges {
		return rangesWithin(segs, -1)
	}
	total := segs[len(segs)-1].End - segs[0].Start
	count := func(limit int64) (n int) {
		for range rangesWithin(segs, limit) {
			n++
		}
		return n
	}
	// Two adjacent ranges last longer than the limit together, so twice the mean length is always sufficient.
	limit := sort.Search(int(2*total/int64(maxRanges)+1), func(limit int) bool { return count(int64(limit)) <= maxRanges })
	return rangesWithin(segs, int64(limit))
}

// rangesWithin yields index ranges in which adjacent segments are joined as long as they last at most limit ns together.
func rangesWithin(segs []cause.Segment, limit int64) iter.Seq2[int, int] {
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

// joinedSegment returns one segment of the report for Segments[from:to]. It lists their causes; it has a site, a kind and a
// wait chain only if all segments share them.
func (r *Request) joinedSegment(from, to int, sp *spell.Speller) report.Segment {
	list := r.Segments[from:to]
	joined := &report.Joined{Count: len(list), Causes: map[report.CauseName]int64{}}
	isSame, isOneState, longest := true, true, from
	nsByG := map[uint64]int64{}
	queue := r.queueWait(from).queue
	for i := range list {
		segment := &list[i]
		name := spell.Cause(segment.Code.Cause())
		if remote := sp.Remote(segment.Remote); remote != nil {
			name = spell.Cause(remote.Code)
		} else if r.queueWait(from+i).queue != nil {
			name = report.CauseQueue
		}
		joined.Causes[name] += segment.End - segment.Start
		nsByG[segment.G] += segment.End - segment.Start
		isSame = isSame && r.queueWait(from+i).queue == queue && (queue != nil || segment.Code == list[0].Code && segment.Site == list[0].Site && segment.Remote == list[0].Remote)
		isOneState = isOneState && segment.Kind == list[0].Kind
		if l := &r.Segments[longest]; segment.End-segment.Start > l.End-l.Start {
			longest = from + i
		}
	}
	seg := r.reportSegment(longest, sp)
	seg.StartNS, seg.DurationNS, seg.Joined = list[0].Start-sp.Start, list[len(list)-1].End-list[0].Start, joined
	for segment, ns := range nsByG {
		if ns > nsByG[seg.Goroutine] || ns == nsByG[seg.Goroutine] && segment < seg.Goroutine {
			seg.Goroutine = segment
		}
	}
	if !isSame {
		seg.Site, seg.Via, seg.Kind, seg.AheadWork = nil, []report.Via{}, "", nil
		seg.Service, seg.ServiceGoroutine, seg.WayTo = "", 0, ""
	}
	if !isOneState {
		seg.Peer = ""
	}
	if len(joined.Causes) > 1 {
		seg.Cause = report.CauseOther
	}
	return seg
}
