package worstcase

import (
	"bytes"
	"errors"
	"io"
	"sync/atomic"
	"testing"

	"github.com/whylate/whylate/internal/critpath"
	"github.com/whylate/whylate/internal/request"
	"github.com/whylate/whylate/internal/timeline"
	"github.com/whylate/whylate/internal/tracefmt"
)

// mostGrowth is how much twice the length of a trace may cost.
const mostGrowth = 2.3

// work counts what finding and walking all requests of a trace takes: events gone through and steps made.
func work(t *testing.T, data []byte) (requests int, work int64) {
	t.Helper()
	rd, err := tracefmt.NewReader(bytes.NewReader(data), tracefmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
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
			if r := &reqs[i]; r.Part == request.Whole {
				requests++
				steps += len(walker.Walk(r.G, r.Start, r.End))
			}
		}
	}
	end := int64(0)
	for {
		g, err := dec.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		win.Gens = append(win.Gens, g)
		walk(finder.Add(g))
		end = max(end, g.End)
	}
	walk(finder.Finish(end))
	return requests, passed.Load() + int64(steps)
}

// TestWorkIsLinear holds what is done for all requests together against the length of the trace: twice as long, twice as much,
// however the requests depend on each other.
func TestWorkIsLinear(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			n := 4000
			some, one := work(t, build(t, s.make, n))
			more, two := work(t, build(t, s.make, 2*n))
			t.Logf("%d and %d requests, work %d and %d: %.2f times", some, more, one, two, float64(two)/float64(one))
			if some < n || more < 2*n {
				t.Errorf("%d and %d requests of %d and %d were found: this tests nothing", some, more, n, 2*n)
			}
			if float64(two) > mostGrowth*float64(one) {
				t.Errorf("twice as much happens, and takes %.1f times the work", float64(two)/float64(one))
			}
		})
	}
}
