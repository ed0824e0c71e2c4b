package watch

import (
	"math"

	"github.com/whylate/whylate/internal/judge/compare"
)

// A Shift is how a group's slow requests changed over the looks: those of the last few looks against those of the looks
// before. A look of a second is too short to be distinguished from the next one by what is within it; several on both sides are not.
type Shift struct {
	Name               string
	OldPolls, NewPolls int
	OldNS, NewNS       int64 // geometric means of the looks' points
	compare.RunsChange       // as a part of the old
}

// How many looks stand on either side, at most, and at least.
const (
	maxNewPolls = 3
	maxOldPolls = 12
	minPolls    = 2
)

// Shifts returns how groups changed over the looks, of those that had requests in enough of them. The points are what
// Group.History has: p99 of a look, or its slowest request.
func (s *State) Shifts() []Shift {
	var out []Shift
	for i := range s.Groups {
		g := &s.Groups[i]
		var points []float64
		for _, p := range g.History {
			if p.NS != nil && *p.NS > 0 {
				points = append(points, float64(*p.NS))
			}
		}
		if len(points) < 2*minPolls {
			continue
		}
		cut := len(points) - min(maxNewPolls, len(points)-minPolls)
		old, recent := points[max(0, cut-maxOldPolls):cut], points[cut:]
		out = append(out, Shift{
			Name: g.Name, OldPolls: len(old), NewPolls: len(recent), OldNS: geometricMean(old), NewNS: geometricMean(recent), RunsChange: compare.CompareRuns(old, recent, compare.Ratio),
		})
	}
	return out
}

func geometricMean(v []float64) int64 {
	sum := 0.
	for _, x := range v {
		sum += math.Log(x)
	}
	return int64(math.Round(math.Exp(sum / float64(len(v)))))
}
