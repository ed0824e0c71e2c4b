package export_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// explained is a part of a trace's time, which is explained once and read again for each sink.
type explained struct {
	data     []byte
	rep      *report.Report
	replayer explain.Replayer
}

func explainPart(t *testing.T, data []byte, from, to int64) *explained {
	t.Helper()
	e := &explained{data: data}
	e.rep = must.Have(explain.Explain(context.Background(), bytes.NewReader(data), explain.Options{Name: "x.trace", Selection: pass.Selection{From: time.Duration(from), To: time.Duration(to)}, Replayer: &e.replayer}))(t)
	return e
}

// replay passes the part to a sink created from its report.
func (e *explained) replay(t *testing.T, make func(io.Writer, *report.Report) export.Sink) []byte {
	t.Helper()
	var out bytes.Buffer
	must.Do(t, e.replayer.Replay(context.Background(), bytes.NewReader(e.data), make(&out, e.rep)))
	return out.Bytes()
}

// part explains a part of a trace's time and passes it to a sink created from its report.
func part(t *testing.T, data []byte, from, to int64, make func(io.Writer, *report.Report) export.Sink) ([]byte, *report.Report) {
	t.Helper()
	e := explainPart(t, data, from, to)
	return e.replay(t, make), e.rep
}

// parts returns parts of a trace of the given length: inside, at its ends, very short, and after its end.
func parts(length int64) [][2]int64 {
	return [][2]int64{{length * 3 / 10, length * 7 / 10}, {0, length / 3}, {length * 2 / 3, 2 * length}, {length / 2, length/2 + 1}, {2 * length, 0}}
}

func perfettoOf(from, to int64) func(io.Writer, *report.Report) export.Sink {
	return func(w io.Writer, r *report.Report) export.Sink {
		return export.NewPerfettoTrace(w, r, export.Options{All: true, FromNS: from, ToNS: to})
	}
}

// TestPerfettoOfParts compares the Perfetto trace of a part of the time with that of the whole trace: it contains the slices
// of the part, cut at its borders, the counters' values in it, and every request that ends in it, uncut.
func TestPerfettoOfParts(t *testing.T) {
	for _, program := range []string{"http1", "http1-long", "grpc", "tasks", "generations", "gcstress", "procschange"} {
		t.Run(program, func(t *testing.T) {
			if testing.Short() && program != "tasks" && program != "procschange" {
				t.Skip("takes seconds")
			}
			data := testprog.Trace(t, program)
			out, all := replayed(t, data, perfettoOf(0, 0))
			full := showPerfetto(t, out)
			for _, x := range parts(all.Input.DurationNS) {
				out, rep := part(t, data, x[0], x[1], perfettoOf(x[0], x[1]))
				s := showPerfetto(t, out)
				checkRequests(t, s, rep, true)
				checkFlows(t, s)
				to := x[1]
				to = cmp.Or(to, math.MaxInt64)
				want, got := contents(full, x[0], to, rep), contents(s, math.MinInt64, math.MaxInt64, rep)
				compareSorted(t, fmt.Sprintf("from %d to %d", x[0], x[1]), want, got)
				if x[0] < all.Input.DurationNS && len(got) == 0 {
					t.Errorf("from %d to %d nothing was written", x[0], x[1])
				}
			}
		})
	}
}

// TestPartOfLargeTrace: a small part of a large trace is shown in full without --all; of a large part only the slow requests
// in it are.
func TestPartOfLargeTrace(t *testing.T) {
	r := &report.Report{Input: report.Input{Events: 10 * export.MaxFullEvents, DurationNS: 10e9}}
	for _, x := range []struct {
		from, to int64
		all      bool
	}{{0, 0, false}, {2e9, 29e8, true}, {2e9, 32e8, false}, {0, 9e8, true}, {91e8, 0, true}, {91e8, 20e9, true}, {0, 12e8, false}} {
		sink := export.NewPerfettoTrace(io.Discard, r, export.Options{FromNS: x.from, ToNS: x.to})
		if chosen := sink.Omissions(); (chosen == "") != x.all {
			t.Errorf("from %d to %d: the omissions are %q", x.from, x.to, chosen)
		}
	}
}

