package host

import (
	"cmp"
)

// SelfConnections is the evidence that the process is connected to itself.
type SelfConnections struct {
	// FirstPoll and LastPoll are the times of the first and last poll of all sockets, on the samples'
	// monotonic clock; 0 without one.
	FirstPoll, LastPoll int64
	// MaxSockets is the largest number of sockets in one poll that led to the process itself.
	// UnsureConnections counts short connections between polls that may have.
	MaxSockets, UnsureConnections int

	firstEnds map[Ends]bool // ends in the first line that lists all sockets
}

// addSelfConnections adds, to s, the number of sockets that lead to the process itself. Older recordings do not count them, but list all sockets in
// the first line and in the last: a socket that only one of the two lines lists was opened during the recording, and so may others have been.
func (s *Samples) addSelfConnections(l *Line) {
	summary := &s.SelfConnections
	if l.SelfSockets != nil {
		summary.MaxSockets, summary.UnsureConnections = max(summary.MaxSockets, *l.SelfSockets), min(summary.UnsureConnections+l.UnsureConnections, maxConnections)
	} else if l.ListsAll {
		lineEnds := make(map[Ends]bool)
		for i := range l.Sockets {
			if ends, valid := l.Sockets[i].parseEnds(); !valid {
				summary.UnsureConnections++
			} else if !l.Sockets[i].Peer {
				lineEnds[ends] = true
			}
		}
		selfSockets := 0
		for ends := range lineEnds {
			if lineEnds[ends.reversed()] {
				selfSockets++
			}
			if summary.firstEnds != nil && !summary.firstEnds[ends] {
				summary.UnsureConnections++
			}
		}
		summary.MaxSockets = max(summary.MaxSockets, selfSockets)
		if summary.firstEnds == nil {
			summary.firstEnds = lineEnds
		}
	}
	if l.ListsAll || l.SelfSockets != nil {
		summary.FirstPoll = cmp.Or(summary.FirstPoll, l.MonoNS)
		summary.LastPoll = l.MonoNS
	}
}
