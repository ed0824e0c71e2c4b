package queues

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A request's path shows that it waited for another goroutine, but not whether that one served several requests at a time or
// one after the other. The services in a slice of every generation show it: which requests waited for which goroutine, and
// when.

// maxRequestServices bounds the services that are recorded of one request. More, up to maxRequestWaiting, are recorded of servers that
// themselves wait for so large a part of the request: one that waits behind many others has so many.
const maxRequestServices, maxRequestWaiting = 32, 128

// A serviceKey identifies services that are added up together: for requests of one kind, with one cause, at one site. A running
// goroutine's stack is known only where a CPU sample hit it, so for cause.CPU the site is that of the wait that leads to the
// goroutine.
type serviceKey struct {
	kind  request.Kind
	cause cause.Cause
	site  tracefmt.FrameID
}

// A service is an interval that a request waited for the work of another goroutine, its server.
type service struct {
	key           serviceKey
	server        uint64 // goroutine id
	start, end    int64
	isLast        bool // the request's last service with this key
	weight        int64
	serverWrote   bool  // the server itself sent the call that the peer answers in this interval
	behindLock    bool  // reached through a lock, before any hand-over of work
	waitStart     int64 // of the request's own wait
	continuesWait bool  // an earlier service with this key is in the same wait of the request
	directNS      int64 // of a last service by a server that the request itself woke: the wait until its end; else 0
}

// A serviceSum adds up the services of one key. Times are in ns.
type serviceSum struct {
	waitNS         int64 // sum of the lengths of services
	busyNS         int64 // the same, with overlapping services of one server counted once
	otherRequestNS int64 // part of waitNS: on goroutines that were serving other requests
	behindLockNS   int64 // part of waitNS: behind a lock
	requests       int64 // number of last services
	unlocked       int64 // part of requests: not behind a lock
	serverWrites   int64 // part of unlocked: the server itself sent the call to the peer
	alreadyRunning int64 // part of unlocked: the server was already at this work, for another request
	direct         int64 // number of last services with a directNS
	directNS       int64 // their sum
	waits          int64 // waits of requests with such services
	jointRounds    int   // rounds of a server that answered several requests which had waited through the end of the one before
	jointNS        int64 // time for which those waited until that end
	otherNS        int64 // the same of requests that waited through further rounds; of those that came during their round, the time since its beginning
	endInstants    int64 // instants at which last services ended; fewer than requests if several end together
	servers        goroutineSet
	maxServers     int // largest number of servers at the same time, each counted from its first service to its last
	// Of the samples in which several requests wait for one server: their number, and the sums of idle and of all workers.
	idleSamples, idleWorkers, workers int
	order                             orderSum
	afterRuns                         map[tracefmt.StringID]int64 // by loop: answers that follow its iterations

	endMarks []endMark
}

// A sleepSum adds up complete sleeps of servers, which services of one key overlap.
type sleepSum struct {
	sleeps     int64
	begunEarly int64 // sleeps that began before the request started to wait
	ns         int64 // lengths
	waitedNS   int64 // the parts of the sleeps during which requests waited
}

func (s sleepSum) plus(addend sleepSum) sleepSum {
	return sleepSum{s.sleeps + addend.sleeps, s.begunEarly + addend.begunEarly, s.ns + addend.ns, s.waitedNS + addend.waitedNS}
}

// An endMark is an instant at which a server finished one or several requests.
type endMark struct {
	server uint64
	time   int64
}

// maxEndMarks bounds the marks of one key. So many are enough to detect a period.
const maxEndMarks = 512

