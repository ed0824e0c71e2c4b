package queues

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// PeerCalls describes the calls to a peer that requests of a group make from one line, one after the other. The calls of a loop
// have the same stack; two calls in different lines of a function have two.
type PeerCalls struct {
	Site *report.Site // where a goroutine waits for the answer
	Via  *report.Site // where the request waits for that goroutine; nil if it is the request's own
	// Requests, Calls and AnswerNS are summed over requests: the number of calls, and the time of their answers. Of each request,
	// the stack with the most calls counts.
	Requests, Calls, AnswerNS int64
	// LongestNS is the time of the longest answer, and LongestOfStacksNS that of each stack's longest one, both summed over requests: what
	// remains if a request makes all calls, or those of each stack, at the same time.
	LongestNS, LongestOfStacksNS int64
	// FanOut counts goroutines that requests started in parallel for these calls, if the last one to end let the request
	// continue. FanOutLastNS is the lifetime of the last one, FanOutOthersNS the mean lifetime of the others, both summed over
	// requests.
	FanOut, FanOutLastNS, FanOutOthersNS int64
	// FanOutCalls counts the calls of all these goroutines, and FanOutNS is the time of their answers.
	FanOutCalls, FanOutNS int64
	// Unanswered counts the waits that a deadline ended, and Resent those of them after which the caller sends again and waits there again.
	// UnansweredNS is their time.
	Unanswered, UnansweredNS, Resent int64
	// LaterParts counts the waits for a later part of an answer. AckDelays counts those of them that took as long as Linux
	// delays an acknowledgement and directly followed the first part. ShortAckDelays counts those of AckDelays that the
	// kernel's clock hardly lengthened. AckDelayNS is the time of AckDelays.
	LaterParts, AckDelays, ShortAckDelays, AckDelayNS int64
	// Parts counts the waits of AnswerNS and TotalNS for later parts of answers, and RestNS is the time from the end of the first part to that of the
	// last, if these waits belong to one wait of the caller, as for a connection's reader, or are the caller's own.
	Parts, RestNS int64
	// SplitCalls counts the calls whose request the caller writes at two lines. SplitDelays counts those of them whose answer took as long as
	// Linux delays an acknowledgement, or a little longer; SplitDelayNS is their time.
	SplitCalls, SplitDelays, SplitDelayNS int64
	// TotalNS is the time of all answers there, for all stacks. ConnOpenNS is the part in which ConnOpenRequests requests
	// opened a connection. ConnOpenFunc is the standard-library function in which that took longest; "" if no stack shows it.
	TotalNS, ConnOpenNS, ConnOpenRequests int64
	TotalCalls                            int64          // for all stacks
	Callers                               []*report.Site // the lines that call the function which waits, most calls first
	ConnOpenFunc                          string
	// Repeats counts the calls that follow an earlier one after a pause of the caller, RepeatRequests the requests with such calls, and
	// RepeatNS is the time of their answers. Pause is where the caller pauses, and Transaction where the service begins the transaction in
	// which it calls; nil if no stack shows it.
	Repeats, RepeatRequests, RepeatNS int64
	Pause, Transaction                *report.Site
	// BlockingNS is the part of TotalNS in calls that wait, on purpose, until the peer has something.
	BlockingNS int64
	// CacheLoads counts the requests of which a cache did not hold what these calls load; Cache is where the service asks it.
	CacheLoads int64
	Cache      *report.Site
	// Checks counts the requests that check a connection by calls of their own and make others, and CheckNS is the time of the checks'
	// answers. CheckSite is where the service asks for the connection; nil if no stack shows it.
	Checks, CheckNS int64
	CheckSite       *report.Site
	// Prepares counts the requests that have a database prepare statements, and PrepareNS is the time of these answers.
	Prepares, PrepareNS int64
	// EarlyCloses counts the requests that open a connection and close an answer's body before its end, which closes the connection.
	// CloseSite is where; nil if no stack shows it.
	EarlyCloses    int64
	CloseSite      *report.Site
	Hedges         Hedges
	LoadDependence LoadDependence // of walked requests, like the following
	Serial         SerialAnswers
	TickPeriodNS   int64 // see tickPeriodOf
	WindowRounds   WindowRounds
	Held           HeldCalls
	Lock           PeerLock
	Deadlocks      Deadlocks
	answers        []interval // see peerCallSum, like the following
	wholeCalls     []interval
	beforePauses   []interval
	shortestNS     int64        // of the waits for an answer's header, on HTTP/2; 0: none
	laterWork      *report.Site // see longestLaterWait
}

