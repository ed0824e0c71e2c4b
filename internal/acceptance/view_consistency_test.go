package acceptance_test

import (
	"bytes"
	"context"
	"reflect"
	"runtime"
	"runtime/trace"
	"slices"
	"testing"
	"time"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// tasksTrace records a few hundred tasks that compute, sleep and allocate.
func tasksTrace(t *testing.T) []byte {
	t.Helper()
	if trace.IsEnabled() {
		t.Skip("a trace is being recorded already (go test -trace)")
	}
	var out bytes.Buffer
	must.Do(t, trace.Start(&out))
	var keep [][]byte
	for i := range 300 {
		ctx, task := trace.NewTask(context.Background(), "job")
		done := make(chan bool)
		go func() {
			trace.Log(ctx, "i", "x")
			if i%10 == 0 {
				time.Sleep(2 * time.Millisecond)
			}
			close(done)
		}()
		keep = append(keep[:0], make([]byte, 1<<16))
		<-done
		task.End()
		if i%50 == 0 {
			runtime.GC()
		}
	}
	trace.Stop()
	return out.Bytes()
}

// TestViewDataAgrees compares the parts of a report that only views use with the parts that they repeat in another form.
func TestViewDataAgrees(t *testing.T) {
	data := tasksTrace(t)
	rep := must.Have(whylate.Explain(context.Background(), bytes.NewReader(data), whylate.Options{Workers: 1}))(t)
	parallel := must.Have(whylate.Explain(context.Background(), bytes.NewReader(data), whylate.Options{Workers: 3}))(t)
	must.True(t, len(rep.Groups) != 0 && rep.Groups[0].Count >= 290, "want one group of 300 tasks, got %d groups", len(rep.Groups))
	for i := range rep.Groups {
		g := &rep.Groups[i]
		byCause := map[string]int64{}
		var sum int64
		for cause, list := range g.HistogramCauses {
			must.True(t, len(list) == len(g.Histogram), "%s: %d buckets of %s, %d buckets", g.Name, len(list), cause, len(g.Histogram))
			for k, ns := range list {
				byCause[string(cause)] += ns
				sum += ns
				check.True(t, ns >= 0 && ns <= g.Histogram[k][0]*g.Histogram[k][1],
					"%s: %d ns of %s in a bucket of %d requests up to %d ns", g.Name, ns, cause, g.Histogram[k][1], g.Histogram[k][0])
			}
		}
		check.True(t, sum == g.TotalNS, "%s: the buckets' causes sum to %d ns, the group to %d", g.Name, sum, g.TotalNS)
		want := map[string]int64{}
		for _, c := range g.Bands[0].Causes {
			want[string(c.Cause)] += c.TotalNS
		}
		check.False(t, want[string(report.CauseOther)] == 0 && !reflect.DeepEqual(byCause, want),
			"%s: by bucket %v, by band %v", g.Name, byCause, want)
		if g.Count > 20 {
			must.True(t, g.Typical != nil, "%s has no typical request", g.Name)
			var total int64
			for _, s := range g.Typical.Segments {
				total += s.DurationNS
			}
			check.True(t, total == g.Typical.LatencyNS, "the typical request's segments sum to %d ns, its latency is %d", total, g.Typical.LatencyNS)
			check.False(t, slices.ContainsFunc(g.Slowest, func(r report.Request) bool { return r.ID == g.Typical.ID }),
				"the typical request is one of the slowest")
		}
		check.True(t, reflect.DeepEqual(g.Typical, parallel.Groups[i].Typical), "%s: the typical request differs with 3 workers", g.Name)
	}
	s := rep.Runtime.Series
	must.True(t, s != nil && len(s.HeapBytes) != 0 && len(s.GC) >= 6 && len(s.STW) >= 6 && len(s.PsIdle) != 0, "series are missing: %+v", s)
	check.True(t, reflect.DeepEqual(s, parallel.Runtime.Series), "the series differ with 3 workers")
	for name, list := range map[string][][2]int64{"heap": s.HeapBytes, "goal": s.GoalBytes, "procs": s.GOMAXPROCS, "gc": s.GC, "stw": s.STW, "idle": s.PsIdle, "running": s.Running, "runnable": s.Runnable, "syscall": s.Syscall} {
		check.True(t, slices.IsSortedFunc(list, func(a, b [2]int64) int { return int(a[0] - b[0]) }), "%s: not in order of time", name)
		for _, p := range list {
			check.True(t, p[0] >= 0 && p[0] <= rep.Input.DurationNS && p[1] >= 0, "%s: %v is outside the trace", name, p)
		}
	}
	var marked int64
	for _, p := range s.GC {
		marked += p[1]
	}
	check.True(t, marked == rep.Runtime.GC.MarkNS, "the mark phases last %d ns together, the sum is %d", marked, rep.Runtime.GC.MarkNS)
	if len(s.Running) != len(s.PsIdle) || len(s.Runnable) != len(s.Running) || len(s.Syscall) != len(s.Running) {
		t.Errorf("%d steps of goroutines running, %d ready to run, %d in system calls, %d of idle Ps", len(s.Running), len(s.Runnable), len(s.Syscall), len(s.PsIdle))
	}
	anyRan := false
	for _, p := range s.Running {
		anyRan = anyRan || p[1] > 0
		if maxRunning := int64(1000 * rep.Input.GOMAXPROCS); p[1] > maxRunning+maxRunning/20 {
			t.Errorf("at %d ns %.3f goroutines ran at a time on %d Ps", p[0], float64(p[1])/1e3, rep.Input.GOMAXPROCS)
		}
	}
	check.True(t, anyRan, "nothing ran")
	var idle float64
	for i, p := range s.PsIdle {
		width := rep.Input.DurationNS - p[0]
		if i+1 < len(s.PsIdle) {
			width = s.PsIdle[i+1][0] - p[0]
		}
		idle += float64(p[1]) / 1e6 * float64(width)
	}
	if got, want := idle/float64(rep.Input.DurationNS), rep.Runtime.Sched.PsIdle; got < want-0.02 || got > want+0.02 {
		t.Errorf("a P was idle %.3f of the time by the series, %.3f by the sum", got, want)
	}
}
