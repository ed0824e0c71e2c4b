package export_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// shopReport returns a report of three services, of which each calls the next one. The trace of gate began 500 ns after that of stock.
func shopReport() *report.Report {
	start := time.Unix(1000, 500)
	peer := func(names ...string) (out []report.Via) {
		for _, name := range names {
			out = append(out, report.Via{Wait: report.WaitPeer, Service: name})
		}
		return out
	}
	segments := []report.Segment{
		{StartNS: 0, DurationNS: 10, Cause: report.CauseCPU},
		{StartNS: 10, DurationNS: 10, Cause: report.CauseNetwork, WayTo: "stock", ClockErrorNS: 3},
		{StartNS: 20, DurationNS: 10, Cause: report.CauseCPU, Service: "stock", ServiceGoroutine: 7, Via: peer("stock")},
		{StartNS: 30, DurationNS: 50, Cause: report.CauseSleep, Service: "ledger", ServiceGoroutine: 8, Via: peer("stock", "ledger")},
		{StartNS: 80, DurationNS: 10, Cause: report.CauseCPU, Service: "stock", ServiceGoroutine: 7, Via: peer("stock")},
		{StartNS: 90, DurationNS: 10, Cause: report.CauseNetwork, WayTo: "stock", ClockErrorNS: 3},
	}
	return &report.Report{
		Input: report.Input{Name: "gate + stock + ledger", Start: &start, Go: "go1.26"},
		Services: []report.Service{
			{Name: "gate", Input: report.Input{Start: &start, Go: "go1.26"}},
			{Name: "stock", Input: report.Input{Go: "go1.25"}, Clock: &report.ServiceClock{OffsetNS: -500, LowNS: -510, HighNS: -490}},
			{Name: "ledger", Clock: &report.ServiceClock{}},
		},
		Groups: []report.Group{
			{ID: "g", Service: "gate", Name: "main.buy", Kind: report.KindHTTP1, Slowest: []report.Request{{ID: "q", StartNS: 1000, LatencyNS: 100, Goroutine: 5, Segments: moved(segments, 1000)}}},
			{ID: "s", Service: "stock", Name: "main.count", Kind: report.KindHTTP1, Slowest: []report.Request{{ID: "r", StartNS: 2000, LatencyNS: 70, Segments: []report.Segment{{StartNS: 2000, DurationNS: 70, Cause: report.CauseCPU}}}}},
		},
	}
}

func moved(list []report.Segment, ns int64) []report.Segment {
	for i := range list {
		list[i].StartNS += ns
	}
	return list
}

// TestSpansOfServices: the spans of a request have one trace id, also those of services behind it, which are below the span of the
// call. Times are those of the service's own recording.
func TestSpansOfServices(t *testing.T) {
	var out bytes.Buffer
	s := must.Have(export.NewSpans(shopReport(), export.EncodingJSON, true, export.ToWriter(&out)))(t)
	s.Service = "not of several"
	must.Do(t, s.FromReport(shopReport()))
	spans := make(map[string]readSpan)
	for _, x := range spansOfJSON(t, out.Bytes()) {
		spans[x.service+" "+x.name] = x
	}
	root, stock, ledger := spans["gate main.buy"], spans["stock stock"], spans["ledger ledger"]
	check.Equal(t, root.start, 1000e9+1500, "root.start")
	check.Equal(t, stock.start-root.start, 20, "stock.start-root.start")
	check.Equal(t, stock.end-root.start, 90, "stock.end-root.start")
	check.Equal(t, ledger.end-ledger.start, 50, "ledger.end-ledger.start")
	check.True(t, root.trace != "" && root.trace == stock.trace && root.trace == ledger.trace && root.trace == spans["ledger sleep"].trace, "the spans have several traces")
	check.Equal(t, stock.parent, root.id, "stock.parent")
	check.Equal(t, ledger.parent, stock.id, "ledger.parent")
	check.Equal(t, spans["ledger sleep"].parent, ledger.id, "spans['ledger sleep'].parent")
	check.Equal(t, spans["ledger sleep"].attributes["whylate.goroutine"], "8", "spans['ledger sleep'].attributes['whylate.goroutine']")
	check.Equal(t, spans["gate network"].attributes["whylate.clock_error_ns"], "3", "spans['gate network'].attributes['whylate.clock_error_ns']")
	check.Equal(t, stock.kind, 2, "stock.kind") // SPAN_KIND_SERVER
	countSpan := spans["stock main.count"]
	check.Equal(t, countSpan.start, 1000e9+2000, "countSpan.start")
	check.True(t, countSpan.trace != root.trace, "two requests have one trace")
}

