package groups

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/loglinear"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/workers"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// concurrentRuns holds which sites ran on other goroutines, in ns, while requests waited for a P. It is keyed by latency bucket
// like the causes, because slow requests are delayed by other goroutines than fast ones. About fifty requests of a generation
// are sampled, in addition to the slowest of each group.
type concurrentRuns map[concurrentRunKey]int64

// A concurrentRunKey is a site that ran while requests waited.
type concurrentRunKey struct {
	waitKey
	site tracefmt.FrameID
}

// A waitKey identifies waits for a P by group, latency bucket and cause.
type waitKey struct {
	group  path.GroupID // anyGroup for pieces of long requests, and for open requests
	bucket int32
	cause  path.CauseID
}

// merge adds the runs that another worker recorded; tr translates that worker's ids.
func (r concurrentRuns) merge(other concurrentRuns, tr *path.Translation) {
	for k, ns := range other {
		if k.group != anyGroup {
			k.group = tr.Groups[k.group]
		}
		k.cause = tr.Causes[k.cause]
		r[k] += ns
	}
}

// A pWait is one wait of goroutine g for a P.
type pWait struct {
	cause      path.CauseID
	start, end int64
	g          uint64
}

// add adds which sites ran on other goroutines during a wait for a P, multiplied by the request's weight. stage finds them.
func (r concurrentRuns) add(stage *path.Stage, wait *pWait, key waitKey, weight int64) {
	key.cause = wait.cause
	stage.EachConcurrentRun(wait.start, wait.end, wait.g, func(site tracefmt.FrameID, ns int64) {
		r[concurrentRunKey{key, site}] += ns * weight
	})
}

// addPWaits adds which sites ran while a request waited for a P, if the request is in the sample. Otherwise, if the request is
// one of the slowest of its group so far, it records the waits for addSlowPWaits.
func (t *table) addPWaits(w *path.WalkResult) {
	if len(w.LongPWaits) == 0 {
		return
	}
	key := waitKey{group: anyGroup}
	if w.Form == path.Whole && !w.Req.Open {
		key = waitKey{group: w.Group, bucket: loglinear.Bucket(w.Latency(), coarseBits)}
	}
	if w.Sampled {
		for _, i := range w.LongPWaits {
			s := &w.Segments[i]
			t.concurrentRuns.add(t.stage, &pWait{w.CauseIDs[i], s.Start, s.End, s.G}, key, w.Weight)
		}
		return
	}
	if key.group != anyGroup {
		t.recordSlowRequest(w, key)
	}
}

// A slowRequest is one of the slowest requests of a group in one generation, with its waits for a P.
type slowRequest struct {
	latency, start int64
	g              uint64
	weight         int64
	key            waitKey
	waits          []pWait
	table          *table
}

// Bounds of the slow requests in one generation: of one group, and of all groups.
const (
	maxSlowPerGroup = 32
	maxSlow         = 64
)

// slowerFirst orders requests by latency, the slowest first, then by start and goroutine, so that the order does not depend on
// the workers.
func slowerFirst(a, b *slowRequest) int {
	return cmp.Or(cmp.Compare(b.latency, a.latency), cmp.Compare(a.start, b.start), cmp.Compare(a.g, b.g))
}

// newSlowest returns an empty list of the slowest requests of a group.
func newSlowest() *sample.TopN[*slowRequest] { return sample.New(maxSlowPerGroup, slowerFirst) }

// recordSlowRequest records a request and its waits for a P if it is among the slowest of its group in this generation. Waits of less
// than threshold.MinorShare of the latency are left out.
func (t *table) recordSlowRequest(w *path.WalkResult, key waitKey) {
	slowest := entry.GetOrMake(t.slowByGroup, w.Group, newSlowest)
	if fastest, isFull := slowest.Last(); isFull && w.Latency() < fastest.latency {
		return
	}
	request := &slowRequest{latency: w.Latency(), start: w.Start, g: w.Req.G, weight: w.Weight, key: key, table: t}
	for _, i := range w.LongPWaits {
		segment := &w.Segments[i]
		if float64(segment.End-segment.Start) < threshold.MinorShare*float64(request.latency) {
			continue
		}
		request.waits = append(request.waits, pWait{w.CauseIDs[i], segment.Start, segment.End, segment.G})
	}
	slowest.Add(request)
}

