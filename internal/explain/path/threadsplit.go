package path

import (
	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/threadstate"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// SplitBuffers are reusable memory for Split.
type SplitBuffers struct{ byThread, atFreezes []cause.Segment }

// Threads returns the kernel's events about the process's threads; nil if the recording has none.
func (s *Stage) Threads() *threadstate.Tracker { return s.options.Threads }

// Split divides segments where the kernel's events show that their threads had no CPU, and at the borders of candidate freezes.
// The result is segs, or uses the buffers.
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

// addByThread divides a segment by the states of the thread that matters for its cause, and adds the parts to the buffers: for
// a running goroutine or a system call, the thread that it is bound to; for a ready goroutine, the thread that was woken to run
// it; for a request whose bytes have arrived, the thread that they woke.
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
	addPeer := func(from, to int64, state tracefmt.StringID) {
		addUntil(from)
		part := *segment
		part.Start, part.End, part.Kind = max(start, from), to, state
		if part.Start < part.End {
			buffers.byThread = append(buffers.byThread, part)
			start = part.End
		}
	}
	switch code := segment.Code.Cause(); {
	case code == cause.Network && !segment.Inbound && threads.HasPeers():
		threads.EachPeerState(segment.G, segment.Start, segment.End, addPeer)
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

// stateSegment returns the part of a segment in which its thread was in a state, with the cause of that state (waiting for a
// CPU, throttled, disk, asleep). ok is false if the state adds nothing to the segment's own cause.
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
