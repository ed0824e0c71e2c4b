// Package queues sums up the waits of requests for other goroutines of the process: who ends them, how many requests wait at
// once, and for how long. A request's critical path shows for which goroutine it waited. Only many paths together show
// whether that goroutine served several requests at a time, or whether the requests queued for a slot of a pool.
//
// Input: the walked requests of package path, one call of Add each, on several workers. Output: plain structs, one a source
// line (methods of Sum after Merge), from which package finding decides.
//
//	services.go     goroutines that requests wait for, as servers of a queue: utilisation, batches, sleeps
//	orderedanswers.go answers that one goroutine reads in the order of the calls
//	ownworkers.go   loops of this process that answer its requests through a broker
//	idleworkers.go  other goroutines that could serve the queue, and are idle
//	inferredpools.go waits that show a pool: who acquires and releases its slots, how many there are
//	beforecalls.go  waits for the end of another's call on a connection that has one at a time
//	slotholders.go  who held the slots of a pool while a slow request waited for one
//	workertasks.go  tasks of requests that wait until a pool's worker has done others
//	longwaits.go    the longest wait of a request: does it wait for work that it handed over, or for an event
//	streams.go      requests that write parts of the answer between their waits
//	peercalls.go    calls to a peer from one line, one after the other
//	callcounts.go   calls to a peer from one line, by slow requests and by others
//	sharedloads.go  calls that all requests make which come during one, and no others
//	syscallcounts.go system calls of requests
//	parallelcalls.go calls to peers on goroutines that a request starts in parallel
//	connopens.go    connections that requests open
//	delayedacks.go  answers that wait for a delayed acknowledgement
//	peerlocks.go    locks of a peer that transactions of other requests hold
//	callholders.go  calls of others during which a peer's answers are late
//	deadlocks.go    transactions that wait for each other's locks at a peer
//	siblings.go     locks that goroutines of one and the same request hold
//	holderlines.go  the line below which the holder of a lock works
//	limiters.go     the rate at which a limiter lets requests through
//	transactions.go transactions during which requests wait for a locked database
//	heldbodies.go   requests whose bodies wait for HTTP/2's flow control, and what else is sent on that connection
//	windowrounds.go answers of which a window of HTTP/2 lets through a part in each round trip
//	heldcalls.go    calls of gRPC whose bodies its writer keeps back, for the window of their connection
//	heldanswers.go  messages of clients whose answers are written when a timer fires
//	lateruns.go     goroutines that run late while many requests wait for them
//
// Words: a server is a goroutine that requests wait for, and a service is an interval that a request waited for it. A waiter
// is the goroutine that waits, its waker the goroutine that ended the wait. Most sums cover only a slice of each generation
// (see Sum). All results are independent of which worker added which request.
package queues

