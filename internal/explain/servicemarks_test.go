package explain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// loggedRoute is one route in the server's own log.
type loggedRoute struct {
	latencies []int64
	statuses  map[string]int
}

// readLog reads the log that scenario "marked" of lab/traceprog writes as facts.
func readLog(t *testing.T, facts map[string]int64) map[string]*loggedRoute {
	t.Helper()
	routes := make(map[string]*loggedRoute)
	for key, ns := range facts {
		line, ok := strings.CutPrefix(key, "ns ")
		if !ok {
			continue
		}
		words := strings.Split(line, " ")
		n := len(words)
		if _, err := strconv.Atoi(words[n-1]); n < 3 || err != nil {
			t.Fatalf("a line of the log is %q", key)
		}
		name := strings.Join(words[:n-2], " ")
		if routes[name] == nil {
			routes[name] = &loggedRoute{statuses: map[string]int{}}
		}
		routes[name].latencies = append(routes[name].latencies, ns)
		routes[name].statuses[words[n-2]]++
	}
	for _, s := range routes {
		slices.Sort(s.latencies)
	}
	return routes
}

// checkAgainstLog compares groups with the server's own log: the same requests, under the names of their routes, with
// the same latencies.
func checkAgainstLog(t *testing.T, trace []byte, facts map[string]int64) {
	t.Helper()
	rep := must.Have(whylate.Explain(context.Background(), bytes.NewReader(trace), whylate.Options{}))(t)
	routes := readLog(t, facts)
	rep.Groups = slices.DeleteFunc(rep.Groups, func(g report.Group) bool { return g.Role == report.RoleBackground })
	check.True(t, len(rep.Groups) == len(routes) && len(routes) >= 8, "%d groups, %d routes", len(rep.Groups), len(routes))
	for i := range rep.Groups {
		g := &rep.Groups[i]
		s := routes[g.Name]
		if s == nil {
			t.Errorf("group %s %q is no route", g.Kind, g.Name)
			continue
		}
		check.True(t, g.Kind == report.KindMark && g.Named && g.Count == len(s.latencies) && g.CutAtStart == 0 && g.Open.Count == 0,
			"%s: %s, %d requests, %d cut, %d open; the log has %d", g.Name, g.Kind, g.Count, g.CutAtStart, g.Open.Count, len(s.latencies))
		check.Equal(t, fmt.Sprint(g.Statuses), fmt.Sprint(s.statuses), "%s: statuses %v, want %v", g.Name, g.Statuses, s.statuses)
		check.Equal(t, g.WorkKind, map[bool]string{true: "job", false: "http"}[g.Name == "nightly job"], "%s: of", g.Name)
		check.Equal(t, g.BeforeNS != nil, g.WorkKind == "http", "%s: before %v", g.Name, g.BeforeNS)
		// The server reads its clock within the mark, and histogram buckets are 3 % wide.
		checkNear := func(quantity string, got *int64, want int64) {
			if got != nil && (*got < want-want/30 || *got > want+want/30+5e3) {
				t.Errorf("%s: %s is %d ns, by the log %d", g.Name, quantity, *got, want)
			}
		}
		rank := func(q float64) int64 { return s.latencies[int(q*float64(len(s.latencies)-1))] }
		checkNear("p50", g.LatencyNS.P50, rank(0.5))
		checkNear("p90", g.LatencyNS.P90, rank(0.9))
		checkNear("max", g.LatencyNS.Max, s.latencies[len(s.latencies)-1])
	}
}

// TestMarksEqualServerLog compares a recorded trace of a marked server with the server's log.
func TestMarksEqualServerLog(t *testing.T) {
	trace := must.Have(os.ReadFile(testprog.Recording(t, "programs/marked.trace")))(t)
	text := must.Have(os.ReadFile(filepath.Join(testprog.RecordingsDir(t), "programs/marked.json")))(t)
	var metadata testprog.Metadata
	must.Do(t, json.Unmarshal(text, &metadata))
	checkAgainstLog(t, trace, metadata.Facts.Facts)

	// The id that the client sent selects one request.
	rep, err := whylate.Explain(context.Background(), bytes.NewReader(trace), whylate.Options{TraceID: [16]byte{15: 48}})
	must.Do(t, err)
	must.True(t, len(rep.Groups) == 1 && rep.Groups[0].Count == 1, "%d groups of one trace", len(rep.Groups))
	if q := rep.Groups[0].Slowest[0]; q.TraceID != fmt.Sprintf("%032x", 48) || q.ParentSpanID != fmt.Sprintf("%016x", 0xabc000+48) || q.SpanID != "" || q.Status == "" {
		t.Errorf("the request of the trace is %+v", q)
	}
	// The caller's span selects it, too.
	span, err := whylate.Explain(context.Background(), bytes.NewReader(trace), whylate.Options{SpanID: [8]byte{5: 0xab, 6: 0xc0, 7: 0x30}})
	must.Do(t, err)
	check.True(t, len(span.Groups) == 1 && span.Groups[0].Count == 1 && span.Groups[0].Slowest[0].ID == rep.Groups[0].Slowest[0].ID,
		"of one span there is %+v", span.Groups)
	if span, err = whylate.Explain(context.Background(), bytes.NewReader(trace), whylate.Options{TraceID: [16]byte{15: 48}, SpanID: [8]byte{7: 1}}); err != nil || len(span.Groups) != 0 {
		t.Errorf("of another span of that trace there is %+v, %v", span, err)
	}
	// Without marks, other sources find the requests.
	rep, err = whylate.Explain(context.Background(), bytes.NewReader(trace), whylate.Options{NoMarks: true})
	must.Do(t, err)
	if slices.ContainsFunc(rep.Groups, func(g report.Group) bool { return g.Kind == report.KindMark }) || len(rep.Groups) == 0 {
		t.Errorf("without marks there are %d groups", len(rep.Groups))
	}
}

