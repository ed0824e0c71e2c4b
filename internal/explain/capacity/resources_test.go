package capacity

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

const us = 1000

// A queueRecording holds the records of requests that arrive at random at a resource with one server, each after 10 us.
type queueRecording struct {
	*Sum
	symbols *tracefmt.Symbols
	random  *rand.Rand
	arrival int64 // of the last request
	free    int64 // when the server is free
}

func newQueueRecording() *queueRecording {
	return &queueRecording{Sum: New(), symbols: tracefmt.NewSymbols(), random: rand.New(rand.NewPCG(1, 2))}
}

// stack returns a stack in which a function of the runtime was called at a line of main.serve.
func (q *queueRecording) stack(fn string, line uint32) tracefmt.StackID {
	return q.symbols.AddStack(tracefmt.FrameText{Func: fn, File: "/go/r.go", Line: 1}, tracefmt.FrameText{Func: "main.serve", File: "/s/main.go", Line: line})
}

// arrive adds a request, on average gapNS after the last one, and returns it with the time at which the server is free for it.
func (q *queueRecording) arrive(gapNS float64) (r *servedRequest, begin int64) {
	q.arrival += int64(q.random.ExpFloat64() * gapNS)
	r = &servedRequest{start: q.arrival, g: uint64(100 + len(q.requests)), kind: request.HTTP1, isServed: true}
	q.requests = append(q.requests, r)
	return r, max(q.free, q.arrival+10*us)
}

// limits returns the resources of the recording, of which there must be one.
func (q *queueRecording) limits(t *testing.T, groupCounts ...int) *report.Capacity {
	t.Helper()
	c := q.judge(t, groupCounts...)
	must.True(t, len(c.Limits) != 0, "no limit; not judged: %+v", c.NotJudged)
	return c
}

func (q *queueRecording) judge(t *testing.T, groupCounts ...int) *report.Capacity {
	t.Helper()
	q.sliceNS = q.free
	q.Merge([]path.Translation{{Groups: []path.GroupID{0, 1}}})
	syms := q.symbols.Snapshot()
	in := &Input{
		Report: &report.Report{Input: report.Input{DurationNS: q.sliceNS}}, Groups: map[path.GroupID]*report.Group{}, Stats: &process.Stats{}, Facts: &predict.Facts{},
		Speller: &spell.Speller{Syms: &syms, Sites: cause.NewSites(&syms)}, Question: Question{LimitsOnly: true},
	}
	for id, count := range groupCounts {
		in.Groups[path.GroupID(id)] = &report.Group{Count: count}
	}
	return must.Have(q.Judge(in))(t)
}

// checkLimit compares the load at which the first limit saturates.
func checkLimit(t *testing.T, c *report.Capacity, kind report.LimitKind, perS float64) {
	t.Helper()
	if l := c.Limits[0]; l.Kind != kind || math.Abs(l.SaturatesPerS/perS-1) > 0.05 {
		t.Errorf("first limit: %s at %g/s, want %s at %g/s", l.Kind, l.SaturatesPerS, kind, perS)
	}
}

// TestSampleError: a demand that was three times as high in the second half may be anything between. If it alternates, its mean is known.
func TestSampleError(t *testing.T) {
	var alternating, rising []float64
	for i := range 100 {
		alternating, rising = append(alternating, float64(1+2*(i%2))), append(rising, float64(1+2*(i/50)))
	}
	if a, r := sampleError(alternating), sampleError(rising); a > 0.1 || r < 0.3 {
		t.Errorf("errors: %.2g if it alternates, %.2g if it rises", a, r)
	}
}

// TestActor: a goroutine that receives from an unbuffered channel ends the wait of the request that sends, before it does the
// work. It fails if that counts as work done, because then the goroutine seems to work for several requests at once.
func TestActor(t *testing.T) {
	const actor, work = 7, 2000 * us
	q := newQueueRecording()
	idle, receive, reply := q.stack("runtime.chanrecv2", 44), q.stack("runtime.chanrecv2", 44), q.stack("runtime.chansend1", 45)
	send, result := q.stack("runtime.chansend1", 62), q.stack("runtime.chanrecv1", 63)
	server := &server{g: actor}
	q.servers[actor] = server
	for range 300 {
		r, begin := q.arrive(3 * work)
		if waited := q.free > q.arrival+10*us; waited {
			q.waits = append(q.waits, &wait{request: r, kind: critpath.WaitSend, stack: send, releaseStack: receive, g: r.g, waker: actor, start: q.arrival + 10*us, end: begin})
		} else {
			server.waits = append(server.waits, serverWait{idle, begin - q.free, begin, r.g, true})
		}
		q.free = begin + work
		q.waits = append(q.waits, &wait{request: r, kind: critpath.WaitChan, stack: result, releaseStack: reply, g: r.g, waker: actor, start: begin + us, end: q.free})
		r.end = q.free + 20*us
	}
	server.observedNS = q.free
	checkLimit(t, q.limits(t, 300), report.LimitStage, 1e9/work)
}

// TestStageWithoutStack: a goroutine whose waits for work have no stack is no stage.
func TestStageWithoutStack(t *testing.T) {
	const worker = 7
	q := newQueueRecording()
	server := &server{g: worker}
	q.servers[worker] = server
	for range 10 {
		r, begin := q.arrive(1000 * us)
		server.waits = append(server.waits, serverWait{0, begin - q.free, begin, r.g, true})
		q.free = begin + 100*us
		q.waits = append(q.waits, &wait{request: r, kind: critpath.WaitChan, stack: q.stack("runtime.chanrecv1", 63), releaseStack: q.stack("runtime.chansend1", 45), g: r.g, waker: worker, start: begin + us, end: q.free})
		r.end = q.free + 20*us
	}
	server.observedNS = q.free
	if c := q.judge(t, 10); len(c.Limits) > 0 {
		t.Errorf("limits: %+v", c.Limits)
	}
}

