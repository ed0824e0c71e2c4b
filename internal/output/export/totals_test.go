package export_test

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// totals are what every format must say of all requests of a trace.
type totals struct {
	count  map[string]int              // by group id
	ns     map[string]int64            // by group id
	causes map[string]map[string]int64 // by group id and cause
	ids    map[string]bool             // of requests
}

func newTotals() *totals {
	return &totals{count: map[string]int{}, ns: map[string]int64{}, causes: map[string]map[string]int64{}, ids: map[string]bool{}}
}

func (x *totals) cause(group, cause string, ns int64) {
	if x.causes[group] == nil {
		x.causes[group] = map[string]int64{}
	}
	x.causes[group][cause] += ns
}

func (x *totals) request(t *testing.T, group, id string, ns int64) {
	t.Helper()
	check.False(t, x.ids[id], "request %s twice", id)
	x.ids[id] = true
	x.count[group]++
	x.ns[group] += ns
}

// check holds totals to the report's JSON.
func (x *totals) check(t *testing.T, rep *report.Report) {
	t.Helper()
	for _, g := range rep.Groups {
		check.True(t, x.count[g.ID] == g.Count && x.ns[g.ID] == g.TotalNS,
			"%s: %d requests of %d ns, in the report %d of %d", g.Name, x.count[g.ID], x.ns[g.ID], g.Count, g.TotalNS)
		want := map[report.CauseName]int64{}
		for _, c := range g.Bands[0].Causes {
			want[c.Cause] += c.TotalNS
		}
		if want[report.CauseOther] != 0 {
			continue // of rows that were too many
		}
		for i := range cause.Count {
			c := cause.Cause(i).String()
			if got := x.causes[g.ID][c]; got != want[report.CauseName(c)] {
				t.Errorf("%s: %d ns of %s, in the report %d", g.Name, got, c, want[report.CauseName(c)])
			}
		}
		for _, q := range g.Slowest {
			check.True(t, x.ids[q.ID], "%s: the slow request %s is missing", g.Name, q.ID)
		}
	}
	check.True(t, len(x.count) <= len(rep.Groups), "requests of %d groups, the report has %d", len(x.count), len(rep.Groups))
}

func sinkOf(t *testing.T, name string, o export.Options) func(io.Writer, *report.Report) export.Sink {
	t.Helper()
	f := must.Have(export.Find(name))(t)
	return func(w io.Writer, r *report.Report) export.Sink { return f.Sink(w, r, o) }
}

// TestAllRequestsAddUp holds every format that has all requests of a trace to
// the report's JSON.
func TestAllRequestsAddUp(t *testing.T) {
	programs := []string{"tasks", "locks", "http1", "grpc"}
	if testing.Short() {
		programs = programs[:2]
	}
	for _, program := range programs {
		data := testprog.Trace(t, program)
		e := explainPart(t, data, 0, 0)
		t.Run(program+"/csv", func(t *testing.T) {
			readTable(t, e.replay(t, sinkOf(t, "csv", export.Options{Rows: export.RowRequests}))).check(t, e.rep)
		})
		t.Run(program+"/otlp", func(t *testing.T) {
			if e.rep.Input.Start == nil {
				t.Skip("this Go version's traces do not know the time of day")
			}
			out := e.replay(t, func(w io.Writer, r *report.Report) export.Sink {
				return must.Have(export.NewSpans(r, export.EncodingProtobuf, true, export.ToWriter(w)))(t)
			})
			totalsOfSpans(t, spansOfProtobuf(t, out)).check(t, e.rep)
		})
		t.Run(program+"/jsonl", func(t *testing.T) {
			readLines(t, e.replay(t, sinkOf(t, "jsonl", export.Options{All: true}))).check(t, e.rep)
		})
	}
}

func readTable(t *testing.T, data []byte) *totals {
	t.Helper()
	rows := must.Have(csv.NewReader(bytes.NewReader(data)).ReadAll())(t)
	x := newTotals()
	column := map[string]int{}
	for i, c := range rows[0] {
		column[c] = i
	}
	for _, row := range rows[1:] {
		num := func(name string) int64 {
			return must.Have(strconv.ParseInt(row[column[name]], 10, 64))(t)
		}
		group, sum := row[column["group_id"]], int64(0)
		x.request(t, group, row[column["id"]], num("latency_ns"))
		for i := range cause.Count {
			c := cause.Cause(i).String()
			x.cause(group, c, num(c+"_ns"))
			sum += num(c + "_ns")
		}
		check.True(t, sum == num("latency_ns"), "request %s took %d ns, its causes %d", row[column["id"]], num("latency_ns"), sum)
	}
	return x
}

func readLines(t *testing.T, data []byte) *totals {
	t.Helper()
	x := newTotals()
	groups := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var obj struct {
			Type, ID, Cause string
			GroupID         string `json:"group_id"`
			RequestID       string `json:"request_id"`
			LatencyNS       int64  `json:"latency_ns"`
			DurationNS      int64  `json:"duration_ns"`
			Joined          *report.Joined
		}
		if !strings.Contains(lines.Text(), `"type":"request"`) && !strings.Contains(lines.Text(), `"type":"segment"`) {
			continue
		}
		if err := json.Unmarshal(lines.Bytes(), &obj); err != nil {
			t.Fatalf("%v in %.100s", err, lines.Bytes())
		}
		switch {
		case obj.Type == "request":
			groups[obj.ID] = obj.GroupID
			x.request(t, obj.GroupID, obj.ID, obj.LatencyNS)
		case obj.Joined != nil:
			for c, ns := range obj.Joined.Causes {
				x.cause(groups[obj.RequestID], string(c), ns)
			}
		default:
			x.cause(groups[obj.RequestID], obj.Cause, obj.DurationNS)
		}
	}
	must.Do(t, lines.Err())
	return x
}

func totalsOfSpans(t *testing.T, spans []readSpan) *totals {
	t.Helper()
	x := newTotals()
	groups := map[string]string{} // by the root's span id
	for _, s := range spans {
		group, ok := groups[s.parent]
		switch {
		case s.attributes["whylate.request"] != "":
			groups[s.id] = s.attributes["whylate.group"]
			x.request(t, s.attributes["whylate.group"], s.attributes["whylate.request"], s.end-s.start)
		case !ok:
			t.Errorf("span %s is below none that came before", s.name)
		case s.attributes["whylate.cause"] == string(report.CauseOther):
			for key, v := range s.attributes {
				if c, ok := strings.CutPrefix(key, "whylate.joined."); ok {
					ns := must.Have(strconv.ParseInt(v, 10, 64))(t)
					x.cause(group, strings.TrimSuffix(c, "_ns"), ns)
				}
			}
		default:
			x.cause(group, s.attributes["whylate.cause"], s.end-s.start)
		}
	}
	return x
}
