package export_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// recorded is the report of a trace of this process: tasks that wait for other goroutines.
var recorded = sync.OnceValues(func() (*report.Report, error) {
	var out bytes.Buffer
	if err := trace.Start(&out); err != nil {
		return nil, err
	}
	for i := range 150 {
		_, task := trace.NewTask(context.Background(), "job")
		done := make(chan bool)
		go func() {
			if i%10 == 0 {
				time.Sleep(time.Millisecond)
			}
			close(done)
		}()
		<-done
		task.End()
	}
	trace.Stop()
	return whylate.Explain(context.Background(), &out, whylate.Options{Name: "jobs.trace"})
})

func reports(t *testing.T) map[string]*report.Report {
	t.Helper()
	out := map[string]*report.Report{}
	names, err := filepath.Glob("../../../report/testdata/*.json")
	must.True(t, err == nil && len(names) != 0, "no samples: %v", err)
	for _, name := range names {
		data := must.Have(os.ReadFile(name))(t)
		if out[filepath.Base(name)], err = report.ReadJSON(bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
	}
	if trace.IsEnabled() {
		t.Log("a trace is being recorded already: samples only")
		return out
	}
	if out["recorded"], err = recorded(); err != nil {
		t.Fatal(err)
	}
	return out
}

func write(t *testing.T, f func(io.Writer, *report.Report) error, r *report.Report) []byte {
	t.Helper()
	var out bytes.Buffer
	must.Do(t, f(&out, r))
	return out.Bytes()
}

// TestPprofTotals parses profiles: the time of every band is in the sample type of its name, by group and cause.
func TestPprofTotals(t *testing.T) {
	for name, r := range reports(t) {
		p, err := profile.ParseData(write(t, export.Pprof, r))
		must.Do(t, err, name)
		want, got := map[string]int64{}, map[string]int64{}
		for _, g := range r.Groups {
			for _, b := range g.Bands {
				for _, c := range b.Causes {
					want[fmt.Sprintf("%s|%s|%s|%s", b.Band, g.Name, b.Band, c.Cause)] += c.TotalNS
				}
			}
		}
		for _, s := range p.Sample {
			for i, v := range s.Value {
				if v != 0 {
					got[fmt.Sprintf("%s|%s|%s|%s", p.SampleType[i].Type, s.Label["group"][0], s.Label["band"][0], s.Label["cause"][0])] += v
				}
			}
			check.True(t, len(s.Location) >= 2, "%s: a stack of %d frames", name, len(s.Location))
			check.Equal(t, s.Location[len(s.Location)-1].Line[0].Function.Name, s.Label["group"][0],
				"%s: a stack of group %q begins at", name, s.Label["group"])
		}
		for k, ns := range want {
			check.True(t, ns == got[k], "%s: %s is %d ns in the profile, %d in the report", name, k, got[k], ns)
			delete(got, k)
		}
		for k, ns := range got {
			check.Equal(t, ns, 0, "%s: %s is in the profile only", name, k)
		}
	}
}

// TestGoToolPprof asks go tool pprof for the total and the first function.
func TestGoToolPprof(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts the go command")
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command here")
	}
	r := reports(t)["pubsub.json"]
	file := filepath.Join(t.TempDir(), "x.pb.gz")
	must.Do(t, os.WriteFile(file, write(t, export.Pprof, r), 0o644))
	for _, band := range r.Groups[0].Bands {
		if band.Count == 0 {
			continue
		}
		cmd := exec.Command(goTool, "tool", "pprof", "-top", "-unit=ns", "-sample_index="+string(band.Band), file)
		cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		must.True(t, err == nil, "%v: %s", err, out)
		var want int64
		for _, g := range r.Groups {
			for _, b := range g.Bands {
				if b.Band == band.Band {
					for _, c := range b.Causes {
						want += c.TotalNS
					}
				}
			}
		}
		check.True(t, strings.Contains(string(out), fmt.Sprintf("of %dns total", want)),
			"%s: want a total of %d ns:\n%s", band.Band, want, out)
		if first := band.Causes[0].Site.Func; !regexp.MustCompile(`(?m)^\s*[1-9]\d*ns .* ` + regexp.QuoteMeta(first) + `$`).Match(out) {
			t.Errorf("%s: %s is not in\n%s", band.Band, first, out)
		}
	}
}

