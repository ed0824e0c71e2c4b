package finding

import "github.com/whylate/whylate/report"

func clockRule() Rule {
	return Rule{
		Code: report.RuleClock, Name: "clock",
		Summary: "the trace's clock is unreliable",
		Doc: Doc{
			Means: "Times in the trace contradict each other: an event is earlier than one that must precede it. In some virtual machines the CPUs' counters are " +
				"out of step and cause this.",
			Measured: "The decoder counts events with impossible times, and gives spans that would be negative the length zero.",
			Wrong:    "A few such events in millions do not matter.",
		},
		Run: func(in *Input) []Verdict {
			texts := warned(in, "clock")
			if len(texts) == 0 {
				return nil
			}
			return doubt(report.Finding{
				Title: "times in the trace contradict each other: " + texts[0], Confidence: 1,
				Fix: "record on another machine; check the clock source (/sys/devices/system/clocksource)",
			})
		},
	}
}
