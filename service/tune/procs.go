package tune

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/quantity"
)

// A Policy derives GOMAXPROCS from the CPU quota.
type Policy int

const (
	// PolicyCeil rounds the quota up: a quota of 2.1 CPUs gives 3 Ps. The process can use
	// its whole quota, with some throttling at full load.
	PolicyCeil Policy = iota
	// PolicyFloor rounds down, but not below 1: no throttling by Go code at full
	// load, but up to half of the quota is unused at 1.9 CPUs.
	PolicyFloor
	// PolicyRound rounds to the nearest number, and halves up.
	PolicyRound
	// PolicyLatency starts with PolicyCeil's value and changes it by single steps, between
	// PolicyFloor's and twice PolicyCeil's: down when the group is throttled, up when
	// goroutines wait for a P while quota is left.
	PolicyLatency
)

var policyNames = []string{"ceil", "floor", "round", "latency"}

func (p Policy) String() string {
	if p < 0 || int(p) >= len(policyNames) {
		return "policy " + strconv.Itoa(int(p))
	}
	return policyNames[p]
}

// MarshalText makes the policy readable in JSON; an unknown one is an error.
func (p Policy) MarshalText() ([]byte, error) {
	if _, err := ParsePolicy(p.String()); err != nil {
		return nil, err
	}
	return []byte(p.String()), nil
}

// UnmarshalText reads the text of MarshalText, so that flags and configuration files
// can hold a policy.
func (p *Policy) UnmarshalText(b []byte) (err error) {
	*p, err = ParsePolicy(string(b))
	return err
}

// ParsePolicy is the reverse of Policy.String; any other text is an error.
func ParsePolicy(s string) (Policy, error) {
	if i := slices.Index(policyNames, s); i >= 0 {
		return Policy(i), nil
	}
	return 0, fmt.Errorf("GOMAXPROCS policy %q: use ceil, floor, round or latency", s)
}

// procsInput has the bounds of GOMAXPROCS.
type procsInput struct {
	policy Policy
	// quota is the tightest visible CPU quota; 0 is none, for which noQuotaReason has the
	// reason.
	quota         float64
	noQuotaReason string
	// cpus is the number of CPUs in the affinity mask; at least 1.
	cpus int
	// minProcs and maxProcs are the user's bounds; 0 is none.
	minProcs, maxProcs int
	// rounding is Options.Rounding, which replaces the policy's; nil is none.
	rounding func(float64) int
}

// procsFor returns the GOMAXPROCS of a static policy, or PolicyLatency's initial value, and
// the reason.
//
// The affinity mask is the upper bound of every policy, because the process cannot use
// more CPUs, whatever the group's quota.
func procsFor(in procsInput) (n int, reason string) {
	n, reason = procsWithoutBounds(in)
	if in.maxProcs > 0 && n > in.maxProcs {
		n, reason = in.maxProcs, fmt.Sprintf("%s; at most %d as the program says", reason, in.maxProcs)
	}
	if minProcs := min(in.minProcs, max(1, in.cpus)); n < minProcs {
		n, reason = minProcs, fmt.Sprintf("%s; at least %d as the program says", reason, in.minProcs)
	}
	return n, reason
}

// procsWithoutBounds is procsFor without the user's bounds.
func procsWithoutBounds(in procsInput) (n int, reason string) {
	cpus := max(1, in.cpus)
	if !(in.quota > 0) {
		noQuotaReason := cmp.Or(in.noQuotaReason, "no CPU quota is visible")
		return cpus, fmt.Sprintf("%s; %s in the affinity mask", noQuotaReason, countText(cpus, "CPU"))
	}
	// Quotas have microseconds: with an odd period 3 CPUs may be 2.9999 or 3.00001. A
	// hundredth of a CPU is no reason for another P.
	const grain = 0.01
	var want float64
	var method string
	switch {
	case in.rounding != nil:
		want, method = float64(in.rounding(in.quota)), "rounded by the program's own function"
	case in.policy == PolicyFloor:
		want, method = math.Floor(in.quota+grain), "rounded down, at least 1"
	case in.policy == PolicyRound:
		want, method = math.Floor(in.quota+0.5+grain), "rounded to the nearest, at least 1"
	default:
		want, method = math.Ceil(in.quota-grain), "rounded up"
	}
	want = max(1, want)
	if want > float64(cpus) {
		return cpus, fmt.Sprintf("a CPU quota of %s is more than the %s in the affinity mask", quantity.CPUs(in.quota), countText(cpus, "CPU"))
	}
	return int(want), fmt.Sprintf("a CPU quota of %s, %s", quantity.CPUs(in.quota), method)
}

// runtimeDefault returns the default GOMAXPROCS of Go 1.25 and later for the quota of the
// process's own group, in CPUs (0 for none), and the CPUs that it may use.
func runtimeDefault(ownQuota float64, cpus int) int {
	c := cgroup.CPU{Parallelism: max(1, cpus), RuntimeQuota: ownQuota}
	return c.RuntimeDefault()
}

// countText returns a number with its noun, in the plural unless it is 1.
func countText(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

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
