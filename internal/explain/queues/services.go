package queues

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A request's path shows that it waited for another goroutine, not whether
// others waited for that one at the same time, each for a turn of its own. That
// is what turns tell: in a slice of every generation, which requests were on
// which goroutine's time, and when.

// maxRequestServices bounds how many stretches of one request are looked at.
const maxRequestServices = 32

// serviceKey is where a goroutine is that requests of a kind wait for. Where it
// computes is seen now and then only, so for running time site is where it is
// waited for.
type serviceKey struct {
	kind  request.Kind
	cause cause.Cause
	site  tracefmt.FrameID
}

// A turn is a stretch of one request's path on somebody else's goroutine.
type service struct {
	key            serviceKey
	server         uint64 // that goroutine
	start, end     int64
	isLast         bool // the request's last one on g at key: its own turn
	weight         int64
	serverWrote    bool // g itself wrote what is answered in it
	behindLock     bool // reached through a lock, before anything that others hand over
	alreadyRunning bool // g was at it already when the request began to wait for g
}

// serviceSum adds up the turns of one key.
type serviceSum struct {
	waitNS         int64 // sum of turns
	busyNS         int64 // the same, each instant of a goroutine once
	otherRequestNS int64 // of waited: on goroutines that were serving other requests
	behindLockNS   int64 // of waited: behind a lock, whose holder alone has the turn
	requests       int64 // requests, each with the last of its turns
	serverWrites   int64 // of them, those for which the goroutine asked a peer itself
	alreadyRunning int64 // of them, those for which nothing was begun: what the goroutine did when they came was for others
	endInstants    int64 // instants at which those ended: less than served if several end at once
	servers        map[uint64]struct{}
	maxServers     int // of them at once, from the first turn to the last

	endMarks []endMark
}

// A sleepSum adds up the sleeps, of the turns of one key, that were looked up in full.
type sleepSum struct {
	sleeps     int64
	begunEarly int64 // of them, under way when the request came to them
	ns         int64 // their lengths
	squaresUS  int64 // in us
	waitedNS   int64 // the parts that requests waited through
}

func (s sleepSum) plus(addend sleepSum) sleepSum {
	return sleepSum{s.sleeps + addend.sleeps, s.begunEarly + addend.begunEarly, s.ns + addend.ns, s.squaresUS + addend.squaresUS, s.waitedNS + addend.waitedNS}
}

// A mark is an instant at which turns on a goroutine ended.
type endMark struct {
	server uint64
	time   int64
}

// maxEndMarks bounds the marks kept of one key: enough to see a period.
const maxEndMarks = 512

// addServices takes note of where the request's path was on other goroutines.
func (p *workerSum) addServices(w *path.Walked) {
	r := w.Req
	if r.IsServed() { // its goroutine belongs to one request at a time, not to all that wait for it
		p.requestGoroutines[r.G] = struct{}{}
	}
	keyOf := func(s *cause.Segment) serviceKey {
		if c := s.Code.Cause(); c != cause.CPU {
			return serviceKey{r.Kind, c, s.Site}
		}
		return serviceKey{r.Kind, cause.CPU, p.stage.IDs.LastSite(w.ChainOf(s))}
	}
	first, waits := len(p.services), w.Waits()
	for i := len(w.Segments) - 1; i >= 0; i-- {
		segment := &w.Segments[i]
		if segment.Via < 0 || segment.G == r.G || !isServiceCause(segment.Code.Cause()) || p.stage.IDs.Served(w.ChainOf(segment)) {
			continue // or the request that is served in its stead has the turn
		}
		alreadyRunning := segment.Start <= waits[outermostWait(waits, segment.Via)].Start
		if n := len(p.services); n > first && p.services[n-1].server == segment.G && p.services[n-1].key == keyOf(segment) && p.services[n-1].start == segment.End {
			p.services[n-1].start, p.services[n-1].alreadyRunning = segment.Start, alreadyRunning
			continue
		}
		if len(p.services)-first >= maxRequestServices {
			break // the last ones are its own turns
		}
		p.services = append(p.services, service{
			key: keyOf(segment), server: segment.G, start: segment.Start, end: segment.End, weight: w.Counted(),
			serverWrote: waits[segment.Via].Parent >= 0 && p.isHTTP1RoundTrip(waits[segment.Via].Stack), alreadyRunning: alreadyRunning, behindLock: isBehindLock(waits, segment.Via),
		})
	}
	services := p.services[first:]
	slices.Reverse(services)
	for i := range services {
		svc := &services[i]
		svc.isLast = !slices.ContainsFunc(services[i+1:], func(b service) bool { return b.key == svc.key })
		svc.serverWrote = svc.isLast && svc.key.cause == cause.Network && (svc.serverWrote || p.serverWrote(w, svc))
	}
	if w.Sampled && len(w.Looked) < path.MostLooked {
		for i := range services {
			if services[i].key.cause == cause.Sleep {
				p.addSleep(&services[i])
			}
		}
	}
}