// TestMarksLive records a trace and compares it with the server's log.
func TestMarksLive(t *testing.T) {
	testfull.Need(t, "to build and run a program")
	trace, facts := testprog.Record(t, "marked")
	routes := readLog(t, facts.Facts)
	rep := must.Have(whylate.Explain(context.Background(), bytes.NewReader(trace), whylate.Options{}))(t)
	// On a busy machine the log's clock and the mark's may differ by any amount, so only numbers are compared.
	marked := 0
	for i := range rep.Groups {
		g := &rep.Groups[i]
		if g.Kind == report.KindLoop {
			continue // the program's own clients
		}
		marked++
		if s := routes[g.Name]; s == nil || g.Kind != report.KindMark || g.Count != len(s.latencies) || fmt.Sprint(g.Statuses) != fmt.Sprint(s.statuses) {
			t.Errorf("%s %s: %d requests, %v; the log has %+v", g.Kind, g.Name, g.Count, g.Statuses, s)
		}
	}
	check.True(t, marked == len(routes), "%d groups, %d routes", marked, len(routes))
}

// TestMarkForms reads all forms of marks.
func TestMarkForms(t *testing.T) {
	const v = "whylate.mark/1 "
	stack := []string{"service/mark.begin", "main.work"}
	builder := tracetext.New(26)
	thread := builder.Thread()
	begin := func(clock int64, text string) { thread.Log(clock, 0, v+"begin "+text, "", stack...) }
	end := func(clock int64, text string) { thread.Log(clock, 0, v+"end "+text, "", stack...) }
	thread.HasRun(7)
	end(1000, "http 2xx GET /before") // it began before the trace
	// A mark within another is a part of it, and so are tasks within it and around it.
	thread.TaskBegin(2000, 1, 0, "span", "main.work")
	begin(2100, "http")
	begin(2200, "job part")
	end(2300, "job ok part")
	thread.TaskBegin(2400, 2, 0, "inner span", "main.work")
	thread.TaskEnd(2500, 2, "main.work")
	end(3100, "http 5xx GET /a b")
	thread.TaskEnd(3200, 1, "main.work")
	// The name at the end replaces the name at the beginning.
	begin(4000, "http GET /early")
	end(4500, "http 2xx GET /late")
	// A later version, and logs that are no marks.
	thread.Log(5000, 0, "whylate.mark/2 begin http", "", stack...)
	thread.Log(5100, 0, "whylate.markets", "", stack...)
	thread.Log(5200, 0, v+"pause http", "", stack...)
	// Of a tracer's two spans, the first is the request's, even if it began just before the mark.
	parent := func(n int) string { return fmt.Sprintf("00-%032x-%016x-01", n, 16+n) }
	thread.Log(6000, 0, v+"span", parent(1), stack...)
	thread.Log(6100, 0, v+"begin http", parent(2), stack...)
	thread.Log(6200, 0, v+"span", parent(3), stack...)
	end(6900, "http 2xx GET /spans")
	thread.Log(7000, 0, v+"begin message m", parent(4), stack...)
	thread.Log(7100, 0, v+"span", parent(5), stack...)
	end(7200, "message ok m")
	// Open at the end of the trace.
	begin(8000, "job hangs")
	thread.Block(8500, "sleep", "time.Sleep", "main.work")
	rep := explainBuilt(t, builder, whylate.Options{Slowest: 3})
	type row struct {
		kind, markKind, name        string
		count, cut, open            int
		total                       int64
		status, trace, span, parent string
	}
	got := map[string]row{}
	for _, g := range rep.Groups {
		r := row{string(g.Kind), g.WorkKind, g.Name, g.Count, g.CutAtStart, g.Open.Count, g.TotalNS, "", "", "", ""}
		if len(g.Slowest) > 0 {
			q := g.Slowest[0]
			r.status, r.trace, r.span, r.parent = q.Status, strings.TrimLeft(q.TraceID, "0"), strings.TrimLeft(q.SpanID, "0"), strings.TrimLeft(q.ParentSpanID, "0")
		}
		got[g.Name] = r
	}
	want := []row{
		{"mark", "http", "GET /a b", 1, 0, 0, 1000, "5xx", "", "", ""},
		{"mark", "http", "GET /late", 1, 0, 0, 500, "2xx", "", "", ""},
		{"mark", "http", "GET /spans", 1, 0, 0, 800, "2xx", "1", "11", "12"},
		{"mark", "message", "m", 1, 0, 0, 200, "ok", "5", "15", "14"},
		{"mark", "job", "hangs", 0, 0, 1, 0, "", "", "", ""},
	}
	for _, w := range want {
		check.True(t, got[w.name] == w, "got  %+v\nwant %+v", got[w.name], w)
	}
	check.Equal(t, len(got), len(want), "groups: %v", got)
}

