package pass

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/explain/loglinear"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/trace/timeline"
)

// A plan says which requests of a generation are walked, and for how many each
// one stands. A service asks the same of its fast requests repeatedly, so
// a few of each group and latency tell where all such requests spend their time;
// what is slow is walked one and all. Weights are exact: those of a group's
// requests of like latency add up to how many there are (stratified sampling,
// Cochran, Sampling Techniques, 1977, chapter 5). Counts and latencies need no
// walk, and are those of all requests.
//
// Which are walked depends on the requests alone, not on the workers.
type plan struct {
	quickGroups         []path.QuickGroup // by the order in which requests are walked
	weights             []int32           // of those that are walked; 0: glanced at
	candidates          []candidate
	groupIndexes        map[path.GroupKey]int32
	strata              []stratum
	groups              []plannedGroup
	remainderCandidates []rankedRequest
	markPhases          []interval // in which the collector marked, by time
	// history holds the latencies of each group in the generations planned before.
	history map[path.GroupKey]*latencyCounts
}

// latencyCounts are how many requests there are by latency.
type latencyCounts struct {
	total  int
	counts [latencyBuckets]int32
}

// An item is a request that may be left out.
type candidate struct {
	chance        uint64
	latency       int64
	stratum       int32 // -1: it is walked itself; at first its group, as the worker numbers it
	overlapsMark  bool  // the collector marked meanwhile
	inWalkedGroup bool  // all requests of its group are walked
}

// A stratum is a stratum: a group's requests of like latency.
type stratum struct {
	group, bucket            int32
	count, walked, remainder int32
	overlapCount             int32  // of n, during which the collector marked
	sampleSize               int32  // how many are walked of one that is not walked whole, about
	lowestChance             uint64 // of the hashes, for a cell of which none was chosen
	lowestIndex              int32
}

type rankedRequest struct {
	chance uint64
	index  int32
}

type plannedGroup struct {
	count, slowerCount int32
	overlapCount       int32                 // of those that are not walked one and all
	exactBucket        int32                 // latencies from this bucket on are walked one and all
	isWalkedWhole      bool                  // all are
	strata             [latencyBuckets]int32 // by bucket: its cell and one; 0: none
	history            *latencyCounts        // with those of this generation
}

// maxOverlapShare reports whether those during which the collector marked are walked one and all.
func (g *plannedGroup) hasFewOverlaps() bool {
	return float64(g.overlapCount) <= maxOverlapShare*float64(g.count)
}

// Bounds of sampling.
const (
	// minPlannedRequests requests of a generation are worth it.
	minPlannedRequests = 1000
	latencyBuckets     = 64 << path.StratumBits
	// Of a group the slowest tenth of a generation is walked, the slowest tenth of
	// all its generations until then, and all if they are no more than small, or
	// with those of the generations before no more than smallGroupInTrace.
	exactShare        = 0.1
	smallGroup        = 256
	smallGroupInTrace = 2000
	// Of each other stratum so many are: more of what is slower, since rows of
	// causes that few requests meet are there, and at least fewest. Those below
	// the median have a small part of the time and no band of their own.
	upperShare     = 0.25
	oneInUpper     = 6
	middleShare    = 0.55
	oneInMiddle    = 12
	minSample      = 16
	oneInLower     = 64
	minSampleLower = 8
	// Requests during which the collector marked are walked too, if they are no
	// more than this part of their group's: help with marking and stops of the
	// world are long and rare, so that a part of them does not show how much
	// time they have: rows of 1 % were off by a tenth of themselves.
	maxOverlapShare = 0.05
)

// planGeneration decides about the requests of a generation. Those that end before until are walked.
func (pl *plan) planGeneration(p *Pass, reqs []request.Request, exactUntil int64) {
	pl.findMarkPhases(p.Window.Gens)
	shares := pl.findQuickGroups(p, reqs, p.walkNeeded(exactUntil))
	pl.countStrata(shares)
	pl.assignWeights()
}

// A stretch of time.
type interval struct{ from, to int64 }

