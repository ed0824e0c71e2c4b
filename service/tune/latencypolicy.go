package tune

import (
	"fmt"

	"github.com/whylate/whylate/service/internal/quantity"
)

// latencyWindow has the measurements between two polls, for PolicyLatency and crowdedState.
type latencyWindow struct {
	// quota in CPUs; 0 is none.
	quota float64
	cpus  int
	// current is GOMAXPROCS now.
	current int
	// periods and throttled count the quota's periods in this window.
	periods, throttled int64
	// runnable is the number of goroutines that waited for a P, on average
	// over the window.
	runnable float64
	// usedCPUs is the CPU time of the process divided by the window's length.
	usedCPUs float64
	// minProcs and maxProcs are the user's bounds of GOMAXPROCS; 0 is none.
	minProcs, maxProcs int
	// measured is false if one of the measurements is unknown.
	measured bool
}

// Thresholds of PolicyLatency. One window is the time between two polls, by default a
// second.
const (
	// In a group that is throttled in one of ten periods, throttling determines the p90.
	throttledShare = 0.10
	// One waiting goroutine for each P, on average, doubles a request's time: worth a P if
	// quota is left.
	backlogPerP = 1.0
	// Above this share of the quota another P would only cause throttling.
	maxQuotaUse = 0.85
	// Number of windows in a row that must agree before a step.
	windowsToAct = 5
	// Number of windows without a change after a step: each change stops the world, and its
	// effect must be measured first.
	windowsToRest = 20
	// Each step up that was reversed doubles the wait before the next one, up to this
	// factor.
	maxPatienceFactor = 16
)

// latencyState is PolicyLatency's state between windows.
type latencyState struct {
	downWindows, upWindows int
	restWindows            int
	// patienceFactor multiplies the number of windows before a step up.
	patienceFactor int
	// lastStepUp means that the last step was up.
	lastStepUp bool
}

// step returns the GOMAXPROCS to set after a window, and the reason if it differs from the present one, else "".
func (s *latencyState) step(w latencyWindow) (n int, reason string) {
	low, _ := procsFor(procsInput{policy: PolicyFloor, quota: w.quota, cpus: w.cpus, minProcs: w.minProcs, maxProcs: w.maxProcs})
	high, _ := procsFor(procsInput{policy: PolicyCeil, quota: w.quota, cpus: w.cpus})
	high = max(1, min(2*high, w.cpus))
	if w.maxProcs > 0 {
		high = min(high, w.maxProcs)
	}
	high = max(low, high)
	if w.quota <= 0 {
		low = high
	}
	s.patienceFactor = max(1, s.patienceFactor)
	switch {
	case w.current > high:
		s.downWindows, s.upWindows = 0, 0
		return high, fmt.Sprintf("GOMAXPROCS %d is above the bound of %d for %s", w.current, high, limitText(w))
	case w.current < low:
		s.downWindows, s.upWindows = 0, 0
		return low, fmt.Sprintf("GOMAXPROCS %d is below the bound of %d for %s", w.current, low, limitText(w))
	}
	if s.restWindows > 0 {
		s.restWindows--
		return w.current, ""
	}
	if !w.measured || w.quota <= 0 {
		return w.current, ""
	}
	share := 0.0
	if w.periods > 0 {
		share = float64(w.throttled) / float64(w.periods)
	}
	throttled := share >= throttledShare
	backlog := w.runnable >= backlogPerP*float64(w.current) && w.usedCPUs < maxQuotaUse*w.quota
	switch {
	case throttled:
		s.downWindows, s.upWindows = s.downWindows+1, 0
	case backlog:
		s.downWindows, s.upWindows = 0, s.upWindows+1
	default:
		s.downWindows, s.upWindows = max(0, s.downWindows-1), max(0, s.upWindows-1)
	}
	switch {
	case s.downWindows >= windowsToAct && w.current > low:
		if s.lastStepUp {
			s.patienceFactor = min(2*s.patienceFactor, maxPatienceFactor)
		}
		s.downWindows, s.upWindows, s.restWindows, s.lastStepUp = 0, 0, windowsToRest, false
		return w.current - 1, fmt.Sprintf("throttled in %s of the periods for %d samples in a row; fewer Ps use up the quota more slowly", quantity.Percent(share), windowsToAct)
	case s.upWindows >= windowsToAct*s.patienceFactor && w.current < high:
		s.downWindows, s.upWindows, s.restWindows, s.lastStepUp = 0, 0, windowsToRest, true
		return w.current + 1, fmt.Sprintf("%.1f goroutines waited for a P on average while %s of %s were used, without throttling", w.runnable, quantity.CPUs(w.usedCPUs), quantity.CPUs(w.quota))
	}
	return w.current, ""
}

// limitText returns the CPU limit of a window as text: the quota, else the number of CPUs.
func limitText(w latencyWindow) string {
	if w.quota > 0 {
		return "a CPU quota of " + quantity.CPUs(w.quota)
	}
	return countText(w.cpus, "CPU")
}
