package queues

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A request may send a message to a broker and wait for the answer that a loop of the same process sends, again through the broker. No event
// names the message. But the request's wait ends just after an iteration of the loop.

// deliveryNS is the most that an answer needs from its sender to the broker, and from there to the goroutine that waits for it.
const deliveryNS = 5 * threshold.LoopbackNS

// A workRun is one iteration of a loop, which is named by the function at site.
type workRun struct {
	loop tracefmt.StringID
	site tracefmt.FrameID
	g    uint64
	interval
}

// A loopSum adds up the iterations of one loop.
type loopSum struct {
	site                  tracefmt.FrameID
	runs, ns, overlapping int64 // overlapping counts those that began while another one was at work
	maxNS                 int64
	goroutines            goroutineSet
}

// addWorkRun records an iteration of a loop.
func (p *workerSum) addWorkRun(w *path.WalkResult) {
	if w.Req.Kind == request.Loop {
		p.workRuns = append(p.workRuns, workRun{p.stage.IDs.Group(w.Group).Name, p.stage.Sites.SiteOf(w.Req.EntryStack), w.Req.G, interval{w.Start, w.Req.End}})
	}
}

// addWorkRuns adds the iterations of a generation, and counts the answers that follow one.
func (s *Sum) addWorkRuns() {
	byLoop := make(map[tracefmt.StringID][]interval)
	for _, p := range s.workers {
		for _, run := range p.workRuns {
			byLoop[run.loop] = append(byLoop[run.loop], run.interval)
			sum := entry.GetOrAdd(s.loops, run.loop)
			sum.goroutines.add(run.g)
			sum.site = run.site
		}
	}
	for loop, runs := range byLoop {
		slices.SortFunc(runs, func(a, b interval) int { return cmp.Compare(a.end, b.end) })
		sum := s.loops[loop]
		atWork := overlapOf(runs)
		for _, run := range runs {
			sum.runs, sum.ns = sum.runs+1, sum.ns+run.end-run.start
			sum.maxNS = max(sum.maxNS, run.end-run.start)
			if atWork.At(run.start) > 1 {
				sum.overlapping++
			}
		}
		for _, p := range s.workers {
			for _, answer := range p.answerWaits {
				service := s.services[answer.key]
				next, _ := slices.BinarySearchFunc(runs, answer.end+1, func(run interval, t int64) int { return cmp.Compare(run.end, t) })
				if service != nil && next > 0 && answer.end-runs[next-1].end <= deliveryNS && runs[next-1].end > answer.start {
					addToKey(&service.afterRuns, loop, 1, plusNS)
				}
			}
		}
	}
}

// An OwnWorker is a loop of this process that answers requests through a broker, one message at a time.
type OwnWorker struct {
	Name       string
	Goroutines int
	MeanNS     int64 // of an iteration
	MaxNS      int64
	// AnswerShare is the share of the answers that follow an iteration of the loop; ChanceShare would at other times.
	AnswerShare, ChanceShare float64
}

// ownWorker returns the loop after whose iterations nearly all answers of a service come; nil if there is none, if it also works on
// several messages at once, or if it is at work for a small part of the waits only.
func (s *Sum) ownWorker(sum *serviceSum, sp *spell.Speller) *OwnWorker {
	answers := sum.order.aloneCalls + sum.order.queuedCalls
	mostAnswersFirst := func(a, b tracefmt.StringID) int {
		return cmp.Or(cmp.Compare(sum.afterRuns[b], sum.afterRuns[a]), cmp.Compare(a, b))
	}
	for _, loop := range slices.SortedFunc(maps.Keys(sum.afterRuns), mostAnswersFirst) {
		work := s.loops[loop]
		name := sp.Syms.String(loop)
		if site := sp.Site(work.site); site != nil && site.Module != "" && strings.HasPrefix(modules.Package(name)+"/", site.Module+"/") {
			continue // a library's loop, unless it runs the service's functions, may end when the awaited answer has come
		}
		worker := &OwnWorker{
			Name: name, Goroutines: len(work.goroutines), MeanNS: work.ns / work.runs, MaxNS: work.maxNS,
			AnswerShare: float64(sum.afterRuns[loop]) / float64(answers), ChanceShare: float64(work.runs*deliveryNS) / float64(max(s.sliceNS, 1)),
		}
		isLong := float64(worker.MeanNS*answers) >= threshold.MajorShare*float64(sum.order.totalNS)
		if answers >= threshold.MedianSample && worker.AnswerShare >= threshold.MostShare && worker.ChanceShare <= threshold.NoticeableShare && isLong &&
			float64(work.overlapping) <= threshold.MinorShare*float64(work.runs) {
			return worker
		}
	}
	return nil
}
