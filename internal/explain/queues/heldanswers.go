package queues

import (
	"maps"
	"slices"

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

// A server may put an answer into a buffer that another goroutine writes to the client when a ticker fires. No event
// connects the two, but the numbers do: goroutines that read clients' messages write nothing and hand nothing over, and a
// goroutine that only a timer wakes writes about as often as there are connections with a message since the tick before. A
// heartbeat is written whether or not there was a message.

// A messageSum counts the clients' messages that one group of read loops received.
type messageSum struct {
	messages, answered int64     // answered: those whose iteration itself wrote the answer or handed work over
	silent             []endMark // end of each other iteration, by goroutine: it may have left an answer in a buffer
}

// add adds another sum.
func (s *messageSum) add(addend *messageSum) {
	*s = messageSum{s.messages + addend.messages, s.answered + addend.answered, append(s.silent, addend.silent...)}
}

// A tickSum counts, for one group of loops, the iterations that a timer started and that wrote to connections.
type tickSum struct {
	writes int64
	ticks  []endMark // start of each iteration, by goroutine
	site   tracefmt.FrameID
}

// add adds another sum.
func (s *tickSum) add(addend *tickSum) {
	*s = tickSum{s.writes + addend.writes, append(s.ticks, addend.ticks...), max(s.site, addend.site)}
}

// maxMessages bounds the messages, and the ticks, that a worker records of one group.
const maxMessages = 8192

// addHeldAnswers records one iteration of a loop for HeldAnswers: either it read a client's message (answered at once or
// silent), or a timer started it and it wrote to a connection. Other requests are ignored.
func (p *workerSum) addHeldAnswers(w *path.WalkResult) {
	r := w.Req
	if r.Kind != request.Loop {
		return
	}
	if r.ReadsClient {
		sum := entry.GetOrAdd(p.messages, w.Group)
		if len(sum.silent) >= maxMessages {
			return
		}
		sum.messages++
		if r.AnswersClient || p.handedOver(r.G, r.Start, r.End) {
			sum.answered++
		} else {
			sum.silent = append(sum.silent, endMark{r.G, r.End})
		}
		return
	}
	writes, site := int64(0), tracefmt.FrameID(0)
	for i := range w.Steps {
		if step := &w.Steps[i]; step.G == r.G && step.Kind == critpath.Syscall && p.stage.Sites.HasRole(step.Stack, knowledge.SocketWrite) {
			writes, site = writes+1, p.stage.Sites.SiteOf(step.Stack)
		}
	}
	if writes == 0 || !p.isTimerStarted(r) {
		return
	}
	if sum := entry.GetOrAdd(p.ticks, w.Group); len(sum.ticks) < maxMessages {
		sum.writes, sum.site, sum.ticks = sum.writes+writes, site, append(sum.ticks, endMark{r.G, r.Start})
	}
}

// isTimerStarted reports whether a timer, and no goroutine, ended the wait just before an iteration.
func (p *workerSum) isTimerStarted(r *request.Request) bool {
	p.spans = p.stage.Win.SpansCoarse(r.G, r.Start-1, r.Start, p.spans[:0])
	for i := range p.spans {
		if span := &p.spans[i]; span.State == timeline.Waiting && span.End == r.Start {
			return span.Waker == 0 && span.Woken
		}
	}
	return false
}

// HeldAnswers describes a group of loops that read clients' messages, and whose answers another goroutine writes when a ticker
// fires.
type HeldAnswers struct {
	// Messages is the number of messages read, Writes the number of answers written.
	Messages, Writes int
	WriteSite        *report.Site
	PeriodNS         int64
	// HasIdle reports that ticks often found no message on a connection and then wrote nothing: so the writes are no heartbeat.
	HasIdle bool
}

// The ticker's writes are taken to be the answers if their number differs from that of connections with messages in a period by
// less than this factor. A message that is read at the end of a period may be answered in the next one.
const maxWritesFactor = 1.4

// HeldAnswers returns, for a group of read loops, the timer-driven loop whose number of writes fits the messages best, with its
// period. It returns nil if none fits, or if the group answers its messages itself. Merge must have been called.
func (s *Sum) HeldAnswers(sp *spell.Speller, group path.GroupID) (best *HeldAnswers) {
	messages := s.workers[0].messages[group]
	if messages == nil || len(messages.silent) < 2*threshold.SmallSample || float64(messages.answered) > threshold.MinorShare*float64(messages.messages) {
		return nil
	}
	bestFactor := maxWritesFactor
	for _, id := range slices.Sorted(maps.Keys(s.workers[0].ticks)) {
		ticks := s.workers[0].ticks[id]
		period := tickerPeriod(ticks.ticks)
		if period == 0 {
			continue
		}
		windows, connections := make(map[endMark]bool), make(map[uint64]bool)
		for _, m := range messages.silent {
			windows[endMark{m.server, m.time / period}], connections[m.server] = true, true
		}
		factor := float64(ticks.writes) / float64(len(windows))
		if factor = max(factor, 1/factor); factor < bestFactor {
			bestFactor = factor
			silentTicks := s.sliceNS/period*int64(len(connections)) - ticks.writes // if each connection has its own ticker
			differing := max(ticks.writes-int64(len(windows)), int64(len(windows))-ticks.writes)
			best = &HeldAnswers{len(messages.silent), int(ticks.writes), sp.Site(ticks.site), period, silentTicks >= max(threshold.SmallSample, threshold.FarFactor*differing)}
		}
	}
	return best
}
