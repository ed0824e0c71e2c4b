package queues

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// On a connection of HTTP/2, a peer allows a number of bytes for each request and one for all of them together. A request that has
// sent nothing of its body and must wait cannot have used its own: others have used that of the connection. The same holds for a server's
// answers. The reader of the
// connection wakes all that wait there when the peer allows more (sync.Cond.Broadcast), so those woken together share it.

// senderLines are the sites at which the goroutine that sends a request was created, then its creator, and so on; 0 where no stack
// shows one outside of the standard library. A library may create it on another goroutine.
type senderLines [3]tracefmt.FrameID

// A heldBodySum adds up the time in which flow control held up the bodies of requests that wait at one line.
type heldBodySum struct {
	waits, ns, firstNS int64                 // firstNS: before the request had sent anything of its body
	with               map[senderLines]int64 // waits that ended together with one of the same connection, by where that is sent
}

// add adds another sum of the same line.
func (s *heldBodySum) add(addend *heldBodySum) {
	s.waits, s.ns, s.firstNS = s.waits+addend.waits, s.ns+addend.ns, s.firstNS+addend.firstNS
	addSums(&s.with, addend.with, plusNS)
}

// addHeldBodies records the waits of a request for flow control: until the body of a call to a peer is sent, or the body of its answer.
func (p *workerSum) addHeldBodies(w *path.WalkResult, waits []critpath.FollowedWait) {
	answer, isFirst := int32(-1), false // the latest wait of a handler, and whether it had sent nothing before
	for step := range entry.Each(w.Steps) {
		if step.FollowedWait < 0 {
			continue // no request waits for it
		}
		outermost := outermostWait(waits, step.FollowedWait)
		wait := &waits[outermost]
		var with []senderLines
		switch {
		case step.Kind == critpath.FlowControl:
			isFirst, with = !p.hasSentBody(step.G, step.Start), p.wokenTogether(step.G, step.End)
		case !step.Inbound || !p.stage.Sites.HasRole(step.Stack, knowledge.HTTP2Reader) || !p.isHeldAnswer(wait.Stack):
			continue
		case outermost != answer:
			answer, isFirst, with = outermost, !p.hasSentAnswer(wait, step.End), p.heldAnswersWith(wait)
		}
		sum, ns := entry.GetOrAdd(p.heldBodies, p.stage.Sites.SiteOf(wait.Stack)), (step.End-step.Start)*w.Weight
		sum.ns += ns
		if step.Kind == critpath.FlowControl || with != nil {
			sum.waits += w.Weight
		}
		if isFirst {
			sum.firstNS += ns
		}
		for _, other := range with {
			addToKey(&sum.with, other, w.Weight, plusNS)
		}
	}
}

// isHeldAnswer reports whether a handler with this stack waits until its HTTP/2 server has sent a part of its answer.
func (p *workerSum) isHeldAnswer(stack tracefmt.StackID) bool {
	return p.stage.Sites.HasRole(stack, knowledge.FlowControlWait) && p.stage.Sites.HasRole(stack, knowledge.HTTP2Stream)
}

// hasSentAnswer reports whether a part of the answer of the handler that waits was sent before an instant: after an earlier wait, or in this
// one, by a goroutine that the server starts to write a frame. A frame of another answer looks the same.
func (p *workerSum) hasSentAnswer(wait *critpath.FollowedWait, before int64) (sent bool) {
	birth, ok := p.stage.Win.BirthBefore(wait.G, wait.Start)
	if !ok {
		return true
	}
	p.spans = p.stage.Win.Spans(wait.G, birth.Time, wait.Start, p.spans[:0])
	if slices.ContainsFunc(p.spans, func(s timeline.Span) bool { return s.State == timeline.Waiting && p.isHeldAnswer(s.Stack) }) {
		return true
	}
	p.stage.Win.Children(wait.Waker, wait.Start-maxHandoverNS, before, func(child timeline.Birth) bool {
		if !p.stage.Sites.HasRole(child.Start, knowledge.ClientWait) {
			return true
		}
		if death, isDead := p.stage.Win.Death(child.G, child.Time); isDead && death <= wait.Start {
			return true
		}
		p.spans = p.stage.Win.SpansCoarse(child.G, child.Time, wait.End, p.spans[:0])
		sent = slices.ContainsFunc(p.spans, func(s timeline.Span) bool {
			return s.State == timeline.Syscall && p.stage.Sites.HasRole(s.Stack, knowledge.FrameWrite)
		})
		return !sent
	})
	return sent
}

// maxBurstNS is how long a server sends parts of answers after the client has allowed more bytes.
const maxBurstNS = 1e6