// isBehindLock reports whether what a request waits for is reached through a lock, before anything that others hand over.
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

// outermostWait returns the wait of the request's own that leads to another one.
func outermostWait(waits []critpath.FollowedWait, i int32) int32 {
	for waits[i].Parent >= 0 {
		i = waits[i].Parent
	}
	return i
}

// serverWrote reports whether a goroutine that waits for an answer has written to a connection since the answer before: then it asks for one
// at a time. Who reads the answers of many does not write what they ask. A connection of HTTP/1 has one at a time: of that a worker waits for
// the reader as long as it asks.
func (p *workerSum) serverWrote(w *path.Walked, svc *service) bool {
	for i := len(w.Steps) - 1; i >= 0; i-- {
		step := &w.Steps[i]
		if step.G != svc.server || step.End > svc.start {
			continue
		}
		switch step.Kind {
		case critpath.Network:
			return false
		case critpath.Syscall:
			if p.isSocketWrite(step.Stack) {
				return true
			}
		}
	}
	return false
}

// isHTTP1RoundTrip reports whether a stack waits for the answer of a connection of HTTP/1.
func (p *workerSum) isHTTP1RoundTrip(stack tracefmt.StackID) bool {
	return slices.ContainsFunc(p.stage.Syms.Stack(stack), func(fr tracefmt.FrameID) bool {
		return p.stage.Syms.String(p.stage.Syms.Frame(fr).Func) == "net/http.(*persistConn).roundTrip"
	})
}

// isServiceCause reports whether a cause can be a turn of somebody's.
func isServiceCause(c cause.Cause) bool {
	switch c {
	case cause.CPU, cause.Sleep, cause.Network, cause.Syscall, cause.Lock, cause.Chan:
		return true
	}
	return false
}

// addSleep looks up for how long the goroutine slept in all, of which the
// request waited for a part.
func (p *workerSum) addSleep(svc *service) {
	p.spans = p.stage.Win.SpansCoarse(svc.server, svc.start, svc.end, p.spans[:0])
	for i := range p.spans {
		span := &p.spans[i]
		if span.State != timeline.Waiting || span.How == timeline.HowStatus || span.Start > svc.start || span.End < svc.end {
			continue
		}
		length := span.End - span.Start
		us := min(length, 60e9) / 1000
		sum := sleepSum{sleeps: svc.weight, ns: svc.weight * length, squaresUS: svc.weight * us * us, waitedNS: svc.weight * (svc.end - svc.start)}
		if span.Start < svc.start {
			sum.begunEarly = svc.weight
		}
		p.sleeps[svc.key] = p.sleeps[svc.key].plus(sum)
	}
}

// maxDistinctServers bounds the goroutines that are distinguished.
const maxDistinctServers = 1024

// aggregateServices brings together what all workers saw of a generation's turns. The
// result does not depend on who saw what.
func (s *Sum) aggregateServices() {
	byKey := make(map[serviceKey][]*service)
	for _, p := range s.workers {
		for i := range p.services {
			a := &p.services[i]
			byKey[a.key] = append(byKey[a.key], a)
		}
	}
	for key, list := range byKey {
		slices.SortFunc(list, func(a, b *service) int {
			switch {
			case a.server != b.server:
				return cmp.Compare(a.server, b.server)
			case a.start != b.start:
				return cmp.Compare(a.start, b.start)
			}
			return cmp.Compare(a.end, b.end)
		})
		sum := entry.In(s.services, key)
		var busy []interval // each goroutine, from its first turn to its last
		for ofServer := range equalRuns(list, func(a, b *service) bool { return a.server == b.server }) {
			busy = append(busy, interval{ofServer[0].start, sum.add(ofServer, s.requestGoroutines)})
		}
		sum.maxServers = max(sum.maxServers, maxOverlap(busy))
	}
}

// add adds the turns on one goroutine, in order of their beginning, and returns when the last one ended.
func (s *serviceSum) add(list []*service, requests map[uint64]struct{}) (lastEnd int64) {
	_, servesRequest := requests[list[0].server]
	if s.servers == nil {
		s.servers = make(map[uint64]struct{})
	}
	if len(s.servers) < maxDistinctServers {
		s.servers[list[0].server] = struct{}{}
	}
	var lastServices []*service
	for _, a := range list {
		d := a.weight * (a.end - a.start)
		s.waitNS += d
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
	}
	slices.SortFunc(lastServices, func(a, b *service) int { return cmp.Compare(a.end, b.end) })
	for i := 0; i < len(lastServices); {
		requestCount, serverWrote, k := int64(0), false, i
		for ; k < len(lastServices) && (k == i || lastServices[k].end-lastServices[k-1].end <= scale.Turn); k++ {
			a := lastServices[k]
			requestCount += a.weight
			serverWrote = serverWrote || a.serverWrote // who came later did not see it
			if a.alreadyRunning {
				s.alreadyRunning += a.weight
			}
		}
		if s.requests += requestCount; serverWrote {
			s.serverWrites += requestCount
		}
		s.endInstants++
		if len(s.endMarks) < maxEndMarks {
			s.endMarks = append(s.endMarks, endMark{list[0].server, lastServices[i].end})
		}
		i = k
	}
	return lastEnd
}

// ServiceStats sums up what requests waited for on other goroutines, at one site and
// for one cause, in the slices of time that were looked at.
type ServiceStats struct {
	Cause string
	Site  *report.Site // for cpu, of the wait that leads there
	// WaitersPerServer is how many requests waited for one goroutine at once, on average
	// over the time in which any did; 1 if each had a goroutine to itself.
	WaitersPerServer float64
	// BatchSize is how many of them one and the same instant ended, on average.
	BatchSize float64
	// OtherRequestShare is the part of the time on goroutines that were serving other
	// requests.
	OtherRequestShare float64
	// BehindLockShare is the part of the time that requests came to through a lock: they queue for that.
	BehindLockShare float64
	// ServerWroteShare is the part of the requests that waited for the network for which the goroutine itself had written since the answer before.
	ServerWroteShare float64
	// AlreadyRunningShare is the part of the requests that came when the goroutine was already at what they then waited for last: it was not for them.
	AlreadyRunningShare float64
	// Servers counts the goroutines waited for, up to 1024, Most those at once: workers may end, and others be started in their stead.
	Servers, MaxServers int
	// ServiceNS is for how long a goroutine was busy with one of them, or with
	// those that ended at one instant.
	ServiceNS int64
	// BusyServers is how many of the goroutines were busy for requests, on average over
	// the time.
	BusyServers float64
	// Requests counts the requests; Rate is how many a second.
	Requests          int
	RequestsPerSecond float64
	// Sleeps: how many were looked up in full, the part of them under way before
	// the request came, their mean length and its standard deviation, and the
	// mean part that a request waited through.
	Sleeps           int
	BegunEarlyShare  float64
	SleepNS          int64
	SleepDeviationNS int64
	WaitedSleepNS    int64
	// PeriodNS is the fixed time that lies between the instants at which turns
	// on one goroutine end, or of which it is a multiple; 0 if there is none.
	PeriodNS int64
}

// Services returns the sums of all turns of requests of some kinds, nil for all,
// those with the most waiting first. Merge must have been called.
func (s *Sum) Services(sp *spell.Speller, kinds func(request.Kind) bool) []ServiceStats {
	keys := slices.SortedFunc(maps.Keys(s.services), func(a, b serviceKey) int {
		return cmp.Or(cmp.Compare(s.services[b].waitNS, s.services[a].waitNS), cmp.Compare(a.kind, b.kind), cmp.Compare(a.cause, b.cause), sp.CompareFrames(a.site, b.site))
	})
	var out []ServiceStats
	for _, k := range keys {
		sum := s.services[k]
		if sum.waitNS == 0 || sum.endInstants == 0 || kinds != nil && !kinds(k.kind) {
			continue
		}
		stats := ServiceStats{
			Cause: k.cause.String(), Site: sp.Site(k.site), Servers: len(sum.servers), MaxServers: sum.maxServers, Requests: int(sum.requests),
			WaitersPerServer: float64(sum.waitNS) / float64(max(sum.busyNS, 1)), BatchSize: float64(sum.requests) / float64(sum.endInstants),
			OtherRequestShare: float64(sum.otherRequestNS) / float64(sum.waitNS), BehindLockShare: float64(sum.behindLockNS) / float64(sum.waitNS),
			ServerWroteShare: float64(sum.serverWrites) / float64(sum.requests), AlreadyRunningShare: float64(sum.alreadyRunning) / float64(sum.requests),
			ServiceNS: sum.busyNS / sum.endInstants, PeriodNS: endPeriod(sum.endMarks),
		}
		if s.sliceNS > 0 {
			stats.BusyServers, stats.RequestsPerSecond = float64(sum.busyNS)/float64(s.sliceNS), float64(sum.requests)/float64(s.sliceNS)*1e9
		}
		if sleeps := s.workers[0].sleeps[k]; sleeps.sleeps > 0 {
			meanSleepNS := float64(sleeps.ns) / float64(sleeps.sleeps)
			stats.Sleeps, stats.BegunEarlyShare = int(sleeps.sleeps), float64(sleeps.begunEarly)/float64(sleeps.sleeps)
			stats.SleepNS, stats.WaitedSleepNS = int64(meanSleepNS), sleeps.waitedNS/sleeps.sleeps
			stats.SleepDeviationNS = int64(1000 * math.Sqrt(max(0, float64(sleeps.squaresUS)/float64(sleeps.sleeps)-meanSleepNS*meanSleepNS/1e6)))
		}
		out = append(out, stats)
	}
	return out
}

// endPeriod returns the time of which nearly all distances between successive
// marks of a goroutine are multiples, 0 if there is none.
func endPeriod(marks []endMark) int64 {
	slices.SortFunc(marks, func(a, b endMark) int { return cmp.Or(cmp.Compare(a.server, b.server), cmp.Compare(a.time, b.time)) })
	var gaps []int64
	for i := 1; i < len(marks); i++ {
		if d := marks[i].time - marks[i-1].time; marks[i].server == marks[i-1].server && d > scale.Turn {
			gaps = append(gaps, d)
		}
	}
	if len(gaps) < 5 {
		return 0
	}
	slices.Sort(gaps)
	// A late wake makes one distance longer and the next one shorter, so the
	// smallest is no guide.
	period := float64(gaps[len(gaps)/5])
	fitPeriod := func(candidate float64) (n int, sum float64) {
		for _, d := range gaps {
			k := math.Round(float64(d) / candidate)
			if k >= 1 && k <= 20 && math.Abs(float64(d)/candidate-k) <= 0.1 {
				n++
				sum += float64(d) / k
			}
		}
		return n, sum
	}
	for range 2 {
		n, sum := fitPeriod(period)
		if n == 0 {
			return 0
		}
		period = sum / float64(n)
	}
	if n, _ := fitPeriod(period); float64(n) < 0.8*float64(len(gaps)) {
		return 0
	}
	return int64(period)
}
