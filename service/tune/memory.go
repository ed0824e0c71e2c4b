package tune

import (
	"cmp"
	"fmt"
	"math"

	"github.com/whylate/whylate/service/internal/quantity"
)

// noMemoryLimit is the runtime's "no limit" (runtime/debug.SetMemoryLimit).
const noMemoryLimit = math.MaxInt64

// memoryInput is what bounds the heap. All but ratio, target and the flags are
// in bytes.
type memoryInput struct {
	// limit is the tightest memory limit, beyond which the kernel kills; 0 is
	// none.
	limit int64
	// absent says what became of the search for a limit where there is none.
	absent string
	// high is v2's memory.high, beyond which the kernel slows allocations down;
	// 0 is none.
	high int64
	// ratio of the limit that Go and the rest may use together.
	ratio float64
	// usual says that the ratio was not chosen: a small container keeps more
	// free.
	usual bool
	// target is the share of the limit that they may use while GOGC is raised;
	// 0 is none.
	target float64
	// other is what the group is charged for that the runtime does not know of
	// and that the kernel cannot drop: C memory, shared memory, other
	// processes, kernel memory; 0 if unknown.
	other int64
	// reserve is what is kept free for such memory at least.
	reserve int64
	// needs is the least that the runtime can work with: see goStats.needs.
	needs int64
	// relaxed says that the guard gave way: other memory does not count.
	relaxed bool
	// current is the limit in force, noMemoryLimit without one.
	current int64
	// settled says that current may rise: other memory has been less for long
	// enough.
	settled bool
}

const (
	// Most that Go may use of a limit beyond which the kernel kills, when
	// nothing else is known.
	usualRatio = 0.9
	// The runtime goes beyond its limit by what is allocated while a collection is
	// under way, which does not become less with the container: so much is kept
	// free, but no more than one part of so many. On a crowded machine a limit of
	// nine tenths was not enough for 13 of 20 services in 32 to 128 MiB, this one
	// for 3.
	smallReserve, smallShare = 24 << 20, 4
	// A limit moves down when it would become less by this share, and up when
	// more by that one: other memory moves a little all the time.
	moveDown, moveUp = 0.02, 0.05
)

// ceiling is the most that Go and the rest may use. Beyond memory.high nothing
// is killed, only slowed down, so half of the distance is kept to it.
func (in *memoryInput) ceiling() int64 {
	most := int64(noMemoryLimit)
	ratio := in.ratio
	if in.relaxed {
		ratio = max(ratio, usualRatio)
	}
	if in.limit > 0 {
		most = int64(float64(in.limit) * ratio)
		if in.usual && !in.relaxed {
			most = min(most, in.limit-min(in.limit/smallShare, smallReserve))
		}
	}
	if in.high > 0 {
		most = min(most, int64(float64(in.high)*(1+ratio)/2))
	}
	if most == noMemoryLimit {
		return most
	}
	return wholeMiB(most)
}

func wholeMiB(n int64) int64 {
	if n >= 1<<20 {
		n &^= 1<<20 - 1
	}
	return n
}

// memoryFor returns the GOMEMLIMIT wanted, and why; noMemoryLimit is none.
//
// GOMEMLIMIT bounds what the runtime maps less what it gave back, so what the
// group is charged for beyond that must be left room for. But a limit near the
// live heap makes the collector run all the time: other memory never takes the
// room that the heap needs, up to the ceiling. The process may not fit then,
// and the kernel ends it, as it would without a limit.
func memoryFor(in memoryInput) (limit int64, reason string) {
	ceiling := in.ceiling()
	if ceiling == noMemoryLimit {
		in.absent = cmp.Or(in.absent, "no memory limit is visible")
		return noMemoryLimit, in.absent
	}
	byMax := in
	byMax.high = 0
	most, share, of := ceiling, quantity.Percent(float64(ceiling)/float64(max(1, in.limit))), "the memory limit of "+bytesText(in.limit)
	if in.limit <= 0 || in.high > 0 && ceiling < byMax.ceiling() {
		share, of = quantity.Percent((1+in.ratio)/2), "memory.high of "+bytesText(in.high)
	}
	if in.relaxed {
		return ceiling, fmt.Sprintf("%s of %s: the guard no longer accounts for memory outside of Go", share, of)
	}
	if in.target > 0 {
		bound := in.limit
		if bound <= 0 || in.high > 0 && in.high < bound {
			bound = in.high
		}
		if t := wholeMiB(int64(float64(bound) * in.target)); t < most {
			most, share = t, quantity.Percent(in.target)
		}
	}
	other := max(0, in.other, in.reserve)
	want := wholeMiB(max(0, most-other))
	reason = share + " of " + of
	if in.target > 0 {
		reason += ", the share that GOGC was raised for"
	}
	if other > 0 {
		reason += ", less " + bytesText(other) + " outside of Go"
	}
	highest := in
	highest.usual = false
	if floor := min(highest.ceiling(), wholeMiB(in.needs+1<<20-1)); want < floor {
		want = floor
		reason += ", but no less than the live heap needs"
	}
	want = max(1<<20, want)
	if in.current > 0 && in.current != noMemoryLimit {
		move := float64(want-in.current) / float64(in.current)
		if move > -moveDown && move < moveUp || move >= moveUp && !in.settled && in.current > in.needs {
			want = in.current
		}
	}
	return want, reason
}

func bytesText(n int64) string {
	if n == noMemoryLimit {
		return "none"
	}
	return quantity.Binary(n)
}