// addSlowPWaits adds, at the end of a generation, which sites ran during the recorded waits of the slowest requests. They are
// selected over all workers' tables, so the selection does not depend on which worker walked which request.
func addSlowPWaits(tables []*table) {
	byGroup := map[path.GroupKey]*sample.TopN[*slowRequest]{}
	for _, t := range tables {
		for id, slowest := range t.slowByGroup {
			entry.GetOrMake(byGroup, t.stage.IDs.Group(id), newSlowest).Merge(slowest)
		}
		clear(t.slowByGroup)
	}
	var all []*slowRequest
	for _, slowest := range byGroup {
		list := slowest.Sorted()
		all = append(all, list[:min(len(list), max(maxSlow/len(byGroup), 4))]...)
	}
	// All workers share them. A key is valid in the table of the worker that walked the request.
	var adding sync.Mutex
	workers.Share(len(tables), len(all), 1, func(worker, i, _ int) {
		s, runs := all[i], concurrentRuns{}
		for k := range s.waits {
			runs.add(tables[worker].stage, &s.waits[k], s.key, s.weight)
		}
		adding.Lock()
		defer adding.Unlock()
		for key, ns := range runs {
			s.table.concurrentRuns[key] += ns
		}
	})
}

// mainLines returns, by function that ran concurrently, its line with the most time. A report shows this line wherever the
// function appears.
func (r concurrentRuns) mainLines(sp *spell.Speller) map[tracefmt.StringID]tracefmt.FrameID {
	total := map[tracefmt.FrameID]int64{}
	for k, ns := range r {
		total[k.site] += ns
	}
	out := map[tracefmt.StringID]tracefmt.FrameID{}
	for f, ns := range total {
		fn := sp.Syms.Frame(f).Func
		if line, ok := out[fn]; !ok || ns > total[line] || ns == total[line] && sp.CompareFrames(f, line) < 0 {
			out[fn] = f
		}
	}
	return out
}

// indexConcurrentRuns prepares concurrentShares: it sets mainLines, runsByCause and pWaitCauses.
func (w *rowWriter) indexConcurrentRuns() {
	w.mainLines, w.runsByCause = w.concurrentRuns.mainLines(w.sp), make(map[path.CauseID]map[waitKey]map[tracefmt.FrameID]int64)
	for k, ns := range w.concurrentRuns {
		if !w.isPWait(k.cause) {
			continue
		}
		runs := entry.GetOrMake(w.runsByCause, k.cause, func() map[waitKey]map[tracefmt.FrameID]int64 { return map[waitKey]map[tracefmt.FrameID]int64{} })
		entry.GetOrMake(runs, k.waitKey, func() map[tracefmt.FrameID]int64 { return map[tracefmt.FrameID]int64{} })[k.site] = ns
	}
	w.pWaitCauses = slices.Collect(maps.Keys(w.runsByCause))
}

// concurrentShares returns what ran on other goroutines while a group's requests of some latency buckets waited for a P with
// one of the causes, weighted by the wait time of each bucket. Only some waits are sampled. If none of these was, it uses the
// first of the following that was: other waits of the same requests, waits of other requests of the group, waits of other
// groups.
func (w rowWriter) concurrentShares(group *group, causes []path.CauseID, buckets bucketRange) []report.Share {
	groupID := group.id
	if !slices.ContainsFunc(causes, w.isPWait) {
		return w.sp.Shares(nil)
	}
	nsByLine := map[tracefmt.FrameID]int64{}
	add := func(key waitKey, sites map[tracefmt.FrameID]int64) {
		total, waitNS := int64(0), int64(0)
		for _, ns := range sites {
			total += ns
		}
		if total == 0 {
			return
		}
		if key.group == groupID {
			if c := group.causeCells.find(key.bucket, int32(key.cause)); c != nil {
				waitNS = c.ns
			}
		}
		waitNS = cmp.Or(waitNS, total)
		for f, ns := range sites {
			nsByLine[w.mainLines[w.sp.Syms.Frame(f).Func]] += int64(float64(ns) / float64(total) * float64(waitNS))
		}
	}
	ofGroup := func(key waitKey) bool { return key.group == groupID }
	ofBand := func(key waitKey) bool { return key.group == groupID && buckets.contains(key.bucket) }
	for _, source := range []struct {
		causes   []path.CauseID
		includes func(waitKey) bool
	}{{causes, ofBand}, {w.pWaitCauses, ofBand}, {causes, ofGroup}, {causes, func(waitKey) bool { return true }}} {
		for _, id := range source.causes {
			for key, sites := range w.runsByCause[id] {
				if source.includes(key) {
					add(key, sites)
				}
			}
		}
		if len(nsByLine) > 0 {
			break
		}
	}
	return w.sp.Shares(nsByLine)
}

// isPWait reports whether the settled cause of an id is a wait for a P (no freeze, no thread wake-up).
func (w rowWriter) isPWait(id path.CauseID) bool {
	return w.sp.Settlement[w.stage.IDs.Cause(id).Code] == cause.Sched
}
