package export_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt/refdata"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// replayed explains a trace and gives it to a sink made from its report.
func replayed(t *testing.T, data []byte, make func(io.Writer, *report.Report) export.Sink) ([]byte, *report.Report) {
	t.Helper()
	return part(t, data, 0, 0, make)
}

var traced = []string{"http1", "http1-long", "grpc", "tasks", "generations", "iterpull", "gcstress", "procschange", "filesyscall"}

// TestPerfettoTrace holds whole traces to their reports and to the goroutines'
// timelines.
func TestPerfettoTrace(t *testing.T) {
	for _, program := range traced {
		t.Run(program, func(t *testing.T) {
			if testing.Short() && program != "tasks" && program != "procschange" {
				t.Skip("takes seconds")
			}
			data := testprog.Trace(t, program)
			out, rep := replayed(t, data, func(w io.Writer, r *report.Report) export.Sink {
				return export.NewPerfettoTrace(w, r, export.Options{All: true})
			})
			check.True(t, len(out) <= 10*len(data), "%d bytes for a trace of %d bytes, want at most ten times as many", len(out), len(data))
			s := showPerfetto(t, out)
			checkRequests(t, s, rep, true)
			checkFlows(t, s)
			checkRuntime(t, s, rep)
			checkTimelines(t, s, data)
			checkRegions(t, s, data)
			if len(s.flows) == 0 && program != "filesyscall" {
				t.Error("no flows")
			}
			if rep.Input.Start != nil && s.realtime != uint64(rep.Input.Start.UnixNano()) {
				t.Errorf("the trace begins at %d, by the report at %v", s.realtime, rep.Input.Start)
			}
		})
	}
}

// checkRegions holds the regions and log messages below goroutines to the annotations of the trace.
func checkRegions(t *testing.T, s *shown, data []byte) {
	t.Helper()
	want, got := map[string]int{}, map[string]int{}
	timelinetest.ForEachGen(t, data, 2, func(g *timeline.Gen) {
		for i := range g.User {
			switch g.User[i].Kind {
			case timeline.RegionBegin:
				want["region"]++
			case timeline.LogMessage:
				want["log"]++
			}
		}
	})
	for _, tr := range s.tracks {
		switch tr.name {
		case "regions":
			got["region"] += len(tr.slices)
		case "log":
			got["log"] += tr.instants
		}
	}
	check.True(t, maps.Equal(got, want), "regions and messages: %v, want %v", got, want)
}

// checkRequests holds the requests' tracks to the report: number, latency and
// causes of each group, in sum.
func checkRequests(t *testing.T, s *shown, rep *report.Report, segments bool) {
	t.Helper()
	root := s.byName(0, "requests")
	for _, g := range rep.Groups {
		if g.Count == 0 {
			continue
		}
		count, total := 0, int64(0)
		causes := map[string]int64{}
		group := s.byName(root.uuid, g.Name)
		if group == nil {
			t.Errorf("no track for group %s", g.Name)
			continue
		}
		for _, tr := range s.tracks {
			if tr.parent != group.uuid {
				continue
			}
			for _, x := range tr.slices {
				switch x.depth {
				case 0:
					count++
					total += x.len
				case 1:
					causes[x.name] += x.len
				}
			}
		}
		check.True(t, count == g.Count && total == g.TotalNS, "%s: %d requests of %d ns, want %d of %d", g.Name, count, total, g.Count, g.TotalNS)
		if !segments {
			continue
		}
		for _, c := range g.Bands[0].Causes {
			causes[string(c.Cause)] -= c.TotalNS
		}
		for c, ns := range causes {
			if ns != 0 && causes[string(report.CauseOther)] == 0 {
				t.Errorf("%s: %d ns of %s too many", g.Name, ns, c)
			}
		}
	}
}

// checkRuntime holds GC and stops of the world to the report.
func checkRuntime(t *testing.T, s *shown, rep *report.Report) {
	t.Helper()
	var gc, stw, heap int64
	stops, loads := 0, 0
	for _, tr := range s.tracks {
		for _, x := range tr.slices {
			switch {
			case tr.name == "GC mark phases":
				gc += x.len
			case strings.HasPrefix(tr.name, "stops of the world"):
				stw += x.len
				stops++
			}
		}
		if tr.name == "heap in use" {
			for _, c := range tr.counters {
				heap = max(heap, c[1])
			}
		}
		if tr.name == "goroutines running" {
			loads = len(tr.doubles)
		}
	}
	want, count := int64(0), 0
	for _, k := range rep.Runtime.STW {
		want += k.TotalNS
		count += k.Count
	}
	check.True(t, gc == rep.Runtime.GC.MarkNS && heap == rep.Runtime.GC.HeapMaxBytes,
		"%d ns of mark phases, a heap of %d bytes; by the report %d, %d", gc, heap, rep.Runtime.GC.MarkNS, rep.Runtime.GC.HeapMaxBytes)
	// An interval that continues at the end of the trace is in no sum of the report.
	check.True(t, stw >= want && stops >= count && stops <= count+1, "%d stops of the world of %d ns; by the report %d of %d", stops, stw, count, want)
	if loads == 0 && rep.Input.DurationNS > 10e6 && rep.Input.Events > 1000 {
		t.Error("nothing about how many goroutines ran")
	}
}

