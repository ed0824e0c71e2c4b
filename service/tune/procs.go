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
