package predict

import (
	"fmt"
	"math"

	"github.com/whylate/whylate/internal/output/words"
)

// quotaStep is the period of nearly every quota.
const quotaStep = 100e6

// quota predicts another CPU quota.
func (f *Facts) quota(s Setting, refuse refuser) (*effect, string, error) {
	if !f.Held {
		switch most := f.mostUsed(); {
		case s.Value >= float64(f.Procs) && f.Procs > 0:
			return &effect{}, fmt.Sprintf("nothing would change: the process runs on %d CPUs at most", f.Procs), nil
		case f.Uncertain:
			return refuse("a quota may already throttle the process: run whylate record on the same host")
		case most > 0 && most <= 0.9*s.Value:
			return &effect{}, fmt.Sprintf("nothing would change: in no 100 ms did the process use more than %.2f CPUs", most), nil
		case most == 0:
			return refuse("the trace does not show how many CPUs were used in each 100 ms")
		default:
			return refuse("in some 100 ms the process used %.2f CPUs, so it would be throttled at times; for how long depends on what arrives then: whylate sweep measures it", most)
		}
	}
	// While the process is throttled nothing runs, whatever the trace shows. So it used all of the
	// quota in the rest of the time.
	now, how := times{est: f.QuotaCPUs, low: f.QuotaCPUs, high: f.QuotaCPUs}, fmt.Sprintf("the quota is %s", words.CPUs(f.QuotaCPUs))
	if f.QuotaCPUs <= 0 {
		ran := 1 - f.lost()
		now = times{est: math.Sqrt(f.unheld()) * ran, low: ran, high: f.unheld() * ran}
		how = fmt.Sprintf("the quota is between %.2g and %.2g CPUs, from what ran while the process was not throttled", now[low], now[high])
	}
	if s.Value < now[low] {
		return refuse("%s, and already throttles the process; with less it would fall behind, or clients would ask for less: whylate sweep measures it", how)
	}
	e := new(effect)
	var more times
	for v := range more {
		more[v] = max(1, s.Value/now[v])
		if f.QuotaCPUs <= 0 && s.Value >= f.unheld() {
			more[v] = max(more[v], 1/(1-f.lost()))
		}
	}
	e.freezes(f, more)
	return e, fmt.Sprintf("%s, and freezes take %s of the time", how, words.PercentOr0(f.lost())), nil
}

// lost is the share of the time in freezes.
func (f *Facts) lost() float64 {
	return min(max(float64(f.LostNS)/float64(f.SpanNS), 0.001), 0.999)
}

// unheld is how many CPUs the process may use while it is not throttled: as many as its busy Ps,
// but no more than the CPUs that exist, since goroutines on more Ps than that only seem to run,
// and no more than a freeze stopped.
func (f *Facts) unheld() float64 {
	r := float64(f.BusyNS) / float64(f.SpanNS)
	if f.CPUs > 0 {
		r = min(r, f.CPUs)
	}
	if f.HeldCPUs > 0 {
		r = min(r, float64(f.HeldCPUs))
	}
	return max(r, 1)
}

// mostUsed returns the largest number of CPUs used in a period of a quota; 0 if unknown.
func (f *Facts) mostUsed() float64 {
	if f.StepNS <= 0 || f.StepNS > quotaStep {
		return 0
	}
	most, n := 0.0, int(quotaStep/f.StepNS)
	for i := range f.Running {
		total := 0.0
		for _, p := range f.Running[i:min(i+n, len(f.Running))] {
			total += float64(p[1]) / 1000
		}
		most = max(most, total/float64(n))
	}
	return most
}

// freezes is the effect of a quota that is more times as large, or of demand that is smaller by
// this factor. The process uses r CPUs while it may run, as it does now, and is throttled for the
// rest of a period after the quota is used up: 1 - quota/r of it. The same number of requests
// meets the end of each quota, and more are served before it.
func (e *effect) freezes(f *Facts, more times) {
	lost := f.lost()
	e.frozen = true
	for v := range more {
		then := max(0, 1-more[v]*(1-lost))
		e.throttle[v] = min(1, then/lost)
		e.held[v] = min(1, (1-lost)/(1-then))
		if then == 0 {
			e.held[v] = 0
		}
	}
}
