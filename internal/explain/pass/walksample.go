package pass

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/loglinear"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/workers"
	"github.com/whylate/whylate/internal/trace/timeline"
)

// A plan decides which requests of a generation are walked, and how many requests each of them represents. The fast
// requests of a service are similar to each other, so a sample of each group and latency shows where all of them
// spend their time. All slow requests are walked. Weights are exact: the weights in a stratum (requests of one group
// with similar latency) add up to the number of its requests (stratified sampling, Cochran, Sampling Techniques,
// 1977, chapter 5). Counts and latencies need no walk, so they always cover all requests.
//
// The choice depends only on the requests, not on the workers.
type plan struct {
	quickGroups  []path.QuickGroup // in the order of requests
	chunks       []plannedChunk
	weights      []int32     // by candidate; 0 if it is not walked
	candidates   []candidate // requests, then the units of chunks
	groupIndexes map[path.GroupKey]int32
	strata       []stratum
	groups       []plannedGroup
	ranked       []rankedRequest // by stratum, of those with a remainder
	markPhases   []interval      // the mark phases of the collector, in order of time
	// history has the latencies of each group in this generation and the earlier planned ones.
	history map[path.GroupKey]*latencyCounts
}

// latencyCounts are numbers of requests by latency. isAwaited reports that a client waits for some of them.
type latencyCounts struct {
	total     int
	counts    [latencyBuckets]int32
	isAwaited bool
}

// A plannedChunk is a part of a series. Its candidates begin at an index.
type plannedChunk struct {
	series         *request.Series
	units          []request.Unit
	quickGroup     *path.QuickGroup // of all units
	firstCandidate int
}

// A candidate is a request that may be left out of the sample.
type candidate struct {
	chance        uint64 // a pseudo-random number of the request
	stratum       int32  // index in strata; -1 if the request must be walked; before countStrata the stage's group id
	bucket        uint8  // of its latency
	overlapsMark  bool   // a mark phase of the collector overlaps the request
	isAwaited     bool   // a client waits for the request, or the user selected it
	inWalkedGroup bool   // all requests of its group are walked
}

// A stratum is the requests of one group with similar latency.
type stratum struct {
	group, bucket            int32
	count, walked, remainder int32
	overlapCount             int32  // number of requests that overlap a mark phase
	sampleSize               int32  // approximate number of requests that are walked, if not all
	chanceLimit              uint64 // of 1<<32, the part of requests that are walked
	lowestChance             uint64 // lowest chance of its candidates, for the case that the sample would be empty
	lowestIndex              int32  // the candidate with that chance
	nextRanked               int32  // index in ranked of its next walked request
}

// A rankedRequest is a walked request that may represent one more request of its stratum.
type rankedRequest struct {
	chance uint64
	index  int32
}

// A plannedGroup is a group of requests in the current generation.
type plannedGroup struct {
	count, slowerCount int32
	overlapCount       int32                 // requests below exactBucket that overlap a mark phase
	exactBucket        int32                 // all requests of this latency bucket or a slower one are walked
	isWalkedWhole      bool                  // all requests of the group are walked
	strata             [latencyBuckets]int32 // by bucket: the number of its stratum plus one; 0 if empty
	history            *latencyCounts        // includes this generation
}

// hasFewOverlaps reports whether requests that overlap a mark phase are rare enough to be all walked.
func (g *plannedGroup) hasFewOverlaps() bool {
	return float64(g.overlapCount) <= maxOverlapShare*float64(g.count)
}

// thinning returns by how much the samples of the group are smaller, and its exact share, because it had many requests so far.
func (g *plannedGroup) thinning() float64 {
	many, most := manyUnawaited, maxUnawaitedThinning
	if g.history.isAwaited {
		many, most = manyInTrace, maxThinning
	}
	return min(max(1, float64(g.history.total)/float64(many)), float64(most))
}

// setSampleSize sets the sample size of a stratum to one in so many requests, more if it is thinned, but at least a minimum.
func (g *plannedGroup) setSampleSize(s *stratum, minimum int32, oneIn float64) {
	if !g.history.isAwaited {
		minimum = max(4, int32(float64(minimum)/g.thinning()))
	}
	s.sampleSize = max(minimum, int32(float64(s.count)/(oneIn*g.thinning())))
}