// findMarkPhases finds out when the collector marked.
func (pl *plan) findMarkPhases(gens []*timeline.Gen) {
	pl.markPhases = pl.markPhases[:0]
	add := func(from, to int64) { pl.markPhases = append(pl.markPhases, interval{from, to}) }
	var phases timeline.MarkPhases
	for _, g := range gens {
		phases.Each(g, add)
	}
	phases.Close(math.MaxInt64, add)
}

// overlapsMarkPhase reports whether the collector marked during a request.
func (pl *plan) overlapsMarkPhase(r *request.Request) bool {
	k, _ := slices.BinarySearchFunc(pl.markPhases, r.Start, func(m interval, t int64) int { return cmp.Compare(m.to, t) })
	return k < len(pl.markPhases) && pl.markPhases[k].from < r.End
}

// walkNeeded returns whether a request is to be walked itself.
func (p *Pass) walkNeeded(exactUntil int64) func(r *request.Request) bool {
	var list []Chooser
	for _, s := range p.allSums() {
		if c, ok := s.(Chooser); ok {
			list = append(list, c)
		}
	}
	return func(r *request.Request) bool {
		if r.End < exactUntil {
			return true
		}
		for _, c := range list {
			if c.NeedsWalk(r) {
				return true
			}
		}
		return false
	}
}

// A glanced is the part of the requests that one worker glanced at, with its groups.
type workerShare struct {
	stage    *path.Stage
	from, to int
}

// findQuickGroups looks at all requests, in parallel. Those that a sum needs stand for
// themselves alone: they are of one stretch of time, and others may differ.
func (pl *plan) findQuickGroups(p *Pass, reqs []request.Request, needs func(*request.Request) bool) []workerShare {
	n := len(reqs)
	pl.quickGroups, pl.candidates = slices.Grow(pl.quickGroups[:0], n)[:n], slices.Grow(pl.candidates[:0], n)[:n]
	shares := make([]workerShare, len(p.workers))
	var wg sync.WaitGroup
	shareSize := (n + len(p.workers) - 1) / len(p.workers)
	for i := range p.workers {
		g := workerShare{p.workers[i].stage, min(i*shareSize, n), min((i+1)*shareSize, n)}
		shares[i] = g
		wg.Go(func() {
			for k := g.from; k < g.to; k++ {
				r := &reqs[k]
				pl.candidates[k] = candidate{stratum: -1}
				if !p.isSelected(r) || needs(r) {
					continue
				}
				if pl.quickGroups[k] = g.stage.QuickGroup(r); pl.quickGroups[k].Sufficient {
					pl.candidates[k] = candidate{chance: chance(r), latency: r.End - r.Start, stratum: int32(g.stage.IDs.GroupID(pl.quickGroups[k].Group)), overlapsMark: pl.overlapsMarkPhase(r)}
				}
			}
		})
	}
	wg.Wait()
	return shares
}

// countStrata divides the requests by group and latency.
func (pl *plan) countStrata(shares []workerShare) {
	if pl.groupIndexes == nil {
		pl.groupIndexes, pl.history = make(map[path.GroupKey]int32), make(map[path.GroupKey]*latencyCounts)
	}
	clear(pl.groupIndexes)
	pl.groups, pl.strata = pl.groups[:0], pl.strata[:0]
	for _, share := range shares {
		groupNumbers := make([]int32, share.stage.IDs.GroupCount()) // a group's number here and one
		for k := share.from; k < share.to; k++ {
			candidate := &pl.candidates[k]
			stageGroup := candidate.stratum
			if stageGroup < 0 {
				continue
			}
			if groupNumbers[stageGroup] == 0 {
				key := share.stage.IDs.Group(path.GroupID(stageGroup))
				id, ok := pl.groupIndexes[key]
				if !ok {
					id = int32(len(pl.groups))
					if pl.history[key] == nil {
						pl.history[key] = new(latencyCounts)
					}
					pl.groups = append(pl.groups, plannedGroup{exactBucket: latencyBuckets, history: pl.history[key]})
					pl.groupIndexes[key] = id
				}
				groupNumbers[stageGroup] = id + 1
			}
			id := groupNumbers[stageGroup] - 1
			group := &pl.groups[id]
			group.count++
			bucket := min(loglinear.Bucket(candidate.latency, path.StratumBits), latencyBuckets-1)
			group.history.total++
			group.history.counts[bucket]++
			stratumNumber := &group.strata[bucket]
			if *stratumNumber == 0 {
				pl.strata = append(pl.strata, stratum{group: id, bucket: bucket, lowestChance: ^uint64(0)})
				*stratumNumber = int32(len(pl.strata))
			}
			pl.strata[*stratumNumber-1].count++
			if candidate.overlapsMark {
				pl.strata[*stratumNumber-1].overlapCount++
			}
			candidate.stratum = *stratumNumber - 1
		}
	}
	pl.findSlowBuckets()
}

