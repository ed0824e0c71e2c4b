package queues

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// PeerCalls says how often requests of a group ask a peer from one and the same line, one answer after the other: a loop asks with one
// stack each time, two calls of a function have two.
type PeerCalls struct {
	Site *report.Site // where the answer is waited for
	Via  *report.Site // where the request waits for who waits for the answer; nil if it does so itself
	// Of each request the stack counts that asks most often: Calls are those of all Requests, NS the time of their answers, and
	// LongestNS, for the longest one of each request, the same.
	Requests, Calls, AnswerNS, LongestNS int64
	// FanOut counts the goroutines that requests started for this, all at once, where the last one that was done let the request go on. FanOutLastNS is for how
	// long that one lived, FanOutOthersNS that of the others, on average of each request.
	FanOut, FanOutLastNS, FanOutOthersNS int64
	// Unanswered counts the waits after which nothing was read: a deadline ended them, or somebody closed the connection. UnansweredNS is their time.
	Unanswered, UnansweredNS int64
	// TotalNS is the time of all answers there, with whatever stack, and ConnOpenNS the part of it in which a connection was opened, by Opening requests.
	// ConnOpenFunc is the standard library's function in which that took longest, "" if none shows.
	TotalNS, ConnOpenNS, ConnOpenRequests int64
	ConnOpenFunc                          string
}

// peerCallKey is a place at which requests of a group wait for answers.
type peerCallKey struct {
	group path.GroupID
	site  tracefmt.FrameID
	via   tracefmt.FrameID
}

// An peerCallSum adds up what is asked at one place. Times are in ns.
type peerCallSum struct {
	requests, calls, answerNS, longestNS int64
	unanswered, unansweredNS             int64 // those after which nothing was read
	totalNS                              int64
	fanOut                               fanOutSum
	connOpens                            connOpenSum
}

// fanOutSum are the goroutines that a request started for what it asks.
type fanOutSum struct{ goroutines, lastNS, othersNS int64 }

// connOpenSum are the openings of connections among what requests wait for.
type connOpenSum struct {
	ns, requests int64
	longestNS    int64
	longestFunc  tracefmt.StringID // of the longest one
}

// add adds so many of another one.
func (s *peerCallSum) add(addend *peerCallSum, weight int64) {
	s.requests += addend.requests * weight
	s.calls += addend.calls * weight
	s.answerNS += addend.answerNS * weight
	s.longestNS += addend.longestNS * weight
	s.unanswered += addend.unanswered * weight
	s.unansweredNS += addend.unansweredNS * weight
	s.totalNS += addend.totalNS * weight
	s.fanOut.goroutines += addend.fanOut.goroutines * weight
	s.fanOut.lastNS += addend.fanOut.lastNS * weight
	s.fanOut.othersNS += addend.fanOut.othersNS * weight
	s.connOpens.add(&addend.connOpens, weight)
}

func (o *connOpenSum) add(addend *connOpenSum, weight int64) {
	o.ns, o.requests = o.ns+addend.ns*weight, o.requests+addend.requests*weight
	if addend.longestNS > o.longestNS || addend.longestNS == o.longestNS && addend.longestFunc < o.longestFunc {
		o.longestNS, o.longestFunc = addend.longestNS, addend.longestFunc
	}
}

// requestCalls are what a request asks with one stack on one goroutine.
type requestCalls struct {
	site, via tracefmt.FrameID
	stack     tracefmt.StackID
	g         uint64
	wait      int32 // the last one of the request's for it, -1: its own goroutine waits for the network
	lastNS    int64 // ns of the last
	peerCallSum
}

