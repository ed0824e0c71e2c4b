package queues

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// crowd makes the sums of a generation in which clients take turns, and what of each worker saw what.
func crowd(workers int, list []service, gs ...uint64) []ServiceStats {
	syms := tracefmt.NewSymbols().Snapshot()
	sum := New()
	for range workers {
		sum.NewAdder(path.New(&timeline.Window{}, &syms, path.Options{}))
	}
	sum.BeginGeneration(nil)
	sum.sliceNS = 1e9
	for i, a := range list {
		p := sum.workers[i%workers]
		p.services = append(p.services, a)
	}
	for i, g := range gs {
		sum.workers[i%workers].requestGoroutines[g] = struct{}{}
	}
	sum.EndGeneration()
	sum.Merge(make([]path.Translation, len(sum.workers)))
	return sum.Services(&spell.Speller{Syms: &syms}, nil)
}

func TestTurns(t *testing.T) {
	key := serviceKey{kind: request.HTTP1, cause: cause.Sleep}
	const ms = 1_000_000
	var worker, batch, own, slots, heirs, holder, owner []service
	for i := range int64(20) {
		at := i * 10 * ms
		// One worker, 10 ms each: everybody waits through the turns of two others, then his own.
		worker = append(worker, service{key, 7, at, at + 20*ms, false, 1, false, false, false}, service{key, 7, at + 20*ms, at + 30*ms, true, 1, false, false, false})
		// A batcher that answers three at once.
		batch = append(batch, service{key, 7, i / 3 * 30 * ms, i/3*30*ms + 30*ms, true, 1, false, false, false})
		// A goroutine for each.
		own = append(own, service{key, 100 + uint64(i), at, at + 30*ms, true, 1, false, false, false})
		// Two workers, of which each ends after a turn, and another is started in its stead.
		heirs = append(heirs, service{key, 200 + uint64(i), at, at + 20*ms, true, 1, false, false, false})
		// Who holds a lock waits for this goroutine, and two others for the lock.
		// An owner of state that asks a peer for one of three, and answers the others then.
		owner = append(owner, service{key, 7, at, i/3*30*ms + 30*ms, true, 1, i%3 == 0, false, i%3 > 0})
		holder = append(holder, service{key, 7, at, at + 20*ms, false, 1, false, true, false}, service{key, 7, at + 20*ms, at + 30*ms, true, 1, false, false, false})
		// A slot: the holder is another request.
		slots = append(slots, service{key, uint64(i%4 + 1), at, at + 10*ms, true, 1, false, false, false})
	}
	for _, c := range []struct {
		name                     string
		list                     []service
		gs                       []uint64
		waiting, together, taken float64
		servers, most            int
		service                  int64
		period                   int64
		locked                   float64
	}{
		{"worker", worker, nil, 600.0 / 220, 1, 0, 1, 1, 220 * ms / 20, 10 * ms, 0},
		{"holder", holder, nil, 600.0 / 220, 1, 0, 1, 1, 220 * ms / 20, 10 * ms, 2.0 / 3},
		{"batch", batch, nil, 600.0 / 210, 20.0 / 7, 0, 1, 1, 30 * ms, 30 * ms, 0},
		{"owner", owner, nil, 410.0 / 210, 20.0 / 7, 0, 1, 1, 30 * ms, 30 * ms, 0},
		{"own", own, nil, 1, 1, 0, 20, 3, 30 * ms, 0, 0},
		{"heirs", heirs, nil, 1, 1, 0, 20, 2, 20 * ms, 0, 0},
		{"slots", slots, []uint64{1, 2, 3, 4}, 1, 1, 1, 4, 4, 10 * ms, 40 * ms, 0},
	} {
		got := crowd(1, c.list, c.gs...)
		if len(got) != 1 {
			t.Fatalf("%s: %d rows", c.name, len(got))
		}
		r := got[0]
		near := func(a, b float64) bool { return a > b*0.999-1e-9 && a < b*1.001+1e-9 }
		if !near(r.WaitersPerServer, c.waiting) || !near(r.BatchSize, c.together) || r.OtherRequestShare != c.taken || r.Servers != c.servers || r.MaxServers != c.most || r.ServiceNS != c.service || !near(r.BehindLockShare, c.locked) || r.PeriodNS != c.period {
			t.Errorf("%s: %+v, want %+v", c.name, r, c)
		}
		if asks := c.name == "owner"; asks != (r.ServerWroteShare == 1) || asks != (r.AlreadyRunningShare > 0.6) {
			t.Errorf("%s: asked %v, ahead %v", c.name, r.ServerWroteShare, r.AlreadyRunningShare)
		}
		shuffled := append([]service(nil), c.list...)
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, k int) { shuffled[i], shuffled[k] = shuffled[k], shuffled[i] })
		if again := crowd(3, shuffled, c.gs...); !reflect.DeepEqual(got, again) {
			t.Errorf("%s: with three workers %+v, with one %+v", c.name, again, got)
		}
	}
}

func TestPeriod(t *testing.T) {
	const ms = 1_000_000
	rnd := rand.New(rand.NewPCG(3, 4))
	var ticks, sparse, jitter, poisson []endMark
	at := int64(0)
	for i := range int64(60) {
		ticks = append(ticks, endMark{1, i * 50 * ms})
		if i%3 != 1 {
			sparse = append(sparse, endMark{1, i*50*ms + rnd.Int64N(2*ms)})
		}
		jitter = append(jitter, endMark{1, i*50*ms + rnd.Int64N(4*ms)})
		at += int64(rnd.ExpFloat64() * 50 * ms)
		poisson = append(poisson, endMark{1, at})
	}
	for _, c := range []struct {
		name  string
		marks []endMark
		want  int64
	}{{"ticks", ticks, 50 * ms}, {"some left out", sparse, 50 * ms}, {"late wakes", jitter, 50 * ms}, {"at random", poisson, 0}, {"too few", ticks[:5], 0}} {
		got := endPeriod(c.marks)
		if d := got - c.want; d < -ms || d > ms {
			t.Errorf("%s: a period of %d, want %d", c.name, got, c.want)
		}
	}
}

// TestSlices: of each generation the requests of a slice are looked at, of fewer once very many were.
func TestSlices(t *testing.T) {
	syms := tracefmt.NewSymbols().Snapshot()
	sum := New()
	sum.NewAdder(path.New(&timeline.Window{}, &syms, path.Options{}))
	reqs := make([]request.Request, 10_000)
	for i := range reqs {
		reqs[i].Start, reqs[i].End = int64(i), int64(i+1)
	}
	for gen := range 12 {
		sum.BeginGeneration(reqs)
		n := 0
		for i := range reqs {
			if sum.NeedsWalk(&reqs[i]) {
				n++
			}
		}
		want := maxSliceRequests
		if gen >= laterSlicesFrom/maxSliceRequests {
			want = maxLaterSliceRequests
		}
		if times := int(sum.workers[0].lateRuns.sliceWeight); n < want-1 || n > want+1 || times != len(reqs)/want {
			t.Errorf("generation %d: %d of %d requests, which stand for %d times as many; want %d", gen, n, len(reqs), times, want)
		}
	}
}
