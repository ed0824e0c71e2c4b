package pass_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/explain/groups"
	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// matchPut matches the function of shopTrace whose calls are the requests.
var matchPut = regexp.MustCompile(`^main\.put$`)

// shopTrace builds a trace in which goroutines 1 to 8 call main.put repeatedly. Each call sleeps, waits for goroutine
// 20, which sleeps for it, and runs. Each generation has 40 calls.
func shopTrace(t *testing.T, generations int) []byte {
	t.Helper()
	return shopTraceOf(t, generations, func(m, o *tracetext.Thread, start int64) int64 {
		for i := range int64(40) {
			g := uint64(1 + i%8)
			o.Unblock(start, g)
			m.Start(start+10_000, g)
			m.Syscall(start+20_000, "syscall.write", "main.put", "main.serve")
			m.SyscallEnd(start + 30_000)
			m.Block(start+40_000, "sleep", "time.Sleep", "main.put", "main.serve")
			o.Unblock(start+90_000, g)
			m.Start(start+300_000+i*1000, g) // late to run
			m.Block(start+400_000, "chan receive", "main.put", "main.serve")
			o.Unblock(start+410_000, 20)
			m.Start(start+420_000, 20)
			m.Block(start+430_000, "sleep", "time.Sleep", "main.work", "main.worker")
			o.Unblock(start+500_000, 20)
			m.Start(start+700_000, 20) // late, too, and a request waits for it
			m.Unblock(start+720_000, g, "main.work", "main.worker")
			m.Block(start+730_000, "chan receive", "main.worker")
			m.Start(start+740_000, g)
			m.Syscall(start+750_000, "syscall.write", "main.put", "main.serve")
			m.SyscallEnd(start + 760_000)
			m.Block(start+770_000, "select", "main.serve")
			start += 1_000_000
		}
		return start
	})
}

// shopTraceOf builds a trace whose generations addGeneration writes. Goroutines 1 to 8 and 20 wait at first; worker
// runs goroutines, waker wakes them. addGeneration receives the time at its beginning and returns the time at its
// end.
func shopTraceOf(t *testing.T, generations int, addGeneration func(worker, waker *tracetext.Thread, clock int64) int64) []byte {
	t.Helper()
	b := tracetext.New(26)
	worker, waker := b.Thread(), b.ThreadWithoutP()
	for g := uint64(1); g <= 8; g++ {
		b.Waiting(g)
	}
	b.Waiting(20)
	clock := int64(1000)
	for gen := range generations {
		if gen > 0 {
			b.NextGeneration(clock)
			clock += 1000
		}
		clock = addGeneration(worker, waker, clock)
	}
	return must.Have(b.Bytes())(t)
}

func run(t *testing.T, data []byte, opts pass.Options, sums []pass.Sum, listeners ...pass.Listener) *pass.Pass {
	t.Helper()
	return runMatching(t, data, matchPut, opts, sums, listeners...)
}

func runMatching(t *testing.T, data []byte, match *regexp.Regexp, opts pass.Options, sums []pass.Sum, listeners ...pass.Listener) *pass.Pass {
	t.Helper()
	rd := must.Have(tracefmt.NewReader(bytes.NewReader(data), tracefmt.Options{}))(t)
	opts.Request = match
	p := pass.New(opts)
	p.Sums, p.Listeners = sums, listeners
	must.Do(t, p.Run(t.Context(), rd))
	return p
}

// mergeSums merges the adders of a pass's sums, and returns a Speller for them, according to which no time was a
// freeze.
func mergeSums(p *pass.Pass, g *groups.Sum, q *queues.Sum) *spell.Speller {
	ts := path.MergeIDs(p.Stages)
	g.Merge(ts)
	q.Merge(ts)
	return speller(p)
}

// speller returns a Speller for a pass's sums, according to which no time was a freeze.
func speller(p *pass.Pass) *spell.Speller {
	return &spell.Speller{Syms: &p.Symbols, Sites: p.Stages[0].Sites, Start: p.Start, End: p.End, Settlement: cause.Settle(func(freeze.Class) bool { return false })}
}

// A repeatedSum adds each request several times, with a weight.
type repeatedSum struct {
	pass.Sum
	weight, times int
}

type repeatedAdder struct {
	path.Adder
	sum *repeatedSum
}

func (w *repeatedSum) NewAdder(s *path.Stage) path.Adder { return repeatedAdder{w.Sum.NewAdder(s), w} }

func (w *repeatedSum) BeginGeneration(batch request.Batch) {
	if b, ok := w.Sum.(pass.GenerationBeginner); ok {
		b.BeginGeneration(batch)
	}
}

func (w *repeatedSum) EndGeneration() { w.Sum.(pass.GenerationEnder).EndGeneration() }

func (w repeatedAdder) Add(r *path.WalkResult) {
	c := *r
	c.Weight = int64(w.sum.weight)
	for range w.sum.times {
		w.Adder.Add(&c)
	}
}

