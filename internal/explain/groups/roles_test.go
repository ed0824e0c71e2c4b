package groups

import (
	"testing"
	"time"

	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

func TestIsMonitoring(t *testing.T) {
	for name, want := range map[string]bool{
		"github.com/prometheus/client_golang/prometheus/promhttp.HandlerForTransactional.func1": true,
		"main.healthz":                                                    true,
		"main.(*server).handleHealth":                                     true,
		"main.(*server).ReadinessProbe":                                   true,
		"main.(*server).metricsHandler.func1":                             true,
		"main.(*health).ServeHTTP":                                        true,
		"google.golang.org/grpc/health.(*Server).Check":                   true,
		"sigs.k8s.io/controller-runtime/pkg/healthz.(*Handler).ServeHTTP": true,
		"expvar.Handler":                                                  true,
		"example.com/clinic/health.(*Records).List":                       false, // a package of the service
		"github.com/VictoriaMetrics/metrics.(*Store).Ingest":              false,
		"main.(*board).show":                                              false,
		"main.main.func2":                                                 false,
		"health":                                                          false, // a task's name
		"HTTP/1 handlers that the trace does not name":                    false,
	} {
		check.Equal(t, isMonitoring(name), want, "%s", name)
	}
}

// TestSortByRole: work that a client or a goroutine waits for comes first, background work of timers next, monitoring last.
// Time alone would order each process of the table wrongly.
func TestSortByRole(t *testing.T) {
	type g struct {
		name  string
		kind  request.Kind
		count int
		ns    int64
		timer bool
	}
	const ms = 1_000_000
	for name, c := range map[string]struct {
		groups []g
		want   []string // names and roles
	}{
		"tickers in a server": {
			[]g{{"main.tick", request.Loop, 12000, 300_000 * ms, true}, {"main.serve", request.HTTP1, 150, 900 * ms, false}},
			[]string{"main.serve", "", "main.tick", "background"}},
		"a DNS server that is scraped": {
			[]g{{"dns.serve", request.Goroutine, 1000, 30 * ms, false}, {"promhttp.serve", request.HTTP1, 10, 90 * ms, false}},
			[]string{"dns.serve", "", "promhttp.serve", "monitoring"}},
		"a checker whose probes show no handler": {
			[]g{{"main.check", request.Loop, 20000, 90_000 * ms, true}, {"HTTP/1 handlers that the trace does not name", request.HTTP1, 10, 9 * ms, false}},
			[]string{"main.check", "", "HTTP/1 handlers that the trace does not name", "monitoring"}},
		"a queue's consumer in a server": {
			[]g{{"main.serve", request.HTTP1, 1000, 900 * ms, false}, {"main.consume", request.Loop, 1000, 1500 * ms, false}},
			[]string{"main.consume", "", "main.serve", ""}},
		"nothing but probes": {
			[]g{{"main.healthz", request.HTTP1, 10, 9 * ms, false}},
			[]string{"main.healthz", ""}},
		"a flusher with hardly any work": {
			[]g{{"main.flush", request.Loop, 100, 1 * ms, false}, {"main.serve", request.HTTP1, 100, 900 * ms, false}},
			[]string{"main.serve", "", "main.flush", "background"}},
	} {
		var rows []Row
		timer := map[string]bool{}
		for _, g := range c.groups {
			rows = append(rows, Row{Group: report.Group{ID: g.name, Name: g.name, Count: g.count, TotalNS: g.ns}, kind: g.kind})
			timer[g.name] = g.timer
		}
		SortByRole(rows, 10*time.Second, func(r *Row) bool { return timer[r.Name] })
		for i := range rows {
			check.True(t, rows[i].Name == c.want[2*i] && string(rows[i].Role) == c.want[2*i+1],
				"%s: row %d is %s, %q; want %s, %q", name, i+1, rows[i].Name, rows[i].Role, c.want[2*i], c.want[2*i+1])
		}
	}
}

// TestRowText: different causes have different texts, so that rows of equal time have one order, independent of the order in
// which they were found. It fails if two reports of one trace differ.
func TestRowText(t *testing.T) {
	site := func(fn, file string, line int) *report.Site { return &report.Site{Func: fn, File: file, Line: line} }
	calledSite := site("main.a", "a.go", 1)
	calledSite.CalledFrom = &report.Caller{Func: "main.b", File: "b.go", Line: 2}
	via := func(wait report.WaitKind, site *report.Site, call string) []report.Via {
		return []report.Via{{Wait: wait, Site: site, Call: call}}
	}
	rowByText := map[string]int{}
	for i, c := range []report.Cause{
		{Cause: report.CauseCPU},
		{Cause: report.CauseSleep},
		{Cause: report.CauseCPU, Site: site("main.a", "a.go", 1)},
		{Cause: report.CauseCPU, Site: site("main.b", "a.go", 1)},
		{Cause: report.CauseCPU, Site: site("main.a", "b.go", 1)},
		{Cause: report.CauseCPU, Site: site("main.a", "a.go", 2)},
		{Cause: report.CauseCPU, Site: calledSite},
		{Cause: report.CauseCPU, Site: site("main.a", "a.go", 1), SiteFrom: "sample"},
		{Cause: report.CauseNetwork, Site: site("main.a", "a.go", 1), Kind: "inbound"},
		{Cause: report.CauseNetwork, Site: site("main.a", "a.go", 1), Kind: "outbound"},
		{Cause: report.CauseCPU, Site: site("main.a", "a.go", 1), Via: via("lock", site("main.c", "c.go", 3), "")},
		{Cause: report.CauseCPU, Site: site("main.a", "a.go", 1), Via: via("chan", site("main.c", "c.go", 3), "")},
		{Cause: report.CauseCPU, Site: site("main.a", "a.go", 1), Via: via("lock", site("main.d", "c.go", 3), "")},
		{Cause: report.CauseCPU, Site: site("main.a", "a.go", 1), Via: via("lock", site("main.c", "c.go", 3), "sync.(*Mutex).Lock")},
		{Cause: report.CauseCPU, Site: site("main.a", "a.go", 1), Via: via("lock", nil, "")},
	} {
		text := rowText(&c)
		if firstRow, ok := rowByText[text]; ok {
			t.Errorf("rows %d and %d are both %q", firstRow, i, text)
		}
		rowByText[text] = i
	}
}
