package finding

import (
	"strings"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// An otherLoad is what the CPU use of other processes of the machine cost the service's threads.
type otherLoad struct {
	waitShare  float64 // share of the threads' runnable time in which they waited for a CPU that other processes used
	wakeShare  float64 // share of the time from a thread's wake-up until it ran that is due to other processes
	lostShare  float64 // minimum share of goroutines' running time in which other processes had the CPU
	cpus       float64 // CPUs that other processes used, on average; 0 if not known
	confidence float64
	isObserved bool // by the kernel's events: running time has a CPU, and waits for one are a cause
}

// measureOtherLoad estimates from the kernel's counters what the CPU use of other processes cost the service's threads. It
// returns false if threads hardly waited for CPUs, or if the service's own threads, or a quota, explain the waits. With events of
// the kernel it is exact (observedLoad). Without the machine's total CPU time it assumes that other processes used all that the
// service left, and demands twice as much waiting.
func measureOtherLoad(in *Input) (result otherLoad, ok bool) {
	if k := in.Report.Kernel; k.IsComplete() {
		return observedLoad(k)
	}
	host := in.Report.Host
	if host == nil || host.Lost.BusyNS == nil || host.Lost.CPUNS == nil || host.Lost.RunDelayNS == nil || *host.Lost.BusyNS <= 0 {
		return otherLoad{}, false
	}
	lost, span := &host.Lost, float64(host.ToNS-host.FromNS)
	waitedNS := float64(*lost.RunDelayNS)
	switch {
	case lost.RunQueueNS != nil:
		waitedNS = float64(*lost.RunQueueNS)
	case lost.QuotaNS != nil && *lost.QuotaNS > 0:
		return otherLoad{}, false
	}
	longShare := 1.0 // share of long waits; even with idle CPUs a woken thread waits for a moment
	if d := lost.LongDelayNS; d != nil && *lost.RunDelayNS > 0 {
		longShare = min(1, float64(*d)/float64(*lost.RunDelayNS))
		waitedNS *= longShare
	}
	if waitedNS < threshold.NoticeableShare*max(float64(*lost.BusyNS), threshold.SampledRunNS) || span <= 0 {
		return otherLoad{}, false
	}
	load := otherLoad{waitShare: waitedNS / (waitedNS + float64(*lost.CPUNS)), confidence: 0.9}
	withoutCPU, _ := lost.WithoutCPU()
	capacityNS := float64(host.Facts.CPUs) * span
	// A thread that waits for a CPU waits for all threads that use the CPUs. The service's own threads account for their part
	// of that use.
	othersPart := 1.0
	if lost.MachineNS == nil || host.Facts.CPUs == 0 {
		if throttledShare(in.Report) >= threshold.HalfShare {
			return otherLoad{}, false // threads that a quota releases at the same time wait for each other for an unknown time
		}
		load.confidence = 0.7
		if capacityNS > 0 {
			othersPart = max(0, 1-float64(*lost.CPUNS)/capacityNS) // an upper bound: other processes had at most the rest
		}
		load.waitShare, load.wakeShare, load.lostShare = othersPart*load.waitShare, othersPart*longShare, othersPart*withoutCPU
		return load, host.Facts.Parallelism > 0 && in.Process.Procs <= host.Facts.Parallelism && othersPart*waitedNS >= 2*threshold.NoticeableShare*float64(*lost.BusyNS) && load.lostShare >= threshold.NoticeableShare
	}
	othersNS := max(0, float64(*lost.MachineNS-*lost.CPUNS))
	load.cpus = othersNS / span
	if othersNS > 0 {
		othersPart = othersNS / (othersNS + float64(*lost.CPUNS))
	}
	load.waitShare, load.wakeShare, load.lostShare = othersPart*load.waitShare, othersPart*longShare, othersPart*withoutCPU
	isFull := othersNS+float64(*lost.CPUNS)+waitedNS >= threshold.NearlyAllShare*capacityNS || lost.PressureNS != nil && float64(*lost.PressureNS) >= threshold.MajorShare*span
	if hasMorePsThanCPUs(in) { // threads wait for the service's own threads, unless the machine has no CPU left
		isFull = othersNS+float64(*lost.CPUNS) >= threshold.NearlyAllShare*capacityNS
	}
	return load, isFull && othersNS >= threshold.MajorShare*capacityNS && othersPart*waitedNS >= threshold.NoticeableShare*float64(*lost.BusyNS)
}

// observedLoad returns the load of other processes according to the kernel's scheduling events: the waits of the service's
// threads for a CPU, without those for the service's own threads. It returns false if other processes took less than
// threshold.MinorShare of the goroutines' running time.
func observedLoad(k *report.Kernel) (result otherLoad, ok bool) {
	if k.RunningNS <= 0 || k.CPUNS+k.CPUWaitNS <= 0 {
		return otherLoad{}, false
	}
	othersNS := float64(k.CPUWaitNS)
	for _, p := range k.Processes {
		if p.Process == report.OwnThreads {
			othersNS -= p.Share * float64(k.CPUWaitNS)
		}
	}
	load := otherLoad{waitShare: othersNS / float64(k.CPUNS+k.CPUWaitNS), lostShare: othersNS / float64(k.RunningNS), confidence: 1, isObserved: true}
	return load, load.lostShare >= threshold.MinorShare
}

// doubtPreempted lowers the confidence in a verdict about work under a lock or for a queue, if slow requests waited for it at a few
// moments only while other processes used the CPUs, and it would be less severe without the time that its thread may have had none.
func (in *Input) doubtPreempted(v *Verdict) {
	g := in.Report.Group(v.Group)
	if g == nil || v.Cause != report.CauseCPU || v.Code != report.RuleLockConvoy && v.Code != report.RulePoolTooSmall {
		return
	}
	if moments, isKnown := in.OutlierMoments[v.Group]; !isKnown || !areTooRare(moments, g.Count) {
		return
	}
	load, hasOtherLoad := measureOtherLoad(in)
	if !hasOtherLoad {
		return
	}
	rest := *v
	rest.Gain = v.Gain.scaled(1 - load.waitShare)
	if severity, _ := in.decideSeverity(&rest); severity != v.Severity {
		v.doubt(v.Confidence*(1-load.waitShare), textOf("phrase doubt-preempted", "share", words.Percent(load.waitShare)))
		v.DoubtedBy = report.RuleBusyMachine
	}
}

// isOthersCPU reports whether a cause is a wait for a CPU that another process had.
func isOthersCPU(c *report.Cause) bool {
	return c.Cause == report.CauseCPUWait && c.Kind != "" && c.Kind != report.OwnThreads
}

// observedCPUWaits returns a verdict on each group whose requests waited for a CPU that another process had, as the kernel's
// events show. The title names the process that slow requests waited for longest.
func observedCPUWaits(in *Input, load *otherLoad) (out []Verdict) {
	for g := range each(in.Report.Groups) {
		share, gain := gainWithout(g, isOthersCPU)
		if gain.TotalNS == 0 {
			continue
		}
		nsByProcess, largest := map[string]int64{}, ""
		for c := range each(g.Tail().Causes) {
			if isOthersCPU(c) {
				if nsByProcess[c.Kind] += c.TotalNS; nsByProcess[c.Kind] > nsByProcess[largest] {
					largest = c.Kind
				}
			}
		}
		for c := range each(g.All().Causes) {
			if largest == "" && isOthersCPU(c) {
				largest = c.Kind
			}
		}
		fix := textKey("fix busy-machine")
		if strings.HasPrefix(largest, report.KernelThread) {
			fix = "fix kernel-thread"
		}
		v := Verdict{Gain: gain, Finding: report.Finding{
			Title: textOf("title cpu-of-others", "time", words.Brief(gain.Slow.NS), "process", largest), Fix: textOf(fix, "process", largest),
			Cause: report.CauseCPUWait, Site: topSite(g, isOthersCPU), Group: g.ID, Share: share, Confidence: 1,
		}}
		v.addSlowEvidence(evidenceOf("evidence cpu-of-others", gain.Slow.NS, "ns"))
		v.addEvidence(evidenceOf("evidence running-without-cpu", load.lostShare, "share"))
		for k, p := range in.Report.Kernel.Processes {
			if k < 3 && p.Process != report.OwnThreads && p.Share >= threshold.MinorShare {
				v.addEvidence(evidenceOf("evidence had-the-cpu", p.Share, "share", "process", p.Process))
			}
		}
		out = append(out, v)
	}
	return out
}

// checkBusyMachine is WL1009, busy-machine: the service's threads wait for CPUs that other processes of the machine use. Without
// the kernel's events it is one verdict about the process, charged to the group that loses most.
func checkBusyMachine(in *Input) []Verdict {
	load, ok := measureOtherLoad(in)
	if !ok {
		return nil
	}
	if load.isObserved {
		return observedCPUWaits(in, &load)
	}
	host := in.Report.Host
	v := Verdict{Fact: true, Finding: report.Finding{
		Title: textOf("title busy-machine", "share", words.Percent(load.waitShare)), Fix: textOf("fix busy-machine", "process", textOf("phrase other-processes")),
		Cause: report.CauseSched, Confidence: load.confidence,
		Evidence: []report.Evidence{
			evidenceOf("evidence waits-for-used-cpus", load.waitShare, "share"),
			evidenceOf("evidence machine-cpus", host.Facts.CPUs, "CPUs"),
			evidenceOf("evidence service-cpus", float64(*host.Lost.CPUNS)/float64(host.ToNS-host.FromNS), "CPUs"),
		},
	}}
	if load.lostShare > 0 {
		v.addEvidence(evidenceOf("evidence lost-to-other-processes", load.lostShare, "share"))
	}
	if load.cpus > 0 {
		v.addEvidence(evidenceOf("evidence other-cpus", load.cpus, "CPUs"))
	}
	if p := host.Lost.PressureNS; p != nil {
		v.addEvidence(evidenceOf("evidence cpu-pressure", min(1, float64(*p)/float64(host.ToNS-host.FromNS)), "share"))
	}
	in.chargeLargestLoser(&v, func(c *report.Cause) float64 {
		switch c.Cause {
		case report.CauseCPU, report.CauseGCAssist, report.CauseSched, report.CauseSchedPoll:
			return load.lostShare
		case report.CauseSchedWake:
			return load.wakeShare
		}
		return 0
	})
	return []Verdict{v}
}
