package tune

import (
	"fmt"

	"github.com/whylate/whylate/service/internal/quantity"
)

// Thresholds of crowdedState.
const (
	// Number of windows in a row that must show that other processes keep the process from
	// its quota.
	windowsToCrowd = 3
	// Number of windows for which the process keeps the larger number of Ps, at first and at
	// most. It doubles each time that a return to fewer Ps was wrong.
	minHold, maxHold = 20, 320
	// A return was right if there was no backlog for this number of windows.
	windowsToConfirm = 10
)

// crowdedState decides when a process with fewer Ps than the runtime's default needs the
// default, because other processes are busy on the same CPUs.
//
// The kernel divides a CPU among the groups that use it, and a thread runs on one CPU at a
// time. If other groups of the same weight are busy, a process with one P gets half or two
// thirds of a CPU, and with two Ps twice that, up to its quota. So if goroutines wait for
// a P although much of the quota is left and the process is not throttled, it gets the
// runtime's default number of Ps. It never gets more, so it is no worse off than without
// this package. Only a trial with fewer Ps shows whether the other processes are still
// busy. It starts when the larger number of Ps is throttled or no goroutine waits.
type crowdedState struct {
	backlogWindows, idleWindows int
	// holdWindows is the number of windows until fewer Ps are tried, and holdLength its
	// initial value.
	holdWindows, holdLength int
	// windowsSinceReturn counts the windows since fewer Ps were tried; 0 if the trial is
	// over.
	windowsSinceReturn int
	raised             bool
}

// step returns the GOMAXPROCS to set after a window, low (the policy's) or high. reason is
// empty if it is unchanged.
func (s *crowdedState) step(w latencyWindow, low, high int) (n int, reason string) {
	if high <= low || w.quota <= 0 {
		*s = crowdedState{}
		return low, ""
	}
	throttled := w.periods > 0 && float64(w.throttled) >= throttledShare*float64(w.periods)
	backlog := w.runnable >= backlogPerP*float64(min(w.current, low)) && w.usedCPUs < maxQuotaUse*w.quota
	if !s.raised {
		if s.windowsSinceReturn > 0 {
			if s.windowsSinceReturn++; s.windowsSinceReturn > windowsToConfirm {
				s.windowsSinceReturn = 0
			}
		}
		if s.backlogWindows++; !w.measured || throttled || !backlog {
			s.backlogWindows = 0
		}
		if s.backlogWindows < windowsToCrowd {
			return low, ""
		}
		if s.windowsSinceReturn > 0 {
			s.holdLength = min(2*s.holdLength, maxHold)
		} else {
			s.holdLength = minHold
		}
		s.raised, s.backlogWindows, s.idleWindows, s.windowsSinceReturn, s.holdWindows = true, 0, 0, 0, s.holdLength
		return high, fmt.Sprintf("%.1f goroutines waited for a P on average while %s of %s were used, without throttling: other processes keep %s from the rest", w.runnable, quantity.CPUs(w.usedCPUs), quantity.CPUs(w.quota), countText(low, "P"))
	}
	if s.holdWindows > 0 {
		s.holdWindows--
		return high, ""
	}
	if s.idleWindows++; !throttled && w.runnable >= backlogPerP*float64(low) {
		s.idleWindows = 0
	}
	if s.idleWindows < windowsToAct {
		return high, ""
	}
	s.raised, s.windowsSinceReturn, s.backlogWindows = false, 1, 0
	return low, fmt.Sprintf("after %d samples with more: do other processes still keep %s from the quota?", s.holdLength+windowsToAct, countText(low, "P"))
}