// counters returns the numbers that are added up over requests.
func (c *PeerCalls) counters() [40]*int64 {
	return [40]*int64{
		&c.Requests, &c.Calls, &c.AnswerNS, &c.LongestNS, &c.LongestOfStacksNS, &c.FanOut, &c.FanOutLastNS, &c.FanOutOthersNS, &c.FanOutCalls, &c.FanOutNS, &c.Unanswered, &c.UnansweredNS, &c.Resent,
		&c.LaterParts, &c.AckDelays, &c.ShortAckDelays, &c.AckDelayNS, &c.Parts, &c.RestNS, &c.SplitCalls, &c.SplitDelays, &c.SplitDelayNS,
		&c.TotalNS, &c.TotalCalls, &c.ConnOpenNS, &c.ConnOpenRequests, &c.Repeats, &c.RepeatRequests, &c.RepeatNS, &c.CacheLoads, &c.BlockingNS,
		&c.Checks, &c.CheckNS, &c.Prepares, &c.PrepareNS, &c.EarlyCloses, &c.Hedges.Requests, &c.Hedges.Calls, &c.Hedges.DelayNS, &c.Hedges.AnswerNS,
	}
}

// SequentialShare returns the share of the calls that requests make one after the other in the time of all answers there: a
// function that calls a peer may be called from several lines.
func (c *PeerCalls) SequentialShare() float64 {
	return min(1, float64(c.AnswerNS)/float64(max(1, c.TotalNS)))
}

// A peerCallKey identifies the calls of one group that wait for their answers at one pair of sites (see PeerCalls).
type peerCallKey struct {
	group path.GroupID
	site  tracefmt.FrameID
	via   tracefmt.FrameID
}

// A peerCallSum adds up the calls of one key. Sites, and the results about the times of answers, are set when it is complete.
type peerCallSum struct {
	PeerCalls
	pause, transaction, cache, check, hedgePause, earlyClose tracefmt.FrameID
	longestOpenNS                                            int64 // of the openings of connections
	opener                                                   tracefmt.StringID
	// The earliest answers, from a call's wait to the end of the first part of the answer; nil for none. earliestCalls are until the end of
	// the last part, and earliestRepeated those after which the caller pauses and calls again.
	earliestAnswers, earliestCalls, earliestRepeated *sample.TopN[interval]
	roundCount                                       int64
	rounds                                           *sample.TopN[interval] // see addWindowRound; nil for none
	held                                             heldCallSum
	laterWaits                                       map[tracefmt.FrameID]int64 // see addLaterWaits; nil for none
	callers                                          map[tracefmt.FrameID]int64 // calls by the line that calls the function of their site; nil for none
}

// A placedAnswer is the time of the first part of one call's answer, and when its last part ended.
type placedAnswer struct {
	site, via tracefmt.FrameID
	interval
	callEnd int64
}

// add adds another sum of the same sites, multiplied by a weight.
func (s *peerCallSum) add(addend *peerCallSum, weight int64) {
	to, from := s.counters(), addend.counters()
	for i := range to {
		*to[i] += *from[i] * weight
	}
	s.pause, s.transaction, s.cache = max(s.pause, addend.pause), max(s.transaction, addend.transaction), max(s.cache, addend.cache)
	s.check, s.hedgePause, s.earlyClose = max(s.check, addend.check), max(s.hedgePause, addend.hedgePause), max(s.earlyClose, addend.earlyClose)
	s.setOpener(addend.longestOpenNS, addend.opener)
	s.roundCount += addend.roundCount * weight
	if s.shortestNS == 0 || addend.shortestNS > 0 && addend.shortestNS < s.shortestNS {
		s.shortestNS = addend.shortestNS
	}
	s.earliestAnswers = addEarliest(s.earliestAnswers, addend.earliestAnswers.Sorted()...)
	s.earliestCalls = addEarliest(s.earliestCalls, addend.earliestCalls.Sorted()...)
	s.earliestRepeated = addEarliest(s.earliestRepeated, addend.earliestRepeated.Sorted()...)
	s.rounds = addEarliest(s.rounds, addend.rounds.Sorted()...)
	s.held.add(&addend.held, weight)
	plus := func(a, b int64) int64 { return a + b*weight }
	addSums(&s.laterWaits, addend.laterWaits, plus)
	addSums(&s.callers, addend.callers, plus)
}

