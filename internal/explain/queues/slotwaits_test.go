package queues

import (
	"cmp"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// slotWaitsOf returns the statistics of one generation of handovers, divided among some workers.
func slotWaitsOf(workers int, handovers []handover, requestGoroutines ...uint64) []SlotWaits {
	symbols := tracefmt.NewSymbols()
	symbols.AddStack(tracefmt.FrameText{Func: "main.release", File: "/s/main.go", Line: 9}) // frame 1
	syms := symbols.Snapshot()
	sum := New()
	for range workers {
		sum.NewAdder(path.New(&timeline.Window{}, &syms, path.Options{}))
	}
	sum.BeginGeneration(request.NewBatch(nil, nil))
	for i, h := range handovers {
		p := sum.workers[i%workers]
		p.handovers = append(p.handovers, h)
	}
	for _, g := range requestGoroutines {
		sum.workers[0].requestGoroutines.add(g)
	}
	sum.EndGeneration()
	sum.Merge(make([]path.Translation, len(sum.workers)))
	return sum.SlotWaits(&spell.Speller{Syms: &syms})
}

// simulatePool returns the handovers of requests that arrive at a fixed interval and hold one of some slots for a fixed time,
// first come, first served. Each request has its own goroutine or, if conns is not 0, one of conns goroutines, each of which
// serves one request at a time.
func simulatePool(requests, slots int, interarrival, hold int64, conns int) []handover {
	type holder struct {
		g   uint64
		end int64
	}
	var out []handover
	var holders []holder // by end
	type waiter struct {
		g    uint64
		from int64
	}
	var queue []waiter
	releaseUntil := func(now int64) {
		for len(holders) > 0 && holders[0].end <= now {
			h := holders[0]
			holders = holders[1:]
			if len(queue) > 0 {
				w := queue[0]
				queue = queue[1:]
				out = append(out, handover{
					key: slotKey{wait: critpath.WaitSend}, waiter: w.g, waitStart: w.from, waitEnd: h.end, requestEnd: h.end + hold, waker: h.g,
				})
				holders = append(holders, holder{w.g, h.end + hold})
			}
		}
	}
	for i := range int64(requests) {
		arrival, g := i*interarrival, uint64(i+1)
		if conns > 0 {
			g = uint64(int(i)%conns + 1)
		}
		releaseUntil(arrival)
		if len(holders) < slots {
			holders = append(holders, holder{g, arrival + hold})
		} else {
			queue = append(queue, waiter{g, arrival})
		}
	}
	releaseUntil(1 << 60)
	return out
}

// TestSlotWaits: a goroutine that ends waits and waited at the same line in the same request releases a slot. The number of
// slots and the time that one is held follow from the holds while others wait. It fails if a pool is missed or has a wrong
// size, and if something else is taken for a pool: workers, a long poll, nested calls, a request's own goroutines.
func TestSlotWaits(t *testing.T) {
	const ms = 1_000_000
	send, done := slotKey{wait: critpath.WaitSend}, slotKey{wait: critpath.WaitChan}
	var worker, afterTimer, nestedAfterTimer, longPoll, nestedCalls, ownChildren, releasedByChild, slotWorkers, responseReader, twoCalls, startedWorkers []handover
	for i := range int64(30) {
		time := i * 20 * ms
		// Two idle workers end the waits of goroutines for one, with pauses; one reader of a connection brings the header of
		// an answer and, 1 ms later, the body, to the waiters one by one.
		g, w := uint64(10+i), uint64(7+i%2)
		slotWorkers = append(slotWorkers,
			handover{key: send, waiter: g, waitStart: max(0, time-50*ms), waitEnd: time, requestEnd: time + 39*ms, waker: w,
				serviceEnd: time + 39*ms},
			handover{key: done, waiter: g, waitStart: time, waitEnd: time + 39*ms, requestEnd: time + 39*ms, waker: w})
		responseReader = append(responseReader,
			handover{key: send, waiter: g, waitStart: max(0, time-50*ms), waitEnd: time, requestEnd: time + ms, waker: 7,
				serviceEnd: time + ms},
			handover{key: done, waiter: g, waitStart: time, waitEnd: time + ms, requestEnd: time + ms, waker: 7})
		// A caller that makes two calls to one goroutine waits for its answers.
		twoCalls = append(twoCalls,
			handover{key: send, waiter: g, waitStart: time - 8*ms, waitEnd: time, requestEnd: time + 8*ms, waker: 7,
				serviceEnd: time + 8*ms},
			handover{key: done, waiter: g, waitStart: time, waitEnd: time + 8*ms, requestEnd: time + 8*ms, waker: 7})
		// A worker ends all waits. A publisher ends waits, too, on a goroutine that itself waited for news before.
		worker = append(worker, handover{
			key: send, waiter: uint64(10 + i), waitStart: time, waitEnd: time + 15*ms, requestEnd: time + 20*ms, waker: 7,
		})
		longPoll = append(longPoll, handover{
			key: send, waiter: uint64(10 + i), waitStart: time, waitEnd: time + 15*ms, requestEnd: time + 16*ms, waker: uint64(9 + i),
		})
		// A timer had ended the waker's own wait there, which is on no path: before the waiter's wait began, or after that.
		afterTimer = append(afterTimer, handover{
			key: send, waiter: uint64(1000 + i), waitStart: time, waitEnd: time + 15*ms, requestEnd: time + 50*ms, waker: uint64(100 + i), wakerWaitStart: time - 5*ms, wakerAcquired: time + 5*ms,
		})
		nestedAfterTimer = append(nestedAfterTimer, handover{
			key: send, waiter: uint64(1000 + i), waitStart: time, waitEnd: time + 15*ms, requestEnd: time + 50*ms, waker: uint64(100 + i), wakerWaitStart: time + ms, wakerAcquired: time + 5*ms,
		})
		// A calls B, B calls C through the same function: B began to wait after A.
		nestedCalls = append(nestedCalls,
			handover{key: send, waiter: uint64(1000 + 3*i), waitStart: time, waitEnd: time + 15*ms, requestEnd: time + 16*ms,
				waker: uint64(1001 + 3*i)},
			handover{key: send, waiter: uint64(1001 + 3*i), waitStart: time + ms, waitEnd: time + 10*ms, requestEnd: time + 16*ms,
				waker: uint64(1002 + 3*i)})
		// A request finds capacity and starts a worker, which then does the work of the next request, too.
		startedWorkers = append(startedWorkers, handover{
			key: send, waiter: g, waitStart: time, waitEnd: time + 20*ms, requestEnd: time + 21*ms, waker: uint64(500 + i/2),
			wakerCreator: uint64(10 + i/2*2), wakerCreated: i / 2 * 40 * ms,
		})
		// One request starts goroutines, three at a time.
		ownChildren = append(ownChildren, handover{
			key: send, waiter: 1, waitStart: time, waitEnd: time + 20*ms, requestEnd: 600 * ms, waker: uint64(100 + i),
			wakerCreator: 1, wakerCreated: max(0, time-40*ms),
		})
		// The goroutine that waited for a slot starts a goroutine, one at a time, which releases the slot.
		releasedByChild = append(releasedByChild, handover{
			key: send, waiter: uint64(10 + i), waitStart: time, waitEnd: time + 30*ms, requestEnd: time + 31*ms, waker: uint64(500 + i),
			wakerCreator: uint64(9 + i), wakerCreated: time + 10*ms + 1,
		})
	}
	for _, c := range []struct {
		name                             string
		handovers                        []handover
		minFormerWaiterShare, childShare float64
		slots                            int
		hold                             int64
		minWorkerShare                   float64
	}{
		{"one slot", simulatePool(40, 1, 9*ms, 10*ms, 0), 0.9, 0, 1, 10 * ms, 0},
		{"three slots", simulatePool(60, 3, 3*ms, 10*ms, 0), 0.9, 0, 3, 10 * ms, 0},
		{"three slots, goroutines serve several requests", simulatePool(60, 3, 3*ms, 10*ms, 12), 0.9, 0, 3, 10 * ms, 0},
		{"a child releases the slot", releasedByChild, 0.9, 0, 1, 20 * ms, 0},
		{"own goroutines", ownChildren, 0, 1, 3, 0, 0},
		{"workers that requests start", startedWorkers, 0, 0, -1, 0, 0},
		{"worker", worker, 0, 0, -1, 0, 0},
		{"a timer ended the holder's wait", afterTimer, 1, 0, 1, 10 * ms, 0},
		{"a timer ended the nested call's wait", nestedAfterTimer, 0, 0, -1, 0, 0},
		{"long poll", longPoll, 0, 0, -1, 0, 0},
		{"nested calls", nestedCalls, 0, 0, -1, 0, 0},
		{"workers as slots", slotWorkers, 0, 0, 2, 39 * ms, 0.9},
		{"response reader", responseReader, 0, 0, -1, 0, 0},
		{"two calls in sequence", twoCalls, 0, 0, -1, 0, 0},
	} {
		waiters := []uint64{}
		for _, h := range c.handovers {
			waiters = append(waiters, h.waiter)
		}
		got := slotWaitsOf(1, c.handovers, waiters...)
		i := slices.IndexFunc(got, func(stats SlotWaits) bool { return stats.Wait == report.WaitChanSend })
		must.True(t, i >= 0, "%s: %+v", c.name, got)
		stats := got[i]
		if stats.FormerWaiterShare < c.minFormerWaiterShare || c.minFormerWaiterShare == 0 && stats.FormerWaiterShare > 0 ||
			stats.ChildShare != c.childShare || c.slots >= 0 && stats.Slots != c.slots ||
			stats.HoldNS != c.hold && c.slots >= 0 || stats.WorkerShare < c.minWorkerShare ||
			c.minWorkerShare == 0 && stats.WorkerShare > 0 {
			t.Errorf("%s: %+v, want %+v", c.name, stats, c)
		}
		shuffled := append([]handover(nil), c.handovers...)
		shuffled = append(shuffled, c.handovers[:5]...) // on the path of another request as well
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, k int) { shuffled[i], shuffled[k] = shuffled[k], shuffled[i] })
		if shuffledStats := slotWaitsOf(3, shuffled, waiters...); !reflect.DeepEqual(got, shuffledStats) {
			t.Errorf("%s: with three workers %+v, with one %+v", c.name, shuffledStats, got)
		}
	}
}