// Bounds of sampling.
const (
	// minPlannedRequests is the number of requests of a generation from which on a plan saves time.
	minPlannedRequests = 1000
	latencyBuckets     = 64 << path.StratumBits
	// All requests of a group are walked that are in the slowest exactShare of the generation, or of all generations
	// so far. If a group has at most smallGroup requests in the generation or smallGroupInTrace so far, all of its
	// requests are walked.
	exactShare        = 0.1
	smallGroup        = 256
	smallGroupInTrace = 2000
	// Of the other strata a sample is walked, of at least minSample requests. Slower strata have larger samples,
	// because causes that few requests have are there. Strata below the median account for little time, and the
	// report shows no band of them.
	upperShare     = 0.25
	oneInUpper     = 6
	middleShare    = 0.55
	oneInMiddle    = 12
	minSample      = 16
	oneInLower     = 64
	minSampleLower = 8
	// The more requests a group had beyond manyInTrace, the smaller is the part of them that is walked: the number of walked
	// requests decides the errors of shares. Of work for which no client waits, fewer are many.
	manyInTrace          = 50_000
	maxThinning          = 8
	manyUnawaited        = 10_000
	maxUnawaitedThinning = 32
	// Requests that overlap a mark phase are all walked if they are at most this share of their group. Mark assists
	// and stops of the world are long and rare, so a sample estimates their time badly: rows of 1 % were wrong by a
	// tenth of their value.
	maxOverlapShare = 0.05
)

// planGeneration decides which requests of a generation are walked, and their weights. Requests that end before exactUntil are
// all walked. The units of a series are in one group.
func (pl *plan) planGeneration(p *Pass, reqs []request.Request, series []*request.Series, exactUntil int64) {
	pl.findMarkPhases(p.Window.Gens)
	n := pl.divideSeries(p, len(reqs), series)
	pl.quickGroups, pl.candidates = entry.Resize(pl.quickGroups, len(reqs)), entry.Resize(pl.candidates, n)
	needs := p.walkNeeded(exactUntil)
	pl.findUnits(p, needs)
	shares := pl.findQuickGroups(p, reqs, needs)
	pl.countStrata(shares)
	pl.assignWeights()
}

// divideSeries sets chunks to the parts of series, whose candidates begin at index n. It returns the number of all candidates.
func (pl *plan) divideSeries(p *Pass, n int, series []*request.Series) int {
	pl.chunks = pl.chunks[:0]
	for _, s := range series {
		var quick *path.QuickGroup
		for _, units := range s.Chunks {
			if len(units) == 0 {
				continue
			}
			if quick == nil {
				var r request.Request
				s.SetRequest(&r, &units[0])
				quick = new(path.QuickGroup)
				p.workers[0].stage.FindQuickGroup(&r, quick)
			}
			pl.chunks = append(pl.chunks, plannedChunk{s, units, quick, n})
			n += len(units)
		}
	}
	return n
}

// findUnits creates the candidates of chunks, on all workers. needs reports whether a request must be walked.
func (pl *plan) findUnits(p *Pass, needs func(*request.Request) bool) {
	p.shareChunks(func(_ *worker, chunk *plannedChunk) {
		var r request.Request
		markPhase := 0
		chunk.series.SetRequest(&r, &chunk.units[0])
		candidates := pl.candidates[chunk.firstCandidate:][:len(chunk.units)]
		for i := range chunk.units {
			unit, candidate := &chunk.units[i], &candidates[i]
			candidate.stratum, candidate.inWalkedGroup = -1, false
			r.Start, r.End, r.G = unit.Start, unit.End, unit.G
			if !needs(&r) {
				candidate.chance, candidate.bucket = chance(&r), latencyBucket(&r)
				candidate.stratum, candidate.overlapsMark, candidate.isAwaited = 0, pl.overlapsMarkPhase(&r, &markPhase), r.IsServed()
			}
		}
	})
}

