package cause

import "github.com/whylate/whylate/internal/explain/freeze"

// Causes is a bound of the number of causes.
const Causes = 1 << causeBits

const causeBits = 4

var _ [Causes - int(Chan) - 1]struct{} // all causes fit

// A Code is a cause, or the pair of a candidate freeze's class and the cause
// that the time has if the candidate was no freeze. Which silences were freezes
// is known only at the end of a trace; until then, what overlaps one is summed
// up under the pair, and a Settlement decides when sums are read.
type Code uint16

const codes = 1 << (causeBits + 8)

// Pending returns the code of time in a candidate freeze of a class.
func Pending(c Cause, class freeze.Class) Code { return Code(class)<<causeBits | Code(c) }

// Cause returns the cause that the time has if it was no freeze.
func (c Code) Cause() Cause { return Cause(c & (Causes - 1)) }

// IsPending reports whether the code waits for a Settlement.
func (c Code) IsPending() bool { return c >= Causes }

// A Settlement is the decision about all codes, by code.
type Settlement [codes]Cause

// Settle returns the settlement in which the classes that were freezes take
// their time.
func Settle(isFreeze func(freeze.Class) bool) *Settlement {
	var s Settlement
	for c := range Code(codes) {
		s[c] = c.Cause()
		if class := freeze.Class(c >> causeBits); class != 0 && isFreeze(class) {
			s[c] = Throttle
		}
	}
	return &s
}

// IsFreeze reports whether candidates of a class were freezes.
func (s *Settlement) IsFreeze(class freeze.Class) bool { return s[Pending(Unknown, class)] == Throttle }

// Segment returns a segment with its settled cause.
func (s *Settlement) Segment(g Segment) Segment {
	switch {
	case !g.Code.IsPending():
	case s[g.Code] == Throttle:
		return g.Throttled()
	default:
		g.Code = Code(g.Code.Cause())
	}
	return g
}

// Sums are ns by code. The zero value is ready for use.
type Sums struct {
	decided [Causes]int64
	pending []pendingSum // few: most requests meet no candidate
}

type pendingSum struct {
	code Code
	ns   int64
}

// Add adds ns to the sum of a code.
func (s *Sums) Add(c Code, ns int64) {
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
	s.pending = append(s.pending, pendingSum{c, ns})
}

// Merge adds other sums.
func (s *Sums) Merge(o *Sums) {
	for c, ns := range o.decided {
		s.decided[c] += ns
	}
	for _, p := range o.pending {
		s.Add(p.code, p.ns)
	}
}

// Settled returns the sums by settled cause.
func (s *Sums) Settled(by *Settlement) [Causes]int64 {
	out := s.decided
	for _, p := range s.pending {
		out[by[p.code]] += p.ns
	}
	return out
}

// Each calls f for every code with time, causes first.
func (s *Sums) Each(f func(c Code, ns int64)) {
	for c, ns := range s.decided {
		if ns != 0 {
			f(Code(c), ns)
		}
	}
	for _, p := range s.pending {
		f(p.code, p.ns)
	}
}
