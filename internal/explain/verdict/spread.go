package verdict

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

// demoteScatteredCPU puts one place that requests wait at before computing that has more time together, but in many short runs that
// nobody saw, at no line of which half as much is spent: the first cause is what a reader can change. Time that goes to
// waiting for a CPU is the machine's, and stays where it is.
func demoteScatteredCPU(causes []report.VerdictCause) []report.VerdictCause {
	if len(causes) < 2 || causes[0].Cause != report.CauseCPU || !isScattered(&causes[0]) {
		return causes
	}
	scattered := &causes[0]
	i := slices.IndexFunc(causes, func(c report.VerdictCause) bool {
		return isServiceWait(c.Cause) && len(c.Sites) > 0 && c.Sites[0].Site != nil && float64(c.TotalNS) >= scale.Half*float64(scattered.TotalNS) && c.Sites[0].TotalNS >= 2*scattered.Sites[0].TotalNS
	})
	if i < 0 {
		return causes
	}
	return toFront(causes, i)
}

// isServiceWait are causes at whose place something is waited for that the service asked for.
func isServiceWait(c report.CauseName) bool {
	switch c {
	case report.CauseSleep, report.CauseNetwork, report.CauseSyscall, report.CauseLock, report.CauseChan:
		return true
	}
	return false
}
