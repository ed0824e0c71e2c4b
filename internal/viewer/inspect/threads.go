package inspect

import (
	"github.com/whylate/whylate/internal/explain/threadstate"
	"github.com/whylate/whylate/internal/trace/timeline"
)

// isGoroutine reports whether a lane has content only while a goroutine lives.
func (l Lane) isGoroutine() bool { return l.Kind == GoroutineLane || l.Kind == ThreadLane }

// laneState returns the goroutine's state as which a thread's is summed and drawn: on a CPU is running, a wait for one is
// runnable, a sleep is waiting, and a time in which a quota or a signal held it is syscall.
func laneState(k threadstate.Kind) timeline.State {
	switch k {
	case threadstate.OnCPU:
		return timeline.Running
	case threadstate.Waiting:
		return timeline.Runnable
	case threadstate.Throttled, threadstate.Stopped:
		return timeline.Syscall
	}
	return timeline.Waiting
}

// addKernelPieces adds the content of the lane of a thread or a CPU in [from, to), on the trace's clock. On the lane of a CPU own
// threads are Running and other processes Runnable.
func (t *Trace) addKernelPieces(s *Strip, from, to int64) {
	threads := t.index.walkOptions.Threads
	if threads == nil {
		return
	}
	if s.Lane.Kind == ThreadLane {
		threads.EachInterval(s.Lane.ID, from, to, func(x threadstate.Interval) {
			s.addPiece(Piece{From: x.Start, To: x.End, State: laneState(x.Kind), G: uint64(x.Kind), Reason: x.Name}, t.start)
		})
		return
	}
	threads.EachOccupation(int32(s.Lane.ID), from, to, func(x threadstate.Occupation) {
		state := timeline.Runnable
		if x.IsOwn {
			state = timeline.Running
		}
		s.addPiece(Piece{From: x.Start, To: x.End, State: state, Reason: x.Name}, t.start)
	})
}