// addServices records the intervals of a request's path on other goroutines (its services, the latest maxRequestServices),
// joined if they are adjacent, and the sleeps among them.
func (p *workerSum) addServices(w *path.WalkResult) {
	r := w.Req
	if r.IsServed() { // its goroutine serves one request at a time, so it is no server of several waiters
		p.requestGoroutines.add(r.G)
	}
	keyOf := func(s *cause.Segment) serviceKey {
		if c := s.Code.Cause(); c != cause.CPU {
			return serviceKey{r.Kind, c, s.Site}
		}
		return serviceKey{r.Kind, cause.CPU, p.stage.IDs.LastSite(w.ChainOfSegment(s))}
	}
	first, waits := len(p.services), w.FollowedWaits()
	for i := len(w.Segments) - 1; i >= 0; i-- {
		segment := &w.Segments[i]
		if segment.FollowedWait < 0 || !isServiceCause(segment.Code.Cause()) ||
			p.stage.IDs.LeadsToAnswer(w.ChainOfSegment(segment)) {
			continue
		}
		server, isCall := segment.G, p.stage.Sites.HasRole(waits[segment.FollowedWait].Stack, knowledge.HTTP1RoundTrip)
		if isCall {
			server = waits[segment.FollowedWait].G // a connection's goroutines work for the caller alone
		}
		if server == r.G {
			continue // on a request's own goroutine, that request is the one that gets the service
		}
		waitStart := waits[outermostWait(waits, segment.FollowedWait)].Start
		if n := len(p.services); n > first && p.services[n-1].server == server && p.services[n-1].key == keyOf(segment) &&
			p.services[n-1].start == segment.End {
			p.services[n-1].start, p.services[n-1].waitStart = segment.Start, waitStart
			continue
		}
		if recorded, c := len(p.services)-first, segment.Code.Cause(); recorded >= maxRequestWaiting {
			break // what remains is earlier on the path; the last services are recorded
		} else if recorded >= maxRequestServices && (c != cause.Network || segment.End-segment.Start < (r.End-r.Start)/maxRequestWaiting) {
			continue
		}
		isLast := !slices.ContainsFunc(p.services[first:], func(later service) bool { return later.key == keyOf(segment) })
		p.services = append(p.services, service{
			key: keyOf(segment), server: server, start: segment.Start, end: segment.End, weight: w.CountedRequests(),
			serverWrote: isCall && isHandedWork(waits, segment.FollowedWait),
			waitStart:   waitStart, behindLock: isBehindLock(waits, segment.FollowedWait),
		})
		if isLast {
			p.addAnswerWait(&p.services[len(p.services)-1], waitStart)
		}
	}
	services := p.services[first:]
	slices.Reverse(services)
	for i := range services {
		svc := &services[i]
		svc.isLast = !slices.ContainsFunc(services[i+1:], func(b service) bool { return b.key == svc.key })
		for _, earlier := range slices.Backward(services[:i]) {
			if earlier.key == svc.key {
				svc.continuesWait = isInOneWait(waits, r.G, earlier.start, svc.start)
				break
			}
		}
		if svc.isLast && p.isWoken(svc, r.G) {
			svc.directNS = svc.end - svc.waitStart
		}
		if p.isInHandler(w, svc) {
			p.requestGoroutines.add(svc.server)
		}
		svc.serverWrote = svc.isLast && svc.key.cause == cause.Network && (svc.serverWrote || p.hasServerWritten(w, svc))
		p.sampleIdleWorkers(w, svc)
	}
	if w.Sampled && len(w.LongPWaits) < path.MaxLongPWaits {
		for i := range services {
			if services[i].key.cause == cause.Sleep {
				p.addSleep(&services[i])
			}
		}
	}
}

// isWoken reports whether goroutine g woke the server, which was idle, just before it began to wait for it.
func (p *workerSum) isWoken(svc *service, g uint64) bool {
	found, _ := p.stage.Win.HasWoken(g, svc.waitStart-threshold.IdleCheckNS, svc.waitStart, func(woken uint64, _ tracefmt.StackID) bool { return woken == svc.server })
	return found
}

// isInOneWait reports whether one wait of goroutine g contains two instants.
func isInOneWait(waits []critpath.FollowedWait, g uint64, first, second int64) bool {
	return slices.ContainsFunc(waits, func(wait critpath.FollowedWait) bool { return wait.G == g && wait.Start <= first && second < wait.End })
}

// isBehindLock reports whether the chain from wait i to the request goes through a lock before (nearer to the request than) any
// channel, select or condition variable. waits are the followed waits of a path; i is -1 for the request itself.
func isBehindLock(waits []critpath.FollowedWait, i int32) (locked bool) {
	for ; i >= 0; i = waits[i].Parent {
		switch waits[i].Kind {
		case critpath.WaitLock, critpath.WaitOnce:
			locked = true
		case critpath.WaitChan, critpath.WaitSend, critpath.WaitSelect, critpath.WaitCond:
			locked = false
		}
	}
	return locked
}