// addPeerCalls takes note of how often the request waited for answers. It asks again where something was written on the same goroutine
// since the last answer, or, where others write and read for it, where it waits again.
func (p *workerSum) addPeerCalls(w *path.WalkResult, waits []critpath.FollowedWait) {
	p.callScratch, p.writers = p.callScratch[:0], p.writers[:0]
	for i := range w.Steps {
		step := &w.Steps[i]
		switch {
		case step.Kind == critpath.Syscall && step.FollowedWait < 0:
			if p.isSocketWrite(step.Stack) && !slices.Contains(p.writers, step.G) {
				p.writers = append(p.writers, step.G)
			}
		case step.Kind == critpath.Network && !step.Inbound:
			call := requestCalls{site: p.stage.Sites.SiteOf(step.Stack), stack: step.Stack, g: step.G, wait: -1}
			if step.FollowedWait >= 0 {
				for call.wait = step.FollowedWait; waits[call.wait].Parent >= 0; {
					call.wait = waits[call.wait].Parent
				}
				wait := &waits[call.wait]
				call.stack, call.g, call.via = wait.Stack, wait.G, p.stage.Sites.SiteOf(wait.Stack)
			}
			index := slices.IndexFunc(p.callScratch, func(o requestCalls) bool { return o.site == call.site && o.stack == call.stack && o.g == call.g })
			if index < 0 {
				index = len(p.callScratch)
				p.callScratch = append(p.callScratch, call)
			}
			calls := &p.callScratch[index]
			writer := slices.Index(p.writers, call.g)
			if calls.calls == 0 || call.wait >= 0 && call.wait != calls.wait || call.wait < 0 && writer >= 0 {
				calls.calls, calls.lastNS, calls.wait = calls.calls+1, 0, call.wait
				if call.wait >= 0 && calls.calls <= maxRequestWaits {
					calls.fanOut = p.findFanOut(w, waits[call.wait].Waker, waits[call.wait].End)
				}
			}
			if call.wait < 0 && writer >= 0 {
				p.writers = slices.Delete(p.writers, writer, writer+1)
			}
			stepNS := step.End - step.Start
			if endsWithoutRead(p, w.Steps[i:]) {
				calls.unanswered, calls.unansweredNS = calls.unanswered+1, calls.unansweredNS+stepNS
			}
			if p.stage.Syms.Opens(step.Stack) {
				calls.connOpens.add(&connOpenSum{ns: stepNS, longestNS: stepNS, longestFunc: p.stage.Sites.CallOf(step.Stack)}, 1)
			}
			calls.answerNS += stepNS
			calls.lastNS += stepNS
			calls.longestNS = max(calls.longestNS, calls.lastNS)
		}
	}
	slices.SortStableFunc(p.callScratch, func(a, b requestCalls) int {
		return cmp.Or(cmp.Compare(b.calls, a.calls), cmp.Compare(b.answerNS, a.answerNS))
	})
	for i := range p.callScratch {
		call := &p.callScratch[i]
		isSamePlace := func(o requestCalls) bool { return o.site == call.site && o.via == call.via }
		if slices.ContainsFunc(p.callScratch[:i], isSamePlace) {
			continue // another stack of the same places asks more often
		}
		sum := call.peerCallSum
		sum.requests, sum.connOpens = 1, connOpenSum{}
		for _, o := range p.callScratch[i:] {
			if isSamePlace(o) {
				sum.totalNS += o.answerNS
				sum.connOpens.add(&o.connOpens, 1)
			}
		}
		if sum.connOpens.ns > 0 {
			sum.connOpens.requests = 1
		}
		entry.In(p.peerCalls, peerCallKey{w.Group, call.site, call.via}).add(&sum, w.Weight)
	}
}

// endsWithoutRead reports whether a goroutine that waited for the network, in the first of some steps, did something else then than to read: what is there is read at
// once, but who is told that a deadline has passed, or that the connection is closed, does not try.
func endsWithoutRead(p *workerSum, steps []critpath.Step) bool {
	for i := range steps {
		if st := &steps[i]; i > 0 && st.G == steps[0].G && st.Kind != critpath.CPU && st.Kind != critpath.Runnable {
			fn := p.stage.Sites.SocketCall(st.Stack)
			return st.Kind == critpath.Syscall && fn != 0 && !strings.HasPrefix(strings.ToLower(p.stage.Syms.String(fn)), "net.(*netfd).read")
		}
	}
	return false
}

