package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

func fewProcsRule() Rule {
	return Rule{
		Code: report.RuleTooFewPs, Name: "too-few-ps",
		Summary: "requests wait for a P while the machine has free CPUs",
		Doc: Doc{
			Means: "All Ps are busy and requests queue for them, but the process may use more CPUs than it has Ps, and its threads got a CPU at once when they " +
				"wanted one: GOMAXPROCS limits the service.",
			Measured: "Requests' waits for a P (causes sched, sched-poll) as in WL1002, where the Ps were in use for at least 85 % of the trace. Host samples must " +
				"say that the process may run on more CPUs than GOMAXPROCS, by affinity and by quota, and that its threads waited for a CPU for less than 10 " +
				"% of their busy time. Without host samples in the recording the rule is silent.",
			Before: "GOMAXPROCS=1 # set once, for a container of another size",
			After:  "# unset it: Go 1.25 and later follow the limit; before that import service/auto",
			Wrong:  "If the other CPUs are meant for other processes that were idle during the recording.",
		},
		Run: func(in *Input) []Verdict {
			var out []Verdict
			eachQueue(in, report.RuleTooFewPs, func(q *queue) {
				f := &in.Report.Host.Facts
				may := mayUse(f)
				evidence := []report.Evidence{
					{Text: "GOMAXPROCS", Value: float64(in.Process.Procs), Unit: "Ps"},
					{Text: "CPUs available to the process", Value: may, Unit: "CPUs"},
					q.waited(),
					{Text: "Ps in use over the whole trace", Value: busy(in), Unit: "share"},
				}
				out = append(out, Verdict{Won: q.won, Changes: q.changes(), Finding: report.Finding{
					Title: fmt.Sprintf("requests wait for a P: GOMAXPROCS is %d, but %s are available", in.Process.Procs, words.CPUs(may)),
					Cause: report.CauseSched, Site: q.takers[0].site, Group: q.g.ID, Share: q.share, Confidence: 0.8, Evidence: append(evidence, ranEvidence(q.takers)...),
					Fix: "leave GOMAXPROCS to the runtime (Go 1.25 and later), or set it from the limit: whylate limits",
				}})
			})
			return out
		},
	}
}

// mayUse returns how many CPUs the process may use, 0 if that is not known.
func mayUse(f *report.HostFacts) float64 {
	may := float64(f.Parallelism)
	if may == 0 {
		may = float64(f.CPUs)
	}
	if f.QuotaCPUs > 0 && (may == 0 || f.QuotaCPUs < may) {
		may = f.QuotaCPUs
	}
	return may
}

// delayed returns for which part of their busy time the process's threads waited for a CPU, by the kernel; false if that is not
// known.
func delayed(in *Input) (float64, bool) {
	h := in.Report.Host
	if h == nil || h.Lost.RunDelayNS == nil || h.Lost.BusyNS == nil || *h.Lost.BusyNS <= 0 {
		return 0, false
	}
	return float64(*h.Lost.RunDelayNS) / float64(*h.Lost.BusyNS), true
}

// tooFew reports whether Ps are what there is too little of.
func tooFew(in *Input) bool {
	d, known := delayed(in)
	return known && d < scale.Some && busy(in) >= scale.Most && float64(in.Process.Procs)+1 <= mayUse(&in.Report.Host.Facts)
}
