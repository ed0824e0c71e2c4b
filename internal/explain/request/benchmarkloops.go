package request

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// maxSequence bounds the waits and system calls in which the iterations of a benchmark are searched for.
const maxSequence = 1 << 20

// findIterations returns the wait or system call that separates the iterations of a benchmark, 0 if there is none. The beginning
// of an iteration leaves no event, so a stack separates iterations if it recurs regularly over most of the sequence. Of these it
// is the rarest one, at the line of the benchmark that recurs least often, because other lines may be in an inner loop.
func findIterations(c *collector, sequence []tracefmt.StackID) tracefmt.StackID {
	sequence = longestCall(c, sequence)
	indexes, lineRuns := make(map[tracefmt.StackID][]int), make(map[tracefmt.FrameID]int)
	lastLine := tracefmt.FrameID(0)
	for i, id := range sequence {
		indexes[id] = append(indexes[id], i)
		if line := c.stackInfo(id).outerServiceFrame; line != lastLine {
			lineRuns[line]++
			lastLine = line
		}
	}
	repeatedLines, fewestRuns := 0, len(sequence)
	for _, runs := range lineRuns {
		if runs > 1 {
			repeatedLines, fewestRuns = repeatedLines+1, min(fewestRuns, runs)
		}
	}
	candidates := slices.SortedFunc(maps.Keys(indexes), func(a, b tracefmt.StackID) int {
		return cmp.Or(len(indexes[a])-len(indexes[b]), indexes[a][0]-indexes[b][0])
	})
	for _, candidate := range candidates {
		list := indexes[candidate]
		isOuter := repeatedLines < 2 || lineRuns[c.stackInfo(candidate).outerServiceFrame] >= len(list) && len(list) <= fewestRuns+1
		if len(list) >= minJobs && isOuter && 2*(list[len(list)-1]-list[0]) >= len(sequence) && isRegular(sequence, list) {
			return candidate
		}
	}
	return 0
}

// longestCall returns the longest part of a sequence of stacks that belongs to one call of the benchmark. Package testing calls
// the benchmark several times, and its own waits separate the calls.
func longestCall(c *collector, sequence []tracefmt.StackID) (longest []tracefmt.StackID) {
	first := 0
	for i := range len(sequence) + 1 {
		if i == len(sequence) || c.stackInfo(sequence[i]).outerServiceFrame == 0 {
			if i-first > len(longest) {
				longest = sequence[first:i]
			}
			first = i + 1
		}
	}
	return longest
}

// isRegular reports whether the parts of a sequence between consecutive indexes have similar lengths and mostly the same stacks.
// Lengths between random events would vary as much as their mean.
func isRegular(sequence []tracefmt.StackID, indexes []int) bool {
	const maxVariation = 0.4 // by chance, eight exponential lengths vary so little once in 50 times
	contents, mostFrequent := make(map[string]int), 0
	meanLength := float64(indexes[len(indexes)-1]-indexes[0]) / float64(len(indexes)-1)
	variance := 0.0
	for k, end := range indexes[1:] {
		distinct := slices.Clone(sequence[indexes[k]+1 : end])
		slices.Sort(distinct)
		var content []byte
		for _, id := range slices.Compact(distinct) {
			content = appendID(content, uint32(id))
		}
		contents[string(content)]++
		mostFrequent = max(mostFrequent, contents[string(content)])
		deviation := float64(end-indexes[k]) - meanLength
		variance += deviation * deviation / float64(len(indexes)-1)
	}
	return float64(mostFrequent) >= threshold.MostShare*float64(len(indexes)-1) && variance <= maxVariation*maxVariation*meanLength*meanLength
}