// TestCollector: a goroutine that only receives, several times from each request, has received all of the work that it does.
func TestCollector(t *testing.T) {
	q, r := newQueueRecording(), new(servedRequest)
	receive, send := q.stack("runtime.chanrecv2", 44), q.stack("runtime.chansend1", 62)
	for end := range int64(3) {
		q.waits = append(q.waits, &wait{request: r, kind: critpath.WaitSend, stack: send, releaseStack: receive, waker: 7, end: end + 1})
	}
	syms := q.symbols.Snapshot()
	a := &analysis{Sum: q.Sum, in: &Input{Speller: &spell.Speller{Syms: &syms, Sites: cause.NewSites(&syms)}}}
	if wakes, _ := a.findWork(&server{g: 7}, []serverWait{{stack: receive}}); len(wakes) != 3 {
		t.Errorf("it did work at %v, want 3 times", wakes)
	}
}

// TestHoldOfSeveralCalls: under a lock, a request makes three calls with a pause between them. The time from the release of the
// call to that of the lock counts once. It fails if it counts for each call.
func TestHoldOfSeveralCalls(t *testing.T) {
	const call, pause, tail = 400 * us, 100 * us, 300 * us
	q := newQueueRecording()
	lock, unlock := q.stack("sync.(*Mutex).Lock", 66), q.stack("sync.(*Mutex).Unlock", 80)
	var holder uint64
	for range 300 {
		r, begin := q.arrive(6000 * us)
		if q.free > q.arrival+10*us {
			q.waits = append(q.waits, &wait{request: r, kind: critpath.WaitLock, stack: lock, releaseStack: unlock, g: r.g, waker: holder, start: q.arrival + 10*us, end: begin})
		}
		end := begin
		for line := range uint32(3) {
			r.leaves = append(r.leaves, leaf{r.g, q.stack("syscall.Syscall", 70+line), false, end, end + call})
			end += call + pause
		}
		holder, q.free = r.g, end-pause+tail
		r.end = q.free + 10*us
	}
	checkLimit(t, q.limits(t, 300), report.LimitLock, 1e9/(3*call+2*pause+tail))
}

// TestInnerRequests: each request makes a call that another request of the process answers. It fails if both count as load, and if
// the caller's wait for the process itself is listed as one for a peer.
func TestInnerRequests(t *testing.T) {
	const work = 2000 * us
	q := newQueueRecording()
	lock, unlock, sleep, call := q.stack("sync.(*Mutex).Lock", 66), q.stack("sync.(*Mutex).Unlock", 80), q.stack("time.Sleep", 70), q.stack("net/http.(*Client).Do", 90)
	var holder uint64
	for range 300 {
		outer, begin := q.arrive(3 * work)
		inner := &servedRequest{start: q.arrival + 5*us, g: outer.g + 10_000, group: 1, kind: request.HTTP1, isServed: true}
		q.requests = append(q.requests, inner)
		if q.free > q.arrival+10*us {
			q.waits = append(q.waits, &wait{request: inner, kind: critpath.WaitLock, stack: lock, releaseStack: unlock, g: inner.g, waker: holder, start: q.arrival + 10*us, end: begin})
		}
		inner.leaves = []leaf{{inner.g, sleep, false, begin, begin + work}}
		holder, q.free = inner.g, begin+work
		inner.end, outer.end = q.free+10*us, q.free+50*us
		outer.leaves = []leaf{{outer.g, call, true, outer.start, outer.end}}
		outer.answers = []critpath.Answer{{G: inner.g, Start: inner.start, End: inner.end}}
	}
	c := q.limits(t, 300, 300)
	checkLimit(t, c, report.LimitLock, 1e9/work)
	check.True(t, len(c.NotJudged) == 1 && len(c.Limits[0].Groups) == 1, "not judged: %+v; the lock is used by %+v", c.NotJudged, c.Limits[0].Groups)
}

// TestHoldsOfLock: requests take a lock at random times, and some hold it four times as long. Only holds at whose end another one waits are seen,
// among which the long ones are too many. The demand is nevertheless that of all.
func TestHoldsOfLock(t *testing.T) {
	const interarrival, count = 1000 * us, 20_000
	random := rand.New(rand.NewPCG(3, 4))
	arrival, free := 0.0, 0.0
	q, heldNS := &heldQueue{}, 0.0
	var previous hold // of the latest holder
	for range count {
		arrival += random.ExpFloat64() * interarrival
		length, isQueued := float64(100*us), arrival < free
		if random.IntN(4) == 0 {
			length = 400 * us
		}
		if isQueued {
			q.waits = append(q.waits, wait{start: int64(arrival), end: int64(free)})
			q.holds = append(q.holds, previous)
		}
		start := max(arrival, free)
		free, heldNS = start+length, heldNS+length
		previous = hold{start: int64(start), end: int64(free)}
	}
	a := &analysis{Sum: New(), load: 1. / interarrival}
	a.sliceNS = int64(arrival)
	r := new(resource)
	check.Equal(t, a.measureHolds(r, q), "", "reason")
	check.True(t, math.Abs(r.busy/(heldNS/arrival)-1) < 0.1 && math.Abs(r.visits-1) < 0.1 && r.servers == 1, "in use %v, want %v; %v uses per request", r.busy, heldNS/arrival, r.visits)
	q.holds = q.holds[:3]
	check.Equal(t, a.measureHolds(r, q), "only 3 holds of it were seen from beginning to end", "few holds")
}