// TestWeight: a request of weight 3 counts like three equal requests.
func TestWeight(t *testing.T) {
	data := shopTrace(t, 2)
	sums := func(weight, times int) string {
		g, q := groups.New(), queues.New()
		p := run(t, data, pass.Options{Workers: 2}, []pass.Sum{&repeatedSum{g, weight, times}, &repeatedSum{q, weight, times}})
		sp := mergeSums(p, g, q)
		rows := g.Rows(sp, groups.Selection{})
		for _, row := range rows {
			for _, band := range slices.Concat(row.Bands, row.AllBands) {
				for k := range band.Causes {
					band.Causes[k].ShareError = 0 // requests of weight 3 have a sampling error
				}
			}
		}
		out := must.Have(json.MarshalIndent([]any{rows, q.Services(sp, nil), q.Hubs(sp)}, "", " "))(t)
		return string(out)
	}
	one, three := sums(3, 1), sums(1, 3)
	check.True(t, one == three, "with weight 3:\n%s\nthree times:\n%s", one, three)
	if unweighted := sums(1, 1); unweighted == one || !bytes.Contains([]byte(one), []byte(`"LateRuns"`)) || !bytes.Contains([]byte(one), []byte(`"WaitersPerServer"`)) || !bytes.Contains([]byte(one), []byte("main.put")) {
		t.Errorf("weights have no effect, or nothing was added up: %s", one)
	}
}

// An eventRecorder records the calls of its methods, as a Listener and a Sum.
type eventRecorder struct {
	*testing.T
	events           []string
	requestEnds      []int64
	keepsGenerations bool
	generations      map[*timeline.Gen]int
}

func (d *eventRecorder) note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); len(d.events) == 0 || d.events[len(d.events)-1] != n {
		d.events = append(d.events, n)
	}
}

func (d *eventRecorder) NewAdder(*path.Stage) path.Adder { return d }
func (d *eventRecorder) BeginGeneration(request.Batch)   { d.note("begin") }
func (d *eventRecorder) EndGeneration()                  { d.note("end") }
func (d *eventRecorder) Flush()                          { d.note("flush") }
func (d *eventRecorder) FinishGeneration()               { d.note("walked") }

func (d *eventRecorder) Add(w *path.WalkResult) {
	d.note("add")
	d.requestEnds = append(d.requestEnds, w.Req.End)
}

func (d *eventRecorder) AddGeneration(g *timeline.Gen, syms *tracefmt.Symbols, gap bool) {
	if d.generations[g]++; d.generations[g] > 1 {
		d.Errorf("a kept generation was reused")
	}
	if syms.Lookup("main.put") == 0 {
		d.Errorf("generation %d lacks its symbols", g.Num)
	}
	d.note("decoded %t", gap)
}

func (d *eventRecorder) KeepDropped(g *timeline.Gen, _ *timeline.Carry) bool {
	d.note("dropped")
	return d.keepsGenerations
}

// putToWorker runs the request of goroutine g from its arrival until it waits for goroutine 20, the worker, which starts.
func putToWorker(m, o *tracetext.Thread, start int64, g uint64) {
	o.Unblock(start, g)
	m.Start(start, g)
	m.Syscall(start+10_000, "syscall.write", "main.put", "main.serve")
	m.SyscallEnd(start + 20_000)
	m.Unblock(start+30_000, 20, "runtime.chansend1", "main.put", "main.serve")
	m.Block(start+30_000, "chan receive", "runtime.chanrecv1", "main.put", "main.serve")
	m.Start(start+30_000, 20)
}

// answerAfterPut runs the request of goroutine g from the worker's answer to its end.
func answerAfterPut(m *tracetext.Thread, start int64, g uint64) {
	m.Start(start, g)
	m.Syscall(start+10_000, "syscall.write", "main.put", "main.serve")
	m.SyscallEnd(start + 20_000)
	m.Block(start+30_000, "select", "main.serve")
}

// TestIterationOfSeveralFunctions: if a worker computes for one request in several functions, that is one iteration.
// It fails if the last part is added to the iteration of the request before: then two requests seem to wait at once,
// although each has the worker for itself.
func TestIterationOfSeveralFunctions(t *testing.T) {
	const n = 40
	data := shopTraceOf(t, 1, func(m, o *tracetext.Thread, start int64) int64 {
		for i := range int64(n) {
			g := uint64(1 + i%8)
			putToWorker(m, o, start, g)
			m.Syscall(start+130_000, "syscall.fstat", "main.first", "main.worker")
			m.SyscallEnd(start + 130_000)
			m.Unblock(start+330_000, g, "runtime.chansend1", "main.second", "main.worker")
			m.Block(start+330_000, "chan receive", "runtime.chanrecv1", "main.worker")
			answerAfterPut(m, start+330_000, g)
			start += 1_000_000
		}
		return start
	})
	g, q := groups.New(), queues.New()
	sp := mergeSums(run(t, data, pass.Options{Workers: 1}, []pass.Sum{g, q}), g, q)
	turns := q.Services(sp, nil)
	must.Equal(t, len(turns), 1, "rows: %+v", turns)
	if r := turns[0]; r.Cause != "cpu" || r.Requests != n || r.Servers != 1 || r.WaitersPerServer != 1 || r.BatchSize != 1 || r.ServiceNS != 300_000 {
		t.Errorf("%+v, want %d iterations of 0.3 ms, one at a time", r, n)
	}
}