// shareChunks calls f for each chunk of the plan, on all workers.
func (p *Pass) shareChunks(f func(w *worker, chunk *plannedChunk)) {
	workers.Share(len(p.workers), len(p.plan.chunks), 1, func(k, i, _ int) { f(&p.workers[k], &p.plan.chunks[i]) })
}

// An interval is [from, to) in ns of the trace.
type interval struct{ from, to int64 }

// findMarkPhases sets markPhases to those of the window's generations.
func (pl *plan) findMarkPhases(gens []*timeline.Gen) {
	pl.markPhases = pl.markPhases[:0]
	add := func(from, to int64) { pl.markPhases = append(pl.markPhases, interval{from, to}) }
	var phases timeline.MarkPhases
	for _, g := range gens {
		phases.Add(g, add)
	}
	phases.Close(math.MaxInt64, add)
}

// overlapsMarkPhase reports whether a mark phase of the collector overlaps a request. last is the index of the first phase that ends at
// or after the start of the last request, mostly of this one, too.
func (pl *plan) overlapsMarkPhase(r *request.Request, last *int) bool {
	phases, k := pl.markPhases, *last
	if k > 0 && phases[k-1].to >= r.Start || k < len(phases) && phases[k].to < r.Start {
		k, _ = slices.BinarySearchFunc(phases, r.Start, func(m interval, t int64) int { return cmp.Compare(m.to, t) })
		*last = k
	}
	return k < len(phases) && phases[k].from < r.End
}

// walkNeeded returns a function that reports whether a request must be walked: it ends before exactUntil, or a Chooser needs
// it.
func (p *Pass) walkNeeded(exactUntil int64) func(r *request.Request) bool {
	var list []Chooser
	for _, s := range p.allSums() {
		if c, ok := s.(Chooser); ok {
			list = append(list, c)
		}
	}
	return func(r *request.Request) bool {
		return r.End < exactUntil || slices.ContainsFunc(list, func(c Chooser) bool { return c.NeedsWalk(r) })
	}
}

// A workerShare is the range of requests [from, to) whose groups one worker determined; stage numbers these groups.
type workerShare struct {
	stage    *path.Stage
	from, to int
}

// findQuickGroups determines the group of each request without a walk, on all workers, and creates the candidates. A request
// that must be walked (needs) represents only itself: Choosers need all requests of a certain time, and other times may differ.
func (pl *plan) findQuickGroups(p *Pass, reqs []request.Request, needs func(*request.Request) bool) []workerShare {
	n := len(reqs)
	shares := make([]workerShare, len(p.workers))
	var wg sync.WaitGroup
	shareSize := (n + len(p.workers) - 1) / len(p.workers)
	for i := range p.workers {
		g := workerShare{p.workers[i].stage, min(i*shareSize, n), min((i+1)*shareSize, n)}
		shares[i] = g
		wg.Go(func() {
			var last path.GroupKey
			lastGroup, markPhase := path.GroupID(-1), 0
			for k := g.from; k < g.to; k++ {
				r, quick, candidate := &reqs[k], &pl.quickGroups[k], &pl.candidates[k]
				candidate.stratum, candidate.inWalkedGroup = -1, false
				if !p.isSelected(r) || needs(r) {
					continue
				}
				if g.stage.FindQuickGroup(r, quick); !quick.Sufficient {
					continue
				}
				if lastGroup < 0 || quick.Group != last {
					last, lastGroup = quick.Group, g.stage.IDs.GroupID(quick.Group)
				}
				candidate.chance, candidate.bucket = chance(r), latencyBucket(r)
				candidate.stratum, candidate.overlapsMark = int32(lastGroup), pl.overlapsMarkPhase(r, &markPhase)
				candidate.isAwaited = r.IsServed() || r.Kind == request.Func
			}
		})
	}
	wg.Wait()
	return shares
}