// checkTimelines holds goroutines' tracks to their spans, and the Ps' tracks
// to the runs.
func checkTimelines(t *testing.T, s *shown, data []byte) {
	t.Helper()
	var win timeline.Window
	var runs timeline.Runs
	running := map[string]int64{}
	number := map[string]int{}
	count := func(r timeline.Run) {
		p := fmt.Sprintf("P%d", r.P)
		number[p]++
		running[p] += r.To - max(r.From, win.Gens[0].Base)
	}
	timelinetest.ForEachGen(t, data, 2, func(g *timeline.Gen) {
		win.Gens = append(win.Gens, g)
		runs.Add(g, count)
	})
	runs.Close(count)
	start := win.Gens[0].Base
	ps := s.byName(0, "Ps")
	for _, tr := range s.tracks {
		if tr.parent != ps.uuid {
			continue
		}
		var sum int64
		for _, x := range tr.slices {
			sum += x.len
		}
		// Runs of a P that overlap by the clocks of two threads are cut.
		check.True(t, len(tr.slices) == number[tr.name] && sum <= running[tr.name] && sum >= running[tr.name]-running[tr.name]/50-1e6,
			"%s: %d runs of %d ns, want %d of %d", tr.name, len(tr.slices), sum, number[tr.name], running[tr.name])
		delete(number, tr.name)
	}
	delete(number, fmt.Sprintf("P%d", uint32(timeline.NoP)))
	check.True(t, len(number) == 0, "runs on Ps without a track: %v", number)
	goroutineTracks := map[string]*writtenTrack{}
	gos := s.byName(0, "goroutines")
	for _, tr := range s.tracks {
		if tr.parent == gos.uuid {
			id, _, _ := strings.Cut(tr.name, " ")
			goroutineTracks[id] = tr
		}
	}
	done := map[uint64]bool{}
	last := win.Gens[len(win.Gens)-1].End
	var buf []timeline.Span
	for _, g := range win.Gens {
		g.Goroutines(func(id uint64) {
			if done[id] {
				return
			}
			done[id] = true
			buf = win.Spans(id, start, last, buf[:0])
			var want []slice
			for i, x := range buf {
				if x.State == timeline.NotAlive {
					continue
				}
				from, to := max(x.Start, start), min(x.End, last)
				if n := len(want); x.Origin == timeline.OriginCut && i > 0 && n > 0 && buf[i-1].State == timeline.Running {
					want[n-1].len += to - from
				} else {
					want = append(want, slice{name: x.State.String(), from: from - start, len: to - from})
				}
			}
			tr := goroutineTracks[fmt.Sprintf("G%d", id)]
			if tr == nil {
				check.True(t, len(want) == 0, "goroutine %d has no track", id)
				return
			}
			if len(tr.slices) != len(want) {
				t.Errorf("goroutine %d: %d states, want %d", id, len(tr.slices), len(want))
				return
			}
			for i, x := range tr.slices {
				if x.from != want[i].from || x.len != want[i].len || !strings.HasPrefix(x.name, want[i].name) {
					t.Errorf("goroutine %d: state %d is %+v, want %+v", id, i, x, want[i])
					return
				}
			}
		})
	}
}

