package queues

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// serviceStatsOf returns the statistics of one generation of services, divided among some workers.
func serviceStatsOf(workers int, services []service, requestGoroutines ...uint64) []ServiceStats {
	syms := tracefmt.NewSymbols().Snapshot()
	sum := New()
	for range workers {
		sum.NewAdder(path.New(&timeline.Window{}, &syms, path.Options{}))
	}
	sum.BeginGeneration(request.NewBatch(nil, nil))
	sum.sliceNS = 1e9
	for i, a := range services {
		p := sum.workers[i%workers]
		p.services = append(p.services, a)
	}
	for i, g := range requestGoroutines {
		sum.workers[i%workers].requestGoroutines.add(g)
	}
	sum.EndGeneration()
	sum.Merge(make([]path.Translation, len(sum.workers)))
	return sum.Services(&spell.Speller{Syms: &syms}, nil)
}

func TestServices(t *testing.T) {
	key := serviceKey{kind: request.HTTP1, cause: cause.Sleep}
	const ms = 1_000_000
	var worker, batch, quietBatch, ownServer, slotHolders, replacedServers, lockHolder, stateOwner, askingHolder []service
	for i := range int64(20) {
		start := i * 10 * ms
		// One worker, 10 ms for each request: each waits through the service of two others, then through its own.
		worker = append(worker,
			service{key, 7, start, start + 20*ms, false, 1, false, false, start, false, 0},
			service{key, 7, start + 20*ms, start + 30*ms, true, 1, false, false, start, true, 0})
		// A batcher that answers three at once.
		batch = append(batch, service{key, 7, i / 3 * 30 * ms, i/3*30*ms + 30*ms, true, 1, false, false, i/3*30*ms - 1, false, 0})
		// A batcher that mostly answers one; four times, two requests arrive during a long round and are answered by the next one.
		if i < 4 {
			late := start + 9*ms
			quietBatch = append(quietBatch,
				service{key, 7, start, start + ms, true, 1, false, false, start - 1, false, 0},
				service{key, 7, start + 2*ms, late, true, 1, false, false, start + 2*ms - 1, false, 0},
				service{key, 7, start + 3*ms, late + ms, true, 1, false, false, start + 3*ms, false, 0},
				service{key, 7, start + 5*ms, late + ms, true, 1, false, false, start + 5*ms, false, 0})
		}
		// One goroutine for each request.
		ownServer = append(ownServer, service{key, 100 + uint64(i), start, start + 30*ms, true, 1, false, false, start - 1, false, 0})
		// Two workers at a time: each ends after a service, and a new one replaces it.
		replacedServers = append(replacedServers, service{key, 200 + uint64(i), start, start + 20*ms, true, 1, false, false, start - 1, false, 0})
		// The owner of a state calls a peer for one of three requests, and then answers the others, too.
		stateOwner = append(stateOwner, service{key, 7, start, i/3*30*ms + 30*ms, true, 1, i%3 == 0, false, start - 1 + i%3, false, 0})
		// The holder of a lock waits for this goroutine, and two other requests wait for the lock.
		lockHolder = append(lockHolder,
			service{key, 7, start, start + 20*ms, false, 1, false, true, start, false, 0},
			service{key, 7, start + 20*ms, start + 30*ms, true, 1, false, false, start, true, 0})
		// The holder of a lock calls a peer, on another goroutine; a dozen requests wait for the lock.
		askingHolder = append(askingHolder, service{key, 7, start, i/3*30*ms + 30*ms, true, 1, i%3 > 0, i%3 > 0, start - 1 + i%3, false, 0})
		// A slot of a pool: another request holds it.
		slotHolders = append(slotHolders, service{key, uint64(i%4 + 1), start, start + 10*ms, true, 1, false, false, start - 1, false, 0})
	}
	for _, c := range []struct {
		name                                  string
		services                              []service
		requestGoroutines                     []uint64
		waiters, batchSize, otherRequestShare float64
		servers, maxServers                   int
		service                               int64
		period                                int64
		behindLockShare                       float64
	}{
		{"worker", worker, nil, 600.0 / 220, 1, 0, 1, 1, 220 * ms / 20, 10 * ms, 0},
		{"lock holder", lockHolder, nil, 600.0 / 220, 1, 0, 1, 1, 220 * ms / 20, 10 * ms, 2.0 / 3},
		{"batch", batch, nil, 600.0 / 210, 20.0 / 7, 0, 1, 1, 30 * ms, 30 * ms, 0},
		{"quiet batch", quietBatch, nil, 80.0 / 36, 16.0 / 12, 0, 1, 1, 3 * ms, ms, 0},
		{"state owner", stateOwner, nil, 410.0 / 210, 20.0 / 7, 0, 1, 1, 30 * ms, 30 * ms, 0},
		{"holder that asks", askingHolder, nil, 410.0 / 210, 20.0 / 7, 0, 1, 1, 30 * ms, 30 * ms, 200.0 / 410},
		{"own server", ownServer, nil, 1, 1, 0, 20, 3, 30 * ms, 0, 0},
		{"replaced servers", replacedServers, nil, 1, 1, 0, 20, 2, 20 * ms, 0, 0},
		{"slots", slotHolders, []uint64{1, 2, 3, 4}, 1, 1, 1, 4, 4, 10 * ms, 40 * ms, 0},
	} {
		got := serviceStatsOf(1, c.services, c.requestGoroutines...)
		must.Equal(t, len(got), 1, "%s: rows", c.name)
		stats := got[0]
		if stats.IsBatcher != (c.name == "batch" || c.name == "quiet batch") {
			t.Errorf("%s: it is a batcher: %v", c.name, stats.IsBatcher)
		}
		isNear := func(a, b float64) bool { return a > b*0.999-1e-9 && a < b*1.001+1e-9 }
		if !isNear(stats.WaitersPerServer, c.waiters) || !isNear(stats.BatchSize, c.batchSize) ||
			stats.OtherRequestShare != c.otherRequestShare || stats.WaitsPerRequest != 1 || stats.Servers != c.servers || stats.MaxServers != c.maxServers ||
			stats.ServiceNS != c.service || !isNear(stats.BehindLockShare, c.behindLockShare) || stats.PeriodNS != c.period {
			t.Errorf("%s: %+v, want %+v", c.name, stats, c)
		}
		if asks := c.name == "state owner"; asks != (stats.ServerWroteShare == 1) || asks != (stats.AlreadyRunningShare > 0.6) {
			t.Errorf("%s: server wrote %v, already running %v", c.name, stats.ServerWroteShare, stats.AlreadyRunningShare)
		}
		shuffled := append([]service(nil), c.services...)
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, k int) { shuffled[i], shuffled[k] = shuffled[k], shuffled[i] })
		if shuffledStats := serviceStatsOf(3, shuffled, c.requestGoroutines...); !reflect.DeepEqual(got, shuffledStats) {
			t.Errorf("%s: with three workers %+v, with one %+v", c.name, shuffledStats, got)
		}
	}
}

