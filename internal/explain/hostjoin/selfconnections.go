package hostjoin

import "github.com/whylate/whylate/internal/capture/host"

// PossibleSelfConnections returns how many short connections may have led from the process to itself unseen, between two
// samples of its sockets. ok is false if the samples do not cover the whole trace, or if one of them shows a connection to
// itself.
func PossibleSelfConnections(s *host.Samples, w Window) (possible int, ok bool) {
	if s == nil || s.SelfConnections.FirstPoll == 0 || s.SelfConnections.MaxSockets > 0 {
		return 0, false
	}
	offset, _, ok := clockOffset(s, w)
	return s.SelfConnections.UnsureConnections, ok && s.SelfConnections.FirstPoll+offset <= w.Start && s.SelfConnections.LastPoll+offset >= w.End
}
