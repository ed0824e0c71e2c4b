package request

import (
	"bytes"
	"maps"
	"sync/atomic"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestCountOnlySample: of a thousand goroutines that are all parts of other work, about 32 are inspected. They are the
// same in every order, because workers find goroutines in different orders. It fails if the first 32 are inspected.
func TestCountOnlySample(t *testing.T) {
	const n = 1000
	looked := func(from, to, step int) map[int]bool {
		s := &startFuncStats{allParts: true, bornCount: n, origin: new(originStats)}
		s.beginGeneration()
		out := make(map[int]bool)
		for g := from; g != to; g += step {
			if !s.countBirth(uint64(g)) {
				out[g] = true
			}
		}
		check.True(t, s.bornCount == n && s.origin.total+len(out) == n,
			"%d goroutines created, %d inspected, %d only counted; want %d in total", s.bornCount, len(out), s.origin.total, n)
		return out
	}
	up, down := looked(1, n+1, 1), looked(n, 0, -1)
	check.True(t, maps.Equal(up, down) && len(up) >= inspectedPerFunc/2 && len(up) <= inspectedPerFunc,
		"%d inspected in one order, %d in the other: not the same ones, or not about %d", len(up), len(down), inspectedPerFunc)
}

// TestUniformJobs: of goroutines that one goroutine starts at one line, none is inspected, or a few if a library runs their function.
// If they are parts of a batch program's run, they are only counted; otherwise each is a request.
func TestUniformJobs(t *testing.T) {
	const n = 2000
	for _, test := range []struct {
		mayBeBatch, isBatch bool
		function            string
		starter             func(*tracetext.Builder) *tracetext.Thread
	}{
		{true, true, "main.work", func(b *tracetext.Builder) *tracetext.Thread { return b.Thread(mainID) }},
		{true, true, "sync.(*WaitGroup).Go.func1", func(b *tracetext.Builder) *tracetext.Thread { return b.Thread(mainID) }},
		{false, false, "main.work", func(b *tracetext.Builder) *tracetext.Thread { b.Waiting(mainID); return b.Thread(7) }},
		{true, false, "main.work", func(b *tracetext.Builder) *tracetext.Thread { b.Thread(mainID); return b.Thread() }}, // timers start them
	} {
		builder := tracetext.New(26)
		thread := test.starter(builder)
		helper := builder.Thread()
		for i := range uint64(n) {
			clock := int64(1000 + 1000*i)
			thread.Create(clock, 100+i, test.function, "main.start", "main.main")
			helper.Start(clock+100, 100+i)
			helper.Destroy(clock + 500)
		}
		reader := must.Have(tracefmt.NewReader(bytes.NewReader(must.Have(builder.Bytes())(t)), tracefmt.Options{}))(t)
		decoder := timeline.NewDecoder(reader, 1)
		defer decoder.Close()
		decoder.Classify = NewClassifier(decoder.Symbols).Flags
		window := timeline.Window{Passed: new(atomic.Int64)}
		finder := NewFinder(decoder.Symbols, &window, Options{})
		g := must.Have(decoder.Next(t.Context()))(t)
		window.Gens = append(window.Gens, g)
		jobs, totalNS := 0, int64(0)
		for _, r := range AppendUnits(finder.Add(g), finder.Series()...) {
			if r.Kind == Goroutine {
				jobs, totalNS = jobs+1, totalNS+r.End-r.Start
			}
		}
		source := finder.loops.jobs
		check.True(t, len(source.births) == 0 && len(source.jobs) == 0, "%d births were inspected, %d jobs stored", len(source.births), len(source.jobs))
		visited := window.Passed.Load()
		check.True(t, visited < 2*n, "%d events were visited for jobs of %s", visited, test.function)
		works := finder.Works(func(tracefmt.StringID) int64 { return 0 })
		check.True(t, len(works) == 1 && works[0].Count == n, "work is %+v", works)
		check.True(t, finder.work.mayBeBatch == test.mayBeBatch && finder.IsBatch() == test.isBatch, "batch: %t, %t", finder.work.mayBeBatch, finder.IsBatch())
		if test.isBatch {
			check.True(t, jobs == 0, "a batch program's parts: %d requests", jobs)
		} else {
			check.True(t, jobs == n && totalNS == n*500, "%d requests of %d ns", jobs, totalNS)
		}
	}
}
