package capacity

import (
	"cmp"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A resource serves requests: servers of them at once. Rates are per ns of the recorded slices.
type resource struct {
	kind    report.LimitKind
	site    *report.Site
	basis   string
	servers float64
	busy    float64 // mean number of servers in use
	error   float64 // of busy, relative; about two standard deviations
	visits  float64 // uses per request that counts as load
	// service times in ns, one for each observed use
	service []float64
	// additional ns of each service: from the end of a wait for the resource to the leaf, and (tail) from the leaf to the
	// release
	lead, tail float64
	factor     float64                  // factor of each service time, by a change
	groups     map[path.GroupID]float64 // demand by group
	waits      []*wait                  // for it
	lines      map[tracefmt.Line]bool   // lines at which holders are in leaves
	readLines  map[tracefmt.Line]bool   // the same, while several requests share an RWMutex for reading
	gapNS      float64                  // time between two leaves of one hold, at most
}

// An analysis finds the resources of a Sum and computes a capacity.
type analysis struct {
	*Sum
	in           *Input
	requestCount float64                     // number of requests of the recording that count as load
	counts       map[path.GroupID]float64    // the same by group
	load         float64                     // requests per ns
	loadNS       float64                     // sum of their latencies
	requestsBy   map[uint64][]*servedRequest // by goroutine, in order of time
	hasServed    bool                        // some requests answer a client
	resources    []*resource
	notJudged    []skipped
}

// lineOf returns the source line of a stack's site.
func (a *analysis) lineOf(stack tracefmt.StackID) tracefmt.Line {
	return a.in.Speller.Syms.Line(a.in.Speller.Sites.SiteOf(stack))
}

// siteOf returns a stack's site in the form of the report.
func (a *analysis) siteOf(stack tracefmt.StackID) *report.Site {
	return a.in.Speller.Site(a.in.Speller.Sites.SiteOf(stack))
}

// indexRequests computes the load and indexes the requests by goroutine. A request counts as load if a client waits for its group.
func (a *analysis) indexRequests() {
	type key struct {
		g     uint64
		start int64
	}
	byStart := map[key]*servedRequest{}
	for _, r := range a.requests {
		if _, r.isLoad = a.in.Groups[r.group]; r.isLoad {
			byStart[key{r.g, r.start}] = r
		}
	}
	for _, r := range a.requests {
		for _, answer := range r.answers {
			if inner := byStart[key{answer.G, answer.Start}]; inner != nil && r.isLoad && r.outermost() != inner {
				inner.outer = r
			}
		}
	}
	counts, outermost := map[path.GroupID]float64{}, map[path.GroupID]float64{}
	a.counts = map[path.GroupID]float64{}
	a.requestsBy = make(map[uint64][]*servedRequest)
	for _, r := range a.requests {
		if r.isLoad || r.kind != request.Loop {
			a.requestsBy[r.g] = append(a.requestsBy[r.g], r)
		}
		counts[r.group]++
		switch o := r.outermost(); {
		case o != r:
			r.isLoad = false
			o.runNS, o.readyNS, o.syscallNS = o.runNS+r.runNS, o.readyNS+r.readyNS, o.syscallNS+r.syscallNS
		case r.isLoad:
			outermost[r.group]++
			a.load++
			a.loadNS += float64(r.end - r.start)
			a.hasServed = a.hasServed || r.isServed
		}
	}
	for _, w := range a.waits {
		w.request = w.request.outermost()
	}
	for id, n := range outermost {
		a.counts[id] = n / counts[id] * float64(a.in.Groups[id].Count)
		a.requestCount += a.counts[id]
	}
	a.load /= float64(max(a.sliceNS, 1))
	for _, list := range a.requestsBy {
		slices.SortFunc(list, func(x, y *servedRequest) int { return cmp.Compare(x.end, y.end) })
	}
}

// requestAt returns the request that goroutine g served at time t; nil if none.
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

// findQueues divides the waits into queues, one for each lock, pool or other resource, the longest queue first. Two waits are
// in one queue if they are at the same line, or if goroutines ended both at the same line: that of the release.
func (a *analysis) findQueues() (queues [][]*wait) {
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

// addQueues adds the resources for which requests waited: locks and pools, if requests hold them, and stages. The others are
// skipped with a reason.
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

// totalNS returns the sum of the lengths of waits.
func totalNS(list []*wait) (ns float64) {
	for _, w := range list {
		ns += float64(w.end - w.start)
	}
	return ns
}

// A skipped resource is one that cannot be judged. Its utilisation is at most atMost; 0 if that is not known.
type skipped struct {
	report.NotJudged
	atMost float64
}

// skip records a resource that cannot be judged, with the reason. Its kind and the waits for it give its site and, for a lock,
// an upper bound of its utilisation.
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

// maxBatches is the number of batches that sampleError compares.
const maxBatches = 10

// sampleError returns the relative error of the mean of a sample in order of time: about two standard errors, plus the general
// noise; at most 1. Successive service times depend on each other, as those of a disk that other processes use. So the standard error is
// that of the means of batches (Law and Kelton, Simulation Modeling and Analysis, chapter 9).
func sampleError(list []float64) float64 {
	if len(list) < 2 {
		return 1
	}
	var means []float64
	for batch := range slices.Chunk(list, max(1, len(list)/maxBatches)) {
		average, _ := meanAndVariance(batch)
		means = append(means, average)
	}
	meanNS, variance := meanAndVariance(means)
	return min(1, 2*math.Sqrt(variance)/max(meanNS, 1)/math.Sqrt(float64(len(means)-1))+2*threshold.NoiseShare)
}

// meanAndVariance returns the mean and the variance of a list, 0 for an empty one.
func meanAndVariance(list []float64) (average, variance float64) {
	for _, x := range list {
		average += x / float64(len(list))
	}
	for _, x := range list {
		variance += (x - average) * (x - average) / float64(len(list))
	}
	return average, variance
}
