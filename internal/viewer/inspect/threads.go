package inspect

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/threadstate"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
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

// peerStates are the states of peers, numbered after those of threads in the order of the page's peerStates, and the goroutine's state
// as which each is summed.
var peerStates = []struct {
	name  report.PeerStateName
	state timeline.State
}{
	{report.PeerRunning, timeline.Running}, {report.PeerCPUWait, timeline.Runnable}, {report.PeerThrottled, timeline.Syscall}, {report.PeerStopped, timeline.Syscall},
	{report.PeerDisk, timeline.Waiting}, {report.PeerLock, timeline.Waiting}, {report.PeerTimer, timeline.Waiting}, {report.PeerNetwork, timeline.Waiting},
	{report.PeerPipe, timeline.Waiting}, {report.PeerProcess, timeline.Waiting}, {report.PeerOther, timeline.Waiting}, {report.PeerOnTheWay, timeline.Waiting},
	{report.PeerArrived, timeline.Waiting},
}

// peerPiece returns the piece, from from to to, of a peer's state, whose text has the id name; an unknown one is a wait.
func (t *Trace) peerPiece(from, to int64, name tracefmt.StringID) Piece {
	x, _ := threadstate.ParsePeerState(t.index.syms.String(name))
	for i := range peerStates {
		if peerStates[i].name == x.State {
			return Piece{From: from, To: to, State: peerStates[i].state, G: uint64(threadstate.KindCount) + uint64(i), Reason: name}
		}
	}
	return Piece{From: from, To: to, State: timeline.Waiting, Reason: name}
}

// addKernelPieces adds the content of the lane of a thread or a CPU in [from, to), on the trace's clock. The lane of a goroutine's threads
// also shows the peers for which it waits. On the lane of a CPU own threads are Running and other processes Runnable.
func (t *Trace) addKernelPieces(s *Strip, win *timeline.Window, from, to int64) {
	threads := t.index.walkOptions.Threads
	if threads == nil {
		return
	}
	if s.Lane.Kind == ThreadLane {
		var pieces []Piece
		threads.EachInterval(s.Lane.ID, from, to, func(x threadstate.Interval) {
			pieces = append(pieces, Piece{From: x.Start, To: x.End, State: laneState(x.Kind), G: uint64(x.Kind), Reason: x.Name})
		})
		if threads.HasPeers() {
			spans := win.Spans(s.Lane.ID, from, to, nil)
			for i := range spans {
				threads.EachPeerStateIn(s.Lane.ID, &spans[i], from, to, func(start, end int64, state tracefmt.StringID) {
					pieces = append(pieces, t.peerPiece(start, end, state))
				})
			}
			slices.SortStableFunc(pieces, func(a, b Piece) int { return cmp.Compare(a.From, b.From) })
		}
		for _, p := range pieces {
			s.addPiece(p, t.start)
		}
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
