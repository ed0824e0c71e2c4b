package finding

import "github.com/whylate/whylate/report"

func clockRule() Rule {
	return Rule{
		Code: report.RuleClock, Name: "clock",
		Summary: "the trace's clock is not to be trusted",
		Doc: Doc{
			Means:    "Times in the trace contradict each other: an event before the one that must precede it. CPUs' counters that are not in step do that, in some virtual machines.",
			Measured: "Events whose times cannot be, counted while decoding; spans that would be negative are given length zero.",
			Wrong:    "A few such events in millions do not matter.",
		},
		Run: func(in *Input) []Verdict {
			texts := warned(in, "clock")
			if len(texts) == 0 {
				return nil
			}
			return doubt(report.Finding{
				Title: "times in the trace contradict each other: " + texts[0], Confidence: 1,
				Fix: "record on another machine; look at the clock source (/sys/devices/system/clocksource)",
			})
		},
	}
}
