package tune

import (
	"cmp"
	"fmt"
	"math"

	"github.com/whylate/whylate/service/internal/quantity"
)

// noMemoryLimit is the runtime's value for no limit (runtime/debug.SetMemoryLimit).
const noMemoryLimit = math.MaxInt64

// memoryInput has the values that determine GOMEMLIMIT. All but ratio, target and the flags
// are in bytes.
type memoryInput struct {
	// limit is the tightest memory limit, at which the kernel kills; 0 is none.
	limit int64
	// noLimitReason is the reason if there is no limit.
	noLimitReason string
	// high is memory.high of cgroup v2, above which the kernel slows down allocations; 0 is
	// none.
	high int64
	// ratio is the share of the limit that Go and other memory may use together.
	ratio float64
	// defaultRatio means that the user did not choose the ratio: then a small container
	// keeps more memory free.
	defaultRatio bool
	// target is the share of the limit that they may use while GOGC is raised; 0 is none.
	target float64
	// otherMemory is the group's memory outside of Go that the kernel cannot reclaim: C
	// memory, shared memory, other processes, kernel memory; 0 if unknown.
	otherMemory int64
	// reserve is the least memory that stays free for otherMemory.
	reserve int64
	// needed is goStats.neededMemory.
	needed int64
	// relaxed means that the guard ignores other memory.
	relaxed bool
	// current is the GOMEMLIMIT now, noMemoryLimit if there is none.
	current int64
	// settled means that current may rise, because other memory has been less for long
	// enough.
	settled bool
}

const (
	// Share of a limit at which the kernel kills that Go may use by default.
	defaultMemoryRatio = 0.9
	// The heap exceeds its limit by the allocations during a collection, which are not
	// smaller in a small container. So smallLimitReserve stays free, but at most the limit
	// divided by smallLimitDivisor. On a busy machine a limit of nine tenths was too large
	// for 13 of 20 services in 32 to 128 MiB, and this limit for 3.
	smallLimitReserve, smallLimitDivisor = 24 << 20, 4
	// GOMEMLIMIT falls if it would fall by at least this share, and rises if it would rise by
	// at least that one, because other memory varies a little all the time.
	minMoveDown, minMoveUp = 0.02, 0.05
)

// ceiling returns the most, in bytes, that Go and other memory may use together; noMemoryLimit without a limit. Above memory.high the kernel slows
// the process down but does not kill it, so the distance to it is half as large.
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

// wholeMiB rounds down to a multiple of 1 MiB, except for less than 1 MiB.
func wholeMiB(n int64) int64 {
	if n >= 1<<20 {
		n &^= 1<<20 - 1
	}
	return n
}

// memoryFor returns the GOMEMLIMIT to set, in bytes, which may be noMemoryLimit, and the reason.
//
// GOMEMLIMIT bounds the memory that the runtime has mapped and not released, so it must
// leave room for the group's other memory. But a limit near the live heap makes the
// collector run all the time. So other memory never reduces the limit below the memory
// that the heap needs, up to the ceiling. If the process does not fit then, the kernel
// kills it, as it would without a limit.
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

// bytesText returns a number of bytes as text, "none" for noMemoryLimit.
func bytesText(n int64) string {
	if n == noMemoryLimit {
		return "none"
	}
	return quantity.Binary(n)
}

// otherMemory returns the memory outside of Go in the group with the tightest limit: charged memory that the kernel cannot
// reclaim, less Go's mapped memory; 0 if it is not known. Swapped heap pages count as mapped, so swap is added.
func (in *inputs) otherMemory() int64 {
	if !in.bindingOK {
		return 0
	}
	return max(0, in.binding.Unreclaimable()+in.binding.Swap-in.mappedAtBinding)
}

// memoryLimit returns the limit, in bytes, at which the kernel kills, or the one of Options.MemoryLimit; 0 is none.
func (in *inputs) memoryLimit() int64 {
	if in.providedSource != "" {
		return in.providedLimit
	}
	return in.bounds.Memory
}