import (
	"math"
	"sync"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Sum adds up services, slot waits, peer calls and late runs. It implements pass.Sum.
//
// All but the late runs are taken from one slice of every generation: the requests that end in its first part. All requests
// of the slice are walked, because simultaneous waits show only then. A slice has few requests, so the extra walks are cheap.
type Sum struct {
	workers           []*workerSum
	sliceNS           int64        // length of all slices
	sliceRequests     int          // about how many requests ended in the slices
	requestGoroutines goroutineSet // goroutines that serve requests in this generation's slice
	services          map[serviceKey]*serviceSum
	slotWaits         map[slotKey]*slotWaitSum
	limiters          map[tracefmt.FrameID]*limiterSum
	hubs              map[uint64]*hubSum
	loops             map[tracefmt.StringID]*loopSum
	queuedRequests    map[slotKey]*sample.TopN[*queuedRequest]
	backgroundCalls   map[tracefmt.FrameID][]interval // by site
	latestCalls       map[uint64]backgroundCall       // by goroutine
	backgroundEnd     int64                           // end of the latest generation whose background calls were added
	// aggregation runs while the requests of the next generation are found: it does not need the window.
	aggregation sync.WaitGroup
}

// A workerSum is what one worker has added. Only it uses the fields, until EndGeneration or Merge combines them.
type workerSum struct {
	stage *path.Stage

	// Of this generation's slice:
	sliceEnd          int64 // requests that end before it belong to the slice
	services          []service
	idleSamples       []idleSample
	answerWaits       []answerWait
	workRuns          []workRun
	handovers         []handover
	limiterWaits      []limiterWait
	requestGoroutines goroutineSet // goroutines that serve requests in the slice
	lateRuns          lateRuns

	// Of all slices:
	sleeps        map[serviceKey]sleepSum
	longWaits     map[tracefmt.FrameID]longWaitSum // by the site of the wait
	streams       map[tracefmt.FrameID]streamSum   // by the site of the wait
	siblingLocks  map[tracefmt.FrameID]siblingSum  // by the site that waits for the lock
	holderLines   map[holderLineKey]int64          // in ns
	taskWaits     map[slotKey]*taskWaitSum
	peerCalls     map[peerCallKey]*peerCallSum
	callCounts    map[callCountKey]*callCountSum
	servedStarts  []int64 // starts of requests that clients sent
	syscallCounts map[path.GroupID]*SyscallCount
	connOpens     map[path.GroupID]*groupOpenSum
	lockedWaits   map[lockedKey]*lockedSum
	heldBodies    map[tracefmt.FrameID]*heldBodySum // by the line of the wait for the answer
	messages      map[path.GroupID]*messageSum
	ticks         map[path.GroupID]*tickSum

	// The transactions of the window, if they were searched for in this generation.
	transactions     []transaction
	hasTransactions  bool
	holderSamples    map[sampleKey]*holderSample // of this generation's waits
	goroutineSamples map[int64]goroutineSample   // by sampled instant of this generation
	// divergingPositions caches the results of divergingPosition by the waiter's and the holder's stack.
	divergingPositions map[[2]tracefmt.StackID]holderPosition
	// Scratch space for one request:
	spans          []timeline.Span
	childSpans     []timeline.Span // see addOtherWaits
	ownWaitScratch []ownWait
	callScratch    []requestCalls
	answerScratch  []placedAnswer
	writers        []requestWriter
	readers        []uint64
}

// New returns an empty Sum.
func New() *Sum {
	return &Sum{
		services:  make(map[serviceKey]*serviceSum),
		slotWaits: make(map[slotKey]*slotWaitSum), hubs: make(map[uint64]*hubSum), loops: make(map[tracefmt.StringID]*loopSum), queuedRequests: make(map[slotKey]*sample.TopN[*queuedRequest]),
		limiters: make(map[tracefmt.FrameID]*limiterSum), backgroundCalls: make(map[tracefmt.FrameID][]interval),
	}
}

// NewAdder implements pass.Sum: it returns an empty workerSum for one worker, whose requests stage walks.
func (s *Sum) NewAdder(stage *path.Stage) path.Adder {
	p := &workerSum{
		stage:    stage,
		lateRuns: lateRuns{runs: make(map[lateRunKey]lateRun), maxNSByG: make(map[uint64]int64)},
		sleeps:   make(map[serviceKey]sleepSum), longWaits: make(map[tracefmt.FrameID]longWaitSum),
		streams: make(map[tracefmt.FrameID]streamSum), siblingLocks: make(map[tracefmt.FrameID]siblingSum),
		holderLines: make(map[holderLineKey]int64), taskWaits: make(map[slotKey]*taskWaitSum), peerCalls: make(map[peerCallKey]*peerCallSum), callCounts: make(map[callCountKey]*callCountSum), syscallCounts: make(map[path.GroupID]*SyscallCount), connOpens: make(map[path.GroupID]*groupOpenSum), lockedWaits: make(map[lockedKey]*lockedSum), heldBodies: make(map[tracefmt.FrameID]*heldBodySum),
		messages: make(map[path.GroupID]*messageSum), ticks: make(map[path.GroupID]*tickSum),
		holderSamples: make(map[sampleKey]*holderSample), goroutineSamples: make(map[int64]goroutineSample), divergingPositions: make(map[[2]tracefmt.StackID]holderPosition),
	}
	s.workers = append(s.workers, p)
	return p
}

// About maxSliceRequests requests of a generation belong to its slice, and about maxLaterSliceRequests after laterSlicesFrom
// requests were in slices.
const (
	maxSliceRequests      = 2000
	maxLaterSliceRequests = 500
	laterSlicesFrom       = 6_000
)

// BeginGeneration sets the slice of a generation: requests that end before sliceEnd are summed up, about maxSliceRequests of
// them, fewer after many slices. It empties the workers' records of the generation before. It implements
// pass.GenerationBeginner.
func (s *Sum) BeginGeneration(batch request.Batch) {
	s.aggregation.Wait()
	s.workers[0].lateRuns.sliceWeight = 1
	maxRequests := maxSliceRequests
	if s.sliceRequests >= laterSlicesFrom {
		maxRequests = maxLaterSliceRequests
	}
	s.sliceRequests += min(batch.Count, maxRequests)
	from, to, isWhole := batch.Slice(maxRequests, 0)
	s.sliceNS += max(0, to-from)
	if isWhole {
		to = math.MaxInt64
	} else {
		s.workers[0].lateRuns.sliceWeight = int64((batch.Count + maxRequests/2) / maxRequests)
	}
	for _, p := range s.workers {
		p.sliceEnd = to
		p.services, p.idleSamples, p.answerWaits, p.workRuns = p.services[:0], p.idleSamples[:0], p.answerWaits[:0], p.workRuns[:0]
		p.handovers, p.limiterWaits = p.handovers[:0], p.limiterWaits[:0]
		clear(p.requestGoroutines)
		clear(p.holderSamples)
		clear(p.goroutineSamples)
		p.hasTransactions = false
	}
}

// NeedsWalk implements pass.Chooser. It chooses all requests of the slice, because the number of simultaneous waits for one
// goroutine shows only if all requests are walked.
func (s *Sum) NeedsWalk(r *request.Request) bool {
	return len(s.workers) > 0 && r.End < s.workers[0].sliceEnd
}

// Add passes a walked request to each kind of sum, if the request ended in the slice. Late runs are recorded for all requests.
// It implements path.Adder.
func (p *workerSum) Add(w *path.WalkResult) {
	p.addLateRuns(w) // without steps, as of a path.Joined, it adds nothing
	if w.Form != path.Whole || w.Observer || w.Req.Open || w.Req.End >= p.sliceEnd {
		return
	}
	p.addServices(w)
	p.addWorkRun(w)
	p.addHandovers(w)
	p.addTaskWaits(w)
	p.addPeerCalls(w, w.FollowedWaits())
	p.addCallCounts(w, w.FollowedWaits())
	p.addSyscallCount(w)
	p.addConnOpens(w, w.FollowedWaits())
	p.addHolderLines(w, w.FollowedWaits())
	p.addSharedLockLines(w, w.FollowedWaits())
	p.addLockedWaits(w)
	p.addHeldBodies(w, w.FollowedWaits())
	p.addLimiterWaits(w)
	p.addHeldAnswers(w)
	if w.Req.IsServed() {
		p.servedStarts = append(p.servedStarts, w.Req.Start)
		waits := p.ownWaits(w)
		p.addLongWait(w, waits)
		p.addStream(w, waits) // removes elements from waits
		p.addSiblingLocks(w)
	}
}

// EndGeneration starts to aggregate, in the background, what the workers recorded in a generation, adds the calls of other goroutines, and
// merges the late runs. It implements pass.GenerationEnder.
func (s *Sum) EndGeneration() {
	clear(s.requestGoroutines)
	for _, p := range s.workers {
		s.requestGoroutines.addAll(p.requestGoroutines)
	}
	s.aggregation.Go(s.aggregateServices)
	s.aggregation.Go(s.aggregateHandovers)
	s.aggregation.Go(s.aggregateLimiters)
	s.addBackgroundCalls()
	s.mergeLateRuns()
}

// Merge combines the sums of all workers and translates their group ids to those of the report.
func (s *Sum) Merge(ts []path.Translation) {
	s.aggregation.Wait()
	mergeGroups(s, ts, func(p *workerSum) *map[peerCallKey]*peerCallSum { return &p.peerCalls }, peerCallKey.inReport, func(to, from *peerCallSum) { to.add(from, 1) })
	mergeGroups(s, ts, func(p *workerSum) *map[callCountKey]*callCountSum { return &p.callCounts }, callCountKey.inReport, (*callCountSum).merge)
	mergeGroups(s, ts, func(p *workerSum) *map[path.GroupID]*groupOpenSum { return &p.connOpens }, groupInReport, func(to, from *groupOpenSum) { to.add(from, 1) })
	mergeGroups(s, ts, func(p *workerSum) *map[path.GroupID]*SyscallCount { return &p.syscallCounts }, groupInReport, (*SyscallCount).add)
	mergeGroups(s, ts, func(p *workerSum) *map[path.GroupID]*messageSum { return &p.messages }, groupInReport, (*messageSum).add)
	mergeGroups(s, ts, func(p *workerSum) *map[path.GroupID]*tickSum { return &p.ticks }, groupInReport, (*tickSum).add)
	all := s.workers[0]
	for _, p := range s.workers[1:] {
		all.servedStarts = append(all.servedStarts, p.servedStarts...)
		addSums(&all.sleeps, p.sleeps, sleepSum.plus)
		addSums(&all.longWaits, p.longWaits, longWaitSum.plus)
		addSums(&all.streams, p.streams, streamSum.plus)
		addSums(&all.siblingLocks, p.siblingLocks, siblingSum.plus)
		addSums(&all.holderLines, p.holderLines, plusNS)
		mergeSums(all.taskWaits, p.taskWaits, (*taskWaitSum).add)
		mergeSums(all.lockedWaits, p.lockedWaits, (*lockedSum).add)
		mergeSums(all.heldBodies, p.heldBodies, (*heldBodySum).add)
	}
	s.workers = s.workers[:1]
}

// addSums adds each entry of a map to the entry with the same key of another one, which may be nil before.
func addSums[K comparable, S any](to *map[K]S, from map[K]S, plus func(S, S) S) {
	for k, s := range from {
		addToKey(to, k, s, plus)
	}
}

// addToKey adds a sum to the entry with a key of a map, which may be nil before.
func addToKey[K comparable, S any](to *map[K]S, key K, s S, plus func(S, S) S) {
	entry.Put(to, key, plus((*to)[key], s))
}

// plusNS returns the sum of two times or counts.
func plusNS(a, b int64) int64 { return a + b }

// mergeSums adds each entry of a map of sums to the entry with the same key of another one.
func mergeSums[K comparable, S any](to, from map[K]*S, add func(*S, *S)) {
	for k, s := range from {
		add(entry.GetOrAdd(to, k), s)
	}
}

// mergeGroups combines the sums of all workers in that of the first one, with the report's groups in their keys: inReport translates a key.
func mergeGroups[K comparable, S any](s *Sum, ts []path.Translation, sums func(*workerSum) *map[K]*S, inReport func(K, path.Translation) K, add func(*S, *S)) {
	merged := make(map[K]*S)
	for i, p := range s.workers {
		for k, sum := range *sums(p) {
			add(entry.GetOrAdd(merged, inReport(k, ts[i])), sum)
		}
	}
	*sums(s.workers[0]) = merged
}

// groupInReport returns the report's id of a worker's group.
func groupInReport(group path.GroupID, t path.Translation) path.GroupID { return t.Groups[group] }

// A goroutineSet is a set of goroutines. The zero value is empty.
type goroutineSet map[uint64]struct{}

// contains reports whether a goroutine is in the set.
func (s goroutineSet) contains(g uint64) bool {
	_, ok := s[g]
	return ok
}

// add adds a goroutine.
func (s *goroutineSet) add(g uint64) {
	if *s == nil {
		*s = make(goroutineSet)
	}
	(*s)[g] = struct{}{}
}

// addAll adds the goroutines of another set.
func (s *goroutineSet) addAll(set goroutineSet) {
	for g := range set {
		s.add(g)
	}
}