// TestUnawaitedShare: a worker needs 10 ms for a task. Twenty requests wake it while it is idle; twenty others come when it has to do other tasks
// first, if any, that no request waits for.
func TestUnawaitedShare(t *testing.T) {
	const ms = 1_000_000
	for _, c := range []struct {
		aheadMS, directMS int64
		want              float64
	}{{0, 10, 0}, {90, 10, 0.9}, {90, 0, 0}} {
		var services []service
		for i := range int64(20) {
			start, queued := i*1000*ms, i*1000*ms+10*ms
			services = append(services, service{serviceKey{}, 7, start, start + 10*ms, true, 1, false, false, start, false, c.directMS * ms})
			end := queued + c.aheadMS*ms
			services = append(services,
				service{serviceKey{}, 7, queued, end, false, 1, false, false, queued, false, 0},
				service{serviceKey{}, 7, end, end + 10*ms, true, 1, false, false, queued, true, 0})
		}
		got := serviceStatsOf(2, services)[0]
		if math.Abs(got.UnawaitedShare-c.want) > 0.01 || got.DirectNS != c.directMS*ms {
			t.Errorf("%d ms ahead: unawaited share %.2f, %d ns for a task", c.aheadMS, got.UnawaitedShare, got.DirectNS)
		}
	}
}

// TestIsWoken: a request finds the worker idle if it wakes it for its task.
func TestIsWoken(t *testing.T) {
	const worker, requester, other, origin = 1, 2, 3, tracetext.Origin
	for waker, want := range map[uint64]bool{requester: true, other: false} {
		win, symbols := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
			b.Thread(worker).Block(100, "chan receive", "runtime.chanrecv2", "main.work")
			m := b.Thread(waker)
			m.Unblock(990, worker, "runtime.chansend1", "main.submit")
			m.Block(1000, "chan receive", "runtime.chanrecv1", "main.submit")
		})
		syms := symbols.Snapshot()
		p := &workerSum{stage: path.New(win, &syms, path.Options{})}
		if got := p.isWoken(&service{server: worker, waitStart: origin + 1000}, requester); got != want {
			t.Errorf("woken by %d: %v", waker, got)
		}
	}
}

func TestEndPeriod(t *testing.T) {
	const ms = 1_000_000
	rnd := rand.New(rand.NewPCG(3, 4))
	var ticks, sparse, jitter, poisson []endMark
	randomTime := int64(0)
	for i := range int64(60) {
		ticks = append(ticks, endMark{1, i * 50 * ms})
		if i%3 != 1 {
			sparse = append(sparse, endMark{1, i*50*ms + rnd.Int64N(2*ms)})
		}
		jitter = append(jitter, endMark{1, i*50*ms + rnd.Int64N(4*ms)})
		randomTime += int64(rnd.ExpFloat64() * 50 * ms)
		poisson = append(poisson, endMark{1, randomTime})
	}
	for _, c := range []struct {
		name  string
		marks []endMark
		want  int64
	}{{"ticks", ticks, 50 * ms}, {"some left out", sparse, 50 * ms}, {"late wake-ups", jitter, 50 * ms}, {"at random", poisson, 0}, {"too few", ticks[:5], 0}} {
		got := tickerPeriod(c.marks)
		if d := got - c.want; d < -ms || d > ms {
			t.Errorf("%s: a period of %d, want %d", c.name, got, c.want)
		}
	}
}

