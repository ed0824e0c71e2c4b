package tune

import (
	"fmt"
	"math"
)

// gcWindow is what was measured between two looks with at least one garbage
// collection in between.
type gcWindow struct {
	// cycles completed in this window.
	cycles uint64
	// live, stacks, globals and goal are bytes at the last collection: what it
	// found reachable, what else it scanned, and the heap size at which the
	// next one is to be done.
	live, stacks, globals, goal int64
	// gogc is GOGC now, below 0 for off.
	gogc int
	// memory is what the whole process may use: the group's limit, or
	// GOMEMLIMIT where that is set by hand; 0 is unknown.
	memory int64
	// other is memory in it that the runtime does not know of.
	other int64
	// limit is GOMEMLIMIT in force, and ours whether this tuner set it.
	limit int64
	ours  bool
	// share of the process's real CPU time that went into collecting, 0 to 1;
	// below 0 if unknown.
	share float64
}

// effectiveGOGC is the GOGC that the pacer really works with: a memory limit
// lowers the heap goal. The pacer's formula is goal = live + (live + stacks +
// globals) * GOGC/100 (runtime/mgcpacer.go), solved for GOGC. It is above the
// setting for heaps below the pacer's least goal of 4 MiB.
func effectiveGOGC(w gcWindow) float64 {
	base := float64(w.live + w.stacks + w.globals)
	if base <= 0 {
		return math.Inf(1)
	}
	return 100 * float64(w.goal-w.live) / base
}

// Clauses of the GOGC policy; each answers a reported failure.
const (
	// Only a service that spends so much of its CPU on collecting has
	// something to win.
	gcHurts = 0.05
	// The heap may grow to this share of the memory: a target, so that most
	// of the headroom is used, and not all of it.
	memoryTarget = 0.70
	// Beyond it GOGC has next to nothing to give: 400 already leaves a fifth
	// of the collections.
	highestGOGC = 400
	// So many collections between two steps up.
	cyclesToRaise = 5
	// A step up is at most by half.
	largestStep = 1.5

	// More than this share of real CPU in the collector is a service that no
	// longer serves ...
	thrashShare = 0.20
	// ... and so is a heap limit that leaves so little room between two
	// collections, whatever GOGC says.
	thrashGOGC = 15
	// So many collections in a row before the guard acts.
	cyclesToThrash = 10
	// With the limit lifted GOGC paces alone, at no less than this.
	thrashFloor = 50
	// The limit comes back when it would leave so much room again ...
	calmGOGC = 60
	// ... for so many collections.
	cyclesToCalm = 20
)

// gcState is the GOGC policy's memory between windows.
type gcState struct {
	// base is GOGC as it was found: the policy never goes below it.
	base                int
	raise, thrash, calm uint64
	lifted              bool
	liftedLimit         int64
	announced           bool
}

// gcDecision is what to do now.
type gcDecision struct {
	// gogc is the GOGC wanted.
	gogc int
	// lift asks for GOMEMLIMIT to be taken away, restore for it to come back.
	lift, restore bool
	// alarm says that the collector is crawling, whether or not anything can
	// be done about it.
	alarm  bool
	reason string
}

// step looks at one window.
//
// GOGC is only ever raised above its base, towards a memory target and when
// collecting costs real CPU time; it comes down at once when memory is needed.
// Under a memory limit that is too small the collector eats the service
// alive for hours before anything is killed: the guard then takes a limit away
// that this tuner set, and leaves it to the kernel to end what does not fit.
func (s *gcState) step(w gcWindow) gcDecision {
	d := gcDecision{gogc: w.gogc}
	if w.cycles == 0 || w.gogc < 0 {
		return d
	}
	if s.base == 0 {
		s.base = max(1, w.gogc)
	}
	effective := effectiveGOGC(w)

	if s.lifted {
		return s.whileLifted(w, d)
	}
	limited := w.limit != noMemoryLimit && effective < float64(w.gogc)/2
	if limited && (effective < thrashGOGC || w.share > thrashShare) {
		s.thrash += w.cycles
	} else {
		s.thrash, s.announced = 0, false
	}
	if s.thrash >= cyclesToThrash {
		d.alarm = !s.announced
		s.announced = true
		d.reason = fmt.Sprintf("the memory limit leaves %.0f %% of the heap to allocate between collections and the collector takes %s of the CPU time used, for %d collections",
			max(0, effective), shareText(w.share), s.thrash)
		if w.ours {
			s.lifted, s.liftedLimit, s.calm = true, w.limit, 0
			s.thrash, s.raise = 0, 0
			d.alarm, d.lift, d.gogc = true, true, max(s.base, thrashFloor)
		}
		return d
	}
	return s.towardsTarget(w, d)
}