// findSlowBuckets finds out from which latency on each group is walked whole: what is
// slow in its generation, and what is very slow beside all until then, which may
// be more of a slow generation.
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
		case group.isWalkedWhole || slowerShare < exactShare:
			group.exactBucket = stratum.bucket
		case slowerShare < upperShare:
			stratum.sampleSize = max(minSample, stratum.count/oneInUpper)
		case slowerShare < middleShare:
			stratum.sampleSize = max(minSample, stratum.count/oneInMiddle)
		default:
			stratum.sampleSize = max(minSampleLower, stratum.count/oneInLower)
		}
		group.slowerCount += stratum.count
	}
	for i := range pl.groups {
		group := &pl.groups[i]
		group.exactBucket = min(group.exactBucket, group.history.slowestBucket(exactShare))
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
	}
}

// slowestBucket returns the bucket from which on at least a part of all are.
func (l *latencyCounts) slowestBucket(part float64) int32 {
	slower, k := 0, int32(latencyBuckets)
	for k > 0 && float64(slower) < part*float64(l.total) {
		k--
		slower += int(l.counts[k])
	}
	return k
}

// assignWeights gives those that are walked their weights.
func (pl *plan) assignWeights() {
	n := len(pl.candidates)
	pl.weights = slices.Grow(pl.weights[:0], n)[:n]
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
		if stratum.bucket >= group.exactBucket || stratum.count <= minSample {
			stratum.walked++
			continue
		}
		if candidate.chance < stratum.lowestChance {
			stratum.lowestChance, stratum.lowestIndex = candidate.chance, int32(k)
		}
		if candidate.chance>>32 < uint64(stratum.sampleSize)<<32/uint64(stratum.count) {
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
	// What is left over goes to one request each, by chance and not by the order, which depends on the workers.
	pl.remainderCandidates = pl.remainderCandidates[:0]
	for k := range pl.candidates {
		candidate := &pl.candidates[k]
		if candidate.stratum < 0 || pl.weights[k] == 0 {
			continue
		}
		stratum := &pl.strata[candidate.stratum]
		pl.weights[k] = stratum.count / stratum.walked
		if stratum.remainder > 0 {
			pl.remainderCandidates = append(pl.remainderCandidates, rankedRequest{candidate.chance, int32(k)})
		}
	}
	slices.SortFunc(pl.remainderCandidates, func(a, b rankedRequest) int { return cmp.Compare(a.chance, b.chance) })
	for _, drawn := range pl.remainderCandidates {
		if stratum := &pl.strata[pl.candidates[drawn.index].stratum]; stratum.remainder > 0 {
			pl.weights[drawn.index]++
			stratum.remainder--
		}
	}
}

// chance orders requests at random, but always alike (the finalizer of
// MurmurHash3 by Appleby, over what identifies a request).
func chance(r *request.Request) uint64 {
	z := uint64(r.End) ^ bits.RotateLeft64(uint64(r.Start), 23) ^ r.G*0xd6e8feb86659fd93
	z = (z ^ z>>33) * 0xff51afd7ed558ccd
	z = (z ^ z>>33) * 0xc4ceb9fe1a85ec53
	return z ^ z>>33
}