// countStrata assigns each candidate to the stratum of its group and latency, and counts them.
func (pl *plan) countStrata(shares []workerShare) {
	if pl.groupIndexes == nil {
		pl.groupIndexes, pl.history = make(map[path.GroupKey]int32), make(map[path.GroupKey]*latencyCounts)
	}
	clear(pl.groupIndexes)
	pl.groups, pl.strata = pl.groups[:0], pl.strata[:0]
	for _, share := range shares {
		groupNumbers := make([]int32, share.stage.IDs.GroupCount()) // by the stage's number of a group: its index in groups plus one
		for k := share.from; k < share.to; k++ {
			candidate := &pl.candidates[k]
			stageGroup := candidate.stratum
			if stageGroup < 0 {
				continue
			}
			if groupNumbers[stageGroup] == 0 {
				groupNumbers[stageGroup] = pl.groupIndex(share.stage.IDs.Group(path.GroupID(stageGroup))) + 1
			}
			pl.countCandidate(groupNumbers[stageGroup]-1, candidate)
		}
	}
	for i := range pl.chunks {
		chunk := &pl.chunks[i]
		id := pl.groupIndex(chunk.quickGroup.Group)
		candidates := pl.candidates[chunk.firstCandidate:][:len(chunk.units)]
		for k := range candidates {
			if candidates[k].stratum >= 0 {
				pl.countCandidate(id, &candidates[k])
			}
		}
	}
	pl.findSlowBuckets()
}

// groupIndex returns the index in groups of the group with a key, created on first use.
func (pl *plan) groupIndex(key path.GroupKey) int32 {
	id, ok := pl.groupIndexes[key]
	if !ok {
		id = int32(len(pl.groups))
		pl.groups = append(pl.groups, plannedGroup{exactBucket: latencyBuckets, history: entry.GetOrAdd(pl.history, key)})
		pl.groupIndexes[key] = id
	}
	return id
}

// countCandidate assigns a candidate to the stratum of its latency in a group, and counts it.
func (pl *plan) countCandidate(id int32, candidate *candidate) {
	group := &pl.groups[id]
	group.count++
	bucket := int32(candidate.bucket)
	group.history.total++
	group.history.counts[bucket]++
	group.history.isAwaited = group.history.isAwaited || candidate.isAwaited
	stratumNumber := &group.strata[bucket]
	if *stratumNumber == 0 {
		pl.strata = append(pl.strata, stratum{group: id, bucket: bucket, lowestChance: ^uint64(0)})
		*stratumNumber = int32(len(pl.strata))
	}
	stratum := &pl.strata[*stratumNumber-1]
	stratum.count++
	if candidate.overlapsMark {
		stratum.overlapCount++
	}
	candidate.stratum = *stratumNumber - 1
}

// findSlowBuckets decides, for each group, from which latency on all requests are walked (exactBucket), and the sample sizes
// below it. Requests count as slow compared with their generation, or with all generations so far: a slow generation has more
// of them.
func (pl *plan) findSlowBuckets() {
	order := make([]int32, len(pl.strata))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(pl.strata[b].bucket, pl.strata[a].bucket) })
	for _, i := range order {
		stratum := &pl.strata[i]
		group := &pl.groups[stratum.group]
		group.isWalkedWhole = group.count <= smallGroup || group.history.total <= smallGroupInTrace
		switch slowerShare := float64(group.slowerCount) / float64(group.count); {
		case group.isWalkedWhole || slowerShare < exactShare/group.thinning():
			group.exactBucket = stratum.bucket
		case slowerShare < exactShare:
			group.setSampleSize(stratum, minSample, 0.5)
		case slowerShare < upperShare:
			group.setSampleSize(stratum, minSample, oneInUpper)
		case slowerShare < middleShare:
			group.setSampleSize(stratum, minSample, oneInMiddle)
		default:
			group.setSampleSize(stratum, minSampleLower, oneInLower)
		}
		group.slowerCount += stratum.count
	}
	for i := range pl.groups {
		group := &pl.groups[i]
		group.exactBucket = min(group.exactBucket, group.history.slowestBucket(exactShare/group.thinning()))
	}
	for i := range pl.strata {
		stratum := &pl.strata[i]
		if group := &pl.groups[stratum.group]; stratum.bucket < group.exactBucket {
			group.overlapCount += stratum.overlapCount
		}
	}
	for i := range pl.strata {
		stratum := &pl.strata[i]
		if pl.groups[stratum.group].hasFewOverlaps() {
			stratum.count -= stratum.overlapCount
		}
		stratum.chanceLimit = uint64(stratum.sampleSize) << 32 / uint64(max(stratum.count, 1))
	}
}

