package tune

import (
	"fmt"
	"math"
	"time"

	"github.com/whylate/whylate/service/internal/quantity"
)

// gcWindow is what was measured between two looks.
type gcWindow struct {
	// cycles completed in this window, which took so long.
	cycles  uint64
	elapsed time.Duration
	// live, stacks, globals and goal are bytes at the last collection: what it
	// found reachable, what else it scanned, and the heap size at which the
	// next one is to be done.
	live, stacks, globals, goal int64
	// overhead is what the runtime mapped besides the heap's objects and its
	// free parts.
	overhead int64
	// gogc is GOGC now, below 0 for off.
	gogc int
	// memory is what the whole process may use: the group's limit, or
	// GOMEMLIMIT where that is set by hand; 0 is unknown.
	memory int64
	// other is memory in it that the runtime does not know of.
	other int64
	// limit is GOMEMLIMIT in force; ours says that this tuner set it, and slack
	// that it is less than the ceiling because of other memory or of GOGC.
	limit       int64
	ours, slack bool
	// calm is the limit that there would be without the guard's doing.
	calm int64
	// safe says that a limit is in force that keeps the heap inside of memory,
	// or that one can be set.
	safe bool
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
	// All of the process may grow to this share of the memory: a target, so
	// that most of the headroom is used, and not all of it. A GOMEMLIMIT keeps
	// it.
	memoryTarget = 0.70
	// Beyond it GOGC has next to nothing to give: 400 already leaves a fifth
	// of the collections.
	highestGOGC = 400
	// So many collections between two steps up.
	cyclesToRaise = 5
	// A step up is at most by half.
	largestStep = 1.5
	// GOGC goes up if so much more fits, and down if so much less does: in
	// between it stays.
	raiseIf, lowerIf = 1.15, 0.8
	// It goes up only to what fitted during the last one to two times so many
	// collections: a live heap that swings would take it down again.
	cyclesToRemember = 32
	// After a step down so many collections pass before the next one up, twice
	// as many after each further one, up to so many times.
	cyclesToRest = 40
	mostRest     = 16

	// More than this share of real CPU in the collector is a service that no
	// longer serves ...
	thrashShare = 0.20
	// ... and so is a heap limit that leaves so little room between two
	// collections, whatever GOGC says.
	thrashGOGC = 15
	// So many collections in a row, for so long, before the guard speaks, and for
	// so long before it acts: a heap limit that is tight for some seconds does
	// less harm than one that lets the kernel kill.
	cyclesToThrash = 10
	timeToAlarm    = time.Second
	timeToRelax    = 10 * time.Second
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
	thrashed            time.Duration
	rest, lowered       uint64
	// tightest is the lowest GOGC that would have fitted, in the remembered
	// collections before and in those of now.
	tightest       [2]int
	tightestCycles uint64
	// relaxed says that the guard gave way.
	relaxed bool
	// announced says that there was an alarm, and well counts the collections
	// since that were none.
	announced bool
	well      uint64
}

// gcDecision is what to do now.
type gcDecision struct {
	// gogc is the GOGC wanted.
	gogc int
	// relax asks for GOMEMLIMIT to fall back to its ceiling, restore for it to
	// count other memory again.
	relax, restore bool
	// alarm says that the collector is crawling, whether or not anything can
	// be done about it.
	alarm  bool
	reason string
}

// step takes one window and decides.
//
// GOGC is only ever raised above its base, under a memory limit, towards a
// memory target and when collecting costs real CPU time. A memory limit that is
// too small makes the collector eat the service alive for hours: where it is
// less than the ceiling because of other memory, the guard gives that up.
func (s *gcState) step(w gcWindow) gcDecision {
	d := gcDecision{gogc: w.gogc}
	if w.cycles == 0 {
		return d
	}
	usual := 100 // with GOGC=off the limit alone paces
	if w.gogc >= 0 {
		if s.base == 0 {
			s.base = max(1, w.gogc)
		}
		usual = min(w.gogc, s.base)
	}
	effective := effectiveGOGC(w)
	limited := w.limit != noMemoryLimit && effective < float64(usual)/2
	if limited && (effective < thrashGOGC || w.share > thrashShare) {
		s.thrash, s.thrashed, s.well = s.thrash+w.cycles, s.thrashed+w.elapsed, 0
	} else {
		if s.thrash, s.thrashed = 0, 0; s.announced {
			if s.well += w.cycles; s.well >= cyclesToCalm {
				s.announced = false
			}
		}
	}
	if s.thrash >= cyclesToThrash && s.thrashed >= timeToAlarm {
		d.alarm = !s.announced
		s.announced = true
		d.gogc = min(w.gogc, s.base)
		d.reason = fmt.Sprintf("the memory limit leaves room to allocate %.0f%% of the heap between collections, and the collector takes %s of the CPU time used, for %d collections in %s",
			max(0, effective), shareText(w.share), s.thrash, s.thrashed.Round(100*time.Millisecond))
		if w.ours && w.slack && !s.relaxed && s.thrashed >= timeToRelax {
			s.relaxed, s.calm, s.thrash, s.thrashed, s.announced = true, 0, 0, 0, false
			d.alarm, d.relax = true, true
		}
		return d
	}
	if s.relaxed {
		return s.whileRelaxed(w, d)
	}
	if w.gogc < 0 {
		return d
	}
	return s.towardsTarget(w, d)
}

