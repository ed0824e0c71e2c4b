package sweep

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/whylate/whylate/internal/output/words"
)

// A Knee is the value of GOGC above which higher values save little CPU time for their memory.
type Knee struct {
	Value string `json:"gogc"`
	Arm   int    `json:"arm"`
	Text  string `json:"text"`
}

// minKneeDistance is the least distance of a knee from the line through the ends of the curve, as a
// fraction of the curve's height.
const minKneeDistance = 0.1

// findKnee returns the point of the curve of the collector's CPU time over peak memory with the largest distance below the line through the curve's
// ends (Satopää et al., Finding a "Kneedle" in a Haystack, 2011), with both axes scaled to their range. It is nil unless only GOGC varies in the
// sweep, with at least four values, and there is a clear knee.
func (r *Result) findKnee() *Knee {
	type point struct {
		gogc     int
		arm      int
		mem, cpu float64
	}
	var points []point
	for i := range r.Arms {
		s := r.Arms[i].settings
		for _, x := range s {
			if x.Name != GOGC && i > 0 && x.Value != r.Arms[0].settings.Get(x.Name) {
				return nil
			}
		}
		n, err := strconv.Atoi(s.Get(GOGC))
		if err != nil || r.Arms[i].MemoryPeak == nil || r.Arms[i].GCCPU == nil || r.Arms[i].GCs.Est < 2 {
			continue // with fewer than two collections in a run, memory has not reached its final size
		}
		points = append(points, point{n, i, r.Arms[i].MemoryPeak.Est, r.Arms[i].GCCPU.Est})
	}
	if len(points) < 4 {
		return nil
	}
	slices.SortFunc(points, func(a, b point) int { return a.gogc - b.gogc })
	first, last := points[0], points[len(points)-1]
	if last.mem <= first.mem || last.cpu >= first.cpu {
		return nil
	}
	best, kneeIndex := minKneeDistance, -1
	for i, p := range points {
		x, y := (p.mem-first.mem)/(last.mem-first.mem), (p.cpu-last.cpu)/(first.cpu-last.cpu)
		if d := 1 - x - y; d > best {
			best, kneeIndex = d, i
		}
	}
	if kneeIndex < 0 {
		return nil
	}
	p := points[kneeIndex]
	saved := (first.cpu - p.cpu) / (first.cpu - last.cpu)
	return &Knee{Value: strconv.Itoa(p.gogc), Arm: p.arm, Text: fmt.Sprintf(
		"GOGC=%d: up to there the collector's CPU time falls from %s to %s, %.0f%% of what GOGC=%d saves, for %.0f%% of the memory that it adds",
		p.gogc, words.Duration(int64(first.cpu)), words.Duration(int64(p.cpu)), 100*saved, last.gogc, 100*(p.mem-first.mem)/(last.mem-first.mem))}
}
