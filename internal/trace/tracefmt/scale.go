package tracefmt

import "math/bits"

// A Scale converts units of a generation's clock to ns exactly as the reference reader does: each delta alone,
// through float64, rounded down.
type Scale struct {
	Whole  uint64 // ns of a unit, exact for counts below ExactUnits; 0 if it is no whole number
	factor float64
}

// ExactUnits bounds the counts of units for which multiplication by Whole and by the float64 factor give equal
// results: the product must fit the 53 bits of a float64's mantissa.
const ExactUnits = 1 << 32

// NewScale returns the Scale of a clock with freq units a second. For 0, an unknown frequency, all times are 0.
func NewScale(freq uint64) Scale {
	if freq == 0 {
		return Scale{}
	}
	f := 1.0 / (float64(freq) / 1e9)
	s := Scale{factor: f}
	if w := uint64(f); float64(w) == f && w > 0 && w < 1<<20 {
		s.Whole = w
	}
	return s
}

// Unit returns the number of trailing zero bits that all converted times have, because they are multiples of the
// clock's unit; 0 if the unit is no whole number of ns.
func (s Scale) Unit() uint8 {
	if s.Whole == 0 {
		return 0
	}
	return uint8(bits.TrailingZeros64(s.Whole))
}

// NS converts a count of units to ns, at most 1<<62.
func (s Scale) NS(units uint64) int64 {
	if s.Whole != 0 && units < ExactUnits {
		return int64(units * s.Whole)
	}
	v := float64(units) * s.factor
	if v >= 1<<62 {
		return 1 << 62
	}
	return int64(v)
}