// TestMarkedRequestsAreOne: the request that a protocol's source finds around a mark is not a second one, even if a
// generation ends in between. Requests without a mark are reported.
func TestMarkedRequestsAreOne(t *testing.T) {
	const ms = 1_000_000
	const v = "whylate.mark/1 "
	idle := []string{"internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", "net/http.(*conn).serve:2103"}
	answer := []string{"syscall.write", "bufio.(*Writer).Flush", "net/http.(*response).finishRequest", "net/http.(*conn).serve:2074"}
	handler := []string{"main.handler", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve:2074"}
	const run = "net/http.(*http2serverConn).runHandler"
	builder := tracetext.New(26)
	th, poller := builder.Thread(), builder.ThreadWithoutP()
	builder.Waiting(7)
	// Marked; the generation ends before its answer is sent.
	poller.Unblock(1*ms, 7)
	th.Start(1*ms+2000, 7)
	th.Block(2*ms, "network", idle...)
	poller.Unblock(10*ms, 7)
	th.Start(11*ms, 7)
	th.Create(11*ms+1000, 8, "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", "net/http.(*conn).serve:2074")
	th.Log(12*ms, 0, v+"begin http", "", handler...)
	th.Log(14*ms, 0, v+"end http 2xx GET /marked", "", handler...)
	builder.NextGeneration(20 * ms)
	th.Syscall(21*ms, answer...)
	th.SyscallEnd(21*ms + 1000)
	th.Block(22*ms, "network", idle...)
	// Not marked.
	poller.Unblock(30*ms, 7)
	th.Start(30*ms+1000, 7)
	th.Create(30*ms+2000, 9, "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", "net/http.(*conn).serve:2074")
	th.Block(31*ms, "sleep", append([]string{"time.Sleep"}, handler...)...)
	poller.Unblock(33*ms, 7)
	th.Start(33*ms, 7)
	th.Syscall(34*ms, answer...)
	th.SyscallEnd(34*ms + 1000)
	// Two marked streams of HTTP/2, one of them open at the end.
	th.Create(35*ms, 20, run, "net/http.(*http2serverConn).processHeaders")
	th.Create(35*ms+1000, 21, run, "net/http.(*http2serverConn).processHeaders")
	th.Block(36*ms, "network", idle...)
	th.Start(36*ms+1000, 20)
	th.Log(37*ms, 0, v+"begin http GET /stream", "", "main.handler", run)
	th.Log(38*ms, 0, v+"end http 2xx GET /stream", "", "main.handler", run)
	th.Destroy(39 * ms)
	th.Start(40*ms, 21)
	th.Log(41*ms, 0, v+"begin http GET /stream", "", "main.handler", run)
	th.Block(42*ms, "sleep", "time.Sleep", "main.handler", run)
	rep := explainBuilt(t, builder, whylate.Options{})
	got := map[string]string{}
	for _, g := range rep.Groups {
		before := int64(-1)
		if g.BeforeNS != nil {
			before = *g.BeforeNS.Max
		}
		got[string(g.Kind)+" "+g.Name] = fmt.Sprintf("%d of %d ns, %d open, %d cut, before %d", g.Count, g.TotalNS, g.Open.Count, g.CutAtStart, before)
	}
	want := map[string]string{
		"mark GET /marked":   fmt.Sprintf("1 of %d ns, 0 open, 0 cut, before %d", 2*ms, 2*ms),
		"http1 main.handler": fmt.Sprintf("1 of %d ns, 0 open, 0 cut, before -1", 4*ms),
		"mark GET /stream":   fmt.Sprintf("1 of %d ns, 1 open, 0 cut, before %d", ms, 2*ms),
	}
	for name, w := range want {
		check.Equal(t, got[name], w, "%s", name)
	}
	check.Equal(t, len(got), len(want), "the groups are %v", got)
}

// TestIdentityOverGenerations: a task keeps the id that a tracer wrote at its beginning for identityGenerations, and
// the task's end counts as an event. It fails if a job that ends in the last of them is reported without its trace.
func TestIdentityOverGenerations(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, tc := range []struct {
		borders int
		want    string
	}{{0, id}, {1, id}, {15, id}, {16, id}, {17, ""}} { // identities are kept for 16 generations
		builder := tracetext.New(26)
		thread, n := builder.Thread(7), builder.Thread()
		thread.TaskBegin(1000, 1, 0, "import", "main.work")
		thread.Log(1100, 1, "trace_id", id, "main.work")
		thread.Block(1200, "sleep", "time.Sleep", "main.work")
		clock := int64(2000)
		for range tc.borders {
			builder.NextGeneration(clock)
			clock += 1000
		}
		n.Unblock(clock, 7)
		thread.Start(clock+100, 7)
		thread.TaskEnd(clock+200, 1, "main.work")
		thread.Block(clock+300, "sleep", "time.Sleep", "main.other")
		rep := explainBuilt(t, builder, whylate.Options{Slowest: 1})
		must.True(t, len(rep.Groups) == 1 && rep.Groups[0].Name == "import" && len(rep.Groups[0].Slowest) == 1,
			"over %d borders: %+v", tc.borders, rep.Groups)
		check.Equal(t, rep.Groups[0].Slowest[0].TraceID, tc.want, "over %d borders its trace", tc.borders)
	}
}

// TestIdentityOfIterations: an iteration of a worker has the id that was logged in it. It fails if all have the first
// id.
func TestIdentityOfIterations(t *testing.T) {
	builder := tracetext.New(26)
	thread, helper := builder.Thread(), builder.Thread()
	builder.Waiting(1)
	const n = 12
	clock, want := int64(1000), make(map[string]bool)
	for i := range n {
		id := fmt.Sprintf("%032x", i+1)
		want[id] = true
		helper.Unblock(clock, 1)
		thread.Start(clock+100, 1)
		thread.Log(clock+200, 0, "trace_id", id, "main.work", "main.loop")
		thread.Block(clock+1000, "chan receive", "runtime.chanrecv1", "main.loop")
		clock += 3000
	}
	rep := explainBuilt(t, builder, whylate.Options{Slowest: n})
	must.True(t, len(rep.Groups) == 1 && rep.Groups[0].Kind == report.KindLoop, "the groups are %+v", rep.Groups)
	for _, q := range rep.Groups[0].Slowest {
		check.True(t, want[q.TraceID], "trace %q belongs to no iteration, or to two", q.TraceID)
		delete(want, q.TraceID)
	}
}

// TestTaskInStreamOfWorker: a task that covers most of a stream of a gRPC worker replaces the stream's request, as it
// does where each stream has a goroutine. A shorter one is a part of the stream. It fails if both count.
func TestTaskInStreamOfWorker(t *testing.T) {
	const us = 1000
	for _, tc := range []struct {
		name string
		took int64 // duration of the task, in a stream of 100 us
		want report.Kind
	}{{"most of the stream", 90 * us, report.KindTask}, {"a part of the stream", 20 * us, report.KindGRPC}} {
		builder := tracetext.New(26)
		thread, helper := builder.Thread(), builder.Thread()
		work := []string{"main.work", "google.golang.org/grpc.(*Server).handleStream", "google.golang.org/grpc.(*Server).serverWorker"}
		idle := []string{"runtime.chanrecv1", "google.golang.org/grpc.(*Server).serverWorker"}
		clock := int64(1000 * us)
		thread.Create(clock, 2, idle[1], "google.golang.org/grpc.(*Server).initServerWorkers")
		const n = 6
		for i := range n + 1 {
			thread.Start(clock+us, 2)
			if i > 0 {
				thread.TaskBegin(clock+2*us, uint64(i), 0, "import", work...)
				thread.TaskEnd(clock+2*us+tc.took, uint64(i), work...)
			}
			thread.Block(clock+100*us, "chan receive", idle...)
			clock += 200 * us
			if i == n/2 {
				builder.NextGeneration(clock - 50*us)
			}
			if i < n {
				helper.Unblock(clock, 2)
			}
		}
		for _, g := range explainBuilt(t, builder, whylate.Options{}).Groups {
			check.True(t, g.Kind == tc.want && g.Count == n, "%s: %d of %s %s", tc.name, g.Count, g.Kind, g.Name)
		}
	}
}
