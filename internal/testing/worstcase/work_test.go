package worstcase

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// maxGrowth is the largest allowed ratio of costs for a trace of twice the length.
const maxGrowth = 2.3

// countWork returns the number of requests, and the work of finding and walking them: passed events
// and steps.
func countWork(t *testing.T, data []byte) (requests int, work int64) {
	t.Helper()
	rd := must.Have(tracefmt.NewReader(bytes.NewReader(data), tracefmt.Options{}))(t)
	dec := timeline.NewDecoder(rd, 2)
	defer dec.Close()
	var passed atomic.Int64
	win := timeline.Window{Passed: &passed}
	finder := request.NewFinder(dec.Symbols, &win, request.Options{Workers: 2})
	dec.Classify = request.NewClassifier(dec.Symbols).Flags
	walker := critpath.New(&win, dec.Symbols)
	steps := 0
	walk := func(reqs []request.Request) {
		for i := range reqs {
			if r := &reqs[i]; r.Piece == request.WholeRequest {
				requests++
				steps += len(walker.Walk(r.G, r.Start, r.End))
			}
		}
	}
	end := int64(0)
	for {
		g, err := dec.Next(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		must.Do(t, err)
		win.Gens = append(win.Gens, g)
		finder.InternMarks(dec.Symbols, g)
		walk(request.AppendUnits(finder.Add(g), finder.Series()...))
		end = max(end, g.End)
	}
	walk(finder.Finish(end))
	return requests, passed.Load() + int64(steps)
}

// TestWorkIsLinear: a trace of twice the length needs at most maxGrowth times the work for all its
// requests, however the requests depend on each other.
func TestWorkIsLinear(t *testing.T) {
	for _, s := range requestShapes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			n := 4000
			if testing.Short() {
				n = 1000
			}
			smallRequests, smallWork := countWork(t, build(t, s.make, n))
			largeRequests, largeWork := countWork(t, build(t, s.make, 2*n))
			t.Logf("%d and %d requests, work %d and %d: %.2f times", smallRequests, largeRequests, smallWork, largeWork, float64(largeWork)/float64(smallWork))
			check.True(t, smallRequests >= n && largeRequests >= 2*n,
				"%d and %d requests of %d and %d were found: this tests nothing", smallRequests, largeRequests, n, 2*n)
			check.True(t, float64(largeWork) <= maxGrowth*float64(smallWork),
				"twice as much happens, and takes %.1f times the work", float64(largeWork)/float64(smallWork))
		})
	}
}

// TestWorkWithHoles is TestWorkIsLinear for a goroutine with a missing part, whose pieces have gaps in
// their numbers. One flipped bit causes that for hundreds of goroutines.
func TestWorkWithHoles(t *testing.T) {
	make := func(n int) []byte {
		b := tracetext.New(26)
		m, clock := startMain(b)
		otherThread := b.Thread()
		for range n {
			m.RegionBegin(clock, 0, "r", "runtime/trace.WithRegion", "main.work:7")
			m.Block(clock+10, "chan receive", "runtime.chanrecv1", "main.work:8")
			otherThread.Unblock(clock+50, mainG)
			m.Start(clock+60, mainG)
			m.RegionEnd(clock+80, 0, "r", "runtime/trace.WithRegion", "main.work:7")
			clock += 100
		}
		text := must.Have(b.Text())(t)
		before, after, _ := strings.Cut(text, fmt.Sprintf("g=%d g_seq=5 ", mainG))
		from, to := strings.LastIndexByte(before, '\n')+1, strings.IndexByte(after, '\n')+1
		return must.Have(tracetext.Assemble([]byte(before[:from] + after[to:])))(t)
	}
	smallRequests, smallWork := countWork(t, make(4000))
	largeRequests, largeWork := countWork(t, make(8000))
	t.Logf("%d and %d requests, work %d and %d", smallRequests, largeRequests, smallWork, largeWork)
	check.True(t, smallRequests >= 3900 && largeRequests >= 7900,
		"%d and %d requests were found: this tests nothing", smallRequests, largeRequests)
	check.True(t, float64(largeWork) <= maxGrowth*float64(smallWork) && smallWork <= int64(smallRequests)*200,
		"%d and %d requests take %d and %d steps", smallRequests, largeRequests, smallWork, largeWork)
}