// TestInterruptedCalls: a call goes on after the goroutine that waits for it has read answers to others. It ends when the caller does
// something else.
func TestInterruptedCalls(t *testing.T) {
	r := shopReport()
	q := &r.Groups[0].Slowest[0]
	reads := func(g uint64) report.Segment {
		return report.Segment{DurationNS: 10, Cause: report.CauseCPU, Goroutine: g}
	}
	serves := func(g uint64, path ...string) report.Segment {
		s := report.Segment{DurationNS: 10, Cause: report.CauseSleep, Goroutine: 6, Service: path[len(path)-1], ServiceGoroutine: g}
		for _, name := range path {
			s.Via = append(s.Via, report.Via{Wait: report.WaitPeer, Service: name})
		}
		return s
	}
	q.Segments = []report.Segment{
		reads(5), serves(7, "stock"), reads(6), serves(9, "stock"), serves(8, "stock", "ledger"), serves(9, "stock"), serves(8, "stock", "ledger"), reads(6),
		serves(8, "stock", "ledger"), serves(7, "stock"), serves(8, "stock", "ledger"), reads(6), reads(5), serves(7, "stock"), reads(5),
	}
	for i := range q.Segments {
		q.Segments[i].StartNS = int64(1000 + 10*i)
	}
	var out bytes.Buffer
	s := must.Have(export.NewSpans(r, export.EncodingJSON, true, export.ToWriter(&out)))(t)
	must.Do(t, s.FromReport(r))
	calls := make(map[string][][2]int64)
	for _, x := range spansOfJSON(t, out.Bytes()) {
		if x.name == x.service {
			calls[x.name] = append(calls[x.name], [2]int64{x.start - 1000e9 - 1500, x.end - 1000e9 - 1500})
		}
	}
	check.Equal(t, fmt.Sprint(calls), "map[ledger:[[40 90] [100 110]] stock:[[10 110] [130 140]]]", "the calls")
}

// TestPerfettoOfServices: each service has a process with its requests, and with what it did for requests of others. Times of all
// count from the start of the earliest recording.
func TestPerfettoOfServices(t *testing.T) {
	var out bytes.Buffer
	must.Do(t, export.Perfetto(&out, shopReport()))
	s := showPerfetto(t, out.Bytes())
	check.Equal(t, s.realtime, 1000e9, "the start")
	processes := make(map[string]*writtenTrack)
	for _, name := range []string{"gate", "stock", "ledger"} {
		processes[name] = s.byName(0, name)
		must.True(t, processes[name] != nil, "there is no track of %s", name)
		check.True(t, s.byName(processes[name].uuid, "runtime") != nil, "%s has no track of its runtime", name)
	}
	request := s.byName(processes["gate"].uuid, "main.buy: slow request 1 (q)")
	must.True(t, request != nil, "gate has no request")
	check.Equal(t, request.slices[0].from, 1500, "request.slices[0].from")
	call := s.byName(processes["ledger"].uuid, "for main.buy of gate: slow request 1 (q)")
	must.True(t, call != nil && len(call.slices) == 1, "ledger has no call")
	check.Equal(t, call.slices[0].from, 1530, "call.slices[0].from")
	check.Equal(t, call.slices[0].notes["goroutine"], "8", "call.slices[0].notes['goroutine']")
	check.Equal(t, s.byName(processes["stock"].uuid, "main.count: slow request 1 (r)").slices[0].from, 2000, "s.byName(processes['stock'].uuid, 'main.count: slow request 1 (r)').slices[0].from")
	check.Equal(t, len(s.flows), 2, "len(s.flows)")
}
