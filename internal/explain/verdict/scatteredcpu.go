package verdict

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// demoteScatteredCPU moves, in place, a wait at one site before computing that takes more time but is scattered: many short runs
// without CPU samples, at no site with half of the wait's time. The first cause should be one that the reader can change. Waits
// for a CPU are not moved, because they are the machine's.
func demoteScatteredCPU(causes []report.VerdictCause) []report.VerdictCause {
	if len(causes) < 2 || causes[0].Cause != report.CauseCPU || !isScattered(&causes[0]) {
		return causes
	}
	scattered := &causes[0]
	i := slices.IndexFunc(causes, func(c report.VerdictCause) bool {
		return isServiceWait(c.Cause) && len(c.Sites) > 0 && c.Sites[0].Site != nil && float64(c.TotalNS) >= threshold.HalfShare*float64(scattered.TotalNS) && c.Sites[0].TotalNS >= 2*scattered.Sites[0].TotalNS
	})
	if i < 0 {
		return causes
	}
	entry.MoveUp(causes, i, 0)
	return causes
}

// isServiceWait reports whether time of a cause is a wait that the service's own code requested.
func isServiceWait(c report.CauseName) bool {
	switch c {
	case report.CauseSleep, report.CauseNetwork, report.CauseSyscall, report.CauseLock, report.CauseChan, report.CauseQueue:
		return true
	}
	return false
}
