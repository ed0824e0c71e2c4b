package inspect

import (
	"context"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A Moment is the complete state of a lane at one instant.
type Moment struct {
	Goroutine uint64        `json:"goroutine"`
	Name      string        `json:"name"`
	Proc      *uint32       `json:"proc,omitempty"`
	StartNS   int64         `json:"start_ns"` // -1 if before the trace
	EndNS     int64         `json:"end_ns"`
	State     string        `json:"state"`
	Reason    string        `json:"reason,omitempty"`
	Stack     []report.Site `json:"stack"`
	StackOf   string        `json:"stack_of,omitempty"` // meaning of the stack
	// Waker is the goroutine that ended the wait, or the wait before; 0 for the poller, a timer or none.
	Waker      uint64        `json:"waker,omitempty"`
	WakerName  string        `json:"waker_name,omitempty"`
	WakerStack []report.Site `json:"waker_stack,omitempty"`
	Woken      bool          `json:"woken,omitempty"`
	Creator    uint64        `json:"creator,omitempty"`
	Assist     bool          `json:"assist,omitempty"`
	// Requests are the requests in progress on this goroutine which ended on it.
	Requests []Row `json:"requests"`
}

// maxFrames bounds the frames of a stack in an answer.
const maxFrames = 128

// MomentAt returns the state of a lane at an instant (ns from the trace's start), nil if there is none.
func (t *Trace) MomentAt(ctx context.Context, l Lane, instant int64) (*Moment, error) {
	leave, err := t.acquireSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	abs := instant + t.start
	first, last := t.generationsIn(abs, abs+1)
	win, err := t.window(ctx, first, last)
	if err != nil {
		return nil, err
	}
	m := &Moment{}
	g := l.ID
	if l.Kind == ProcLane {
		found := false
		win.EachRun(abs, abs+1, func(r timeline.Run) {
			if uint64(r.P) == l.ID && r.P != timeline.NoP {
				g, found = r.G, true
			}
		})
		if !found {
			return nil, nil
		}
		p := uint32(l.ID)
		m.Proc = &p
	}
	spans := win.Spans(g, abs, abs+1, nil)
	if len(spans) == 0 || spans[0].State == timeline.NotAlive {
		return nil, nil
	}
	s := spans[0]
	if end := t.index.carried.lastGenerationOf(g, &s); end > last && s.State != timeline.Running {
		if s, err = t.endedSpan(ctx, g, s, end); err != nil {
			return nil, err
		}
	}
	if s.State == timeline.Running {
		// Viewers see the parts of one run as one.
		s = t.wholeRun(win, g, s)
	}
	m.Goroutine, m.Name = g, t.String(t.NameOf(g))
	m.StartNS, m.EndNS = s.Start-t.start, s.End-t.start
	if s.Start == timeline.BeforeTrace {
		m.StartNS = -1
	}
	m.State, m.Reason = s.State.String(), t.index.syms.String(s.Reason)
	m.Stack, m.StackOf = t.frames(s.Stack), stackMeaning(&s)
	m.Waker, m.Woken, m.Assist = s.Waker, s.Woken, s.Assist
	if s.Waker != 0 {
		m.WakerName, m.WakerStack = t.String(t.NameOf(s.Waker)), t.frames(s.WakerStack)
	}
	if s.Origin == timeline.OriginCreated {
		m.Creator = s.Peer
	}
	m.Requests = t.requestsOf(g, abs)
	return m, nil
}

// endedSpan returns span s of a goroutine with its end, which is in generation end (an index) or, by the clocks of its threads, at the begin of the
// next one; s itself if the two do not show it.
func (t *Trace) endedSpan(ctx context.Context, g uint64, s timeline.Span, end int) (timeline.Span, error) {
	next := min(end+1, len(t.index.gens)-1)
	if t.index.gens[next].afterGap {
		next = end
	}
	win, err := t.window(ctx, end, next)
	if err != nil {
		return s, err
	}
	begin := t.index.gens[end].base
	if spans := win.Spans(g, begin, begin+1, nil); len(spans) > 0 && spans[0].Start == s.Start && spans[0].State == s.State {
		return spans[0], nil
	}
	return s, nil
}

// wholeRun returns a span of running, extended by the parts of the same run before and after it, as far as the window and 64 parts on each side
// reach.
func (t *Trace) wholeRun(win *timeline.Window, g uint64, s timeline.Span) timeline.Span {
	const step = 64
	for range step {
		if s.Origin != timeline.OriginCut {
			break
		}
		before := win.Spans(g, s.Start-1, s.Start, nil)
		if len(before) == 0 || before[len(before)-1].State != timeline.Running {
			break
		}
		b := before[len(before)-1]
		s.Start, s.Origin = b.Start, b.Origin
	}
	for range step {
		after := win.Spans(g, s.End, s.End+1, nil)
		if len(after) == 0 || after[0].State != timeline.Running || after[0].Origin != timeline.OriginCut || after[0].End <= s.End {
			break
		}
		s.End, s.Stack = after[0].End, after[0].Stack
	}
	return s
}

// stackMeaning describes what the stack of a span shows; "" without a stack.
func stackMeaning(s *timeline.Span) string {
	switch {
	case s.Stack == 0:
		return ""
	case s.State == timeline.Running && s.Preempted:
		return "where it was when it had to stop"
	case s.State == timeline.Running:
		return "the event that ended this run"
	case s.State == timeline.Runnable && s.Origin == timeline.OriginCreated:
		return "where it was created"
	case s.State == timeline.Runnable:
		return "where it was before"
	}
	return "where it is"
}

// frames returns up to maxFrames sites of a stack, innermost first.
func (t *Trace) frames(id tracefmt.StackID) []report.Site {
	out := []report.Site{}
	for _, f := range t.index.syms.Stack(id) {
		if len(out) == maxFrames {
			break
		}
		out = append(out, *t.Site(f))
	}
	return out
}

// maxMomentRequests bounds the requests listed for one instant.
const maxMomentRequests = 5

// requestsOf returns the requests, at most maxMomentRequests, that were in progress at abs (ns on the trace's clock) and ended on goroutine g.
func (t *Trace) requestsOf(g uint64, abs int64) []Row {
	c := &t.index.requests
	out := []Row{}
	for i := range int32(c.rows()) {
		if c.goroutine(i) != g {
			continue
		}
		if start := c.start(i); start <= abs && abs < start+c.latency(i) {
			if out = append(out, t.row(i)); len(out) == maxMomentRequests {
				break
			}
		}
	}
	return out
}