// addStack adds calls of the same request at the same sites with another stack, which makes fewer.
func (s *peerCallSum) addStack(o *peerCallSum) {
	s.LongestNS, s.LongestOfStacksNS = max(s.LongestNS, o.LongestNS), s.LongestOfStacksNS+o.LongestNS
	s.TotalNS, s.TotalCalls, s.ConnOpenNS = s.TotalNS+o.TotalNS, s.TotalCalls+o.TotalCalls, s.ConnOpenNS+o.ConnOpenNS
	s.LaterParts, s.AckDelays = s.LaterParts+o.LaterParts, s.AckDelays+o.AckDelays
	s.ShortAckDelays, s.AckDelayNS, s.BlockingNS = s.ShortAckDelays+o.ShortAckDelays, s.AckDelayNS+o.AckDelayNS, s.BlockingNS+o.BlockingNS
	s.setOpener(o.longestOpenNS, o.opener)
}

// setOpener sets the function of the longest opening of a connection, if one of ns is the longest.
func (s *peerCallSum) setOpener(ns int64, fn tracefmt.StringID) {
	if ns > s.longestOpenNS || ns == s.longestOpenNS && fn < s.opener {
		s.longestOpenNS, s.opener = ns, fn
	}
}

// addEarliest adds intervals to the earliest ones, nil for none, and returns these.
func addEarliest(earliest *sample.TopN[interval], added ...interval) *sample.TopN[interval] {
	for _, a := range added {
		if earliest == nil {
			earliest = sample.New(maxAnswers, func(a, b interval) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end)) })
		}
		earliest.Add(a)
	}
	return earliest
}

// requestCalls are the calls that one request makes with the same stack.
type requestCalls struct {
	site, via tracefmt.FrameID
	stack     tracefmt.StackID // of the caller's wait
	caller    uint64           // goroutine of the latest call
	root      int32            // index of the request's own wait in which it waits for the caller, -1 if there is none
	wait      int32            // index of the caller's latest wait; -1: the caller itself waits for the network
	waitEnd   int64            // of that wait
	lastNS    int64            // of the latest call
	lastEnd   int64            // of the latest wait for an answer
	partEnd   int64            // of the latest part of an answer
	peerCallSum
}