// isHandedWork reports whether the goroutine of wait i works for a goroutine that handed work over to it: the parent wait is
// for a channel, a select, or a condition variable. A WaitGroup does not count: its waiters wait for work that began without
// them, and all get the result at once.
func isHandedWork(waits []critpath.FollowedWait, i int32) bool {
	if i = waits[i].Parent; i < 0 {
		return false
	}
	switch waits[i].Kind {
	case critpath.WaitChan, critpath.WaitSend, critpath.WaitSelect, critpath.WaitCond:
		return true
	}
	return false
}

// outermostWait returns the index of the wait of the request's own goroutine that leads to wait i.
func outermostWait(waits []critpath.FollowedWait, i int32) int32 {
	for waits[i].Parent >= 0 {
		i = waits[i].Parent
	}
	return i
}

// hasServerWritten reports whether a server that waits for an answer has itself written to a connection since its previous answer.
// If so, it makes one call at a time; a goroutine that reads answers for many callers does not write their calls.
func (p *workerSum) hasServerWritten(w *path.WalkResult, svc *service) bool {
	for i := len(w.Steps) - 1; i >= 0; i-- {
		step := &w.Steps[i]
		if step.G != svc.server || step.End > svc.start {
			continue
		}
		switch step.Kind {
		case critpath.Network:
			return false
		case critpath.Syscall:
			if p.stage.Sites.HasRole(step.Stack, knowledge.SocketWrite) {
				return true
			}
		}
	}
	return false
}

// isInHandler reports whether a stack of a server in its service has a handler: it serves a request, which perhaps began before the
// trace or does not end in it. A handler with a time limit is a part of the request that waits for it.
func (p *workerSum) isInHandler(w *path.WalkResult, svc *service) bool {
	return slices.ContainsFunc(w.Steps, func(step critpath.Step) bool {
		return step.G == svc.server && svc.start <= step.Start && step.End <= svc.end &&
			p.stage.Sites.HasRole(step.Stack, knowledge.HandlerRoot) && !p.stage.Sites.HasRole(step.Stack, knowledge.TimeoutGoroutine)
	})
}

// isServiceCause reports whether a server's time with this cause counts as service.
func isServiceCause(c cause.Cause) bool {
	switch c {
	case cause.CPU, cause.Sleep, cause.Network, cause.Syscall, cause.Lock, cause.Chan:
		return true
	}
	return false
}

// addSleep records the complete sleep of the server during a service. The request waited through a part of it.
func (p *workerSum) addSleep(svc *service) {
	p.spans = p.stage.Win.SpansCoarse(svc.server, svc.start, svc.end, p.spans[:0])
	for span := range entry.Each(p.spans) {
		if span.State != timeline.Waiting || span.Origin == timeline.OriginStatus || span.Start > svc.start || span.End < svc.end {
			continue
		}
		sum := sleepSum{sleeps: svc.weight, ns: svc.weight * (span.End - span.Start), waitedNS: svc.weight * (svc.end - svc.start)}
		if span.Start < svc.start {
			sum.begunEarly = svc.weight
		}
		p.sleeps[svc.key] = p.sleeps[svc.key].plus(sum)
	}
}

// maxDistinctServers bounds the number of servers that are counted for one key.
const maxDistinctServers = 1024