// TestBackgroundHolders: a holder that a request has started, or that has itself waited for a request, is none in the background. If goroutines
// of the same request end its waits, each request has its own slots: of two at the same time, each has two.
func TestBackgroundHolders(t *testing.T) {
	const ms = 1_000_000
	for creator, wantBackground := range map[uint64]float64{1: 0, 99: 0.5} {
		for _, isWithin := range []bool{false, true} {
			var list []handover
			for i := range int64(40) {
				for request := range uint64(2) {
					for k := range uint64(4) { // two others had taken the slots before
						waiter, waker, end := uint64(i)*100+request*10+k+1000, uint64(i)*100+request*10+k+998, i*100*ms+int64(1+k/2)*20*ms+int64(k%2)*ms
						list = append(list, handover{key: slotKey{wait: critpath.WaitSend}, waiter: waiter, waitStart: i*100*ms + 1, waitEnd: end, requestG: request + 1, requestEnd: i*100*ms + 60*ms, waker: waker, wakerCreator: creator, wakerCreated: i * 100 * ms, wakerSeenSince: i * 100 * ms, isWithin: isWithin})
					}
				}
			}
			got := slotWaitsOf(2, list, 1, 2)
			must.Equal(t, len(got), 1, "rows")
			check.Equal(t, got[0].BackgroundShare > 0, wantBackground > 0, "background, creator %d: %+v", creator, got[0])
			check.True(t, got[0].IsWithinRequests == isWithin && got[0].Slots == map[bool]int{false: 4, true: 2}[isWithin], "within %t: %+v", isWithin, got[0])
		}
	}
}

