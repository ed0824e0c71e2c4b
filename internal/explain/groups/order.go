package groups

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

// Bounds on what stands beside the requests of a server.
const (
	farMore = 20
)

// Order gives groups their roles and brings them into order: first what somebody
// waits for, those of the most time first; then what the process does by itself;
// then what watches it. byTimer says of work whether a timer began most of it.
func Order(rows []Row, lasted time.Duration, byTimer func(*Row) bool) {
	var served, work, top report.Group // counts and times alone
	others, tasks := false, 0
	for i := range rows {
		r := &rows[i]
		switch {
		case isWork(r.kind):
			work.Count += r.Count
			work.TotalNS += r.TotalNS
			others = true
			if !ticks(r, byTimer) {
				tasks += r.Count
			}
		case isMonitoring(r.Name):
			r.Role = report.RoleMonitoring
			continue
		default:
			served.Count += r.Count + r.Open.Count
			served.TotalNS += r.TotalNS
			others = true
		}
		top.TotalNS = max(top.TotalNS, r.TotalNS)
	}
	probes := float64(served.Count) < scale.Few*max(lasted.Seconds(), 1) && work.Count >= farMore*served.Count && work.TotalNS >= farMore*served.TotalNS
	for i := range rows {
		r := &rows[i]
		switch {
		case r.Role == report.RoleMonitoring:
			if !others {
				r.Role = ""
			}
		case isWork(r.kind) && served.Count > 0 && !probes && (byTimer(r) || float64(r.TotalNS) < scale.Speck*float64(top.TotalNS)):
			r.Role = report.RoleBackground
		case tasks >= scale.Enough && ticks(r, byTimer):
			r.Role = report.RoleBackground
		case !isWork(r.kind) && probes:
			r.Role = report.RoleMonitoring
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(roleRank(a.Role), roleRank(b.Role)), cmp.Compare(b.TotalNS, a.TotalNS), cmp.Compare(a.ID, b.ID))
	})
}

// ticks reports whether turns of a loop only look, when a timer says so, whether
// there is something to do: nobody waits for that, however many they are and however
// late they run.
func ticks(r *Row, byTimer func(*Row) bool) bool {
	if r.kind != request.Loop || r.Count == 0 || len(r.Bands) == 0 || !byTimer(r) {
		return false
	}
	did := int64(0)
	for i := range r.All().Causes {
		switch c := &r.All().Causes[i]; c.Cause {
		case report.CauseSched, report.CauseSchedWake, report.CauseSchedPoll, report.CauseThrottle, report.CauseSTW, report.CauseGCAssist, report.CauseGCWait:
		default:
			did += c.TotalNS
		}
	}
	return did <= scale.Turn*int64(r.Count)
}

func roleRank(r report.Role) int { return slices.Index(report.Roles(), r) }

func isWork(k request.Kind) bool { return k == request.Goroutine || k == request.Loop }

// isMonitoring reports whether a handler is there for those who watch the
// process: its metrics, whether it lives.
func isMonitoring(handler string) bool {
	path, name := "", handler
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		path, name = name[:i], name[i+1:]
	}
	pkg, _, _ := strings.Cut(name, ".")
	switch pkg {
	case "promhttp", "expvar", "pprof", "healthz", "grpc_health_v1":
		return true
	case "health":
		return strings.HasPrefix(path, "google.golang.org/grpc")
	}
	// The last part that is no closure, without what handlers are called.
	parts := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune(".()*", r) })
	for len(parts) > 1 && (strings.HasPrefix(parts[len(parts)-1], "func") || parts[len(parts)-1] == "ServeHTTP" || isDigits(parts[len(parts)-1])) {
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