func TestCSVTotals(t *testing.T) {
	for name, r := range reports(t) {
		rows, err := csv.NewReader(bytes.NewReader(write(t, export.CSV, r))).ReadAll()
		must.Do(t, err, name)
		column := map[string]int{}
		for i, c := range rows[0] {
			column[c] = i
		}
		got := map[string]int64{}
		for _, row := range rows[1:] {
			ns := must.Have(strconv.ParseInt(row[column["total_ns"]], 10, 64))(t)
			got[row[column["group_id"]]+row[column["band"]]] += ns
			for _, cell := range row {
				check.False(t, cell != "" && strings.ContainsAny(cell[:1], "=+-@"),
					"%s: a cell may be taken for a formula: %.40q", name, cell)
			}
		}
		for _, g := range r.Groups {
			for _, b := range g.Bands {
				var want int64
				for _, c := range b.Causes {
					want += c.TotalNS
				}
				check.True(t, got[g.ID+string(b.Band)] == want,
					"%s: band %s of %.40q has %d ns in CSV, %d in the report", name, b.Band, g.Name, got[g.ID+string(b.Band)], want)
			}
		}
	}
}

func TestCSVFormulas(t *testing.T) {
	r := &report.Report{Groups: []report.Group{{Name: `=HYPERLINK("http://x")`, Bands: []report.Band{{Causes: []report.Cause{{Cause: "cpu", Site: &report.Site{Func: "@f\n\",\"\u009b", File: "-x.go"}}}}}}}}
	rows, err := csv.NewReader(bytes.NewReader(write(t, export.CSV, r))).ReadAll()
	must.True(t, err == nil && len(rows) == 2, "%d rows, error %v", len(rows), err)
	for i, want := range map[int]string{1: `'=HYPERLINK("http://x")`, 9: `'@f\n","\u009b`, 10: "'-x.go"} {
		check.True(t, rows[1][i] == want, "column %s holds %q, want %q", rows[0][i], rows[1][i], want)
	}
}

func TestJSONLTotals(t *testing.T) {
	for name, r := range reports(t) {
		lines := bufio.NewScanner(bytes.NewReader(write(t, export.JSONL, r)))
		lines.Buffer(nil, 16<<20)
		causes, segments := map[string]int64{}, map[string]int64{}
		count := map[string]int{}
		for lines.Scan() {
			var obj struct {
				Type, Band, Cause string
				GroupID           string `json:"group_id"`
				RequestID         string `json:"request_id"`
				TotalNS           int64  `json:"total_ns"`
				DurationNS        int64  `json:"duration_ns"`
			}
			if err := json.Unmarshal(lines.Bytes(), &obj); err != nil {
				t.Fatalf("%s: %v in %.100s", name, err, lines.Bytes())
			}
			count[obj.Type]++
			switch obj.Type {
			case "cause":
				causes[obj.GroupID+obj.Band+obj.Cause] += obj.TotalNS
			case "segment":
				segments[obj.RequestID] += obj.DurationNS
			}
		}
		if lines.Err() != nil {
			t.Fatal(lines.Err())
		}
		want := map[string]int64{}
		for _, g := range r.Groups {
			for _, b := range g.Bands {
				for _, c := range b.Causes {
					want[g.ID+string(b.Band)+string(c.Cause)] += c.TotalNS
				}
			}
			for _, q := range g.Slowest {
				var sum int64
				for _, s := range q.Segments {
					sum += s.DurationNS
				}
				check.True(t, segments[q.ID] == sum, "%s: request %s has %d ns of segments, want %d", name, q.ID, segments[q.ID], sum)
			}
		}
		for k, ns := range want {
			check.True(t, causes[k] == ns, "%s: %.60q has %d ns, want %d", name, k, causes[k], ns)
		}
		check.True(t, count["group"] == len(r.Groups) && count["input"] == 1, "%s: lines by type: %v", name, count)
	}
}

// slice is a slice of a Perfetto track.
type slice struct {
	name      string
	from, len int64
	depth     int
	notes     map[string]string
}

// TestPerfetto decodes traces by Perfetto's published schema, and compares every track.
func TestPerfetto(t *testing.T) {
	for name, r := range reports(t) {
		s := showPerfetto(t, write(t, export.Perfetto, r))
		wakes := 0
		for _, g := range r.Groups {
			for n, q := range g.Slowest {
				root := s.byName(0, fmt.Sprintf("%s: slow request %d (%s)", g.Name, n+1, q.ID))
				if root == nil || len(root.slices) != 1 || root.slices[0].from != q.StartNS || root.slices[0].len != q.LatencyNS {
					t.Errorf("%s: request %s: %+v", name, q.ID, root)
					continue
				}
				checkSegments(t, &q, s.byName(root.uuid, "critical path").slices)
				on := map[uint64]bool{}
				for _, l := range q.Lanes {
					on[l.Goroutine] = true
					lane := s.byName(root.uuid, fmt.Sprintf("G%d %s", l.Goroutine, l.Name))
					if lane == nil || len(lane.slices) != len(l.Spans) {
						t.Errorf("%s: lane of goroutine %d is %+v, want %d spans", name, l.Goroutine, lane, len(l.Spans))
						continue
					}
					for i, s := range l.Spans {
						if got := lane.slices[i]; got.from != s.StartNS || got.len != s.DurationNS || !strings.HasPrefix(got.name, s.State) {
							t.Errorf("%s: span %d of goroutine %d is %+v, want %+v", name, i, l.Goroutine, got, s)
						}
					}
				}
				for _, w := range q.Wakes {
					if on[w.From] && on[w.To] {
						wakes++
					}
				}
			}
		}
		checkFlows(t, s)
		check.True(t, len(s.flows) == wakes, "%s: %d flows, %d wakes", name, len(s.flows), wakes)
		if x := r.Runtime.Series; x != nil && len(x.HeapBytes) > 0 {
			var heap *writtenTrack
			for _, tr := range s.tracks {
				if tr.name == "heap in use" {
					heap = tr
				}
			}
			check.True(t, heap != nil && fmt.Sprint(heap.counters) == fmt.Sprint(x.HeapBytes),
				"%s: the heap is %v, want %v", name, heap, x.HeapBytes)
		}
		check.False(t, name == "recorded" && wakes == 0, "the recorded trace has no wakes: nothing was tested")
	}
}

