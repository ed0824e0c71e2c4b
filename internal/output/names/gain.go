package names

import (
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// IsUnsureGain reports whether the range of a predicted latency includes the latency before the change.
func IsUnsureGain(beforeNS int64, e *report.Estimate) bool {
	return e.Low < beforeNS && beforeNS <= e.High
}

// UnsureGain returns the words for the prediction of an unsure gain.
func UnsureGain(e *report.Estimate) string {
	if e.Low == 0 {
		return "at most " + words.Rough(e.High) + ", perhaps no gain"
	}
	return words.Rough(e.Low) + " to " + words.Rough(e.High) + ", perhaps no gain"
}
