package finding

import "github.com/whylate/whylate/report"

func manyProcsRule() Rule {
	return Rule{
		Code: "WL1005", Name: "too-many-ps",
		Summary: "more Ps than the CPU there is: threads spend it looking for work",
		Doc: Doc{
			Means: "GOMAXPROCS is larger than the CPUs that the process really gets, or than it has work for. Each P that runs out of work searches all others before it sleeps, and has a thread " +
				"woken for the next goroutine; with many of them that search takes a good part of the CPU, and threads wait for each other in the kernel.",
			Measured: "The share of CPU samples in the scheduler (schedule, findRunnable, stealWork, wakep, futex) is at least 25 %, of at least 100 samples, with more than two Ps of which goroutines used " +
				"less than half. The cost in latency is what requests waited for a thread to wake up (cause sched-wake); where that is little it is reported as a fact.",
			Before: "// container with cpu limit 2 on a host with 32 CPUs, Go before 1.25: GOMAXPROCS is 32",
			After:  "import _ \"github.com/whylate/whylate/service/auto\" // or GOMAXPROCS=2 in the environment",
			Wrong: "Without CPU samples in the trace it is silent. A service that mostly waits and does very little for each message spends its CPU in the scheduler with any number of Ps; " +
				"compare runs with fewer: whylate sweep.",
		},
		Run: manyProcs,
	}
}

// Bounds of WL1005.
const (
	fewestSamples = 100
	inScheduler   = 0.25
)

// tooMany reports whether there are more Ps than there is work or CPU for.
func tooMany(in *Input) bool {
	s := &in.Census.Samples
	return s.All >= fewestSamples && float64(s.Scheduler) >= inScheduler*float64(s.All) && in.Census.Procs > 2 && busy(in) < 0.5
}

func manyProcs(in *Input) []Verdict {
	if !tooMany(in) {
		return nil
	}
	s := &in.Census.Samples
	v := Verdict{Fact: true, Finding: report.Finding{
		Title: "much of the CPU goes into the search for work: there are more Ps than CPU or work", Cause: "sched", Confidence: 0.6,
		Evidence: []report.Evidence{
			{Text: "CPU samples in the scheduler", Value: float64(s.Scheduler) / float64(s.All), Unit: "share"},
			{Text: "Ps", Value: float64(in.Census.Procs), Unit: "count"},
			{Text: "Ps in use", Value: busy(in), Unit: "share"},
		},
		Fix: "set GOMAXPROCS to the CPU limit, or lower, and compare: whylate sweep, whylate limits",
	}}
	for i := range in.Report.Groups {
		g := &in.Report.Groups[i]
		share, won := Weigh(g, isWake)
		if won.TotalNS <= v.Won.TotalNS {
			continue
		}
		if w := (Verdict{Won: won}); severity(&w) != "" {
			v.Won, v.Fact, v.Group, v.Share = won, false, g.ID, share
		}
	}
	return []Verdict{v}
}