// addPeerCalls counts how often a request called peers and how long it waited for the answers, by site. A wait for the network
// is a new call if the caller wrote to a connection since its previous wait, or handed work over to a goroutine that wrote.
// Otherwise it is for a later part of the same answer: frames of a stream, a body.
func (p *workerSum) addPeerCalls(w *path.WalkResult, waits []critpath.FollowedWait) {
	p.callScratch, p.writers, p.answerScratch = p.callScratch[:0], p.writers[:0], p.answerScratch[:0]
	reader, isLaterPart := uint64(0), false // of the latest wait
	var pause *critpath.Step                // the latest one
	for i := range w.Steps {
		step := &w.Steps[i]
		switch {
		case step.Kind == critpath.Syscall && p.sendsRequest(step.Stack):
			if writer := p.writerOf(step.G); writer < 0 {
				p.writers = append(p.writers, requestWriter{g: step.G, stack: step.Stack})
			} else {
				p.writers[writer].splits = p.writers[writer].splits || step.Stack != p.writers[writer].stack
			}
		case step.Kind == critpath.Sleep:
			pause = step
		case step.Kind == critpath.Network && !step.Inbound:
			call := p.awaitedCall(w, step, waits)
			index := p.callIndex(func(o *requestCalls) bool { return o.site == call.site && o.stack == call.stack && o.via == call.via })
			if index < 0 {
				index = len(p.callScratch)
				p.callScratch = append(p.callScratch, call)
			}
			calls := &p.callScratch[index]
			// Functions of a parser that read parts of one answer at several lines all serve the same wait of the caller.
			first := p.callIndex(func(o *requestCalls) bool {
				return o.Calls > 0 && (call.wait >= 0 && o.wait == call.wait || call.wait < 0 && o.wait < 0 && o.caller == call.caller && o.stack == call.stack)
			})
			// A goroutine that another one waits for may ask for something else each time. What a library asks in its own code is not known.
			writer := p.writerOf(step.G)
			asksAgain := writer >= 0 && (call.wait < 0 || p.stage.Syms.Frame(call.site).Caller != 0)
			sent := asksAgain && call.wait < 0
			if asksAgain {
				if sent && p.writers[writer].splits {
					calls.addSplitCall(step.End - step.Start)
				}
				p.writers = slices.Delete(p.writers, writer, writer+1)
			}
			if call.wait >= 0 {
				wait, previousEnd := &waits[call.wait], calls.waitEnd
				if call.caller != calls.caller {
					previousEnd = w.Req.Start
				}
				if first < 0 {
					p.addWindowRound(&calls.peerCallSum, wait)
					p.addHeldCall(&calls.held, wait)
				}
				sent = calls.Calls > 0 && (asksAgain || call.wait != calls.wait && (p.beginsCall(call.stack) || p.hasSentRequest(call.caller, previousEnd, wait)))
				calls.wait, calls.waitEnd, calls.caller = call.wait, wait.End, call.caller
			}
			wasLaterPart := isLaterPart
			isLaterPart = p.stage.Sites.HasRole(call.stack, knowledge.ResponseBody) || !sent && (calls.Calls > 0 || call.wait < 0 && reader == call.caller)
			reader = call.caller
			if pause != nil && sent && calls.Calls > 0 && pause.G == call.caller && pause.Start >= calls.lastEnd {
				calls.Repeats, calls.pause = calls.Repeats+1, p.stage.Sites.SiteOf(pause.Stack)
				calls.earliestRepeated = addEarliest(calls.earliestRepeated, interval{calls.lastEnd - calls.lastNS, calls.lastEnd})
			}
			if calls.Calls == 0 || sent {
				calls.Calls, calls.TotalCalls, calls.lastNS = calls.Calls+1, calls.TotalCalls+1, 0
				p.answerScratch = append(p.answerScratch, placedAnswer{call.site, call.via, interval{step.Start, step.End}, step.End})
				if call.root >= 0 && calls.Calls <= maxRequestWaits {
					calls.FanOut, calls.FanOutLastNS, calls.FanOutOthersNS = p.findFanOut(w, waits[call.root].Waker, waits[call.root].End)
				}
				for k := step.FollowedWait; k >= 0 && calls.Hedges.Calls == 0; k = waits[k].Parent {
					if calls.Hedges, calls.hedgePause = p.findHedges(w, &waits[k]); calls.Hedges.Calls > 0 {
						calls.FanOut, calls.FanOutLastNS, calls.FanOutOthersNS = 0, 0, 0 // the fastest answer decides, not the slowest
					}
				}
			}
			if first >= 0 && !asksAgain {
				answer := &p.callScratch[first]
				answer.Parts, answer.RestNS, answer.partEnd = answer.Parts+1, answer.RestNS+step.End-answer.partEnd, step.End
			} else {
				calls.partEnd = step.End
			}
			if n := len(p.answerScratch); n > 0 {
				answer := &p.answerScratch[n-1]
				if answer.callEnd = max(answer.callEnd, step.End); call.wait >= 0 {
					answer.callEnd = max(answer.callEnd, waits[call.wait].End)
				}
			}
			stepNS := step.End - step.Start
			if ok, resent := isUnanswered(p, w.Steps[i:]); ok {
				calls.Unanswered, calls.UnansweredNS, calls.Resent = calls.Unanswered+1, calls.UnansweredNS+stepNS, calls.Resent+resent
			}
			if isLaterPart {
				calls.addLaterPart(stepNS, !wasLaterPart)
			}
			if p.openingStack(step, waits) != 0 {
				calls.ConnOpenNS += stepNS
				calls.setOpener(stepNS, p.stage.Sites.CallOf(step.Stack))
			}
			if p.stage.Sites.HasRole(step.Stack, knowledge.BlockingCall) || p.stage.Sites.HasRole(call.stack, knowledge.BlockingCall) {
				calls.BlockingNS += stepNS
			}
			if calls.lastEnd = step.End; calls.Repeats > 0 {
				calls.RepeatNS += stepNS
			}
			calls.AnswerNS, calls.TotalNS, calls.lastNS = calls.AnswerNS+stepNS, calls.TotalNS+stepNS, calls.lastNS+stepNS
			calls.LongestNS = max(calls.LongestNS, calls.lastNS)
		}
	}
	slices.SortStableFunc(p.callScratch, func(a, b requestCalls) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(b.AnswerNS, a.AnswerNS))
	})
	usesPeer := p.usesPeer()
	for i := range p.callScratch {
		call := &p.callScratch[i]
		p.addFanOutCalls(w, call)
		isSamePlace := func(o *requestCalls) bool { return o.site == call.site && o.via == call.via }
		if p.callIndex(isSamePlace) < i {
			continue // another stack at the same sites makes more calls
		}
		stored, sum := entry.GetOrAdd(p.peerCalls, peerCallKey{w.Group, call.site, call.via}), call.peerCallSum
		sum.LongestOfStacksNS = sum.LongestNS
		for k := i; k < len(p.callScratch); k++ {
			o := &p.callScratch[k]
			if !isSamePlace(o) {
				continue
			}
			if k > i {
				sum.addStack(&o.peerCallSum)
			}
			if len(p.callScratch) > 1 {
				addToKey(&stored.callers, p.stage.Sites.CallerOfSite(o.stack), o.Calls*w.Weight, plusNS)
			}
			if ns := p.answerNSWith(o, knowledge.StatementPrepare); ns > 0 {
				sum.Prepares, sum.PrepareNS = 1, sum.PrepareNS+ns
			}
			if ns := p.answerNSWith(o, knowledge.ConnectionCheck); ns > 0 && usesPeer {
				sum.Checks, sum.CheckNS, sum.check = 1, sum.CheckNS+ns, p.stage.Sites.CallerOf(o.stack, knowledge.ConnectionCheck)
			}
		}
		sum.Requests, sum.ConnOpenRequests, sum.RepeatRequests = 1, min(sum.ConnOpenNS, 1), min(sum.Repeats, 1)
		if sum.Repeats > 0 {
			sum.transaction = p.stage.Sites.CallerOf(call.stack, knowledge.TransactionBody)
		}
		if sum.ConnOpenNS > 0 {
			for k := range waits {
				if p.stage.Sites.HasRole(waits[k].Stack, knowledge.BodyClose) {
					sum.EarlyCloses, sum.earlyClose = 1, p.stage.Sites.SiteOf(waits[k].Stack)
				}
			}
		}
		if sum.cache = p.stage.Sites.CallerOf(call.stack, knowledge.CacheLoad); sum.cache != 0 {
			sum.CacheLoads = 1
		}
		stored.add(&sum, w.Weight)
		isFirst := true
		for _, a := range p.answerScratch {
			if a.site == call.site && a.via == call.via {
				if isFirst && call.via == 0 && len(p.callScratch) <= maxRequestWaits {
					p.addLaterWaits(stored, w, waits, &a)
				}
				isFirst = false
				stored.earliestAnswers = addEarliest(stored.earliestAnswers, a.interval)
				stored.earliestCalls = addEarliest(stored.earliestCalls, interval{a.start, a.callEnd})
			}
		}
	}
}

