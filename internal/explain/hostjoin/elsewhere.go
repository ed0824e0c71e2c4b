package hostjoin

import "github.com/whylate/whylate/internal/capture/host"

// PossibleSelfConnections reports whether the process was connected to others alone, as far as that was looked at: all its sockets were seen from
// before the trace until after it, and none led to itself. So many connections came and went unseen.
func PossibleSelfConnections(s *host.Samples, w Window) (possible int, ok bool) {
	if s == nil || s.Itself.First == 0 || s.Itself.Own > 0 {
		return 0, false
	}
	offset, _, ok := clockOffset(s, w)
	return s.Itself.Unsure, ok && s.Itself.First+offset <= w.Start && s.Itself.Last+offset >= w.End
}
