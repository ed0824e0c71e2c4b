package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

func stoppedRule() Rule {
	return Rule{
		Code: report.RuleStopped, Name: "stopped",
		Summary: "something held the whole process: a signal, a debugger, a paused container",
		Doc: Doc{
			Means: "For some time no thread of the process might run, whatever it had to do: it was stopped by a signal (SIGSTOP, job control), by a debugger, or with its container (docker pause, a checkpoint). " +
				"Requests that came meanwhile lay unread in the kernel. For the trace they begin when the process goes on, so no latency here shows what their clients waited.",
			Measured: "From host samples: the process's state, every 20 ms, and whether its cgroup is frozen. The interval is the silence of the trace around those samples. Requests that began within 3 ms after it are taken to have come " +
				"meanwhile; what they lost is half of the interval each. Without the state there is a hint: requests come at a steady rate, all of them pause several times, and each time about as many as are missing " +
				"come at once, with odds of 1 in 160,000 against chance. It is reported as perhaps, with low severity.",
			Before: "kill -STOP $PID; gcore $PID; docker pause ...",
			After:  "take copies and checkpoints of instances that get no traffic; attach debuggers elsewhere",
			Wrong: "Without host samples: a client that pauses and makes up for what it missed looks the same; a quota with few freezes does, too (WL4001). Stops of less than 22 ms are not seen. A virtual machine that is paused with its clock is not " +
				"seen at all.",
		},
		Run: stopped,
	}
}

func stopped(in *Input) []Verdict {
	s := in.Report.Runtime.Stops
	if s == nil || s.Count == 0 {
		return nil
	}
	mean := s.TotalNS / int64(s.Count)
	by, fix := "", ""
	switch s.By {
	case "stopped":
		by, fix = "by a signal (SIGSTOP)", "find out who sends the signal (kill -STOP, job control, gcore, a checkpoint), and keep it from an instance that gets traffic"
	case "traced":
		by, fix = "by a debugger", "attach debuggers and tracers (gdb, delve, strace) to an instance that gets no traffic"
	case "frozen":
		by, fix = "by the freezer of its cgroup", "find out who pauses the container (docker pause, a checkpoint, a snapshot), and take it out of the traffic before"
	}
	v := Verdict{Changes: []predict.Change{}, Finding: report.Finding{
		Title: fmt.Sprintf("the process was held %s: %s, %s in all", by, words.Count(s.Count, "time", "times"), words.Brief(s.TotalNS)), Confidence: s.Confidence, Fix: fix,
		Evidence: []report.Evidence{
			{Text: "an interval, on average", Value: float64(mean), Unit: "ns"},
			{Text: fmt.Sprintf("of %d requests, those that came meanwhile: their latency here does not show it", s.Requests), Value: float64(s.After), Unit: "requests"},
			{Text: "requests that were under way", Value: float64(s.During), Unit: "requests"},
		},
	}}
	if s.By == "" {
		v.Title = fmt.Sprintf("perhaps the process did not run: %s, %s in all", words.Count(s.Count, "time", "times"), words.Brief(s.TotalNS))
		v.Fix = "record with whylate record on the service's own host: the process's state tells"
		v.Evidence = append(v.Evidence, report.Evidence{Text: s.How})
		v.Severe = report.SeverityLow
		return []Verdict{v}
	}
	hit := int64(s.After + s.During)
	if hit == 0 {
		v.Fact = true
		return []Verdict{v}
	}
	// Who came meanwhile came at any time of the interval.
	lost, spent := int64(s.After)*mean/2+int64(s.During)*mean, int64(0)
	for i := range in.Report.Groups {
		if g := &in.Report.Groups[i]; g.Role == report.RoleRequests {
			spent += g.TotalNS
		}
	}
	all := int64(max(s.Requests, 1))
	v.Won = Won{TotalNS: lost, All: Lost{Share: float64(lost) / float64(lost+spent), NS: lost / all}, SlowNS: lost / hit, SlowFew: areFew(int(hit), s.Requests)}
	v.Won.SlowShare = float64(v.Won.SlowNS) / float64(v.Won.SlowNS+spent/all)
	return []Verdict{v}
}