// callIndex returns the index of the first of the request's calls that match; -1 if none do.
func (p *workerSum) callIndex(match func(*requestCalls) bool) int {
	for i := range p.callScratch {
		if match(&p.callScratch[i]) {
			return i
		}
	}
	return -1
}

// sendsRequest reports whether a system call with this stack writes a request to a peer. An answer to the client is none, nor
// is what a reader sends for flow control.
func (p *workerSum) sendsRequest(stack tracefmt.StackID) bool {
	sites := p.stage.Sites
	return sites.HasRole(stack, knowledge.SocketWrite) && !sites.HasRole(stack, knowledge.AnswerWrite) && !sites.HasRole(stack, knowledge.AnswerRead)
}

// A requestWriter is a goroutine that has written to a connection since it last read an answer: first with stack, and perhaps at another
// line (splits).
type requestWriter struct {
	g      uint64
	stack  tracefmt.StackID
	splits bool
}

// writerOf returns the index of a goroutine in writers; -1 if it has not written.
func (p *workerSum) writerOf(g uint64) int {
	return slices.IndexFunc(p.writers, func(w requestWriter) bool { return w.g == g })
}

// beginsCall reports whether every wait with this stack is for the first part of an answer.
func (p *workerSum) beginsCall(stack tracefmt.StackID) bool {
	return p.stage.Sites.HasRole(stack, knowledge.PeerCall) && !p.stage.Sites.HasRole(stack, knowledge.AnswerRead)
}

