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
	// noLimitReason says what became of the search for a limit where there is none.
	noLimitReason string
	// high is v2's memory.high, beyond which the kernel slows allocations down;
	// 0 is none.
	high int64
	// ratio of the limit that Go and the rest may use together.
	ratio float64
	// defaultRatio says that the ratio was not chosen: a small container keeps more
	// free.
	defaultRatio bool
	// target is the share of the limit that they may use while GOGC is raised;
	// 0 is none.
	target float64
	// otherMemory is what the group is charged for that the runtime does not know of
	// and that the kernel cannot drop: C memory, shared memory, other
	// processes, kernel memory; 0 if unknown.
	otherMemory int64
	// reserve is what is kept free for such memory at least.
	reserve int64
	// needed is the least that the runtime can work with: see goStats.needs.
	needed int64
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
	defaultMemoryRatio = 0.9
	// The runtime goes beyond its limit by what is allocated while a collection is
	// under way, which does not become less with the container: so much is kept
	// free, but no more than one part of so many. On a crowded machine a limit of
	// nine tenths was not enough for 13 of 20 services in 32 to 128 MiB, this one
	// for 3.
	smallLimitReserve, smallLimitDivisor = 24 << 20, 4
	// A limit moves down when it would become less by this share, and up when
	// more by that one: other memory moves a little all the time.
	minMoveDown, minMoveUp = 0.02, 0.05
)

// ceiling is the most that Go and the rest may use. Beyond memory.high nothing
// is killed, only slowed down, so half of the distance is kept to it.
func (in *memoryInput) ceiling() int64 {
	ceiling := int64(noMemoryLimit)
	ratio := in.ratio
	if in.relaxed {
		ratio = max(ratio, defaultMemoryRatio)
	}
	if in.limit > 0 {
		ceiling = int64(float64(in.limit) * ratio)
		if in.defaultRatio && !in.relaxed {
			ceiling = min(ceiling, in.limit-min(in.limit/smallLimitDivisor, smallLimitReserve))
		}
	}
	if in.high > 0 {
		ceiling = min(ceiling, int64(float64(in.high)*(1+ratio)/2))
	}
	if ceiling == noMemoryLimit {
		return ceiling
	}
	return wholeMiB(ceiling)
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
		in.noLimitReason = cmp.Or(in.noLimitReason, "no memory limit is visible")
		return noMemoryLimit, in.noLimitReason
	}
	withoutHigh := in
	withoutHigh.high = 0
	goBound, share, boundText := ceiling, quantity.Percent(float64(ceiling)/float64(max(1, in.limit))), "the memory limit of "+bytesText(in.limit)
	if in.limit <= 0 || in.high > 0 && ceiling < withoutHigh.ceiling() {
		share, boundText = quantity.Percent((1+in.ratio)/2), "memory.high of "+bytesText(in.high)
	}
	if in.relaxed {
		return ceiling, fmt.Sprintf("%s of %s: the guard no longer accounts for memory outside of Go", share, boundText)
	}
	if in.target > 0 {
		bound := in.limit
		if bound <= 0 || in.high > 0 && in.high < bound {
			bound = in.high
		}
		if t := wholeMiB(int64(float64(bound) * in.target)); t < goBound {
			goBound, share = t, quantity.Percent(in.target)
		}
	}
	outside := max(0, in.otherMemory, in.reserve)
	want := wholeMiB(max(0, goBound-outside))
	reason = share + " of " + boundText
	if in.target > 0 {
		reason += ", the share that GOGC was raised for"
	}
	if outside > 0 {
		reason += ", less " + bytesText(outside) + " outside of Go"
	}
	withChosenRatio := in
	withChosenRatio.defaultRatio = false
	if floor := min(withChosenRatio.ceiling(), wholeMiB(in.needed+1<<20-1)); want < floor {
		want = floor
		reason += ", but no less than the live heap needs"
	}
	want = max(1<<20, want)
	if in.current > 0 && in.current != noMemoryLimit {
		move := float64(want-in.current) / float64(in.current)
		if move > -minMoveDown && move < minMoveUp || move >= minMoveUp && !in.settled && in.current > in.needed {
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
