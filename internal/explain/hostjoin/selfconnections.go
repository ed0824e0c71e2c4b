package hostjoin

import "github.com/whylate/whylate/internal/capture/host"

// PossibleSelfConnections returns how many short connections may have led from the process to itself between two
// samples of its sockets. ok is false if the samples do not cover the whole trace, or if one of them shows a
// connection to itself.
func PossibleSelfConnections(s *host.Samples, w Window) (possible int, ok bool) {
	if s == nil || s.Itself.First == 0 || s.Itself.Own > 0 {
		return 0, false
	}
	offset, _, ok := clockOffset(s, w)
	return s.Itself.Unsure, ok && s.Itself.First+offset <= w.Start && s.Itself.Last+offset >= w.End
}