// awaitedCall returns the call whose answer a step waits for: its sites, stack and caller. The caller is the innermost goroutine on
// the wait chain that works for this request alone: the request's own, or one that it started. It reads the answer itself or
// waits for the connection's reader.
func (p *workerSum) awaitedCall(w *path.WalkResult, step *critpath.Step, waits []critpath.FollowedWait) requestCalls {
	call := requestCalls{site: p.stage.Sites.SiteOf(step.Stack), stack: step.Stack, caller: step.G, root: -1, wait: -1}
	if step.FollowedWait < 0 {
		return call
	}
	isOwn := func(g uint64, time int64) bool {
		birth, ok := p.stage.Win.BirthBefore(g, time)
		return g == w.Req.G || ok && birth.Time >= w.Req.Start
	}
	for k := step.FollowedWait; k >= 0; k = waits[k].Parent {
		if call.root = k; call.wait < 0 && isOwn(waits[k].G, waits[k].End) {
			call.wait = k
		}
	}
	if call.wait < 0 {
		call.wait = call.root
	}
	call.via = p.stage.Sites.SiteOf(waits[call.root].Stack)
	readsItself := func(o *requestCalls) bool { return o.wait < 0 && o.caller == step.G && o.stack == step.Stack }
	if (p.writerOf(step.G) >= 0 || p.callIndex(readsItself) >= 0) && isOwn(step.G, step.End) {
		call.wait = -1
	} else {
		call.stack, call.caller = waits[call.wait].Stack, waits[call.wait].G
	}
	return call
}

// hasSentRequest reports whether goroutine g sent a request in [from, wait.Start), or handed work over to a goroutine that sent one
// before the wait ended.
func (p *workerSum) hasSentRequest(g uint64, from int64, wait *critpath.FollowedWait) (found bool) {
	if p.hasWrittenRequest(g, from, wait.Start) {
		return true
	}
	found, complete := p.stage.Win.HasWoken(g, from, wait.Start, func(woken uint64, stack tracefmt.StackID) bool {
		return p.isHandover(stack) && p.hasWrittenRequest(woken, from, wait.End)
	})
	if found || !complete {
		return true
	}
	p.stage.Win.Children(g, from, wait.Start, func(child timeline.Birth) bool {
		found = p.hasWrittenRequest(child.G, child.Time, wait.End)
		return !found
	})
	return found
}

// hasWrittenRequest reports whether goroutine g wrote a request to a peer in [from, to).
func (p *workerSum) hasWrittenRequest(g uint64, from, to int64) bool {
	p.spans = p.stage.Win.SpansCoarse(g, from, to, p.spans[:0])
	return slices.ContainsFunc(p.spans, func(s timeline.Span) bool {
		return s.State == timeline.Syscall && s.Start >= from && p.sendsRequest(s.Stack)
	})
}

// isUnanswered reports whether a deadline ended the network wait steps[0]. After any other event of the poller, package
// internal/poll repeats the read or write that had to wait. After a deadline it does not, so the goroutine's next system call
// on a socket is another one. resent is 1 if that sends again, and the goroutine then waits with the same stack.
func isUnanswered(p *workerSum, steps []critpath.Step) (ok bool, resent int64) {
	for i := range steps[1:] {
		if step := &steps[1+i]; step.G == steps[0].G && step.Kind != critpath.CPU && step.Kind != critpath.Runnable {
			ok = step.Kind == critpath.Syscall && p.stage.Sites.SocketCall(step.Stack) != 0 && !p.isRepeatedCall(steps[0].Stack, step.Stack)
			if ok && p.sendsRequest(step.Stack) && slices.ContainsFunc(steps[2+i:], func(s critpath.Step) bool {
				return s.Kind == critpath.Network && s.G == steps[0].G && s.Stack == steps[0].Stack
			}) {
				resent = 1
			}
			return ok, resent
		}
	}
	return false, 0
}

