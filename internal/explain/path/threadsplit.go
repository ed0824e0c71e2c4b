package path

import (
	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/threadstate"
)

// SplitBuffers are memory for Split.
type SplitBuffers struct{ byThread, atFreezes []cause.Segment }

// Threads returns what the kernel's events show of threads, nil without them.
func (s *Stage) Threads() *threadstate.Tracker { return s.options.Threads }

// Split cuts segments where the kernel's events show that their threads had no CPU, and where a freeze may have taken
// time. The result is segs, or uses the buffers.
func (s *Stage) Split(buffers *SplitBuffers, segs []cause.Segment) []cause.Segment {
	if s.options.Threads != nil {
		buffers.byThread = buffers.byThread[:0]
		for i := range segs {
			s.addByThread(buffers, &segs[i])
		}
		segs = buffers.byThread
	}
	return s.splitAtFreezes(&buffers.atFreezes, segs)
}

// addByThread adds the parts of a segment by the states of its thread. A running goroutine, or one in a system call, is
// bound to a thread. A goroutine that is ready may wait for a thread that was woken to run it, and a request whose bytes
// have arrived for the thread that they woke.
func (s *Stage) addByThread(buffers *SplitBuffers, segment *cause.Segment) {
	threads := s.options.Threads
	if segment.Remote != 0 {
		buffers.byThread = append(buffers.byThread, *segment)
		return
	}
	start := segment.Start
	addUntil := func(end int64) {
		if start < end {
			before := *segment
			before.Start, before.End = start, end
			buffers.byThread = append(buffers.byThread, before)
			start = end
		}
	}
	add := func(x threadstate.Interval) {
		part, ok := stateSegment(segment, &x)
		if !ok {
			return
		}
		addUntil(x.Start)
		part.Start, part.End = max(start, x.Start), x.End
		if part.Start < part.End {
			buffers.byThread = append(buffers.byThread, part)
			start = part.End
		}
	}
	switch code := segment.Code.Cause(); {
	case code == cause.Network, code == cause.SchedPoll:
		if a, ok := threads.ArrivalBefore(segment.G, segment.Start); ok && segment.Start < a.WokenAt {
			segment.Code = cause.Code(cause.SchedPoll)
			segment.Inbound, segment.Call, segment.Kind = false, 0, threads.ArrivedName
			threads.EachPollerWait(&a, segment.Start, segment.End, add)
		}
	case code == cause.CPU, code == cause.Syscall, code == cause.GCAssist, code == cause.STW:
		threads.EachInterval(segment.G, segment.Start, segment.End, add)
	case code == cause.Sched, code == cause.SchedWake:
		threads.EachWake(segment.G, segment.Start, segment.End, code == cause.SchedWake, add)
	}
	addUntil(segment.End)
}

// stateSegment returns the part of a segment in which its thread had a state. ok is false if the state says nothing that
// the segment does not say.
func stateSegment(segment *cause.Segment, x *threadstate.Interval) (part cause.Segment, ok bool) {
	part = cause.Segment{Start: x.Start, End: x.End, G: segment.G, Site: segment.Site, FollowedWait: segment.FollowedWait, Stack: segment.Stack}
	inCall := segment.Code.Cause() == cause.Syscall
	switch x.Kind {
	case threadstate.Waiting:
		part.Code, part.Kind = cause.Code(cause.CPUWait), x.Name
	case threadstate.Throttled, threadstate.Stopped:
		part = part.AsThrottled()
	case threadstate.Disk:
		if inCall && !x.IsFault {
			return part, false // the call says for what
		}
		part.Code, part.Kind = cause.Code(cause.Disk), x.Name
	case threadstate.Asleep:
		if inCall {
			return part, false
		}
		part.Code, part.Call = cause.Code(cause.Syscall), x.Name
	default:
		return part, false
	}
	return part, true
}