// towardsTarget computes the GOGC with which the next goal would just reach
// the target, and goes there: down at once, up in steps.
func (s *gcState) towardsTarget(w gcWindow, d gcDecision) gcDecision {
	if w.memory <= 0 {
		if w.gogc > s.base {
			d.gogc, d.reason = s.base, "the memory limit can no longer be seen"
		}
		s.raise = 0
		return d
	}
	base := float64(w.live + w.stacks + w.globals)
	room := memoryTarget*float64(w.memory) - float64(w.other) - float64(w.live) - float64(w.stacks) - float64(w.globals)
	fits := highestGOGC
	if base > 0 {
		fits = int(max(0, min(highestGOGC, 100*room/base)))
	}
	fits = max(s.base, fits)
	if fits < w.gogc && w.gogc > s.base {
		s.raise = 0
		d.gogc = fits
		d.reason = fmt.Sprintf("the live heap of %s leaves less room below %s of %s", bytesText(w.live), percent(memoryTarget), bytesText(w.memory))
		return d
	}
	// Small moves are not worth a change.
	if w.share < gcHurts || float64(fits) < 1.1*float64(w.gogc) {
		s.raise = 0
		return d
	}
	if s.raise += w.cycles; s.raise < cyclesToRaise {
		return d
	}
	s.raise = 0
	d.gogc = min(fits, int(math.Ceil(largestStep*float64(w.gogc))))
	d.reason = fmt.Sprintf("collecting takes %s of the CPU time used, and the heap may grow to %s of %s", shareText(w.share), percent(memoryTarget), bytesText(w.memory))
	return d
}

// whileLifted waits until the limit would leave room again.
func (s *gcState) whileLifted(w gcWindow, d gcDecision) gcDecision {
	d.gogc = max(w.gogc, thrashFloor)
	base := float64(w.live + w.stacks + w.globals)
	under := math.Inf(1)
	if base > 0 {
		under = 100 * (float64(s.liftedLimit) - float64(w.stacks) - float64(w.globals) - float64(w.live)) / base
	}
	if under < calmGOGC {
		s.calm = 0
		return d
	}
	if s.calm += w.cycles; s.calm < cyclesToCalm {
		return d
	}
	s.lifted, s.calm = false, 0
	d.restore, d.gogc = true, s.base
	d.reason = fmt.Sprintf("for %d collections the live heap of %s would have had room below the limit of %s again", cyclesToCalm, bytesText(w.live), bytesText(s.liftedLimit))
	return d
}

func shareText(share float64) string {
	if share < 0 {
		return "an unknown share"
	}
	return percent(share)
}

// gcTimes are cumulative readings for the collector's share.
type gcTimes struct {
	// gc, busy and total are /cpu/classes in seconds: time of Ps, estimated
	// by the runtime and brought up to date at each collection.
	gc, busy float64
	// real is the CPU time the kernel accounted to the process, in seconds.
	real float64
}

// gcShare is the collector's share of the process's real CPU time. The runtime
// counts a P as busy for as long as it is held, also while the kernel does not
// run its thread, so under a quota its seconds exceed the real ones; what they
// do tell is how the busy time divides. C code and system calls, which hold no
// P, make the real time the larger of the two.
func gcShare(from, to gcTimes) float64 {
	gc := to.gc - from.gc
	all := max(to.busy-from.busy, to.real-from.real)
	if all <= 0 || gc < 0 {
		return -1
	}
	return min(1, gc/all)
}