// isRepeatedCall reports whether a system call (stack call) repeats the read, write or connect that had to wait for the poller
// (stack wait): the same function of package internal/poll made both, with the same callers. For connect it is the caller of
// the poller.
func (p *workerSum) isRepeatedCall(wait, call tracefmt.StackID) bool {
	isPoller := func(f tracefmt.FrameID) bool {
		roles := p.stage.Sites.RolesOf(f)
		return roles.Has(knowledge.Poller) || roles.Has(knowledge.Runtime)
	}
	waiting, calling := p.stage.Syms.Stack(wait), p.stage.Syms.Stack(call)
	for len(waiting) > 0 && isPoller(waiting[0]) {
		waiting = waiting[1:]
	}
	if len(waiting) == 0 {
		return true // no stack shows it
	}
	user := p.stage.Syms.Frame(waiting[0]).Func // of package internal/poll, at any of its lines
	index := slices.IndexFunc(calling, func(f tracefmt.FrameID) bool { return p.stage.Syms.Frame(f).Func == user })
	if index < 0 {
		return false
	}
	waiting, calling = waiting[1:], calling[index+1:]
	common := min(len(waiting), len(calling)) // the longer stack may have lost more of its outermost frames
	return slices.Equal(waiting[:common], calling[:common])
}

// inReport returns the key with the report's id of the group.
func (k peerCallKey) inReport(t path.Translation) peerCallKey {
	k.group = t.Groups[k.group]
	return k
}

// PeerCalls returns the peer calls of a group's requests, the longest total answer time first. Merge must have been called.
func (s *Sum) PeerCalls(sp *spell.Speller, group path.GroupID) (out []PeerCalls) {
	for k, o := range s.workers[0].peerCalls {
		if k.group == group {
			calls, answers := o.PeerCalls, o.earliestAnswers.Sorted()
			calls.Site, calls.Via, calls.ConnOpenFunc = sp.Site(k.site), sp.Site(k.via), sp.Syms.String(o.opener)
			calls.Pause, calls.Transaction, calls.Hedges.Pause = sp.Site(o.pause), sp.Site(o.transaction), sp.Site(o.hedgePause)
			calls.Cache, calls.CheckSite, calls.CloseSite = sp.Site(o.cache), sp.Site(o.check), sp.Site(o.earlyClose)
			calls.LoadDependence, calls.Serial, calls.TickPeriodNS = loadDependenceOf(answers), serialAnswersOf(answers), tickPeriodOf(answers)
			calls.WindowRounds = windowRoundsOf(o.rounds.Sorted(), float64(o.roundCount)/float64(max(o.Calls, 1)))
			calls.Held, calls.laterWork = o.held.spell(sp), o.longestLaterWait(sp, k.site)
			for _, frame := range slices.SortedFunc(maps.Keys(o.callers), func(a, b tracefmt.FrameID) int {
				return cmp.Or(cmp.Compare(o.callers[b], o.callers[a]), sp.Site(a).Compare(sp.Site(b)))
			}) {
				if site := sp.Site(frame); site != nil {
					calls.Callers = append(calls.Callers, site)
				}
			}
			calls.answers, calls.wholeCalls, calls.beforePauses = answers, o.earliestCalls.Sorted(), o.earliestRepeated.Sorted()
			out = append(out, calls)
		}
	}
	slices.SortFunc(out, func(a, b PeerCalls) int {
		return cmp.Or(cmp.Compare(b.AnswerNS, a.AnswerNS), a.Site.Compare(b.Site), a.Via.Compare(b.Via))
	})
	setPeerLocks(out)
	setDeadlocks(out)
	checkWindowRounds(out)
	return out
}

// answerNSWith returns how long the answers to calls take that have a role. What opens a connection does not count.
func (p *workerSum) answerNSWith(calls *requestCalls, role knowledge.Role) (ns int64) {
	if sites := p.stage.Sites; !sites.HasRole(calls.stack, role) || sites.HasRole(calls.stack, knowledge.Dial) {
		return 0
	}
	return calls.AnswerNS - calls.ConnOpenNS
}

// usesPeer reports whether the request makes calls that neither check nor open a connection: else the check is its purpose.
func (p *workerSum) usesPeer() bool {
	return p.callIndex(func(c *requestCalls) bool {
		return c.AnswerNS > c.ConnOpenNS+p.answerNSWith(c, knowledge.ConnectionCheck)
	}) >= 0
}
