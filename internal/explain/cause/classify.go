package cause

import (
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Segment is a stretch of a request's critical path with one cause.
type Segment struct {
	Start, End int64
	G          uint64
	Code       Code
	From       From
	Site       tracefmt.FrameID // 0: none
	Via        int32            // index in the walk's Vias, or -1
	// Stack is, for running time, the stack that was really seen in it: a
	// sample's, or that at a preemption; 0 if only the events around are known.
	Stack tracefmt.StackID
	// Near and Run say of running time, where there is a CPU profile, which kind of run it is from: the site by the events
	// around it, and how long it was. What samples show in runs of one kind speaks for the others of that kind.
	Near tracefmt.FrameID
	Run  Run
	// Kind is the kind of a stop of the world, or of a system call the function that calls C, if it is that; Inbound is, for network
	// waits, whether the client is waited for.
	Kind    tracefmt.StringID
	Inbound bool
	// Call is, for waits and system calls, the standard library's function that
	// tells what they are in: see Sites.Call.
	Call tracefmt.StringID
}

// Throttled returns the segment as time that a freeze took.
func (s Segment) Throttled() Segment {
	return Segment{Start: s.Start, End: s.End, G: s.G, Code: Code(Throttle), Site: s.Site, Via: s.Via}
}

// A Classifier turns steps into segments. One goroutine may use it at a time.
type Classifier struct {
	Sites *Sites
	win   *timeline.Window
	out   []Segment
}

// New returns a Classifier over a window.
func New(win *timeline.Window, syms *tracefmt.Symbols) *Classifier {
	return &Classifier{Sites: NewSites(syms), win: win}
}

// Segments returns the segments of a walk's steps; they cover exactly the
// same time. The slice is valid until the next call.
func (c *Classifier) Segments(steps []critpath.Step) []Segment {
	c.out = c.out[:0]
	for i := range steps {
		c.step(&steps[i])
	}
	return c.out
}

func (c *Classifier) add(s *Segment) {
	if s.End <= s.Start {
		return
	}
	if n := len(c.out); n > 0 {
		l := &c.out[n-1]
		if l.End == s.Start && l.Code == s.Code && l.Site == s.Site && l.G == s.G && l.Via == s.Via && l.Kind == s.Kind && l.From == s.From && l.Run == s.Run && l.Near == s.Near && l.Inbound == s.Inbound && l.Stack == s.Stack && l.Call == s.Call {
			l.End = s.End
			return
		}
	}
	c.out = append(c.out, *s)
}

func (c *Classifier) step(st *critpath.Step) {
	s := Segment{Start: st.Start, End: st.End, G: st.G, Via: st.FollowedWait}
	switch st.Kind {
	case critpath.CPU:
		c.running(st, s)
		return
	case critpath.Runnable:
		s.Site = c.Sites.Of(st.Stack)
		c.runnable(s)
		return
	case critpath.Unknown:
		c.add(&s)
		return
	case critpath.Syscall:
		s.Call, s.Kind = c.Sites.Socket(st.Stack), c.Sites.C(st.Stack)
	case critpath.Sleep:
		if st.TimerStart != 0 && !c.Sites.isPool(c.Sites.Call(st.Stack)) {
			s.Call = c.Sites.entry(st.TimerStart)
		}
	case critpath.Network:
		s.Inbound = st.Inbound
	case critpath.StopWorld:
		if r, ok := c.stopAt(st.Start); ok {
			s.Kind = r.Kind
		}
	}
	of := &causes[st.Kind]
	s.Code, s.Site = Code(of.cause), c.Sites.Of(st.Stack)
	if of.calls && s.Call == 0 {
		s.Call = c.Sites.Call(st.Stack)
	}
	c.add(&s)
}

// causes are those of steps that have one by their kind alone; calls says of which the function is told that they are in.
var causes = [...]struct {
	cause Cause
	calls bool
}{
	critpath.Syscall:   {Syscall, true},
	critpath.Sleep:     {Sleep, true},
	critpath.Network:   {Network, true},
	critpath.PollGap:   {SchedPoll, false},
	critpath.Lock:      {Lock, true},
	critpath.Chan:      {Chan, true},
	critpath.Assist:    {GCAssist, false},
	critpath.GCWait:    {GCWait, true},
	critpath.StopWorld: {STW, false},
}

// running gives running time its site: a CPU sample's where there is one, else
// that of the event that ended the stretch, or of the one before it where only
// that one shows code which is not the standard library's.
func (c *Classifier) running(st *critpath.Step, s Segment) {
	s.Code = Code(CPU)
	s.From = FromBracket
	s.Site = c.Sites.Of(st.Stack)
	if st.Preempted {
		s.From, s.Stack = FromPreempt, st.Stack
	}
	if st.ResumeStack != 0 && c.Sites.allStd(st.Stack) && !c.Sites.allStd(st.ResumeStack) {
		// It ran from the service's own code into a library: only where it began
		// is recorded.
		s.From, s.Site = FromBracket, c.Sites.Of(st.ResumeStack)
	}
	g := c.gen(s.Start)
	if g == nil || len(g.Samples) == 0 {
		c.add(&s)
		return
	}
	s.Near, s.Run = s.Site, runOf(s.End-s.Start)
	// Each sample speaks for the time nearest to it.
	idx := g.SamplesIn(s.G, s.Start, s.End)
	at := s.Start
	for k, sample := range idx {
		part := s
		part.Start, part.End = at, s.End
		if k+1 < len(idx) {
			part.End = max(at, (g.Samples[sample].Time+g.Samples[idx[k+1]].Time)/2)
		}
		part.From, part.Stack = FromSample, g.Samples[sample].Stack
		part.Site = c.Sites.Of(part.Stack)
		at = part.End
		c.add(&part)
	}
	if len(idx) == 0 {
		c.add(&s)
	}
}

// A Run is a class of the length of runs. A profiler that samples 100 times a second meets few of the short ones, and what
// they do is not what long ones do; so those of like length are taken together. 0 is not known: there is no profile.
type Run uint8

// Runs is a bound of the number of classes.
const Runs = 7

// runOf returns the class of a length: four times as long is the next one.
func runOf(ns int64) Run {
	c := Run(1)
	for top := int64(64e3); ns >= top && c < Runs-1; top *= 4 {
		c++
	}
	return c
}

func (c *Classifier) gen(t int64) *timeline.Gen {
	if len(c.win.Gens) == 0 {
		return nil
	}
	return c.win.Gens[c.win.At(t)]
}

// runnable splits the time in which a goroutine wanted a P: stopped world, no
// P free, or a P idle that had yet to wake up.
func (c *Classifier) runnable(s Segment) {
	at := s.Start
	c.stops(s.Start, s.End, func(r timeline.STWRange, from, to int64) {
		c.waitForP(s, at, from)
		stop := s
		stop.Start, stop.End = from, to
		stop.Code, stop.Kind, stop.Site = Code(STW), r.Kind, c.Sites.Of(r.Stack)
		c.add(&stop)
		at = to
	})
	c.waitForP(s, at, s.End)
}

// maxStretches bounds into how many parts one wait for a P is cut.
const maxStretches = 16

// waitForP adds the part of a wait for a P from at to end, during which the world ran.
func (c *Classifier) waitForP(s Segment, at, end int64) {
	if end <= at {
		return
	}
	add := func(until int64, cause Cause) {
		s.Start, s.End, s.Code = at, until, Code(cause)
		c.add(&s)
		at = until
	}
	n, last := 0, c.win.At(end)
	for i := c.win.At(at); i <= last; i++ {
		c.win.Gens[i].IdleStretches(at, end, func(a, b int64) bool {
			if n++; n > maxStretches {
				return false
			}
			add(a, Sched)
			add(b, SchedWake)
			return true
		})
		if n > maxStretches {
			// Too finely chopped to distinguish: the rest as two parts.
			idle := int64(0)
			for ; i <= last; i++ {
				idle += c.win.Gens[i].Idle(at, end)
			}
			add(min(at+idle, end), SchedWake)
		}
	}
	add(end, Sched)
}

// stops calls f for each stop of the world that overlaps [from, to), in order
// and without overlap.
func (c *Classifier) stops(from, to int64, f func(r timeline.STWRange, a, b int64)) {
	if len(c.win.Gens) == 0 {
		return
	}
	at := from
	for i := max(c.win.At(from)-1, 0); i < len(c.win.Gens) && c.win.Gens[i].Base < to; i++ {
		g := c.win.Gens[i]
		for k := g.FirstStop(at); k < len(g.STW) && g.STW[k].Start < to; k++ {
			if a, b := max(g.STW[k].Start, at), min(stopEnd(g, &g.STW[k]), to); a < b {
				f(g.STW[k], a, b)
				at = b
			}
		}
	}
}

// StoppedBy calls f with the stacks of the goroutines that stopped the world in [from, to).
func (c *Classifier) StoppedBy(from, to int64, f func(tracefmt.StackID)) {
	c.stops(from, to, func(r timeline.STWRange, _, _ int64) { f(r.Stack) })
}

// stopEnd bounds a stop whose end lies in the next generation, or whose
// beginning lay in the one before.
func stopEnd(g *timeline.Gen, r *timeline.STWRange) int64 {
	if r.End != 0 {
		return r.End
	}
	return g.End
}

func (c *Classifier) stopAt(t int64) (timeline.STWRange, bool) {
	var found timeline.STWRange
	ok := false
	c.stops(t, t+1, func(r timeline.STWRange, _, _ int64) { found, ok = r, true })
	return found, ok
}
