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

// A stageKey identifies goroutines that wait for work at one line.
type stageKey struct {
	start string
	idle  tracefmt.Line
}

// A stage is a set of goroutines (workers) that wait for work at one line. It is a resource with a server for each goroutine.
type stage struct {
	resource
	observedNS    float64
	wakes, bursts int // number of waits of requests that the goroutines ended; bursts: those of them right after another one
	members       map[uint64]bool
}

// addStages adds the stages to the resources: goroutines that requests hand work to and that do it one after the other. It
// returns the goroutines of all stages that it judged or skipped.
func (a *analysis) addStages() map[uint64]bool {
	judged, stages := map[uint64]bool{}, map[stageKey]*stage{}
	for _, g := range slices.Sorted(maps.Keys(a.servers)) {
		s := a.servers[g]
		idle := s.idleWaits()
		wakes, isForWakers := a.findWork(s, idle)
		if !isForWakers || len(wakes) < threshold.Repeats {
			continue
		}
		idleStack := idle[0].stack
		start, site := a.in.Speller.StartOf(idleStack), a.siteOf(idleStack)
		if site == nil || site.Module != "" || stdlib.Contains(site.Func) || request.IsServerStart(start) {
			continue // it has no stack, or is such as a connection's goroutine: there are as many as connections
		}
		key := stageKey{start, a.lineOf(idleStack)}
		if stages[key] == nil {
			stages[key] = &stage{members: map[uint64]bool{}, resource: resource{kind: report.LimitStage, factor: 1, site: site, groups: map[path.GroupID]float64{},
				basis: "the time in which its goroutines did not wait for work"}}
		}
		stages[key].addServer(s, idle, wakes)
	}
	keys := slices.SortedFunc(maps.Keys(stages), func(x, y stageKey) int {
		return cmp.Or(cmp.Compare(x.start, y.start), x.idle.Compare(y.idle))
	})
	for _, key := range keys {
		st := stages[key]
		st.servers, st.busy = max(1, math.Round(st.observedNS/float64(a.sliceNS))), st.busy/float64(a.sliceNS)
		st.error, st.visits = sampleError(st.service), float64(st.wakes)/float64(a.sliceNS)/a.load
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

// addServer adds a goroutine to the stage, which had done work at the times of wakes. idle are its waits for work. A service lasts
// from the end of a wait for work, or of the service before, until the goroutine ends a wait of a request.
func (st *stage) addServer(s *server, idle []serverWait, wakes []int64) {
	var resumed []int64
	busyNS := s.observedNS
	for _, w := range idle {
		busyNS -= w.ns
		resumed = append(resumed, w.end)
	}
	st.observedNS, st.busy, st.members[s.g] = st.observedNS+float64(s.observedNS), st.busy+float64(busyNS), true
	slices.Sort(resumed)
	last := int64(0)
	for i, wake := range wakes {
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
	st.wakes += len(wakes)
}

// idleWaits returns a server's waits for work: those at stacks where mostly requests end the wait, the most frequent stack
// first.
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

// findWork returns the times at which a server ended waits of requests because it had done their work. A wait that it ends at a
// line where it waits for work itself, before another one of the request elsewhere, is the receipt of the work. isForWakers reports
// whether the requests that end the server's waits for work (idle) hand work over to it: for most of them, it later ends a wait of
// the same request.
func (a *analysis) findWork(s *server, idle []serverWait) (wakes []int64, isForWakers bool) {
	var ended []*wait
	receiveLines := map[tracefmt.Line]bool{}
	for _, w := range idle {
		receiveLines[a.lineOf(w.stack)] = true
	}
	servedUntil, answeredUntil := map[*servedRequest]int64{}, map[*servedRequest]int64{}
	for _, w := range a.waits {
		if w.waker == s.g && w.kind != critpath.WaitLock {
			ended = append(ended, w)
			if servedUntil[w.request] = w.end; !receiveLines[a.lineOf(w.releaseStack)] {
				answeredUntil[w.request] = w.end
			}
		}
	}
	handedCount, count := 0, 0
	for _, w := range idle {
		if r := a.requestAt(w.waker, w.end); r != nil {
			if count++; servedUntil[r.outermost()] > w.end {
				handedCount++
			}
		}
	}
	for _, w := range ended {
		if !receiveLines[a.lineOf(w.releaseStack)] || answeredUntil[w.request] < w.end {
			wakes = append(wakes, w.end)
		}
	}
	return wakes, count > 0 && float64(handedCount) >= threshold.HalfShare*float64(count)
}