// slowestBucket returns the highest bucket such that at least a given part (0 to 1) of all requests is in it or in slower ones.
func (l *latencyCounts) slowestBucket(part float64) int32 {
	slower, k := 0, int32(latencyBuckets)
	for k > 0 && float64(slower) < part*float64(l.total) {
		k--
		slower += int(l.counts[k])
	}
	return k
}

// assignWeights draws the sample of each stratum, and sets the weights of all requests: 0 if not walked. The weights of a
// stratum add up to the number of its requests.
func (pl *plan) assignWeights() {
	n := len(pl.candidates)
	pl.weights = entry.Resize(pl.weights, n)
	for k := range pl.candidates {
		candidate := &pl.candidates[k]
		pl.weights[k] = 1
		if candidate.stratum < 0 {
			continue
		}
		stratum := &pl.strata[candidate.stratum]
		group := &pl.groups[stratum.group]
		candidate.inWalkedGroup = group.isWalkedWhole
		if candidate.overlapsMark && group.hasFewOverlaps() {
			candidate.stratum = -1
			continue
		}
		if stratum.bucket >= group.exactBucket || stratum.count <= minSample && group.history.isAwaited {
			stratum.walked++
			continue
		}
		if candidate.chance < stratum.lowestChance {
			stratum.lowestChance, stratum.lowestIndex = candidate.chance, int32(k)
		}
		if candidate.chance>>32 < stratum.chanceLimit {
			stratum.walked++
		} else {
			pl.weights[k] = 0
		}
	}
	for i := range pl.strata {
		stratum := &pl.strata[i]
		if stratum.count == 0 {
			continue
		}
		if stratum.walked == 0 {
			pl.weights[stratum.lowestIndex], stratum.walked = 1, 1
		}
		stratum.remainder = stratum.count % stratum.walked
	}
	// The remainder of a division goes to single requests. They are chosen by chance, because the order depends on the workers.
	rankedCount := int32(0)
	for i := range pl.strata {
		pl.strata[i].nextRanked = rankedCount
		if pl.strata[i].remainder > 0 {
			rankedCount += pl.strata[i].walked
		}
	}
	pl.ranked = entry.Resize(pl.ranked, int(rankedCount))
	for k := range pl.candidates {
		if pl.weights[k] == 0 || pl.candidates[k].stratum < 0 {
			continue
		}
		candidate := &pl.candidates[k]
		stratum := &pl.strata[candidate.stratum]
		pl.weights[k] = stratum.count / stratum.walked
		if stratum.remainder > 0 {
			pl.ranked[stratum.nextRanked] = rankedRequest{candidate.chance, int32(k)}
			stratum.nextRanked++
		}
	}
	for i := range pl.strata {
		stratum := &pl.strata[i]
		if stratum.remainder > 0 {
			list := pl.ranked[stratum.nextRanked-stratum.walked : stratum.nextRanked]
			slices.SortFunc(list, func(a, b rankedRequest) int { return cmp.Compare(a.chance, b.chance) })
			for _, drawn := range list[:stratum.remainder] {
				pl.weights[drawn.index]++
			}
		}
	}
}

// latencyBucket returns the bucket of a request's latency in latencyCounts.
func latencyBucket(r *request.Request) uint8 {
	return uint8(min(loglinear.Bucket(r.End-r.Start, path.StratumBits), latencyBuckets-1))
}

// chance returns a pseudo-random number that depends only on the request: the finalizer of MurmurHash3 (Appleby) over the
// fields that identify it.
func chance(r *request.Request) uint64 {
	z := uint64(r.End) ^ bits.RotateLeft64(uint64(r.Start), 23) ^ r.G*0xd6e8feb86659fd93
	z = (z ^ z>>33) * 0xff51afd7ed558ccd
	z = (z ^ z>>33) * 0xc4ceb9fe1a85ec53
	return z ^ z>>33
}
