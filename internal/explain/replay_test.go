package explain_test

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// An adder sums up the requests of a replay.
type adder struct {
	t      *testing.T
	count  map[string]int
	total  map[string]int64
	causes map[[2]string]int64
	full   map[string]report.Request
	wanted map[string]bool
	gens   int
	fail   error
}

func (a *adder) Generation(*timeline.Gen, *tracefmt.Symbols, bool) error {
	a.gens++
	return a.fail
}

func (a *adder) Request(q *export.Request) error {
	a.count[q.Group.ID]++
	a.total[q.Group.ID] += q.LatencyNS
	var sum int64
	for i, ns := range q.CauseNS {
		sum += ns
		if ns != 0 {
			a.causes[[2]string{q.Group.ID, cause.Cause(i).String()}] += ns
		}
	}
	check.True(a.t, sum == q.LatencyNS, "request %s took %d ns, its causes %d", q.ID, q.LatencyNS, sum)
	if a.wanted[q.ID] {
		a.full[q.ID] = q.Full()
	}
	return nil
}

func (a *adder) Close(int64) error { return nil }

// TestReplayOfPart: the replay of the first part of a trace passes its requests and reads no further than needed.
func TestReplayOfPart(t *testing.T) {
	data := testprog.Trace(t, "generations")
	gens := func(from, to time.Duration) (int, int64) {
		var replayer explain.Replayer
		rep := must.Have(explain.Explain(context.Background(), bytes.NewReader(data), explain.Options{Replayer: &replayer, Selection: pass.Selection{From: from, To: to}}))(t)
		a := adder{t: t, count: map[string]int{}, total: map[string]int64{}, causes: map[[2]string]int64{}}
		must.Do(t, replayer.Replay(context.Background(), bytes.NewReader(data), &a))
		for _, g := range rep.Groups {
			check.True(t, a.count[g.ID] == g.Count && a.total[g.ID] == g.TotalNS,
				"from %d to %d: %s: %d requests of %d ns, want %d of %d", from, to, g.Name, a.count[g.ID], a.total[g.ID], g.Count, g.TotalNS)
		}
		return a.gens, rep.Input.DurationNS
	}
	all, length := gens(0, 0)
	must.True(t, all >= 5, "%d generations: too few for this test", all)
	if n, _ := gens(0, time.Duration(length)/5); n >= all {
		t.Errorf("%d generations of %d were read for the first fifth", n, all)
	}
	if n, _ := gens(time.Duration(length)/5, 0); n != all {
		t.Errorf("%d generations of %d were read up to the end", n, all)
	}
}

// TestReplayEqualsReport compares the requests of a replay with the report: their number, latency and causes by group,
// and the slowest requests in full.
func TestReplayEqualsReport(t *testing.T) {
	for _, program := range []string{"http1", "http1-middleware", "http2", "grpc", "tasks", "locks", "generations", "channels"} {
		t.Run(program, func(t *testing.T) {
			data := testprog.Trace(t, program)
			var replayer explain.Replayer
			rep := must.Have(explain.Explain(context.Background(), bytes.NewReader(data), explain.Options{Replayer: &replayer, Slowest: 2}))(t)
			a := adder{t: t, count: map[string]int{}, total: map[string]int64{}, causes: map[[2]string]int64{}, full: map[string]report.Request{}, wanted: map[string]bool{}}
			for _, g := range rep.Groups {
				for _, q := range g.Slowest {
					a.wanted[q.ID] = true
				}
			}
			must.Do(t, replayer.Replay(context.Background(), bytes.NewReader(data), &a))
			for _, g := range rep.Groups {
				check.True(t, a.count[g.ID] == g.Count && a.total[g.ID] == g.TotalNS,
					"%s: %d requests of %d ns, want %d of %d", g.Name, a.count[g.ID], a.total[g.ID], g.Count, g.TotalNS)
				for _, c := range g.Bands[0].Causes {
					a.causes[[2]string{g.ID, string(c.Cause)}] -= c.TotalNS
				}
				for _, q := range g.Slowest {
					q.Lanes, q.Wakes = nil, nil
					if got := a.full[q.ID]; !reflect.DeepEqual(got, q) {
						t.Errorf("%s: request %s is %+v, want %+v", g.Name, q.ID, got, q)
					}
				}
			}
			for k, ns := range a.causes {
				if ns != 0 && a.causes[[2]string{k[0], "other"}] == 0 {
					t.Errorf("cause %s of group %s: %d ns too many", k[1], k[0], ns)
				}
			}
			check.True(t, a.gens != 0, "no generation")
			a.fail = errors.New("the disk is full")
			if err := replayer.Replay(context.Background(), bytes.NewReader(data), &a); !errors.Is(err, a.fail) {
				t.Errorf("a sink's error comes back as %v", err)
			}
		})
	}
}
