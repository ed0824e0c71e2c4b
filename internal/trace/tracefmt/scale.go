package tracefmt

import "math/bits"

// A Scale turns units of a generation's clock into ns exactly as the reference reader does: each delta by itself, through float64,
// cut off.
type Scale struct {
	Whole  uint64 // units below ExactUnits are so many ns exactly, if it is not 0
	factor float64
}

// ExactUnits bounds the counts of units for which a whole factor and float64 agree: the product must fit the 53 bits of its mantissa.
const ExactUnits = 1 << 32

// NewScale returns that of a frequency in units a second. Where none is known, no time passes.
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

// Unit returns of how many bits the times are multiples: all are whole numbers of the clock's units, or may be anything.
func (s Scale) Unit() uint8 {
	if s.Whole == 0 {
		return 0
	}
	return uint8(bits.TrailingZeros64(s.Whole))
}

// NS returns so many units in ns.
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