// heldAnswersWith returns the lines of the handlers that wait at the same time as another one until the same server has sent a part of their
// answers, after an earlier part.
func (p *workerSum) heldAnswersWith(wait *critpath.FollowedWait) []senderLines {
	lines := []senderLines{}
	p.stage.Win.EachWake(wait.Waker, wait.Start, wait.End+maxBurstNS, func(woken timeline.WokenGoroutine, _ tracefmt.StackID) bool {
		if woken.G == wait.G {
			return true
		}
		p.spans = p.stage.Win.Spans(woken.G, woken.Time-1, woken.Time, p.spans[:0])
		if len(p.spans) == 0 || p.spans[0].State != timeline.Waiting || p.spans[0].Start >= wait.End || !p.isHeldAnswer(p.spans[0].Stack) {
			return true
		}
		line, start := senderLines{p.stage.Sites.SiteOf(p.spans[0].Stack)}, p.spans[0].Start
		p.spans = p.stage.Win.Spans(woken.G, start-maxHandoverNS, start, p.spans[:0])
		if !slices.Contains(lines, line) && slices.ContainsFunc(p.spans, func(s timeline.Span) bool { return s.State == timeline.Waiting && p.isHeldAnswer(s.Stack) }) {
			lines = append(lines, line)
		}
		return true
	})
	return lines
}

// hasSentBody reports whether the goroutine that sends a request has written a part of its body before a time.
func (p *workerSum) hasSentBody(sender uint64, before int64) bool {
	birth, ok := p.stage.Win.BirthBefore(sender, before)
	if !ok {
		return true
	}
	p.spans = p.stage.Win.Spans(sender, birth.Time, before, p.spans[:0])
	return slices.ContainsFunc(p.spans, func(s timeline.Span) bool {
		return s.State == timeline.Syscall && p.stage.Sites.HasRole(s.Stack, knowledge.BodyWrite)
	})
}

// wokenTogether returns where the other requests are sent which the reader of a connection woke together with sender, each once.
func (p *workerSum) wokenTogether(sender uint64, wakeTime int64) (lines []senderLines) {
	p.spans = p.stage.Win.Spans(sender, wakeTime-1, wakeTime, p.spans[:0])
	if len(p.spans) == 0 {
		return nil
	}
	reader, stack := p.spans[0].Waker, p.spans[0].WakerStack
	p.stage.Win.EachWoken(reader, wakeTime-threshold.IdleCheckNS, wakeTime+threshold.IdleCheckNS, func(woken uint64, wakeStack tracefmt.StackID) bool {
		if woken != sender && wakeStack == stack {
			if senders := p.senderLinesOf(woken, wakeTime); !slices.Contains(lines, senders) {
				lines = append(lines, senders)
			}
		}
		return true
	})
	return lines
}

// maxHandoverNS is how long before an instant a goroutine may have handed over a part of a body.
const maxHandoverNS = 1e9

// senderLinesOf returns the sites of the goroutine that sends a request and of its creators; if these are not known, where another goroutine
// last handed over a part of the body.
func (p *workerSum) senderLinesOf(g uint64, before int64) (lines senderLines) {
	for i := range lines {
		birth, ok := p.stage.Win.BirthBefore(g, before)
		if !ok && i == 0 {
			p.spans = p.stage.Win.Spans(g, before-maxHandoverNS, before, p.spans[:0])
			for _, span := range slices.Backward(p.spans) {
				if site := p.stage.Sites.SiteOf(span.WakerStack); span.WakerStack != 0 && !p.stage.Sites.IsStdlib(p.stage.Syms.Frame(site).Func) {
					return senderLines{site}
				}
			}
		}
		if !ok {
			break
		}
		if site := p.stage.Sites.SiteOf(birth.Stack); !p.stage.Sites.IsStdlib(p.stage.Syms.Frame(site).Func) {
			lines[i] = site
		}
		g, before = birth.Creator, birth.Time
	}
	return lines
}

// ownLine returns the first of the lines that the service's authors can change; nil if there is none.
func (l senderLines) ownLine(sp *spell.Speller) *report.Site {
	for _, f := range l {
		if site := sp.Site(f).OwnLine(); site != nil && site.Module == "" {
			return site
		}
	}
	return nil
}

// A HeldBody describes the waits for flow control of requests that wait for answers at one line, in the sampled slices of the trace.
type HeldBody struct {
	Site *report.Site
	// FirstShare is the share of the time before the request had sent anything of its body.
	FirstShare float64
	// With is the line of another request that was held up together with WithShare of them; nil if there is none.
	With      *report.Site
	WithShare float64
}

// HeldBodies returns the waits for flow control, one element a source line. Merge must have been called.
func (s *Sum) HeldBodies(sp *spell.Speller) (out []HeldBody) {
	for line, sum := range s.workers[0].heldBodies {
		held := HeldBody{Site: sp.Site(line), FirstShare: float64(sum.firstNS) / float64(max(sum.ns, 1))}
		waitsByLine := map[report.SiteKey]int64{}
		for lines, n := range sum.with {
			if with := lines.ownLine(sp); with != nil && !with.Equal(held.Site.OwnLine()) {
				waitsByLine[with.Key()] += n
			}
		}
		for line, n := range waitsByLine {
			if share := float64(n) / float64(sum.waits); held.With == nil || share > held.WithShare || share == held.WithShare && line.Site().Compare(held.With) < 0 {
				held.With, held.WithShare = line.Site(), share
			}
		}
		out = append(out, held)
	}
	slices.SortFunc(out, func(a, b HeldBody) int { return a.Site.Compare(b.Site) })
	return out
}