// TestSleepsOfAWorker: the mean of a worker's sleeps while requests wait for it.
func TestSleepsOfAWorker(t *testing.T) {
	for _, c := range []struct {
		name        string
		short, long int64 // us, alternating
		meanUS      int64
	}{
		{"equal", 200, 200, 200},
		{"of two lengths", 100, 300, 200},
	} {
		data := shopTraceOf(t, 1, func(m, o *tracetext.Thread, start int64) int64 {
			for i := range int64(40) {
				g, d := uint64(1+i%8), c.short*1000
				if i%2 == 1 {
					d = c.long * 1000
				}
				putToWorker(m, o, start, g)
				m.Block(start+30_000, "sleep", "time.Sleep", "main.worker")
				o.Unblock(start+30_000+d, 20)
				m.Start(start+30_000+d, 20)
				m.Unblock(start+30_000+d, g, "runtime.chansend1", "main.worker")
				m.Block(start+30_000+d, "chan receive", "runtime.chanrecv1", "main.worker")
				answerAfterPut(m, start+30_000+d, g)
				start += 1_000_000
			}
			return start
		})
		g, q := groups.New(), queues.New()
		sp := mergeSums(run(t, data, pass.Options{Workers: 1}, []pass.Sum{g, q}), g, q)
		turns := q.Services(sp, nil)
		must.Equal(t, len(turns), 1, "%s: rows: %+v", c.name, turns)
		if r := turns[0]; r.Cause != "sleep" || r.Sleeps != 40 || r.SleepNS != c.meanUS*1000 || r.WaitedSleepNS != c.meanUS*1000 || r.BegunEarlyShare != 0 {
			t.Errorf("%s: %+v, want sleeps of %d us", c.name, r, c.meanUS)
		}
	}
}

// TestDropOptionalSums: dropped sums still receive the list of requests, but no requests.
func TestDropOptionalSums(t *testing.T) {
	for _, c := range []struct {
		early bool // before the pass runs
		want  []string
	}{{true, []string{"begin"}}, {false, []string{"begin", "add", "end", "begin", "add", "begin"}}} {
		d, spare := &eventRecorder{T: t}, &eventRecorder{T: t}
		var p *pass.Pass
		walks := 0
		p = pass.New(pass.Options{Workers: 1, Selection: pass.Selection{Request: matchPut}, OnRequestsAdded: func() {
			if walks++; walks == 2 {
				p.DropOptionalSums()
			}
		}})
		p.Sums, p.OptionalSums = []pass.Sum{d}, []pass.Sum{spare}
		if c.early {
			p.DropOptionalSums()
		}
		rd := must.Have(tracefmt.NewReader(bytes.NewReader(shopTrace(t, 4)), tracefmt.Options{}))(t)
		must.Do(t, p.Run(t.Context(), rd))
		check.True(t, slices.Equal(spare.events, c.want), "dropped early %t: it recorded %q, want %q", c.early, spare.events, c.want)
		check.True(t, len(d.requestEnds) != 0 && p.HasDroppedOptionalSums() && d.events[len(d.events)-1] == "end",
			"dropped early %t: the other sum added %d requests and recorded %q", c.early, len(d.requestEnds), d.events)
	}
}

// TestCallOrder: a pass calls the methods of listeners and sums in the documented order.
func TestCallOrder(t *testing.T) {
	d := &eventRecorder{T: t, keepsGenerations: true, generations: map[*timeline.Gen]int{}}
	run(t, shopTrace(t, 5), pass.Options{InOrder: true}, []pass.Sum{d}, d)
	var want []string
	for i := range 5 {
		if i == 2 || i == 3 || i == 4 { // the window keeps 50 ms before open requests
			want = append(want, "flush", "dropped")
		}
		want = append(want, "decoded false", "begin", "add", "end", "walked")
	}
	// Requests that are open at the end follow.
	check.True(t, slices.Equal(d.events[:len(want)], want) && d.events[len(d.events)-1] == "walked", "recorded %q, want %q", d.events, want)
	check.True(t, len(d.requestEnds) >= 5*40 && slices.IsSorted(d.requestEnds),
		"too few requests (%d), or not in order: %d", len(d.requestEnds), d.requestEnds)
}

// TestSelectedTime: From and To select the requests that end in [From, To).
func TestSelectedTime(t *testing.T) {
	data := shopTrace(t, 2)
	ends := func(from, to time.Duration) (out []int64, start int64) {
		d := &eventRecorder{T: t, generations: map[*timeline.Gen]int{}}
		p := run(t, data, pass.Options{InOrder: true, Selection: pass.Selection{From: from, To: to}}, []pass.Sum{d})
		return d.requestEnds, p.Start
	}
	all, start := ends(0, 0)
	border := time.Duration(all[len(all)/2] - start)
	before, _ := ends(0, border)
	after, _ := ends(border, 0)
	check.True(t, slices.Equal(slices.Concat(before, after), all) && len(before) == len(all)/2,
		"%d requests before %v and %d after it, of %d", len(before), border, len(after), len(all))
}
