package predict

import (
	"fmt"
	"math"

	"github.com/whylate/whylate/internal/output/words"
)

// quotaPeriodNS is the period of nearly every CPU quota.
const quotaPeriodNS = 100e6

// predictQuota predicts another CPU quota, with the basis of the prediction in words; or it refuses, with a nil effect. If the
// quota throttles the process, it computes how much of the present freezes a larger quota leaves; it refuses a smaller one. If
// not, only a quota that is never reached can be predicted: it changes nothing.
func (f *Facts) predictQuota(setting Setting, refuse refuseFunc) (change *effect, explanation string, refusal error) {
	if !f.Throttled {
		switch maxCPUs := f.maxPeriodCPUs(); {
		case setting.Value >= float64(f.Procs) && f.Procs > 0:
			return &effect{}, fmt.Sprintf("nothing would change: the process runs on %d CPUs at most", f.Procs), nil
		case f.MaybeThrottled:
			return refuse("a quota may already throttle the process: run whylate record on the same host")
		case maxCPUs > 0 && maxCPUs <= 0.9*setting.Value:
			return &effect{}, fmt.Sprintf("nothing would change: in no 100 ms did the process use more than %.2f CPUs", maxCPUs), nil
		case maxCPUs == 0:
			return refuse("the trace does not show how many CPUs were used in each 100 ms")
		default:
			return refuse("in some 100 ms the process used %.2f CPUs, so it would be throttled at times; for how long depends on what arrives then: whylate sweep measures it", maxCPUs)
		}
	}
	// While the process is throttled nothing runs, whatever the trace shows. So it used the complete quota in the rest of the
	// time.
	current, basis := variantValues{est: f.QuotaCPUs, low: f.QuotaCPUs, high: f.QuotaCPUs}, fmt.Sprintf("the quota is %s", words.CPUs(f.QuotaCPUs))
	if f.QuotaCPUs <= 0 {
		runShare := 1 - f.frozenShare()
		current = variantValues{est: math.Sqrt(f.unthrottledCPUs()) * runShare, low: runShare, high: f.unthrottledCPUs() * runShare}
		basis = fmt.Sprintf("the quota is between %.2g and %.2g CPUs, from what ran while the process was not throttled", current[low], current[high])
	}
	if setting.Value < current[low] {
		return refuse("%s, and already throttles the process; with less it would fall behind, or clients would ask for less: whylate sweep measures it", basis)
	}
	e := new(effect)
	var growth variantValues
	for v := range growth {
		growth[v] = max(1, setting.Value/current[v])
		if f.QuotaCPUs <= 0 && setting.Value >= f.unthrottledCPUs() {
			growth[v] = max(growth[v], 1/(1-f.frozenShare()))
		}
	}
	e.setFreezes(f, growth)
	return e, fmt.Sprintf("%s, and freezes take %s of the time", basis, words.PercentOr0(f.frozenShare())), nil
}

// frozenShare is the share of the time in freezes.
func (f *Facts) frozenShare() float64 {
	return min(max(float64(f.FrozenNS)/float64(f.SpanNS), 0.001), 0.999)
}

// unthrottledCPUs estimates how many CPUs the process uses while it is not throttled: the mean number of busy Ps, but at most
// the number of CPUs and the number of CPUs that a freeze stopped, and at least 1.
func (f *Facts) unthrottledCPUs() float64 {
	r := float64(f.BusyNS) / float64(f.SpanNS)
	if f.CPUs > 0 {
		r = min(r, f.CPUs)
	}
	if f.FrozenCPUs > 0 {
		r = min(r, float64(f.FrozenCPUs))
	}
	return max(r, 1)
}

// maxPeriodCPUs returns the largest mean number of CPUs used in any quota period (100 ms) of the trace; 0 if unknown.
func (f *Facts) maxPeriodCPUs() float64 {
	if f.StepNS <= 0 || f.StepNS > quotaPeriodNS {
		return 0
	}
	maxCPUs, steps := 0.0, int(quotaPeriodNS/f.StepNS)
	for i := range f.BusyPs {
		total := 0.0
		for _, step := range f.BusyPs[i:min(i+steps, len(f.BusyPs))] {
			total += float64(step[1]) / 1000
		}
		maxCPUs = max(maxCPUs, total/float64(steps))
	}
	return maxCPUs
}

// setFreezes sets the effect on freezes of a quota that is growth times as large as now; a demand that shrinks by this factor
// is equivalent. In each period the process runs until the quota is used up and is frozen for the rest, so the frozen share 1-q
// becomes 1-q*growth. As many requests as now meet the end of each run, and more are served before it.
func (e *effect) setFreezes(f *Facts, growth variantValues) {
	frozen := f.frozenShare()
	e.changesFreezes = true
	for v := range growth {
		remaining := max(0, 1-growth[v]*(1-frozen))
		e.throttle[v] = min(1, remaining/frozen)
		e.freezeEncounters[v] = min(1, (1-frozen)/(1-remaining))
		if remaining == 0 {
			e.freezeEncounters[v] = 0
		}
	}
}