// checkSegments compares slices with a request's segments.
func checkSegments(t *testing.T, q *report.Request, slices []slice) {
	t.Helper()
	if len(slices) != len(q.Segments) {
		t.Errorf("request %s: %d segments of %d", q.ID, len(slices), len(q.Segments))
		return
	}
	for i, s := range q.Segments {
		got := slices[i]
		if got.name != string(s.Cause) || got.from != s.StartNS || got.len != s.DurationNS || got.notes["goroutine"] != fmt.Sprint(s.Goroutine) && s.Goroutine != 0 || s.Site != nil && !strings.HasPrefix(got.notes["site"], s.Site.Func) {
			t.Errorf("request %s: segment %d is %+v, want %+v", q.ID, i, got, s)
		}
	}
}

// checkFlows checks that each flow goes from one goroutine to another.
func checkFlows(t *testing.T, s *shown) {
	t.Helper()
	for id, f := range s.flows {
		check.True(t, f[0] != nil && f[1] != nil && strings.HasPrefix(f[0].name, "G") && strings.HasPrefix(f[1].name, "G"),
			"flow %d leads from %v to %v", id, f[0], f[1])
	}
}

var hexID = regexp.MustCompile(`^[0-9a-f]+$`)

// TestOTLP decodes spans by the field names of OTLP/JSON: durations are the report's, children add up to their root.
func TestOTLP(t *testing.T) {
	for name, r := range reports(t) {
		if r.Input.Start == nil {
			check.Error(t, export.OTLP(io.Discard, r), "%s: no time of day, no error", name)
			continue
		}
		data := write(t, export.OTLP, r)
		check.True(t, bytes.Equal(data, write(t, export.OTLP, r)), "%s: written twice, different spans", name)
		if len(data) == 0 && !slices.ContainsFunc(r.Groups, func(g report.Group) bool { return len(g.Slowest) > 0 }) {
			continue
		}
		var doc struct {
			ResourceSpans []struct {
				ScopeSpans []struct {
					Spans []struct {
						TraceID, SpanID, ParentSpanID, Name string
						Kind                                int
						StartTimeUnixNano, EndTimeUnixNano  int64 `json:",string"`
					}
				}
			}
		}
		must.Do(t, json.Unmarshal(data, &doc), name)
		spans := doc.ResourceSpans[0].ScopeSpans[0].Spans
		spanIDs, sums := map[string]bool{}, map[string]int64{}
		i := 0
		for _, g := range r.Groups {
			for _, q := range g.Slowest {
				for k := -1; k < len(q.Segments); k++ {
					s := spans[i]
					i++
					must.True(t, len(s.TraceID) == 32 && len(s.SpanID) == 16 && hexID.MatchString(s.TraceID+s.SpanID) && !spanIDs[s.SpanID],
						"%s: ids %q %q", name, s.TraceID, s.SpanID)
					spanIDs[s.SpanID] = true
					from, ns := q.StartNS, q.LatencyNS
					if k >= 0 {
						from, ns = q.Segments[k].StartNS, q.Segments[k].DurationNS
						check.True(t, spanIDs[s.ParentSpanID], "%s: a span before its parent", name)
						sums[s.ParentSpanID] += ns
					}
					check.True(t, s.StartTimeUnixNano == r.Input.Start.UnixNano()+from && s.EndTimeUnixNano-s.StartTimeUnixNano == ns,
						"%s: span %q from %d to %d, want %d ns from %d", name, s.Name, s.StartTimeUnixNano, s.EndTimeUnixNano, ns, from)
				}
			}
		}
		check.True(t, i == len(spans), "%s: %d spans, want %d", name, len(spans), i)
	}
}
