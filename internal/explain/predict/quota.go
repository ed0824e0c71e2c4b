package predict

import (
	"fmt"
	"math"

	"github.com/whylate/whylate/internal/output/words"
)

// quotaPeriodNS is the period of nearly every CPU quota.
const quotaPeriodNS = 100e6

// predictQuota predicts another CPU quota.
func (f *Facts) predictQuota(setting Setting, refuse refuseFunc) (*effect, string, error) {
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

// unthrottledCPUs is how many CPUs the process uses while it is not throttled: as many as it has busy Ps. It is no more than
// the number of CPUs, since goroutines on more Ps only seem to run, and no more than a freeze stopped.
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

// maxPeriodCPUs returns the largest number of CPUs used in one period of a quota; 0 if unknown.
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

// setFreezes sets the effect of a quota that is growth times as large, or of demand that is smaller by this factor. The
// process uses r CPUs while it may run, now and then, and is throttled for the rest of a period after the quota is used up: 1
// - quota/r of it. The same number of requests meets the end of each quota, and more are served before it.
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
