package tune

import (
	"fmt"
	"math"
	"time"
)

// gcState is the GOGC policy's state between windows.
type gcState struct {
	// baseGOGC is the initial GOGC; the policy never sets a lower one.
	baseGOGC                              int
	raiseCycles, thrashCycles, calmCycles uint64
	thrashTime                            time.Duration
	restCycles, restFactor                uint64
	// tightestFit has the smallest fitting GOGC of the previous cyclesToRemember
	// collections and of the current ones.
	tightestFit    [2]int
	tightestCycles uint64
	// relaxed means that the guard has relaxed the limit.
	relaxed bool
	// alarmed means that an alarm was raised, and healthyCycles counts the collections
	// without thrashing since.
	alarmed       bool
	healthyCycles uint64
}

// gcDecision is the GOGC policy's decision at a window.
type gcDecision struct {
	// gogc is the GOGC to set.
	gogc int
	// relax raises GOMEMLIMIT to its ceiling; restore makes it account for other memory
	// again.
	relax, restore bool
	// alarm means that the collector thrashes, whether or not relaxing the limit can
	// help.
	alarm  bool
	reason string
}

// step returns the decision at one window; without a collection in it nothing changes.
//
// GOGC rises above its base only if a memory limit bounds the heap, collecting takes a
// notable share of real CPU time, and the memory target has room. With a memory limit
// that is too small, the collector can take a service's CPU for hours. If the limit is
// below its ceiling because of other memory, the guard then raises it to the ceiling.
func (s *gcState) step(w gcWindow) gcDecision {
	d := gcDecision{gogc: w.gogc}
	if w.cycles == 0 {
		return d
	}
	baseline := 100 // with GOGC=off only the limit starts collections
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

// waitForCalm returns d with restore set after cyclesToCalm collections in succession for which the lower limit would have left enough room; before
// that, with GOGC at most at its base.
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
