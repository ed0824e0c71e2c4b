package critpath

import "github.com/whylate/whylate/internal/trace/timeline"

// An Answer is a request of this process for which another one of it waited over
// the network: a gateway that calls its own server. No event of the trace leads
// from one to the other; who has found out that they belong together says so.
type Answer struct {
	G          uint64
	Start, End int64
}

// maxLevels bounds how many requests may wait for each other in a row.
const maxLevels = 8

// answersOf returns what a request waits for, in order of time.
func (w *Walker) answersOf(g uint64, start int64) []Answer {
	if w.Answers == nil {
		return nil
	}
	return w.Answers(g, start)
}

// inherit says of the frame that was pushed last that it is work for the same
// request as f.
func (w *Walker) inherit(f frame) {
	last := &w.frames[len(w.frames)-1]
	last.answers, last.level = f.answers, f.level
}

// answer returns the last of the answers that a wait from start to hi is for, nil
// if it is for none. Before an answer has ended nobody could have polled for it.
func (f *frame) answer(v *verdict, start, hi int64) *Answer {
	if v.step.Kind != Network || v.followed {
		return nil
	}
	if v.step.Inbound {
		v.step.Inbound = f.level == 0 // who asked for this sends: the way there
		return nil
	}
	if f.level >= maxLevels {
		return nil
	}
	for i := len(f.answers) - 1; i >= 0; i-- {
		if a := &f.answers[i]; a.G != f.g && a.Start < hi && a.End > start {
			if v.gap != 0 {
				v.gap = max(v.gap, min(a.End, hi))
			}
			return a
		}
	}
	return nil
}

// peer goes on in the goroutine that answers a wait of f. Whoever reads from a
// connection that many share may have been woken for others meanwhile, which is
// nothing to this request. What was before the answer is looked at afterwards:
// the way there.
func (w *Walker) peer(f *frame, s *timeline.Span, start int64, hi *int64, v *verdict, a *Answer) bool {
	w.emit(hi, max(a.End, start), v.step)
	from := max(a.Start, f.a)
	if from >= *hi {
		return false
	}
	f.idx++
	via, level := int32(len(w.Vias)), f.level
	w.Vias = append(w.Vias, Via{Wait: WaitPeer, Stack: s.Stack, Parent: f.via})
	if !w.enter(a.G, from, *hi, via) {
		w.Vias = w.Vias[:via]
		w.frames[len(w.frames)-1].idx--
		return false
	}
	w.inherit(frame{answers: w.answersOf(a.G, a.Start), level: level + 1})
	return true
}

// answer lists a wait for an answer: the way back and the answer itself.
func (b *grapher) answer(p *piece, a *Answer, v *verdict, start int64, hi *int64, whole int64) {
	b.leaf(p, hi, max(a.End, start), v.step, whole)
	from := max(a.Start, p.lo)
	if from >= *hi {
		return
	}
	if !b.isKnown(a.G, *hi) {
		b.leaf(p, hi, from, v.step, whole)
		return
	}
	it := item{step: v.step, waker: a.G, wait: WaitPeer, asked: a}
	it.step.Start, it.step.End = from, *hi
	*hi = from
	p.items = append(p.items, it)
}

// serve puts what was asked for into the graph: it is work for the request, from
// when it began on.
func (b *grapher) serve(p *piece, it *item) {
	b.link(p.g, it.waker, it.step.Start)
	b.add(&piece{g: it.waker, lo: it.step.Start, hi: it.step.End, hooked: true, answers: b.w.answersOf(it.asked.G, it.asked.Start), level: p.level + 1})
}
