package watch

import (
	"math"

	"github.com/whylate/whylate/internal/judge/compare"
)

// A Shift is the change of a group's slow requests over the polls: the last few polls compared with those before. One poll of
// a second is too short for an interval of the difference to the next one; several polls on both sides are not.
type Shift struct {
	Name               string
	OldPolls, NewPolls int
	OldNS, NewNS       int64 // geometric means of the polls' points
	compare.RunsChange       // relative to the old
}

// The largest numbers of polls on each side, and the smallest.
const (
	maxNewPolls = 3
	maxOldPolls = 12
	minPolls    = 2
)

// Shifts returns the shifts of the groups that had requests in enough polls, in the order of Groups; nil if there are none. The points are those of
// Group.History: p99 of a poll, or its slowest request.
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

// geometricMean returns the geometric mean of v, rounded. All values must be above 0.
func geometricMean(v []float64) int64 {
	sum := 0.
	for _, x := range v {
		sum += math.Log(x)
	}
	return int64(math.Round(math.Exp(sum / float64(len(v)))))
}