// TestPerfettoOfLargeTraces checks the omissions without --all.
func TestPerfettoOfLargeTraces(t *testing.T) {
	data := testprog.Trace(t, "http1")
	chosen := ""
	out, rep := replayed(t, data, func(w io.Writer, r *report.Report) export.Sink {
		r.Input.Events = export.MaxFullEvents + 1
		sink := export.NewPerfettoTrace(w, r, export.Options{})
		chosen = sink.Omissions()
		return sink
	})
	s := showPerfetto(t, out)
	checkRequests(t, s, rep, false)
	gos, requests := s.byName(0, "goroutines"), s.byName(0, "requests")
	wanted, full := map[string]bool{}, map[string]report.Request{}
	for _, g := range rep.Groups {
		for _, q := range g.Slowest {
			full[q.ID] = q
			for _, l := range q.Lanes {
				wanted[fmt.Sprintf("G%d", l.Goroutine)] = true
			}
		}
	}
	parents := map[uint64]bool{}
	for _, tr := range s.tracks {
		if tr.parent == requests.uuid {
			parents[tr.uuid] = true
		}
	}
	found := 0
	for _, tr := range s.tracks {
		if id, _, _ := strings.Cut(tr.name, " "); tr.parent == gos.uuid && !wanted[id] {
			t.Errorf("goroutine %s takes part in no slow request", tr.name)
		}
		if !parents[tr.parent] {
			continue
		}
		for i, x := range tr.slices {
			if x.depth != 0 {
				continue
			}
			var segments []slice
			for _, y := range tr.slices[i+1:] {
				if y.depth == 0 {
					break
				}
				segments = append(segments, y)
			}
			q, ok := full[x.notes["id"]]
			if ok {
				found++
				checkSegments(t, &q, segments)
			} else if len(segments) > 0 {
				t.Errorf("request %s has segments", x.notes["id"])
			}
		}
	}
	check.True(t, found == len(full) && found != 0, "%d slow requests, want %d", found, len(full))
	check.True(t, strings.Contains(chosen, "--all"), "the omissions are not described: %q", chosen)
}

// TestPerfettoOfOddTraces writes the test traces of the reference reader, of a few events each, which contain everything that
// can happen at the border of two generations.
func TestPerfettoOfOddTraces(t *testing.T) {
	traces := must.Have(refdata.Traces())(t)
	for _, tr := range traces {
		t.Run(tr.Name, func(t *testing.T) {
			data := must.Have(tracetext.Assemble(tr.Text))(t)
			var replayer explain.Replayer
			rep, err := explain.Explain(context.Background(), bytes.NewReader(data), explain.Options{Replayer: &replayer})
			if err != nil {
				t.Skip("not one whole generation")
			}
			var out bytes.Buffer
			must.Do(t, replayer.Replay(context.Background(), bytes.NewReader(data), export.NewPerfettoTrace(&out, rep, export.Options{All: true})))
			full := showPerfetto(t, out.Bytes())
			checkFlows(t, full)
			for _, x := range parts(rep.Input.DurationNS) {
				if x[1] <= x[0] {
					continue // too short a trace for that
				}
				out, rep := part(t, data, x[0], x[1], perfettoOf(x[0], x[1]))
				s := showPerfetto(t, out)
				checkFlows(t, s)
				compareSorted(t, fmt.Sprintf("from %d to %d", x[0], x[1]), contents(full, x[0], x[1], rep), contents(s, math.MinInt64, math.MaxInt64, rep))
			}
		})
	}
}

// TestPerfettoThreads: with the kernel's events a Perfetto trace has the processes that had each CPU, the states of threads
// and peers within those of goroutines, and arrivals. So has that of a report alone.
func TestPerfettoThreads(t *testing.T) {
	testPerfettoThreads(t, "cases/kernel-mmap.whylate", "own", "other", "cpu-wait", "disk")
	testPerfettoThreads(t, "peers/python.whylate", "own", "computing", "asleep until a timer", "waiting for a disk in fsync", "waiting for a lock or another of its threads")
}

func testPerfettoThreads(t *testing.T, recording string, kinds ...string) {
	b := must.Have(bundle.Open(testprog.Recording(t, recording)))(t)
	defer b.Close()
	r, _, err := b.Trace()
	must.Do(t, err)
	data := must.Have(io.ReadAll(r))(t)
	events := must.Have(b.KernelEvents())(t)
	e := &explained{data: data}
	e.rep = must.Have(explain.Explain(t.Context(), bytes.NewReader(data), explain.Options{Kernel: bytes.NewReader(events), Replayer: &e.replayer}))(t)
	var fromReport bytes.Buffer
	must.Do(t, export.Perfetto(&fromReport, e.rep))
	for name, out := range map[string][]byte{
		"trace": e.replay(t, func(w io.Writer, r *report.Report) export.Sink {
			return export.NewPerfettoTrace(w, r, export.Options{All: true})
		}),
		"report": fromReport.Bytes(),
	} {
		s := showPerfetto(t, out)
		found := map[string]int{}
		for _, track := range s.tracks {
			for _, x := range track.slices {
				switch {
				case strings.HasPrefix(track.name, "CPU ") && x.name == report.OwnThreads:
					found["own"]++
				case strings.HasPrefix(track.name, "CPU "):
					found["other"]++
				case strings.HasPrefix(track.name, "G") && x.depth == 1:
					kind, _, _ := strings.Cut(x.name, " ")
					if _, words, isPeer := strings.Cut(x.name, "): "); isPeer {
						kind = words
					}
					found[kind]++
				}
			}
		}
		for _, kind := range kinds {
			check.True(t, found[kind] != 0, "%s: no slices of %s: %v", name, kind, found)
		}
	}
}
