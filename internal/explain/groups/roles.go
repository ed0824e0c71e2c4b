package groups

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/report"
)

// probeFactor is by how many times a process's own work must exceed, in count and time, a server's requests, for these to be
// probes.
const (
	// probeFactor decides when a server's requests are probes: the process's own work exceeds them by this factor, in number
	// and in time.
	probeFactor = 20
)

// SortByRole sets the role of each group and sorts the groups: first work that a client or goroutine waits for, the most time
// first; then background work; then monitoring. isTimerStarted reports whether a timer started most of a group's work.
func SortByRole(rows []Row, duration time.Duration, isTimerStarted func(*Row) bool) {
	var servedTotals, workTotals, maxTotals report.Group // counts and times alone
	hasOther, tasks := false, 0
	for row := range entry.Each(rows) {
		switch {
		case isOwnWork(row.kind):
			workTotals.Count += row.Count
			workTotals.TotalNS += row.TotalNS
			hasOther = true
			if !isIdleTicker(row, isTimerStarted) {
				tasks += row.Count
			}
		case isMonitoring(row.Name):
			row.Role = report.RoleMonitoring
			continue
		default:
			servedTotals.Count += row.Count + row.Open.Count
			servedTotals.TotalNS += row.TotalNS
			hasOther = true
		}
		maxTotals.TotalNS = max(maxTotals.TotalNS, row.TotalNS)
	}
	probes := float64(servedTotals.Count) < threshold.SmallSample*max(duration.Seconds(), 1) &&
		workTotals.Count >= probeFactor*servedTotals.Count && workTotals.TotalNS >= probeFactor*servedTotals.TotalNS
	for row := range entry.Each(rows) {
		switch {
		case row.Role == report.RoleMonitoring:
			if !hasOther {
				row.Role = ""
			}
		case isOwnWork(row.kind) && servedTotals.Count > 0 && !probes &&
			(isTimerStarted(row) || float64(row.TotalNS) < threshold.NoiseShare*float64(maxTotals.TotalNS)):
			row.Role = report.RoleBackground
		case tasks >= threshold.MedianSample && isIdleTicker(row, isTimerStarted):
			row.Role = report.RoleBackground
		case !isOwnWork(row.kind) && probes:
			row.Role = report.RoleMonitoring
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(roleRank(a.Role), roleRank(b.Role)), cmp.Compare(b.TotalNS, a.TotalNS), cmp.Compare(a.ID, b.ID))
	})
}

// isIdleTicker reports whether a group consists of iterations of a loop that only check, when a timer fires, whether there is
// work: their mean working time is at most threshold.IdleCheckNS. Nothing waits for them.
func isIdleTicker(row *Row, isTimerStarted func(*Row) bool) bool {
	if row.kind != request.Loop || row.Count == 0 || len(row.Bands) == 0 || !isTimerStarted(row) {
		return false
	}
	workNS := int64(0)
	for i := range row.All().Causes {
		switch c := &row.All().Causes[i]; c.Cause {
		case report.CauseSched, report.CauseSchedWake, report.CauseSchedPoll, report.CauseThrottle, report.CauseSTW,
			report.CauseGCAssist, report.CauseGCWait:
		default:
			workNS += c.TotalNS
		}
	}
	return workNS <= threshold.IdleCheckNS*int64(row.Count)
}

// roleRank returns the position of a role in the report's order.
func roleRank(r report.Role) int { return slices.Index(report.Roles(), r) }

// isOwnWork reports whether requests of a kind are the process's own work, for which no client waits.
func isOwnWork(k request.Kind) bool { return k == request.Goroutine || k == request.Loop }

// isMonitoring reports whether a handler serves metrics or health checks, by its role or by the last words of its name.
func isMonitoring(handler string) bool {
	if knowledge.Has(handler, knowledge.Monitoring) {
		return true
	}
	name := handler[strings.LastIndexByte(handler, '/')+1:]
	// The last part of the name that is no closure, without usual parts of handlers' names.
	parts := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune(".()*", r) })
	for len(parts) > 1 && (strings.HasPrefix(parts[len(parts)-1], "func") || parts[len(parts)-1] == "ServeHTTP" ||
		isDigits(parts[len(parts)-1])) {
		parts = parts[:len(parts)-1]
	}
	if len(parts) < 2 {
		return false
	}
	last := strings.ToLower(strings.TrimSuffix(parts[len(parts)-1], "-fm"))
	for _, cut := range []string{"handler", "handle", "check", "probe", "get", "serve", "_"} {
		last = strings.TrimSuffix(strings.TrimPrefix(last, cut), cut)
	}
	switch last {
	case "health", "healthz", "ready", "readyz", "readiness", "live", "livez", "liveness", "metrics", "metricz":
		return true
	}
	return false
}

func isDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }
