package capacity

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A resource serves requests, some at once. Rates are per ns of the slices.
type resource struct {
	kind       report.LimitKind
	site       *report.Site
	basis      string
	servers    float64
	busy       float64 // servers in use, on average
	error      float64 // of busy, relative; about two standard deviations
	visits     float64 // per request that counts as load
	service    []float64
	lead, tail float64                  // of each service: from the end of a wait for it to the leaf, and from the leaf to its end
	factor     float64                  // of each service, by a change
	groups     map[path.GroupID]float64 // weights
	waits      []*wait                  // for it
	lines      map[tracefmt.Line]bool   // of the leaves while it is held
	readLines  map[tracefmt.Line]bool   // of the leaves while requests share it
}

// An analysis finds the resources of a Sum.
type analysis struct {
	*Sum
	in           *Input
	requestCount float64                     // of the recording, that count as load
	load         float64                     // requests per ns
	loadNS       float64                     // sum of their latencies
	requestsBy   map[uint64][]*servedRequest // by goroutine, in order of time
	hasServed    bool                        // some requests answer a client
	resources    []*resource
	notJudged    []skipped
}

func (a *analysis) lineOf(stack tracefmt.StackID) tracefmt.Line {
	return a.in.Speller.Syms.Line(a.in.Speller.Sites.SiteOf(stack))
}

func (a *analysis) siteOf(stack tracefmt.StackID) *report.Site {
	return a.in.Speller.Site(a.in.Speller.Sites.SiteOf(stack))
}

// prepare indexes requests.
func (a *analysis) prepare() {
	for _, g := range a.in.Groups {
		a.requestCount += float64(g.Count)
	}
	a.requestsBy = make(map[uint64][]*servedRequest)
	for _, r := range a.requests {
		if _, r.isLoad = a.in.Groups[r.group]; r.isLoad {
			a.load++
			a.loadNS += float64(r.end - r.start)
			a.hasServed = a.hasServed || r.isServed
		}
		if r.isLoad || r.kind != request.Loop {
			a.requestsBy[r.g] = append(a.requestsBy[r.g], r)
		}
	}
	a.load /= float64(max(a.sliceNS, 1))
	for _, list := range a.requestsBy {
		slices.SortFunc(list, func(x, y *servedRequest) int { return cmp.Compare(x.end, y.end) })
	}
}

// requestAt returns the request that a goroutine served at a time, nil if none.
func (a *analysis) requestAt(g uint64, t int64) *servedRequest {
	list := a.requestsBy[g]
	i, _ := slices.BinarySearchFunc(list, t, func(r *servedRequest, t int64) int { return cmp.Compare(r.end, t) })
	if i < len(list) && list[i].start <= t {
		return list[i]
	}
	return nil
}

// holderOf returns the request that ended a wait, on its own goroutine or on one that it created; nil if none did.
func (a *analysis) holderOf(w *wait) *servedRequest {
	if r := a.requestAt(w.waker, w.end); r != nil || w.wakerCreator == 0 {
		return r
	}
	return a.requestAt(w.wakerCreator, w.end)
}

// findQueues divides the waits into queues. Two waits are for one resource if they are at one line, or if goroutines ended both at
// one line: that of the release.
func (a *analysis) findQueues() [][]*wait {
	type node struct {
		tracefmt.Line
		isLock, isRelease bool
	}
	parents := map[node]node{}
	rootOf := func(w *wait, stack tracefmt.StackID, isRelease bool) node {
		n := node{a.lineOf(stack), w.kind == critpath.WaitLock, isRelease}
		if w.isRW { // readers end the waits of writers, and writers those of readers: a function acquires it and releases it
			n.Number, n.isRelease = 0, false
		}
		for parent, ok := parents[n]; ok; parent, ok = parents[n] {
			n = parent
		}
		return n
	}
	for _, w := range a.waits {
		if w.releaseStack != 0 {
			if release, acquisition := rootOf(w, w.releaseStack, true), rootOf(w, w.stack, false); release != acquisition {
				parents[release] = acquisition
			}
		}
	}
	places := map[node]int{}
	var queues [][]*wait
	for _, w := range a.waits {
		root := rootOf(w, w.stack, false)
		k, ok := places[root]
		if !ok {
			k, places[root], queues = len(queues), len(queues), append(queues, nil)
		}
		// A wait may be that of several requests.
		if q := queues[k]; len(q) == 0 || q[len(q)-1].g != w.g || q[len(q)-1].end != w.end {
			queues[k] = append(q, w)
		}
	}
	slices.SortStableFunc(queues, func(x, y []*wait) int { return cmp.Compare(len(y), len(x)) })
	return queues
}

const backgroundReason = "a goroutine that serves no request holds it most of the time"

// addQueues adds the resources for which requests waited.
func (a *analysis) addQueues() {
	var unknown [][]*wait
	for _, list := range a.findQueues() {
		byRequests, loads := 0, 0
		for _, w := range list {
			if a.holderOf(w) != nil {
				byRequests++
			}
			if w.request.isLoad {
				loads++
			}
		}
		isLock := list[0].kind == critpath.WaitLock
		switch {
		case loads == 0: // only work in the background waits
		case list[0].isPool || float64(byRequests) >= threshold.HalfShare*float64(len(list)):
			a.addHeld(list, isLock)
		case isLock:
			a.addSkipped(skipped{NotJudged: report.NotJudged{Kind: report.LimitLock, Site: a.siteOf(list[0].stack), Reason: backgroundReason}})
		default:
			unknown = append(unknown, list)
		}
	}
	members := a.addStages()
	for _, list := range unknown {
		isServed := slices.ContainsFunc(list, func(w *wait) bool { return members[w.waker] })
		if !isServed && totalNS(list) >= threshold.MinorShare*a.loadNS {
			a.skip("", list, "requests wait here for other goroutines, and the recording does not show how many requests these can serve")
		}
	}
}

// totalNS returns the length of waits.
func totalNS(list []*wait) (ns float64) {
	for _, w := range list {
		ns += float64(w.end - w.start)
	}
	return ns
}

// A skipped resource cannot be judged. It is in use for no more than atMost of the time; 0 if that is not known.
type skipped struct {
	report.NotJudged
	atMost float64
}

// skip adds a resource that cannot be judged, by the waits for it.
func (a *analysis) skip(kind report.LimitKind, list []*wait, reason string) {
	one := skipped{NotJudged: report.NotJudged{Kind: kind, Site: a.siteOf(list[0].stack), Reason: reason}}
	if kind == report.LimitLock {
		// A lock that is used v times per ns and held for S is found held v times v S. The waits show the length of S: an arrival
		// at random waits for half of it and more.
		n := float64(len(list))
		one.atMost = 2 * math.Sqrt((n+2*math.Sqrt(n))/float64(a.sliceNS)*2*totalNS(list)/n)
	}
	a.addSkipped(one)
}

// addSkipped adds a resource that cannot be judged, once for each line.
func (a *analysis) addSkipped(one skipped) {
	if one.Site != nil && !slices.ContainsFunc(a.notJudged, func(n skipped) bool { return n.Site.OwnLine().LineKey() == one.Site.OwnLine().LineKey() }) {
		a.notJudged = append(a.notJudged, one)
	}
}

// A stageKey identifies goroutines that wait for work at one line.
type stageKey struct {
	start string
	idle  tracefmt.Line
}

// A stage is goroutines that wait for work at one line.
type stage struct {
	resource
	observedNS    float64
	wakes, bursts int // waits of requests that they ended, and those right after another one
	members       map[uint64]bool
}

// addStages adds goroutines that work for requests, one after the other. It returns those that it judged or skipped.
func (a *analysis) addStages() map[uint64]bool {
	judged, stages := map[uint64]bool{}, map[stageKey]*stage{}
	for _, g := range slices.Sorted(maps.Keys(a.servers)) {
		s := a.servers[g]
		idle := s.idleWaits()
		if len(idle) == 0 || len(s.wakes) < threshold.Repeats {
			continue
		}
		idleStack := idle[0].stack
		start, site := a.in.Speller.StartOf(idleStack), a.siteOf(idleStack)
		if site.Module != "" || stdlib.Contains(site.Func) || request.IsServerStart(start) || !a.isHandedWork(s, idle) {
			continue // such as a connection's goroutine: there are as many as connections
		}
		key := stageKey{start, a.lineOf(idleStack)}
		if stages[key] == nil {
			stages[key] = &stage{members: map[uint64]bool{}, resource: resource{kind: report.LimitStage, factor: 1, site: site, groups: map[path.GroupID]float64{},
				basis: "the time in which its goroutines did not wait for work"}}
		}
		stages[key].add(s, idle)
	}
	keys := slices.SortedFunc(maps.Keys(stages), func(x, y stageKey) int {
		return cmp.Or(cmp.Compare(x.start, y.start), x.idle.Compare(y.idle))
	})
	for _, key := range keys {
		st := stages[key]
		st.servers, st.busy = max(1, math.Round(st.observedNS/float64(a.sliceNS))), st.busy/float64(a.sliceNS)
		st.error, st.visits = sampleError(st.service, st.wakes), float64(st.wakes)/float64(a.sliceNS)/a.load
		for _, w := range a.waits {
			if st.members[w.waker] && w.request.isLoad {
				st.waits = append(st.waits, w)
				st.groups[w.request.group]++
			}
		}
		if len(st.waits) == 0 {
			continue
		}
		maps.Copy(judged, st.members)
		switch {
		case float64(st.bursts) > threshold.NoticeableShare*float64(st.wakes):
			a.skip(report.LimitStage, st.waits, "it works for several requests at once, and the recording does not show for how many at most")
		case len(st.members) > int(2*st.servers):
			a.skip(report.LimitStage, st.waits, "its goroutines are replaced by others")
		default:
			a.resources = append(a.resources, &st.resource)
		}
	}
	return judged
}

// add adds a server, which works from the end of a wait for work, or of its work for another request, until it ends a wait of a request.
func (st *stage) add(s *server, idle []serverWait) {
	var resumed []int64
	busyNS := s.observedNS
	for _, w := range idle {
		busyNS -= w.ns
		resumed = append(resumed, w.end)
	}
	st.observedNS, st.busy, st.members[s.g] = st.observedNS+float64(s.observedNS), st.busy+float64(busyNS), true
	slices.Sort(s.wakes)
	slices.Sort(resumed)
	last := int64(0)
	for i, wake := range s.wakes {
		if i > 0 && wake-last <= threshold.IdleCheckNS {
			st.bursts++
		}
		begin := last
		if k, _ := slices.BinarySearch(resumed, wake); k > 0 {
			begin = max(begin, resumed[k-1])
		}
		if begin > 0 {
			st.service = append(st.service, float64(wake-begin))
		}
		last = wake
	}
	st.wakes += len(s.wakes)
}

// idleWaits returns the waits at stacks where a server waits for work, the most frequent stack first: mostly requests end these waits.
func (s *server) idleWaits() []serverWait {
	counts, byRequest := map[tracefmt.StackID]int{}, map[tracefmt.StackID]int{}
	for _, w := range s.waits {
		counts[w.stack]++
		if w.isByRequest {
			byRequest[w.stack]++
		}
	}
	out := slices.DeleteFunc(slices.Clone(s.waits), func(w serverWait) bool { return byRequest[w.stack] == 0 || 2*byRequest[w.stack] < counts[w.stack] })
	slices.SortFunc(out, func(x, y serverWait) int {
		return cmp.Or(cmp.Compare(byRequest[y.stack], byRequest[x.stack]), cmp.Compare(x.stack, y.stack))
	})
	return out
}

// isHandedWork reports whether a server works for the requests that end its waits: it ends a later wait of most of them.
func (a *analysis) isHandedWork(s *server, idle []serverWait) bool {
	servedUntil := map[*servedRequest]int64{}
	for _, w := range a.waits {
		if w.waker == s.g {
			servedUntil[w.request] = max(servedUntil[w.request], w.end)
		}
	}
	handedCount, count := 0, 0
	for _, w := range idle {
		if r := a.requestAt(w.waker, w.end); r != nil {
			if count++; servedUntil[r] > w.end {
				handedCount++
			}
		}
	}
	return count > 0 && float64(handedCount) >= threshold.HalfShare*float64(count)
}

// sampleError returns about two standard errors of the mean of a sample, relative to it, for n observations.
func sampleError(list []float64, n int) float64 {
	if n == 0 || len(list) == 0 {
		return 1
	}
	meanNS, variance := moments(list)
	return min(1, 2*math.Sqrt(variance)/max(meanNS, 1)/math.Sqrt(float64(n))+2*threshold.NoiseShare)
}

// moments returns the mean and the variance.
func moments(list []float64) (average, variance float64) {
	for _, x := range list {
		average += x / float64(len(list))
	}
	for _, x := range list {
		variance += (x - average) * (x - average) / float64(len(list))
	}
	return average, variance
}
