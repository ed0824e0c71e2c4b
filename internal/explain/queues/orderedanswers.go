package queues

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/threshold"
)

// A goroutine that reads the answers to many calls from one connection makes them queue for each other if they come in the order of the
// calls. If the peer answers in any order, a call takes as long as its own answer, however many are before it.

// An answerWait is a request's wait for the last answer that a goroutine reads for it.
type answerWait struct {
	key    serviceKey
	reader uint64
	interval
}

// An orderSum compares the order of answers with that of the calls. Times are in ns.
type orderSum struct {
	overlapping, inOrder    int64 // answers whose calls began before the answer before them had come; those of them whose calls began later
	aheadNS, totalNS        int64 // time of the answers, and the part before the answer to the call before
	aloneCalls, queuedCalls int64 // calls that began when none was under way, and others
	aloneNS, queuedNS       int64
}

// addAnswers adds the waits for answers that all workers recorded in a generation.
func (s *Sum) addAnswers() {
	var list []answerWait
	for _, p := range s.workers {
		list = append(list, p.answerWaits...)
	}
	slices.SortFunc(list, func(a, b answerWait) int {
		return cmp.Or(cmp.Compare(a.key.kind, b.key.kind), cmp.Compare(a.key.site, b.key.site), cmp.Compare(a.reader, b.reader), cmp.Compare(a.end, b.end), cmp.Compare(a.start, b.start))
	})
	for ofReader := range entry.EqualRuns(list, func(a, b answerWait) bool { return a.key == b.key && a.reader == b.reader }) {
		if sum := s.services[ofReader[0].key]; sum != nil {
			sum.order.add(ofReader)
		}
	}
}

// add adds the answers that one goroutine read, in the order in which they came.
func (o *orderSum) add(answers []answerWait) {
	var underWay Overlap
	for i := range answers {
		underWay.Add(answers[i].start, answers[i].end)
	}
	for i := range answers {
		a := &answers[i]
		ns := a.end - a.start
		if o.totalNS += ns; underWay.At(a.start) > 1 {
			o.queuedCalls, o.queuedNS = o.queuedCalls+1, o.queuedNS+ns
		} else {
			o.aloneCalls, o.aloneNS = o.aloneCalls+1, o.aloneNS+ns
		}
		if i == 0 || a.start >= answers[i-1].end {
			continue
		}
		o.overlapping++
		if o.aheadNS += answers[i-1].end - a.start; answers[i-1].start <= a.start {
			o.inOrder++
		}
	}
}

// aheadShare returns the share of the waiting time before the answers to earlier calls; 0 unless the answers come in the order of the
// calls, and take far longer behind others.
func (o *orderSum) aheadShare() float64 {
	isOrdered := o.overlapping >= threshold.MedianSample && float64(o.inOrder) >= threshold.NearlyAllShare*float64(o.overlapping)
	if !isOrdered || o.aloneCalls < threshold.SmallSample || o.queuedNS*o.aloneCalls < threshold.FarFactor*o.aloneNS*o.queuedCalls {
		return 0
	}
	return float64(o.aheadNS) / float64(o.totalNS)
}

// addAnswerWait records a request's wait from start until a service ended, if that read an answer for it.
func (p *workerSum) addAnswerWait(svc *service, start int64) {
	if svc.key.cause == cause.Network {
		p.answerWaits = append(p.answerWaits, answerWait{svc.key, svc.server, interval{start, svc.end}})
	}
}
