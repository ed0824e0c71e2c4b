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
	// memoryBound is what the whole process may use: the group's limit, or
	// GOMEMLIMIT where that is set by hand; 0 is unknown.
	memoryBound int64
	// otherMemory is memory in it that the runtime does not know of.
	otherMemory int64
	// gomemlimit is GOMEMLIMIT in force; ours says that this tuner set it, and slack
	// that it is less than the ceiling because of other memory or of GOGC.
	gomemlimit       int64
	limitOurs, slack bool
	// unrelaxedLimit is the limit that there would be without the guard's doing.
	unrelaxedLimit int64
	// bounded says that a limit is in force that keeps the heap inside of memory,
	// or that one can be set.
	bounded bool
	// gcShare of the process's real CPU time that went into collecting, 0 to 1;
	// below 0 if unknown.
	gcShare float64
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
	minGCShare = 0.05
	// All of the process may grow to this share of the memory: a target, so
	// that most of the headroom is used, and not all of it. A GOMEMLIMIT keeps
	// it.
	memoryTarget = 0.70
	// Beyond it GOGC has next to nothing to give: 400 already leaves a fifth
	// of the collections.
	maxGOGC = 400
	// So many collections between two steps up.
	cyclesToRaise = 5
	// A step up is at most by half.
	maxStep = 1.5
	// GOGC goes up if so much more fits, and down if so much less does: in
	// between it stays.
	raiseRatio, lowerRatio = 1.15, 0.8
	// It goes up only to what fitted during the last one to two times so many
	// collections: a live heap that swings would take it down again.
	cyclesToRemember = 32
	// After a step down so many collections pass before the next one up, twice
	// as many after each further one, up to so many times.
	cyclesToRest  = 40
	maxRestFactor = 16

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
	// baseGOGC is GOGC as it was found: the policy never goes below it.
	baseGOGC                              int
	raiseCycles, thrashCycles, calmCycles uint64
	thrashTime                            time.Duration
	restCycles, restFactor                uint64
	// tightestFit is the lowest GOGC that would have fitted, in the remembered
	// collections before and in those of now.
	tightestFit    [2]int
	tightestCycles uint64
	// relaxed says that the guard gave way.
	relaxed bool
	// alarmed says that there was an alarm, and well counts the collections
	// since that were none.
	alarmed       bool
	healthyCycles uint64
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
	baseline := 100 // with GOGC=off the limit alone paces
	if w.gogc >= 0 {
		if s.baseGOGC == 0 {
			s.baseGOGC = max(1, w.gogc)
		}
		baseline = min(w.gogc, s.baseGOGC)
	}
	effective := effectiveGOGC(w)
	limited := w.gomemlimit != noMemoryLimit && effective < float64(baseline)/2
	if limited && (effective < thrashGOGC || w.gcShare > thrashShare) {
		s.thrashCycles, s.thrashTime, s.healthyCycles = s.thrashCycles+w.cycles, s.thrashTime+w.elapsed, 0
	} else {
		if s.thrashCycles, s.thrashTime = 0, 0; s.alarmed {
			if s.healthyCycles += w.cycles; s.healthyCycles >= cyclesToCalm {
				s.alarmed = false
			}
		}
	}
	if s.thrashCycles >= cyclesToThrash && s.thrashTime >= timeToAlarm {
		d.alarm = !s.alarmed
		s.alarmed = true
		d.gogc = min(w.gogc, s.baseGOGC)
		d.reason = fmt.Sprintf("the memory limit leaves room to allocate %.0f%% of the heap between collections, and the collector takes %s of the CPU time used, for %d collections in %s",
			max(0, effective), shareText(w.gcShare), s.thrashCycles, s.thrashTime.Round(100*time.Millisecond))
		if w.limitOurs && w.slack && !s.relaxed && s.thrashTime >= timeToRelax {
			s.relaxed, s.calmCycles, s.thrashCycles, s.thrashTime, s.alarmed = true, 0, 0, 0, false
			d.alarm, d.relax = true, true
		}
		return d
	}
	if s.relaxed {
		return s.waitForCalm(w, d)
	}
	if w.gogc < 0 {
		return d
	}
	return s.approachTarget(w, d)
}

// fittingGOGC is the GOGC with which all of the process would just reach the target.
func (s *gcState) fittingGOGC(w gcWindow) int {
	base := float64(w.live + w.stacks + w.globals)
	if base <= 0 {
		return maxGOGC
	}
	room := memoryTarget*float64(w.memoryBound) - float64(w.otherMemory) - float64(w.overhead) - float64(w.live)
	return max(s.baseGOGC, int(max(0, min(maxGOGC, 100*room/base))))
}

