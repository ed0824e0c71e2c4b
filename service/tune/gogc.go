package tune

import (
	"fmt"
	"math"
	"time"

	"github.com/whylate/whylate/service/internal/quantity"
)

// A gcWindow has the measurements between two windows' ends: polls with a collection in
// between.
type gcWindow struct {
	// cycles is the number of collections completed in the window, and elapsed its
	// length.
	cycles  uint64
	elapsed time.Duration
	// Bytes at the last collection: the live heap, the stacks and globals that it
	// scanned, and the heap size at which the next one is due.
	live, stacks, globals, goal int64
	// overhead is the memory that the runtime mapped outside of heap objects and free
	// heap.
	overhead int64
	// gogc is GOGC now, negative if off.
	gogc int
	// memoryBound is the memory that the whole process may use: the group's limit, or a
	// GOMEMLIMIT set by hand; 0 if unknown.
	memoryBound int64
	// otherMemory is the part of it that is used outside of Go.
	otherMemory int64
	// gomemlimit is GOMEMLIMIT now. limitOurs means that this tuner set it, and slack
	// that it is below the ceiling because of other memory or of GOGC.
	gomemlimit       int64
	limitOurs, slack bool
	// unrelaxedLimit is the GOMEMLIMIT that would apply if the guard had not relaxed it.
	unrelaxedLimit int64
	// bounded means that a GOMEMLIMIT keeps the heap within memoryBound, or that one can
	// be set.
	bounded bool
	// gcShare is the collector's share of the process's real CPU time, 0 to 1; negative
	// if unknown.
	gcShare float64
}

// effectiveGOGC returns the GOGC that corresponds to the heap goal, which a memory limit
// may have lowered. The pacer's formula is goal = live + (live + stacks + globals) *
// GOGC/100 (runtime/mgcpacer.go), solved for GOGC. For heaps below the pacer's minimum
// goal of 4 MiB the result is above the setting.
func effectiveGOGC(w gcWindow) float64 {
	base := float64(w.live + w.stacks + w.globals)
	if base <= 0 {
		return math.Inf(1)
	}
	return 100 * float64(w.goal-w.live) / base
}

// Thresholds of the GOGC policy. Each prevents a failure that users reported.
const (
	// A service whose collector takes a smaller share of its CPU time gains too little.
	minGCShare = 0.05
	// The whole process may grow to this share of its memory, so that most of the
	// headroom is used. A GOMEMLIMIT enforces it.
	memoryTarget = 0.70
	// A larger GOGC gains little: 400 already has only about a quarter of the
	// collections of 100.
	maxGOGC = 400
	// Number of collections between two steps up.
	cyclesToRaise = 5
	// Largest factor of a step up.
	maxStep = 1.5
	// GOGC rises if the fitting GOGC is larger by raiseRatio, falls if it is smaller by
	// lowerRatio, and stays otherwise.
	raiseRatio, lowerRatio = 1.15, 0.8
	// GOGC rises only to the smallest fitting GOGC of the last one to two times this
	// number of collections. Otherwise a varying live heap would lower it again.
	cyclesToRemember = 32
	// After a step down the next step up must wait for cyclesToRest collections. Each
	// further step down doubles that, up to a factor of maxRestFactor.
	cyclesToRest  = 40
	maxRestFactor = 16

	// The collector thrashes if it takes more than this share of real CPU time ...
	thrashShare = 0.20
	// ... or if the memory limit lowers the effective GOGC below this value.
	thrashGOGC = 15
	// The guard raises an alarm after cyclesToThrash such collections in a row over
	// timeToAlarm, and relaxes the limit after timeToRelax: a limit that is tight for
	// some seconds does less harm than a kill by the kernel.
	cyclesToThrash = 10
	timeToAlarm    = time.Second
	timeToRelax    = 10 * time.Second
	// The unrelaxed limit returns when it would allow this effective GOGC ...
	calmGOGC = 60
	// ... for this number of collections.
	cyclesToCalm = 20
)

// shareText returns a share of CPU time (0 to 1) in percent; "an unknown share" for a negative one.
func shareText(share float64) string {
	if share < 0 {
		return "an unknown share"
	}
	return quantity.Percent(share)
}

// gcTimes are cumulative CPU times, from which gcShare is computed.
type gcTimes struct {
	// gcSeconds and busySeconds are from /cpu/classes: time of Ps, which the runtime
	// estimates and updates at each collection.
	gcSeconds, busySeconds float64
	// realSeconds is the kernel's CPU time of the process.
	realSeconds float64
}

// gcShare returns the collector's share of the process's real CPU time, or -1. The runtime
// counts a P as busy even while the kernel does not run its thread. So under a quota its
// seconds exceed the real ones, but the collector's share of them is right. C code and
// system calls hold no P, so the real time may also be the larger one.
func gcShare(start, end gcTimes) float64 {
	gc := end.gcSeconds - start.gcSeconds
	all := max(end.busySeconds-start.busySeconds, end.realSeconds-start.realSeconds)
	if all <= 0 || gc < 0 {
		return -1
	}
	return min(1, gc/all)
}

// fittingGOGC returns the GOGC with which the process would just reach the memory target: at least the base GOGC, at most maxGOGC.
func (s *gcState) fittingGOGC(w gcWindow) int {
	base := float64(w.live + w.stacks + w.globals)
	if base <= 0 {
		return maxGOGC
	}
	room := memoryTarget*float64(w.memoryBound) - float64(w.otherMemory) - float64(w.overhead) - float64(w.live)
	return max(s.baseGOGC, int(max(0, min(maxGOGC, 100*room/base))))
}

// recordFit adds the GOGC that fits at present, after this number of further collections, and returns the smallest one of the last one to two times
// cyclesToRemember collections.
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

// approachTarget returns d with the GOGC moved towards the fitting one, and the reason: down at once, up in steps, and not at all for small
// differences. Without a memory limit it is the base GOGC.
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
