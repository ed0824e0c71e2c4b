package tune

import (
	"fmt"
	"math"
	"strconv"
)

// noMemoryLimit is the runtime's "no limit" (runtime/debug.SetMemoryLimit).
const noMemoryLimit = math.MaxInt64

// memoryInput is what bounds the heap.
type memoryInput struct {
	// limit is the tightest memory limit in bytes; 0 is none.
	limit int64
	// ratio of the limit that Go and the rest may use together.
	ratio float64
	// other is what the group is charged for that the runtime does not know
	// of: C memory, mappings, other processes, and kernel memory, without
	// page cache that can be dropped; 0 if unknown.
	other int64
	// current is the limit in force, noMemoryLimit without one.
	current int64
}

// smallestMemory is the least GOMEMLIMIT worth setting: the collector would
// run all the time in a heap of less, whatever the program does.
const smallestMemory = 64 << 20

// memoryFor returns the GOMEMLIMIT wanted, and why; noMemoryLimit is none.
//
// GOMEMLIMIT bounds what the runtime maps less what it gave back, so what the
// group is charged for beyond that must be left room for.
func memoryFor(in memoryInput) (limit int64, reason string) {
	if in.limit <= 0 {
		return noMemoryLimit, "no memory limit can be seen"
	}
	share := float64(in.limit) * in.ratio
	other := max(0, in.other)
	want := int64(share) - other
	if want < smallestMemory {
		return noMemoryLimit, fmt.Sprintf("%s of %s less %s of other memory leave less than %s: a limit so small would only make the collector run all the time",
			percent(in.ratio), bytesText(in.limit), bytesText(other), bytesText(smallestMemory))
	}
	want &^= 1<<20 - 1
	// Other memory moves a little all the time: follow it up when it frees
	// a twentieth, and down when it takes a fiftieth.
	if in.current > 0 && in.current != noMemoryLimit {
		move := float64(want-in.current) / float64(in.current)
		if move < 0.05 && move > -0.02 {
			want = in.current
		}
	}
	reason = fmt.Sprintf("%s of the memory limit of %s", percent(in.ratio), bytesText(in.limit))
	if other > 0 {
		reason += ", less memory that is not Go's"
	}
	return want, reason
}

func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 0, 64) + " %" }

func bytesText(n int64) string {
	if n == noMemoryLimit {
		return "none"
	}
	if n < 1<<20 {
		return strconv.FormatInt(n, 10) + " B"
	}
	if n < 1<<30 {
		return strconv.FormatFloat(float64(n)/(1<<20), 'f', 0, 64) + " MiB"
	}
	return strconv.FormatFloat(float64(n)/(1<<30), 'f', 2, 64) + " GiB"
}
