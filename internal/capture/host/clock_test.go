package host

import "github.com/whylate/whylate/internal/trace/tracefmt"

// snapshotOf is a clock snapshot taken with the first sample.
func snapshotOf(s *Samples) *tracefmt.ClockSnapshot {
	p := &s.points[0]
	return &tracefmt.ClockSnapshot{Mono: uint64(p.mono), UnixSec: uint64(p.wall / 1e9), UnixNsec: uint64(p.wall % 1e9)}
}