// aggregateServices adds the services that all workers recorded in a generation to the sums, server by server. The result does
// not depend on which worker recorded which service.
func (s *Sum) aggregateServices() {
	byKey := make(map[serviceKey][]*service)
	for _, p := range s.workers {
		for a := range entry.Each(p.services) {
			byKey[a.key] = append(byKey[a.key], a)
		}
	}
	for key, list := range byKey {
		slices.SortFunc(list, func(a, b *service) int {
			return cmp.Or(cmp.Compare(a.server, b.server), cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
		})
		sum := entry.GetOrAdd(s.services, key)
		var busy []interval // of each server, from its first service to its last
		for ofServer := range entry.EqualRuns(list, func(a, b *service) bool { return a.server == b.server }) {
			busy = append(busy, interval{ofServer[0].start, sum.add(ofServer, s.requestGoroutines)})
		}
		sum.maxServers = max(sum.maxServers, maxOverlap(busy))
	}
	s.addIdleSamples()
	s.addAnswers()
	s.addWorkRuns()
}

// add adds the services of one server, sorted by start, to the sum of their key, and returns the end of the last one. Requests
// whose last services end together (within threshold.IdleCheckNS) count as one batch. requests has the goroutines that serve
// requests.
func (s *serviceSum) add(list []*service, requests goroutineSet) (lastEnd int64) {
	servesRequest := requests.contains(list[0].server)
	if len(s.servers) < maxDistinctServers {
		s.servers.add(list[0].server)
	}
	var lastServices []*service
	for _, a := range list {
		d := a.weight * (a.end - a.start)
		s.waitNS += d
		if !a.continuesWait {
			s.waits += a.weight
		}
		if servesRequest {
			s.otherRequestNS += d
		}
		if a.behindLock {
			s.behindLockNS += d
		}
		s.busyNS += max(0, a.end-max(a.start, lastEnd))
		lastEnd = max(lastEnd, a.end)
		if a.isLast {
			lastServices = append(lastServices, a)
		}
		if a.directNS > 0 {
			s.direct, s.directNS = s.direct+a.weight, s.directNS+a.weight*a.directNS
		}
	}
	slices.SortFunc(lastServices, func(a, b *service) int { return cmp.Compare(a.end, b.end) })
	var previousEnds [2]int64 // of rounds, the last one first
	for i := 0; i < len(lastServices); {
		unlocked, serverWrote, end := int64(0), false, i
		for ; end < len(lastServices) && (end == i || lastServices[end].end-lastServices[end-1].end <= threshold.IdleCheckNS); end++ {
			a := lastServices[end]
			s.requests += a.weight
			if a.behindLock {
				continue // the lock's holder waits for the server
			}
			unlocked += a.weight
			serverWrote = serverWrote || a.serverWrote // requests that arrived later did not observe the write
			if a.start <= a.waitStart {
				s.alreadyRunning += a.weight
			}
		}
		if s.unlocked += unlocked; serverWrote {
			s.serverWrites += unlocked
		}
		s.endInstants++
		if len(s.endMarks) < maxEndMarks {
			s.endMarks = append(s.endMarks, endMark{list[0].server, lastServices[i].end})
		}
		s.addRound(lastServices[i:end], previousEnds)
		previousEnds[0], previousEnds[1], i = lastServices[end-1].end, previousEnds[0], end
	}
	return lastEnd
}

// addRound adds the requests that a server answered at one instant, given its last two such instants, the later one first. A batcher answers
// all that came during the round before, and none that came later.
func (s *serviceSum) addRound(answered []*service, previousEnds [2]int64) {
	first := slices.MinFunc(answered, func(a, b *service) int { return cmp.Compare(a.waitStart, b.waitStart) }).waitStart
	queued, queuedNS := 0, int64(0)
	for _, a := range answered {
		switch t := a.waitStart; {
		case t < previousEnds[1]:
			s.otherNS += previousEnds[0] - t
		case t < previousEnds[0]:
			queued, queuedNS = queued+1, queuedNS+previousEnds[0]-t
		default:
			s.otherNS += t - max(first, previousEnds[0])
		}
	}
	if queued > 1 {
		s.jointRounds, s.jointNS = s.jointRounds+1, s.jointNS+queuedNS
	}
}

// ServiceStats describes the servers (goroutines) that requests waited for, with one cause at one site, in the sampled slices
// of the trace.
type ServiceStats struct {
	Cause string
	Site  *report.Site // for cause "cpu", of the wait that leads to the server
	// WaitersPerServer is the mean number of requests that waited for one server at once, over the time in which at least one
	// did; 1 if each request had its own server.
	WaitersPerServer float64
	// BatchSize is the mean number of requests that a server finished at one instant.
	BatchSize float64
	// IsBatcher reports that the rounds of a server mostly answer all requests that arrived before them.
	IsBatcher bool
	// OtherRequestShare is the share of the waiting time on goroutines that were serving other requests.
	OtherRequestShare float64
	// WaitsPerRequest is the mean number of a request's own waits that contain such services.
	WaitsPerRequest float64
	// BehindLockShare is the share of the waiting time that was reached through a lock: requests queue for the lock.
	BehindLockShare float64
	// ServerWroteShare is, for waits for the network, the share of the requests for which the server itself had written since
	// the previous answer. AlreadyRunningShare is the share of the requests that arrived when the server had already started
	// the work that they waited for last. It was work for another request. Both are shares of the requests that are not behind
	// a lock: behind one, only its holder waits for the server.
	ServerWroteShare, AlreadyRunningShare float64
	// Servers counts the servers, up to 1024, and MaxServers those at the same time. The former is larger if workers end and
	// others replace them.
	Servers, MaxServers int
	// IdleWorkers is the mean number of servers' siblings that are idle while several requests wait for one server, of Workers on average:
	// work is divided among them before they are free. Both are 0 if that was seen too rarely.
	IdleWorkers, Workers int
	// AheadShare is the share of the waiting time in which a server reads the answers to earlier calls of others; 0 unless answers come
	// in the order of the calls, and calls behind others take far longer.
	AheadShare float64
	// Worker is the loop of this process that answers the requests, if it serves one at a time; else nil.
	Worker *OwnWorker
	// ServiceNS is the mean time that a server was busy for the request, or the batch of requests, that it finished at one
	// instant.
	ServiceNS int64
	// DirectNS is the mean time for which idle servers that requests woke were at work for them; 0 if that was seen too rarely. UnawaitedShare
	// is then the share of the other requests' waits, those for one server counted once, that is longer than DirectNS for each wait: the
	// servers were at work on tasks that no request waits for.
	DirectNS       int64
	UnawaitedShare float64
	Requests       int
	// Sleeps counts the sleeps of which the complete length is known, and BegunEarlyShare is the share of them that began
	// before the request waited. SleepNS is the mean of their lengths, WaitedSleepNS the mean part that a request waited through.
	Sleeps          int
	BegunEarlyShare float64
	SleepNS         int64
	WaitedSleepNS   int64
	// PeriodNS is the period of which the times between the ends of a server's services are multiples; 0 if there is none.
	PeriodNS int64
}

// Services returns the services to requests of some kinds (nil: all kinds), those with the most waiting time first. Merge must
// have been called.
func (s *Sum) Services(sp *spell.Speller, kinds func(request.Kind) bool) (out []ServiceStats) {
	keys := slices.SortedFunc(maps.Keys(s.services), func(a, b serviceKey) int {
		return cmp.Or(cmp.Compare(s.services[b].waitNS, s.services[a].waitNS), cmp.Compare(a.kind, b.kind),
			cmp.Compare(a.cause, b.cause), sp.CompareFrames(a.site, b.site))
	})
	for _, key := range keys {
		sum := s.services[key]
		if sum.waitNS == 0 || sum.endInstants == 0 || kinds != nil && !kinds(key.kind) {
			continue
		}
		stats := ServiceStats{
			Cause: key.cause.String(), Site: sp.Site(key.site), Requests: int(sum.requests),
			Servers: len(sum.servers), MaxServers: sum.maxServers,
			WaitersPerServer:    float64(sum.waitNS) / float64(max(sum.busyNS, 1)),
			BatchSize:           float64(sum.requests) / float64(sum.endInstants),
			IsBatcher:           sum.jointRounds >= threshold.Repeats && float64(sum.jointNS) > threshold.FarFactor*float64(sum.otherNS),
			OtherRequestShare:   float64(sum.otherRequestNS) / float64(sum.waitNS),
			WaitsPerRequest:     float64(sum.waits) / float64(max(sum.requests, 1)),
			BehindLockShare:     float64(sum.behindLockNS) / float64(sum.waitNS),
			ServerWroteShare:    float64(sum.serverWrites) / float64(max(sum.unlocked, 1)),
			AlreadyRunningShare: float64(sum.alreadyRunning) / float64(max(sum.unlocked, 1)),
			ServiceNS:           sum.busyNS / sum.endInstants, PeriodNS: tickerPeriod(sum.endMarks), AheadShare: sum.order.aheadShare(), Worker: s.ownWorker(sum, sp),
		}
		if sum.idleSamples >= threshold.SmallSample {
			stats.IdleWorkers, stats.Workers = sum.idleWorkers/sum.idleSamples, sum.workers/sum.idleSamples
		}
		if sum.direct >= threshold.SmallSample {
			stats.DirectNS = sum.directNS / sum.direct
			stats.UnawaitedShare = 1 - float64((sum.waits-sum.direct)*stats.DirectNS)/float64(max(sum.busyNS-sum.directNS, 1))
		}
		if sleeps := s.workers[0].sleeps[key]; sleeps.sleeps > 0 {
			stats.Sleeps, stats.BegunEarlyShare = int(sleeps.sleeps), float64(sleeps.begunEarly)/float64(sleeps.sleeps)
			stats.SleepNS, stats.WaitedSleepNS = sleeps.ns/sleeps.sleeps, sleeps.waitedNS/sleeps.sleeps
		}
		out = append(out, stats)
	}
	return out
}