// recordFit notes what fits now and returns what fitted all the time lately.
func (s *gcState) recordFit(fits int, cycles uint64) int {
	if s.tightestFit == [2]int{} {
		s.tightestFit = [2]int{fits, fits}
	}
	s.tightestFit[1] = min(s.tightestFit[1], fits)
	alwaysFit := min(s.tightestFit[0], s.tightestFit[1])
	if s.tightestCycles += cycles; s.tightestCycles >= cyclesToRemember {
		s.tightestFit, s.tightestCycles = [2]int{s.tightestFit[1], fits}, 0
	}
	return alwaysFit
}

// approachTarget goes to the GOGC that fits: down at once, up in steps, and not
// at all in between.
func (s *gcState) approachTarget(w gcWindow, d gcDecision) gcDecision {
	s.restCycles -= min(s.restCycles, w.cycles)
	if w.memoryBound <= 0 || !w.bounded {
		if w.gogc > s.baseGOGC {
			d.gogc, d.reason = s.baseGOGC, "there is no memory limit in force"
		}
		s.raiseCycles = 0
		return d
	}
	fits := s.fittingGOGC(w)
	alwaysFit := s.recordFit(fits, w.cycles)
	if w.gogc > s.baseGOGC && float64(fits) < lowerRatio*float64(w.gogc) {
		s.raiseCycles = 0
		s.restFactor = min(max(1, 2*s.restFactor), maxRestFactor)
		s.restCycles = s.restFactor * cyclesToRest
		if d.gogc = fits; float64(fits) < raiseRatio*float64(s.baseGOGC) {
			d.gogc = s.baseGOGC
		}
		d.reason = fmt.Sprintf("the live heap of %s leaves less room below %s of %s", bytesText(w.live), quantity.Percent(memoryTarget), bytesText(w.memoryBound))
		return d
	}
	if w.gcShare < minGCShare || float64(alwaysFit) < raiseRatio*float64(w.gogc) || s.restCycles > 0 {
		s.raiseCycles = 0
		return d
	}
	if s.raiseCycles += w.cycles; s.raiseCycles < cyclesToRaise {
		return d
	}
	s.raiseCycles = 0
	d.gogc = min(alwaysFit, int(math.Ceil(maxStep*float64(w.gogc))))
	d.reason = fmt.Sprintf("collecting takes %s of the CPU time used, and the process may grow to %s of %s", shareText(w.gcShare), quantity.Percent(memoryTarget), bytesText(w.memoryBound))
	return d
}

// waitForCalm waits until the limit would leave room again.
func (s *gcState) waitForCalm(w gcWindow, d gcDecision) gcDecision {
	d.gogc = min(w.gogc, s.baseGOGC)
	base := float64(w.live + w.stacks + w.globals)
	effective := math.Inf(1)
	if base > 0 {
		effective = 100 * float64(w.unrelaxedLimit-w.overhead-w.live) / base
	}
	if effective < calmGOGC {
		s.calmCycles = 0
		return d
	}
	if s.calmCycles += w.cycles; s.calmCycles < cyclesToCalm {
		return d
	}
	s.relaxed, s.calmCycles = false, 0
	d.restore = true
	d.reason = fmt.Sprintf("for %d collections the live heap of %s would again have fitted below a limit of %s", cyclesToCalm, bytesText(w.live), bytesText(w.unrelaxedLimit))
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
	// gcSeconds and busy are /cpu/classes in seconds: time of Ps, estimated by the
	// runtime and brought up to date at each collection.
	gcSeconds, busySeconds float64
	// realSeconds is the CPU time the kernel accounted to the process, in seconds.
	realSeconds float64
}

// gcShare is the collector's share of the process's real CPU time. The runtime
// counts a P as busy for as long as it is held, even while the kernel does not
// run its thread. So under a quota its seconds exceed the real ones, but they show
// how the busy time divides. C code and system calls, which hold no P, make the
// real time the larger of the two.
func gcShare(start, end gcTimes) float64 {
	gc := end.gcSeconds - start.gcSeconds
	all := max(end.busySeconds-start.busySeconds, end.realSeconds-start.realSeconds)
	if all <= 0 || gc < 0 {
		return -1
	}
	return min(1, gc/all)
}
