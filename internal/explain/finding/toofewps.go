package finding

import (
	"cmp"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkTooFewPs is WL1006, too-few-ps: requests wait for a P while the machine has free CPUs, because GOMAXPROCS is lower than
// the CPUs that the process may use. runQueueWaitOf decided that the wait belongs to this rule.
func checkTooFewPs(in *Input, wait *runQueueWait) []Verdict {
	cpus := usableCPUs(&in.Report.Host.Facts)
	v := wait.newVerdict(wait.occupants[0].site, 0.8)
	v.Title, v.Fix = textOf("title too-few-ps", "ps", in.Process.Procs, "cpus", words.CPUs(cpus)), textOf("fix too-few-ps")
	v.addEvidence(evidenceOf("evidence gomaxprocs", in.Process.Procs, "Ps"), evidenceOf("evidence available-cpus", cpus, "CPUs"))
	wait.addWaitEvidence(&v)
	v.addEvidence(evidenceOf("evidence ps-in-use", psInUse(in), "share"))
	v.addEvidence(occupantEvidence(wait.occupants)...)
	return []Verdict{v}
}

// usableCPUs returns how many CPUs the process may use, by its affinity and its quota; 0 if that is not known.
func usableCPUs(facts *report.HostFacts) float64 {
	cpus := cmp.Or(float64(facts.Parallelism), float64(facts.CPUs))
	if facts.QuotaCPUs > 0 && (cpus == 0 || facts.QuotaCPUs < cpus) {
		cpus = facts.QuotaCPUs
	}
	return cpus
}

// runDelayShare returns the time that the process's threads waited for a CPU, by the kernel's counters, as a share of the
// goroutines' running time; false if it is not known.
func runDelayShare(in *Input) (share float64, ok bool) {
	host := in.Report.Host
	if host == nil || host.Lost.RunDelayNS == nil || host.Lost.BusyNS == nil || *host.Lost.BusyNS <= 0 {
		return 0, false
	}
	return float64(*host.Lost.RunDelayNS) / float64(*host.Lost.BusyNS), true
}

// hasTooFewPs reports whether GOMAXPROCS limits the process: the Ps are mostly in use, threads hardly wait for CPUs, and the
// process may use at least one CPU more than it has Ps.
func hasTooFewPs(in *Input) bool {
	delay, ok := runDelayShare(in)
	return ok && in.Process.Procs > 0 && delay < threshold.NoticeableShare && psInUse(in) >= threshold.MostShare && float64(in.Process.Procs)+1 <= usableCPUs(&in.Report.Host.Facts)
}
