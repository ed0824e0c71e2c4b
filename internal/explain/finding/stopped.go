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
		Summary: "a signal, a debugger or a paused container stopped the whole process",
		Doc: Doc{
			Means: "For some time no thread of the process could run, whatever it had to do: a signal (SIGSTOP, job control), a debugger, or a pause of its " +
				"container (docker pause, a checkpoint) stopped it. Requests that arrived in that time lay unread in the kernel. In the trace they begin when " +
				"the process continues, so no latency here shows what their clients waited.",
			Measured: "From host samples: the process's state, every 20 ms, and whether its cgroup is frozen. The interval is the silence of the trace around those " +
				"samples. Requests that began within 3 ms after it count as arrived in it; each lost half of the interval. Without the state there is a hint: " +
				"requests arrive at a steady rate, all of them pause several times, and each time about as many as are missing arrive at once, with odds of 1 " +
				"in 160,000 against chance. That is reported as a possibility, with low severity.",
			Before: "kill -STOP $PID; gcore $PID; docker pause ...",
			After:  "copy and checkpoint instances that get no traffic; attach debuggers elsewhere",
			Wrong: "Without host samples: a client that pauses and then catches up looks the same, and so does a quota with few freezes (WL4001). Stops of less " +
				"than 22 ms are not seen. A virtual machine that is paused together with its clock is not seen at all.",
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
		by, fix = "by a signal (SIGSTOP)", "find what sends the signal (kill -STOP, job control, gcore, a checkpoint), and do not send it to an instance that gets traffic"
	case "traced":
		by, fix = "by a debugger", "attach debuggers and tracers (gdb, delve, strace) to an instance that gets no traffic"
	case "frozen":
		by, fix = "by the freezer of its cgroup", "find what pauses the container (docker pause, a checkpoint, a snapshot), and drain the instance first"
	}
	v := Verdict{Changes: []predict.Change{}, Finding: report.Finding{
		Title: fmt.Sprintf("the process was stopped %s: %s, %s in total", by, words.Count(s.Count, "time", "times"), words.Brief(s.TotalNS)), Confidence: s.Confidence, Fix: fix,
		Evidence: []report.Evidence{
			{Text: "mean length of a stop", Value: float64(mean), Unit: "ns"},
			{Text: fmt.Sprintf("requests that arrived in that time, of %d: their latency here does not show it", s.Requests), Value: float64(s.After), Unit: "requests"},
			{Text: "requests in progress", Value: float64(s.During), Unit: "requests"},
		},
	}}
	if s.By == "" {
		v.Title = fmt.Sprintf("perhaps the process did not run: %s, %s in total", words.Count(s.Count, "time", "times"), words.Brief(s.TotalNS))
		v.Fix = "run whylate record on the service's own host: it samples the process's state"
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
