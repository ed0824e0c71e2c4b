package finding

import (
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// hasTooManyPs reports whether there are more Ps than work or CPUs.
func hasTooManyPs(in *Input) bool { return hasMorePsThanCPUs(in) || isSearchingForWork(in) }

// hasMorePsThanCPUs reports whether GOMAXPROCS exceeds the CPUs that the process may use, and its threads wait noticeably for a
// CPU that other threads of the process have.
func hasMorePsThanCPUs(in *Input) bool {
	if k := in.Report.Kernel; k.IsComplete() {
		return in.Report.Host != nil && in.Report.Host.Facts.Parallelism > 0 && in.Process.Procs > in.Report.Host.Facts.Parallelism && ownThreadsShare(k) >= threshold.NoticeableShare
	}
	delayShare, ok := runDelayShare(in)
	host := in.Report.Host
	return ok && delayShare >= threshold.NoticeableShare && host.Facts.Parallelism > 0 && in.Process.Procs > host.Facts.Parallelism && ownOverloadShare(host) >= 0.5
}

// ownOverloadShare estimates which share of the threads' waits for a CPU is due to the process's own threads: the waits in intervals
// of the host samples in which its threads wanted more CPU time than all its CPUs have (overloadFactor). The rest is due to other
// processes.
func ownOverloadShare(host *report.Host) float64 {
	var ownNS, allNS, last int64
	for i, d := range host.Series.RunDelayNS {
		width := d[0] - last
		last = d[0]
		if i == 0 {
			width = d[0] - host.FromNS
		}
		if allNS += d[1]; d[1] == 0 || i >= len(host.Series.CPUNS) {
			continue
		}
		if float64(host.Series.CPUNS[i][1]+d[1]) > overloadFactor*float64(host.Facts.Parallelism)*float64(width) {
			ownNS += d[1]
		}
	}
	if allNS > 0 {
		return float64(ownNS) / float64(allNS)
	}
	if host.Lost.CPUNS != nil && host.Lost.RunDelayNS != nil && float64(*host.Lost.CPUNS+*host.Lost.RunDelayNS) > overloadFactor*float64(host.Facts.Parallelism)*float64(host.ToNS-host.FromNS) {
		return 1
	}
	return 0
}

// ownThreadsShare returns the share of goroutines' running time in which their threads waited for a CPU that another thread of
// the process had, by the kernel's events.
func ownThreadsShare(k *report.Kernel) float64 {
	for _, p := range k.Processes {
		if p.Process == report.OwnThreads && k.RunningNS > 0 {
			return p.Share * float64(k.CPUWaitNS) / float64(k.RunningNS)
		}
	}
	return 0
}

// lostToOwnThreads returns the share of goroutines' running time in which their threads had no CPU because other threads of the
// process had it; 0 unless there are more Ps than CPUs. With events of the kernel it is 0 as well: there such waits are not part
// of the running time.
func lostToOwnThreads(in *Input) float64 {
	if !hasMorePsThanCPUs(in) || in.Report.Kernel.IsComplete() { // by the kernel's events running time has a CPU
		return 0
	}
	lost, _ := in.Report.Host.Lost.WithoutCPU()
	if load, hasOtherLoad := measureOtherLoad(in); hasOtherLoad {
		lost -= load.lostShare
	}
	return max(0, lost)
}

// overloadFactor is the demand for CPU time, as a multiple of all CPUs, from which the process's own threads are too
// many.
const overloadFactor = 1.05

// isSearchingForWork reports whether the scheduler's search for work takes threshold.MajorShare of the CPU samples while more
// than half of the Ps' time is idle.
func isSearchingForWork(in *Input) bool {
	s := &in.Process.Samples
	return s.All >= threshold.TailSample && float64(s.Scheduler) >= threshold.MajorShare*float64(s.All) && in.Process.Procs > 2 && psInUse(in) < 0.5
}

// checkTooManyPs is WL1005, too-many-ps: GOMAXPROCS exceeds the CPUs, so that threads of the process wait for each other, or
// exceeds the work, so that CPU time goes into the search for work. It is charged to the group that loses most, else it is a
// fact.
func checkTooManyPs(in *Input) []Verdict {
	if !hasTooManyPs(in) {
		return nil
	}
	samples := &in.Process.Samples
	v := Verdict{Fact: true, Finding: report.Finding{
		Title: textOf("title too-many-ps"), Fix: textOf("fix too-many-ps"), Cause: report.CauseSched, Confidence: 0.6,
	}}
	ownLostShare := lostToOwnThreads(in)
	if hasMorePsThanCPUs(in) {
		delayShare, _ := runDelayShare(in)
		v.Title, v.Confidence = textOf("title more-ps-than-cpus"), 0.8
		v.Fix = textOf("fix more-ps-than-cpus", "cpus", in.Report.Host.Facts.Parallelism, "ps", in.Process.Procs)
		v.addEvidence(evidenceOf("evidence process-cpus", in.Report.Host.Facts.Parallelism, "CPUs"),
			evidenceOf("evidence thread-waits", delayShare, "share"))
		if k := in.Report.Kernel; k.IsComplete() {
			v.Confidence = 1
			v.addEvidence(evidenceOf("evidence threads-without-cpu", ownThreadsShare(k), "share"))
		}
		if ownLostShare > 0 {
			v.addEvidence(evidenceOf("evidence threads-without-cpu", ownLostShare, "share"))
		}
	}
	if samples.All >= threshold.TailSample {
		v.addEvidence(evidenceOf("evidence scheduler-samples", float64(samples.Scheduler)/float64(samples.All), "share"))
	}
	v.addEvidence(evidenceOf("evidence gomaxprocs", in.Process.Procs, "Ps"),
		evidenceOf("evidence ps-in-use-now", psInUse(in), "share"))
	in.chargeLargestLoser(&v, func(c *report.Cause) float64 {
		switch c.Cause {
		case report.CauseCPU, report.CauseGCAssist:
			return ownLostShare
		case report.CauseCPUWait:
			return oneIf(c.Kind == report.OwnThreads)
		}
		return oneIf(isWake(c))
	})
	return []Verdict{v}
}
