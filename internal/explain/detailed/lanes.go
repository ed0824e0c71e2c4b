// Package detailed collects some requests of each group in full: the slowest, and one of typical latency. Input: walked
// requests of package path, on several workers, each with a collector. Output: report.Request values with segments, wait
// chains, and the lanes of all goroutines on the path (FillGroup). Which requests are collected does not depend on the
// workers.
package detailed

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/threadstate"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Request is one request in full: its path, and the timelines of the goroutines on it.
type Request struct {
	Start, End   int64
	G            uint64
	Segments     []cause.Segment
	Vias         [][]path.ChainWait // by segment
	Lanes        []Lane
	Wakes        []Wake
	CPUs         []CPULane
	StarterFrame tracefmt.FrameID  // see request.Request
	Identity     *request.Identity // nil: no tracing system knows it
	queueWaits   []queueWait       // by segment, set by findQueueWaits
}

// A Lane is the timeline of a goroutine on the request's path.
type Lane struct {
	G     uint64
	Start tracefmt.StackID
	Spans []timeline.Span
	// Threads, Arrivals and Peers are from the kernel's events: the states of its threads, the times at which bytes that it read
	// arrived, and the states of the peers for which it waited.
	Threads  []threadstate.Interval
	Arrivals []int64
	Peers    []peerSpan
}

// A peerSpan is an interval in which a peer has one state, a text of package threadstate.
type peerSpan struct {
	start, end int64
	state      tracefmt.StringID
}

// A Wake is an edge from the waker's lane to the lane of the goroutine that it woke or created.
type Wake struct {
	Time     int64
	From, To uint64
	Site     tracefmt.FrameID
}

// NewRequest returns a walked request without lanes and wakes. It shares the segments with w, so they are valid only as long as
// w.
func NewRequest(w *path.WalkResult) *Request {
	return &Request{
		Start: w.Start, End: w.Req.End, G: w.Req.G, Segments: w.Segments, Vias: w.WaitChains(),
		StarterFrame: w.Req.StarterFrame, Identity: w.Req.Identity,
	}
}

// Bounds of the lanes of a request.
const (
	maxLanes     = 40
	maxLaneSpans = 400
)

// AddLanes adds the timelines of all goroutines on the request's path, and the wakes between them. It uses buf as scratch
// space, and returns it, perhaps enlarged.
func (r *Request) AddLanes(stage *path.Stage, steps []critpath.Step, buf []timeline.Span) []timeline.Span {
	hasLane := map[uint64]bool{}
	add := func(g uint64) {
		if g == 0 || hasLane[g] || len(r.Lanes) >= maxLanes {
			return
		}
		hasLane[g] = true
		buf = stage.Win.SpansCoarse(g, r.Start, r.End, buf[:0])
		spans := slices.Clone(buf[:min(len(buf), maxLaneSpans)])
		lane := Lane{G: g, Spans: spans}
		for i := stage.Win.GenIndex(r.End); i >= 0 && lane.Start == 0; i-- {
			if b, ok := stage.Win.Gens[i].BirthOf(g); ok {
				lane.Start = b.Start
			}
		}
		r.Lanes = append(r.Lanes, lane)
		for _, s := range spans {
			if s.State == timeline.Waiting && s.Woken && s.End <= r.End && s.End > r.Start && s.Waker != 0 {
				r.Wakes = append(r.Wakes, Wake{s.End, s.Waker, g, stage.Sites.SiteOf(s.WakerStack)})
			}
			if s.Origin == timeline.OriginCreated && s.Start > r.Start {
				r.Wakes = append(r.Wakes, Wake{s.Start, s.Peer, g, stage.Sites.SiteOf(s.Stack)})
			}
		}
	}
	add(r.G)
	for i := range steps {
		add(steps[i].G)
	}
	// Only edges between lanes can be drawn.
	r.Wakes = slices.DeleteFunc(r.Wakes, func(w Wake) bool { return !hasLane[w.From] })
	slices.SortFunc(r.Wakes, func(a, b Wake) int { return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.To, b.To)) })
	r.addThreads(stage.Threads())
	return buf
}

// withSettledCauses returns a copy with final causes. Segments that were divided at a candidate freeze are joined if it was
// none.
func (r *Request) withSettledCauses(settlement *cause.Settlement) *Request {
	out := *r
	out.Segments, out.Vias = make([]cause.Segment, 0, len(r.Segments)), make([][]path.ChainWait, 0, len(r.Segments))
	for i, segment := range r.Segments {
		segment = settlement.SettleSegment(segment)
		if n := len(out.Segments); n > 0 {
			last := &out.Segments[n-1]
			joint := *last
			joint.Start, joint.End = segment.Start, segment.End
			if joint == segment && last.End == segment.Start {
				last.End = segment.End
				continue
			}
		}
		out.Segments, out.Vias = append(out.Segments, segment), append(out.Vias, r.Vias[i])
	}
	return &out
}