// TestSlices: the slice of a generation holds the expected number of requests, and fewer after many requests were in slices.
func TestSlices(t *testing.T) {
	syms := tracefmt.NewSymbols().Snapshot()
	sum := New()
	sum.NewAdder(path.New(&timeline.Window{}, &syms, path.Options{}))
	reqs := make([]request.Request, 10_000)
	for i := range reqs {
		reqs[i].Start, reqs[i].End = int64(i), int64(i+1)
	}
	for gen := range 12 {
		sum.BeginGeneration(request.NewBatch(reqs, nil))
		needed := 0
		for i := range reqs {
			if sum.NeedsWalk(&reqs[i]) {
				needed++
			}
		}
		want := maxSliceRequests
		if gen >= laterSlicesFrom/maxSliceRequests {
			want = maxLaterSliceRequests
		}
		if times := int(sum.workers[0].lateRuns.sliceWeight); needed < want-1 || needed > want+1 || times != len(reqs)/want {
			t.Errorf("generation %d: %d of %d requests in the slice with weight %d; want %d", gen, needed, len(reqs), times, want)
		}
	}
}

// TestOwnWorker: a loop answers requests if an iteration ends just before each answer comes. It does not if it works on several messages
// at once, for a small part of the waits, or at other times.
func TestOwnWorker(t *testing.T) {
	const ms = 1_000_000
	symbols := tracefmt.NewSymbols()
	loop := symbols.Intern("main.post")
	syms := symbols.Snapshot()
	for name, c := range map[string]struct {
		length, delayNS, overlap int64
		isWorker                 bool
	}{"one message at a time": {20 * ms, 0, 0, true}, "several at once": {20 * ms, 0, 10 * ms, false}, "short work": {2 * ms, 0, 0, false}, "at other times": {20 * ms, 9 * ms, 0, false}} {
		sum := New()
		p := sum.NewAdder(path.New(&timeline.Window{}, &syms, path.Options{})).(*workerSum)
		sum.BeginGeneration(request.NewBatch(nil, nil))
		sum.sliceNS = 2e9
		key := serviceKey{request.HTTP1, cause.Network, 0}
		for i := range int64(40) {
			end := (i+2)*25*ms + c.delayNS
			p.services = append(p.services, service{key, 9, end - 24*ms, end - c.delayNS + ms/2, true, 1, false, false, end - 25*ms, false, 0})
			p.addAnswerWait(&p.services[i], end-c.delayNS-40*ms)
			p.workRuns = append(p.workRuns, workRun{loop, 0, uint64(i % 16), interval{end - c.length - c.overlap, end}})
		}
		sum.EndGeneration()
		sum.Merge(make([]path.Translation, 1))
		got := sum.Services(&spell.Speller{Syms: &syms}, nil)
		must.Equal(t, len(got), 1, "%s: rows", name)
		if worker := got[0].Worker; (worker != nil) != c.isWorker || c.isWorker && (worker.Name != "main.post" || worker.Goroutines != 16 || worker.MeanNS != c.length || worker.AnswerShare != 1) {
			t.Errorf("%s: %+v", name, worker)
		}
	}
}

// TestServerInHandler: a server with a handler on its stack serves a request, unless the handler has a time limit: the request waits for that
// one itself.
func TestServerInHandler(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	stack := func(fns ...string) tracefmt.StackID {
		var text []tracefmt.FrameText
		for _, fn := range fns {
			text = append(text, tracefmt.FrameText{Func: fn, File: "/s/s.go", Line: 1})
		}
		return symbols.AddStack(text...)
	}
	stacks := map[string]tracefmt.StackID{
		"a handler":              stack("internal/poll.(*FD).Write", "shop.org/s.send", "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve"),
		"a goroutine of its own": stack("internal/poll.(*FD).Write", "shop.org/s.send"),
		"a time limit":           stack("shop.org/s.send", "net/http.(*timeoutHandler).ServeHTTP.func1"),
		"an idle connection":     stack("internal/poll.(*FD).Read", "net/http.(*conn).serve"),
	}
	syms := symbols.Snapshot()
	p := New().NewAdder(path.New(&timeline.Window{}, &syms, path.Options{})).(*workerSum)
	for name, id := range stacks {
		w := &path.WalkResult{Steps: []critpath.Step{{Kind: critpath.Network, G: 9, Stack: id, Start: 10, End: 20}}}
		got := p.isInHandler(w, &service{server: 9, start: 5, end: 30})
		must.Equal(t, got, name == "a handler", "%s", name)
		must.Equal(t, p.isInHandler(w, &service{server: 9, start: 20, end: 30}) || p.isInHandler(w, &service{server: 8, end: 30}), false, "%s, another service", name)
	}
}