// fits is the GOGC with which all of the process would just reach the target.
func (s *gcState) fits(w gcWindow) int {
	base := float64(w.live + w.stacks + w.globals)
	if base <= 0 {
		return highestGOGC
	}
	room := memoryTarget*float64(w.memory) - float64(w.other) - float64(w.overhead) - float64(w.live)
	return max(s.base, int(max(0, min(highestGOGC, 100*room/base))))
}

// remember notes what fits now and returns what fitted all the time lately.
func (s *gcState) remember(fits int, cycles uint64) int {
	if s.tightest == [2]int{} {
		s.tightest = [2]int{fits, fits}
	}
	s.tightest[1] = min(s.tightest[1], fits)
	always := min(s.tightest[0], s.tightest[1])
	if s.tightestCycles += cycles; s.tightestCycles >= cyclesToRemember {
		s.tightest, s.tightestCycles = [2]int{s.tightest[1], fits}, 0
	}
	return always
}

// towardsTarget goes to the GOGC that fits: down at once, up in steps, and not
// at all in between.
func (s *gcState) towardsTarget(w gcWindow, d gcDecision) gcDecision {
	s.rest -= min(s.rest, w.cycles)
	if w.memory <= 0 || !w.safe {
		if w.gogc > s.base {
			d.gogc, d.reason = s.base, "there is no memory limit in force"
		}
		s.raise = 0
		return d
	}
	fits := s.fits(w)
	always := s.remember(fits, w.cycles)
	if w.gogc > s.base && float64(fits) < lowerIf*float64(w.gogc) {
		s.raise = 0
		s.lowered = min(max(1, 2*s.lowered), mostRest)
		s.rest = s.lowered * cyclesToRest
		if d.gogc = fits; float64(fits) < raiseIf*float64(s.base) {
			d.gogc = s.base
		}
		d.reason = fmt.Sprintf("the live heap of %s leaves less room below %s of %s", bytesText(w.live), quantity.Percent(memoryTarget), bytesText(w.memory))
		return d
	}
	if w.share < gcHurts || float64(always) < raiseIf*float64(w.gogc) || s.rest > 0 {
		s.raise = 0
		return d
	}
	if s.raise += w.cycles; s.raise < cyclesToRaise {
		return d
	}
	s.raise = 0
	d.gogc = min(always, int(math.Ceil(largestStep*float64(w.gogc))))
	d.reason = fmt.Sprintf("collecting takes %s of the CPU time used, and the process may grow to %s of %s", shareText(w.share), quantity.Percent(memoryTarget), bytesText(w.memory))
	return d
}

// whileRelaxed waits until the limit would leave room again.
func (s *gcState) whileRelaxed(w gcWindow, d gcDecision) gcDecision {
	d.gogc = min(w.gogc, s.base)
	base := float64(w.live + w.stacks + w.globals)
	under := math.Inf(1)
	if base > 0 {
		under = 100 * float64(w.calm-w.overhead-w.live) / base
	}
	if under < calmGOGC {
		s.calm = 0
		return d
	}
	if s.calm += w.cycles; s.calm < cyclesToCalm {
		return d
	}
	s.relaxed, s.calm = false, 0
	d.restore = true
	d.reason = fmt.Sprintf("for %d collections the live heap of %s would again have fitted below a limit of %s", cyclesToCalm, bytesText(w.live), bytesText(w.calm))
	return d
}

func shareText(share float64) string {
	if share < 0 {
		return "an unknown share"
	}
	return quantity.Percent(share)
}

// gcTimes are cumulative readings for the collector's share.
type gcTimes struct {
	// gc and busy are /cpu/classes in seconds: time of Ps, estimated by the
	// runtime and brought up to date at each collection.
	gc, busy float64
	// real is the CPU time the kernel accounted to the process, in seconds.
	real float64
}

// gcShare is the collector's share of the process's real CPU time. The runtime
// counts a P as busy for as long as it is held, even while the kernel does not
// run its thread. So under a quota its seconds exceed the real ones, but they show
// how the busy time divides. C code and system calls, which hold no P, make the
// real time the larger of the two.
func gcShare(from, to gcTimes) float64 {
	gc := to.gc - from.gc
	all := max(to.busy-from.busy, to.real-from.real)
	if all <= 0 || gc < 0 {
		return -1
	}
	return min(1, gc/all)
}