// TestWideReleases: holders of many units release them at the line at which those of one unit do. Each ends many waits at once; a
// release of two units is no wide one. Where no waiter's release ends a wait, all that do are of many units, however few then wait.
func TestWideReleases(t *testing.T) {
	const ms = 1_000_000
	for units, isWide := range map[int64]bool{2: false, 8: true} {
		var list []handover
		last := uint64(1)
		add := func(waiter, waker uint64, end int64) {
			list = append(list, handover{key: slotKey{wait: critpath.WaitSelect}, waiter: waiter, waitStart: end - 9*ms, waitEnd: end, requestEnd: end + 50*ms, waker: waker, release: 1})
		}
		for i := range int64(6) {
			large, time := uint64(1000+i), (i+1)*100*ms
			add(large, last, time)
			for k := range units {
				add(uint64(100*(i+1)+k), large, time+30*ms+k*1000)
			}
			for k := range units + 1 {
				add(uint64(100*(i+1)+50+k), uint64(100*(i+1)+k), time+(40+k)*ms)
			}
			last = uint64(100*(i+1) + 50)
		}
		got := slotWaitsOf(2, list)
		must.Equal(t, len(got), 1, "rows")
		check.True(t, (got[0].WideHolder != nil) == isWide && got[0].ReleasesFewToo == isWide && (!isWide || got[0].WaitsPerRelease == float64(units)), "%d units: %+v", units, got[0])
	}
	var byOthers []handover
	for i := range int64(9) {
		for k := range 2 + 2*(i%3/2) {
			byOthers = append(byOthers, handover{key: slotKey{wait: critpath.WaitSelect}, waiter: uint64(10*i + k + 10), waitStart: i * 100 * ms, waitEnd: i*100*ms + 50*ms, requestEnd: i*100*ms + 60*ms, waker: 7, release: 1})
		}
	}
	got := slotWaitsOf(2, byOthers)
	check.True(t, got[0].WideHolder != nil && !got[0].ReleasesFewToo && got[0].WaitsPerRelease == 8./3, "by others: %+v", got[0])
}