// TestPartsAddUp compares the formats with requests with the report of the same part of the time.
func TestPartsAddUp(t *testing.T) {
	data := testprog.Trace(t, "http1")
	out, all := replayed(t, data, sinkOf(t, "csv", export.Options{Rows: export.RowRequests}))
	number := len(readTable(t, out).ids)
	for _, x := range parts(all.Input.DurationNS) {
		e := explainPart(t, data, x[0], x[1])
		table := readTable(t, e.replay(t, sinkOf(t, "csv", export.Options{Rows: export.RowRequests})))
		table.check(t, e.rep)
		if n := len(table.ids); x[1]-x[0] > all.Input.DurationNS/10 && n == 0 && x[0] < all.Input.DurationNS || n >= number {
			t.Errorf("from %d to %d: %d of %d requests", x[0], x[1], n, number)
		}
		readLines(t, e.replay(t, sinkOf(t, "jsonl", export.Options{All: true}))).check(t, e.rep)
		if e.rep.Input.Start == nil {
			continue
		}
		out := e.replay(t, func(w io.Writer, r *report.Report) export.Sink {
			return must.Have(export.NewSpans(r, export.EncodingProtobuf, true, export.ToWriter(w)))(t)
		})
		totalsOfSpans(t, spansOfProtobuf(t, out)).check(t, e.rep)
	}
}

// contents returns the contents of a Perfetto trace between two times, a line each, sorted.
func contents(s *shown, from, to int64, rep *report.Report) []string {
	root := func(tr *writtenTrack) (string, *writtenTrack) {
		child := tr
		for tr.parent != 0 {
			child, tr = tr, s.tracks[tr.parent]
		}
		return tr.name, child
	}
	groups := map[string]bool{}
	for _, g := range rep.Groups {
		groups[g.Name] = true
	}
	var out []string
	for _, tr := range s.tracks {
		kind, top := root(tr)
		name, _, _ := strings.Cut(tr.name, " ") // G7, P3: names need not be known at all times
		if kind == "runtime" {
			name, _, _ = strings.Cut(tr.name, " (") // rows
		}
		if kind == "requests" {
			name = top.name
		}
		inside := false // this request
		for _, x := range tr.slices {
			a, b := x.from, x.from+x.len
			if kind == "requests" {
				if x.depth == 0 {
					inside = b >= from && b < to && groups[top.name]
				}
				if !inside {
					continue
				}
			} else {
				if a >= to || b < from || b == from && a < b {
					continue
				}
				a, b = max(a, from), min(b, to)
			}
			notes := []string{}
			for k, v := range x.notes {
				notes = append(notes, k+"="+v)
			}
			slices.Sort(notes)
			if title := x.name; kind != "Ps" {
				notes = append(notes, title)
			}
			out = append(out, fmt.Sprintf("%s/%s %d+%d depth %d %q", kind, name, a, b-a, x.depth, notes))
		}
		var points []string
		steps := func(n int, timeOf func(int) int64, value func(int) any) {
			last := -1
			for i := range n {
				switch {
				case timeOf(i) <= from:
					last = i
				case timeOf(i) < to:
					points = append(points, fmt.Sprintf("%s/%s at %d: %v", kind, tr.name, timeOf(i), value(i)))
				}
			}
			if last >= 0 && from <= rep.Input.DurationNS {
				points = append(points, fmt.Sprintf("%s/%s at %d: %v", kind, tr.name, max(timeOf(last), from), value(last)))
			}
		}
		order := make([]int, len(tr.counters)) // in order of time, as a viewer takes them
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(tr.counters[a][0], tr.counters[b][0]) })
		steps(len(order), func(i int) int64 { return tr.counters[order[i]][0] }, func(i int) any { return tr.counters[order[i]][1] })
		steps(len(tr.doubles), func(i int) int64 { return tr.doubleAt[i] }, func(i int) any { return tr.doubles[i] })
		out = append(out, points...)
	}
	for id, f := range s.flows {
		if at := s.flowAt[id]; at >= from && at < to {
			a, _, _ := strings.Cut(f[0].name, " ")
			b, _, _ := strings.Cut(f[1].name, " ")
			out = append(out, fmt.Sprintf("wake of %s by %s at %d", b, a, at))
		}
	}
	slices.Sort(out)
	return out
}

// compareSorted reports the differences between two sorted lists.
func compareSorted(t *testing.T, subject string, want, got []string) {
	t.Helper()
	n := 0
	for len(want) > 0 || len(got) > 0 {
		switch {
		case len(got) == 0 || len(want) > 0 && want[0] < got[0]:
			t.Errorf("%s: missing: %s", subject, want[0])
			want, n = want[1:], n+1
		case len(want) == 0 || got[0] < want[0]:
			t.Errorf("%s: too much: %s", subject, got[0])
			got, n = got[1:], n+1
		default:
			want, got = want[1:], got[1:]
		}
		if n > 10 {
			return
		}
	}
}