// findFanOut looks for the goroutines that a request started and that lived at once until it went on at a time: one of them was the last, others were started
// for the same, or had ended by then.
func (p *workerSum) findFanOut(w *path.WalkResult, lastG uint64, resumed int64) (sum fanOutSum) {
	win := p.stage.Win
	lastBirth, ok := win.Born(lastG, resumed)
	if !ok || lastBirth.By != w.Req.G || lastBirth.Time < w.Req.Start {
		return sum
	}
	firstEnd, children := resumed, 0 // first is when one of them had ended
	win.Children(w.Req.G, w.Req.Start, resumed, func(child uint64, born int64) bool {
		if children++; children > 4*maxRequestWaits {
			return false
		}
		birth, ok := win.Born(child, born+1)
		done, ended := win.Death(child, born)
		if ended = ended && done <= resumed; !ended {
			done = resumed
		}
		if !ok || birth.Start != lastBirth.Start && (!ended || stdlib.Is(p.startFunc(birth.Start))) {
			return true
		}
		if born >= firstEnd {
			sum = fanOutSum{} // one after the other
			return false
		}
		sum.goroutines++
		sum.othersNS += done - born
		firstEnd = min(firstEnd, done)
		return true
	})
	if sum.goroutines < 2 {
		return fanOutSum{}
	}
	sum.lastNS = resumed - lastBirth.Time
	sum.othersNS = max(0, sum.othersNS-sum.lastNS) / (sum.goroutines - 1)
	return sum
}

// startFunc names the function that a goroutine starts with.
func (p *workerSum) startFunc(start tracefmt.StackID) string {
	frames := p.stage.Syms.Stack(start)
	if len(frames) == 0 {
		return ""
	}
	return p.stage.Syms.String(p.stage.Syms.Frame(frames[0]).Func)
}

// isSocketWrite reports whether a system call writes to a connection, in one piece or several.
func (p *workerSum) isSocketWrite(stack tracefmt.StackID) bool {
	fn := p.stage.Sites.SocketCall(stack)
	return fn != 0 && strings.HasPrefix(strings.ToLower(p.stage.Syms.String(fn)), "net.(*netfd).write")
}

// mergePeerCalls adds up what all workers have seen, by the groups of the report.
func (s *Sum) mergePeerCalls(ts []path.Translation) {
	all := make(map[peerCallKey]*peerCallSum)
	for i, p := range s.workers {
		for k, o := range p.peerCalls {
			k.group = ts[i].Groups[k.group]
			entry.In(all, k).add(o, 1)
		}
	}
	s.workers[0].peerCalls = all
}

// PeerCalls returns what requests of a group asked, what took most time first.
func (s *Sum) PeerCalls(sp *spell.Speller, group path.GroupID) []PeerCalls {
	var out []PeerCalls
	for k, o := range s.workers[0].peerCalls {
		if k.group == group {
			out = append(out, PeerCalls{
				Site: sp.Site(k.site), Via: sp.Site(k.via), Requests: o.requests, Calls: o.calls, AnswerNS: o.answerNS, LongestNS: o.longestNS,
				FanOut: o.fanOut.goroutines, FanOutLastNS: o.fanOut.lastNS, FanOutOthersNS: o.fanOut.othersNS, Unanswered: o.unanswered, UnansweredNS: o.unansweredNS,
				TotalNS: o.totalNS, ConnOpenNS: o.connOpens.ns, ConnOpenRequests: o.connOpens.requests, ConnOpenFunc: sp.Syms.String(o.connOpens.longestFunc),
			})
		}
	}
	slices.SortFunc(out, func(a, b PeerCalls) int {
		return cmp.Or(cmp.Compare(b.AnswerNS, a.AnswerNS), a.Site.Compare(b.Site), a.Via.Compare(b.Via))
	})
	return out
}
