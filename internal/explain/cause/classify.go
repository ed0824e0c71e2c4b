package cause

import (
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Segment is a part of a critical path with one cause.
type Segment struct {
	Start, End   int64
	G            uint64
	Code         Code
	SiteSource   SiteSource
	Site         tracefmt.FrameID // 0: none
	FollowedWait int32            // index in the walker's FollowedWaits, or -1
	// Stack is, for running time, a stack that was observed in it: a sample's, or that of a preemption; 0 if only the
	// events around it are known.
	Stack tracefmt.StackID
	// BracketSite and RunLength classify running time if there is a CPU profile: the site by the events around the
	// run, and the class of its length. Samples in runs of one class also represent runs of that class without
	// samples.
	BracketSite tracefmt.FrameID
	RunLength   RunLength
	// Kind is the kind of a stop of the world or, for a system call, the function that calls C code, if any. Inbound
	// reports that a network wait is for the client.
	Kind    tracefmt.StringID
	Inbound bool
	// Call is, for waits and system calls, the function of the standard library that shows their purpose: see
	// Sites.CallOf.
	Call tracefmt.StringID
	// Remote is, for a wait for another process whose recording is known, what that process did (see critpath.RemotePart), else 0.
	Remote int32
	// RemoteG is the goroutine of the other process; 0: none, or unknown.
	RemoteG uint64
}

// AsThrottled returns the segment with cause throttle, for time that a freeze took. It keeps the site and the wait chain.
func (s Segment) AsThrottled() Segment {
	return Segment{Start: s.Start, End: s.End, G: s.G, Code: Code(Throttle), Site: s.Site, FollowedWait: s.FollowedWait}
}

// A Classifier converts steps to segments with causes. Only one goroutine may use it at a time.
type Classifier struct {
	Sites    *Sites
	window   *timeline.Window
	segments []Segment
}

// New returns a Classifier over a window.
func New(window *timeline.Window, symbols *tracefmt.Symbols) *Classifier {
	return &Classifier{Sites: NewSites(symbols), window: window}
}

// Segments returns the segments of a walk's steps; both cover the same time. The slice is valid until the next call.
func (c *Classifier) Segments(steps []critpath.Step) []Segment {
	c.segments = c.segments[:0]
	for i := range steps {
		c.addStep(&steps[i])
	}
	return c.segments
}

// addSegment appends a segment: see closeSegment.
func (c *Classifier) addSegment(s *Segment) {
	c.segments = append(c.segments, *s)
	c.closeSegment()
}

// closeSegment drops the last segment if it is empty, or if the one before can be extended by it: the two are adjacent and otherwise
// equal. addStep fills segments in place: to copy a fresh struct, the CPU waits until the stores to its fields are done.
func (c *Classifier) closeSegment() {
	n := len(c.segments) - 1
	s := &c.segments[n]
	if s.End <= s.Start {
		c.segments = c.segments[:n]
		return
	}
	if n > 0 {
		last := &c.segments[n-1]
		if last.End == s.Start && last.Code == s.Code && last.Site == s.Site && last.G == s.G && last.FollowedWait == s.FollowedWait && last.Kind == s.Kind && last.SiteSource == s.SiteSource && last.RunLength == s.RunLength && last.BracketSite == s.BracketSite && last.Inbound == s.Inbound && last.Stack == s.Stack && last.Call == s.Call && last.Remote == s.Remote && last.RemoteG == s.RemoteG {
			last.End = s.End
			c.segments = c.segments[:n]
		}
	}
}

// addStep decides the cause of a step by its kind, and adds its segments. Running and ready time is divided further.
func (c *Classifier) addStep(step *critpath.Step) {
	if step.Kind == critpath.Runnable {
		c.addRunnable(Segment{Start: step.Start, End: step.End, G: step.G, FollowedWait: step.FollowedWait, Site: c.Sites.SiteOf(step.Stack)})
		return
	}
	c.segments = append(c.segments, Segment{})
	segment := &c.segments[len(c.segments)-1]
	segment.Start, segment.End, segment.G, segment.FollowedWait = step.Start, step.End, step.G, step.FollowedWait
	switch step.Kind {
	case critpath.CPU:
		c.addRunning(step, segment)
		return
	case critpath.Unknown:
		c.closeSegment()
		return
	case critpath.Syscall:
		segment.Call, segment.Kind = c.Sites.SocketCall(step.Stack), c.Sites.CCall(step.Stack)
	case critpath.Sleep:
		// That a call waits for a free connection of a pool is more informative than the timer that ends the wait.
		if step.TimerStart != 0 && !c.Sites.functions.Of(c.Sites.CallOf(step.Stack)).Has(knowledge.PoolWait) {
			segment.Call = c.Sites.startFunction(step.TimerStart)
		}
	case critpath.Network:
		segment.Inbound = step.Inbound
		if step.Remote != nil {
			segment.Remote = step.Remote.WayCause
		}
	case critpath.Remote:
		remote := *segment
		c.segments = c.segments[:len(c.segments)-1]
		remote.Code, remote.Site, remote.Call = Code(Network), c.Sites.SiteOf(step.Stack), c.Sites.CallOf(step.Stack)
		step.Remote.EachPart(step.Start, step.End, func(start, end int64, part *critpath.RemotePart) {
			remote.Start, remote.End, remote.Remote, remote.RemoteG = start, end, part.Cause, part.G
			c.addSegment(&remote)
		})
		return
	case critpath.StopWorld:
		if r, ok := c.worldStopAt(step.Start); ok {
			segment.Kind = r.Kind
		}
	}
	stepCause := &stepCauses[step.Kind]
	segment.Code, segment.Site = Code(stepCause.cause), c.Sites.SiteOf(step.Stack)
	if stepCause.calls && segment.Call == 0 {
		segment.Call = c.Sites.CallOf(step.Stack)
	}
	c.closeSegment()
}

// stepCauses has the cause of each kind of step that has only one. calls reports whether the segment gets a Call.
var stepCauses = [...]struct {
	cause Cause
	calls bool
}{
	critpath.Syscall:     {Syscall, true},
	critpath.Sleep:       {Sleep, true},
	critpath.Network:     {Network, true},
	critpath.FlowControl: {Network, true},
	critpath.PollGap:     {SchedPoll, false},
	critpath.Lock:        {Lock, true},
	critpath.Chan:        {Chan, true},
	critpath.Assist:      {GCAssist, false},
	critpath.GCWait:      {GCWait, true},
	critpath.StopWorld:   {STW, false},
}

// addRunning completes the last segment, of running time, with its site: divided at CPU samples if there are some, otherwise at the site of the event that
// ended the run. If only the event before the run shows code outside the standard library, its site is used.
func (c *Classifier) addRunning(step *critpath.Step, segment *Segment) {
	segment.Code = Code(CPU)
	segment.SiteSource = SiteFromBracket
	segment.Site = c.Sites.SiteOf(step.Stack)
	if step.Preempted {
		segment.SiteSource, segment.Stack = SiteFromPreemption, step.Stack
	}
	if step.ResumeStack != 0 && c.Sites.isAllStdlib(step.Stack) && !c.Sites.isAllStdlib(step.ResumeStack) {
		// It ran from code outside the standard library into the library: only the beginning shows that code.
		segment.SiteSource, segment.Site = SiteFromBracket, c.Sites.SiteOf(step.ResumeStack)
	}
	gen := c.generationAt(segment.Start)
	if gen == nil || len(gen.Samples) == 0 {
		c.closeSegment()
		return
	}
	segment.BracketSite, segment.RunLength = segment.Site, runLengthOf(segment.End-segment.Start)
	// Each sample represents the time nearest to it.
	samples := gen.SamplesIn(segment.G, segment.Start, segment.End)
	if len(samples) == 0 {
		c.closeSegment()
		return
	}
	run, start := *segment, segment.Start
	c.segments = c.segments[:len(c.segments)-1]
	for k, sample := range samples {
		part := run
		part.Start, part.End = start, run.End
		if k+1 < len(samples) {
			part.End = max(start, (gen.Samples[sample].Time+gen.Samples[samples[k+1]].Time)/2)
		}
		part.SiteSource, part.Stack = SiteFromSample, gen.Samples[sample].Stack
		part.Site = c.Sites.SiteOf(part.Stack)
		start = part.End
		c.addSegment(&part)
	}
}

// RunLength is a class of the lengths of runs. A profiler that samples 100 times a second hits few of the short runs, and short
// runs differ from long ones, so runs of similar length are estimated together. 0: the trace has no CPU profile.
type RunLength uint8

// RunLengthLimit is above all classes.
const RunLengthLimit = 7

// runLengthOf returns the class of a length in ns. Each class reaches up to four times the length of the one before, the first
// to 64 us.
func runLengthOf(ns int64) RunLength {
	length := RunLength(1)
	for limit := int64(64e3); ns >= limit && length < RunLengthLimit-1; limit *= 4 {
		length++
	}
	return length
}

// generationAt returns the generation of the window that contains t; nil if the window is empty.
func (c *Classifier) generationAt(t int64) *timeline.Gen {
	if len(c.window.Gens) == 0 {
		return nil
	}
	return c.window.Gens[c.window.GenIndex(t)]
}

// maxIdleIntervals bounds the number of parts into which one wait for a P is divided.
const maxIdleIntervals = 16