// TestCompareByWaitEnd: of two records of one wait, the same one is used in whichever order they come.
func TestCompareByWaitEnd(t *testing.T) {
	handovers := []handover{
		{waiter: 1, waitStart: 1, waitEnd: 2, requestEnd: 5, waker: 3},
		{waiter: 1, waitStart: 1, waitEnd: 2, requestEnd: 4, waker: 3},
		{waiter: 1, waitStart: 1, waitEnd: 2, requestEnd: 4, waker: 3, serviceEnd: 4},
	}
	for i := range handovers {
		for k := range handovers {
			if got, want := handovers[i].compareByWaitEnd(&handovers[k]), -handovers[k].compareByWaitEnd(&handovers[i]); got != want ||
				got == 0 && i != k {
				t.Errorf("%+v and %+v: %d in this order, %d in the other", handovers[i], handovers[k], got, -want)
			}
		}
	}
}

// TestPoolOfSeveralCallers: if a library's line has two callers, it has one pool if they end each other's waits, else two. It
// fails if a pool of three slots has two slots at each caller.
func TestPoolOfSeveralCallers(t *testing.T) {
	slotsBySite := func(list []handover) map[tracefmt.FrameID]int {
		var all []*handover
		for i := range list {
			all = append(all, &list[i])
		}
		slices.SortFunc(all, func(a, b *handover) int {
			return cmp.Or(cmp.Compare(a.key.site, b.key.site), a.compareByWaitEnd(b))
		})
		sum := New()
		sum.addPool(all)
		out := make(map[tracefmt.FrameID]int)
		for k, s := range sum.slotWaits {
			out[k.site] = s.slots
		}
		return out
	}
	onePool := simulatePool(300, 3, 10, 40, 0)
	for i := range onePool {
		onePool[i].key.site = tracefmt.FrameID(1 + onePool[i].waiter%2)
	}
	if got := slotsBySite(onePool); got[1] != 3 || got[2] != 3 {
		t.Errorf("one pool of 3: %v", got)
	}
	twoPools := simulatePool(300, 2, 10, 40, 0)
	for i := range twoPools {
		twoPools[i].key.site = 1
	}
	for _, h := range simulatePool(300, 3, 10, 40, 0) {
		h.key.site, h.waiter, h.waker = 2, h.waiter+1000, h.waker+1000
		twoPools = append(twoPools, h)
	}
	if got := slotsBySite(twoPools); got[1] != 2 || got[2] != 3 {
		t.Errorf("pools of 2 and 3: %v", got)
	}
}

// TestDemand: goroutines that begin to wait together, and the holders of slots at that time, would need a slot each. While goroutines wait all the
// time, each slot is acquired after a wait.
func TestDemand(t *testing.T) {
	var queue []int64
	for start := range int64(50) {
		queue = append(queue, 10*start)
	}
	for _, c := range []struct {
		name       string
		waitStarts []int64 // of waits that each end 30 later
		want       int
	}{
		{"waits far apart", []int64{0, 100, 200, 300}, 1 + 4},
		{"a burst of five", []int64{0, 0, 0, 0, 0}, 5 + 4},
		{"a queue that never ends", queue, 2},
	} {
		list := make([]*handover, len(c.waitStarts))
		for i, start := range c.waitStarts {
			list[i] = &handover{waitStart: start, waitEnd: start + 30}
		}
		periodStarts, _ := queuePeriodStarts(list)
		check.Equal(t, demandOf(list, periodStarts, 4, 15), c.want, "%s", c.name)
	}
}
