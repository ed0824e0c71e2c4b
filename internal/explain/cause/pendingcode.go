package cause

import "github.com/whylate/whylate/internal/explain/freeze"

// Limit is above all causes.
const Limit = 1 << causeBits

const causeBits = 5

var _ [Limit - int(Queue) - 1]struct{} // all causes fit

// A Code is a cause, or a pair: the class of a candidate freeze, and the cause that the time has if the candidate was not a
// freeze. Which silences were freezes is known only at the end of a trace. Until then, time in a candidate is added up by pair,
// and a Settlement decides when the sums are read.
type Code uint16

const codeLimit = 1 << (causeBits + 8)

// Pending returns the code of time in a candidate freeze of a class.
func Pending(c Cause, class freeze.Class) Code { return Code(class)<<causeBits | Code(c) }

// Cause returns the cause that the time has if it is not in a freeze.
func (c Code) Cause() Cause { return Cause(c & (Limit - 1)) }

// IsPending reports whether the code needs a Settlement.
func (c Code) IsPending() bool { return c >= Limit }

// A Settlement is the final cause of each code.
type Settlement [codeLimit]Cause

// Settle returns the Settlement for which isFreeze decides, by class, whether candidates were freezes: the time in those gets
// cause throttle.
func Settle(isFreeze func(freeze.Class) bool) *Settlement {
	var s Settlement
	for c := range Code(codeLimit) {
		s[c] = c.Cause()
		if class := freeze.Class(c >> causeBits); class != 0 && isFreeze(class) {
			s[c] = Throttle
		}
	}
	return &s
}

// IsFreeze reports whether candidates of a class were freezes.
func (s *Settlement) IsFreeze(class freeze.Class) bool { return s[Pending(Unknown, class)] == Throttle }

// SettleSegment returns a segment with its final cause.
func (s *Settlement) SettleSegment(segment Segment) Segment {
	switch {
	case !segment.Code.IsPending():
	case s[segment.Code] == Throttle:
		return segment.AsThrottled()
	default:
		segment.Code = Code(segment.Code.Cause())
	}
	return segment
}

// TimeByCode adds up ns by code. The zero value is ready for use.
type TimeByCode struct {
	decided [Limit]int64
	pending []pendingTime // few: most requests meet no candidate
}

type pendingTime struct {
	code Code
	ns   int64
}

// Add adds ns to the time of a code.
func (s *TimeByCode) Add(c Code, ns int64) {
	if !c.IsPending() {
		s.decided[c] += ns
		return
	}
	for i := range s.pending {
		if s.pending[i].code == c {
			s.pending[i].ns += ns
			return
		}
	}
	s.pending = append(s.pending, pendingTime{c, ns})
}

// Merge adds the times of another sum.
func (s *TimeByCode) Merge(added *TimeByCode) {
	for c, ns := range added.decided {
		s.decided[c] += ns
	}
	for _, p := range added.pending {
		s.Add(p.code, p.ns)
	}
}

// ByCause returns the times in ns by final cause.
func (s *TimeByCode) ByCause(settlement *Settlement) [Limit]int64 {
	out := s.decided
	for _, p := range s.pending {
		out[settlement[p.code]] += p.ns
	}
	return out
}
