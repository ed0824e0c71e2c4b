package exchange

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A call is a wait of a goroutine for the first bytes of an answer on a connection of HTTP/2.
type call struct {
	waiter uint64
	// The request was sent between firstSent and lastSent.
	firstSent, lastSent int64
	arrived             int64 // when the waiter was woken
	answer              *critpath.RemoteAnswer
	isAmbiguous         bool
}

// classifyWaits finds, of the new stacks, those that wait for an answer or a message on a connection of HTTP/2, if there is one.
func (c *Clients) classifyWaits() {
	for id := tracefmt.StackID(len(c.answerWaits)); c.streamReaders > 0 && int(id) < c.stacks.symbols.Stacks(); id++ {
		roles := c.stacks.rolesOf(id)
		c.answerWaits, c.messageWaits = append(c.answerWaits, roles.Has(knowledge.HTTP2ClientWait)), append(c.messageWaits, awaitsMessage(roles))
	}
}

// addCalls adds the calls on connections of HTTP/2 that ended in a generation: waits for an answer that the reader of a
// connection ended.
func (c *Clients) addCalls(g *timeline.Gen) {
	if c.streamReaders == 0 {
		return
	}
	// The generation may not repeat where those of openWaits wait.
	waiters := slices.AppendSeq(c.openWaits, g.WithStack(c.answerWaits))
	c.openWaits = nil
	slices.Sort(waiters)
	added := make(map[*clientConnection]int)
	for _, waiter := range slices.Compact(waiters) {
		c.spanScratch = c.window.Spans(waiter, g.Base, g.End+1, c.spanScratch[:0])
		for i := range c.spanScratch {
			s := &c.spanScratch[i]
			if s.State != timeline.Waiting || s.End <= c.callsUntil || !c.waitsForAnswer(s.Stack) {
				continue
			}
			if !s.Woken {
				c.openWaits = append(c.openWaits, waiter)
			} else if conn := c.readers[s.Waker]; conn != nil && conn.isMultiplexed {
				if _, ok := added[conn]; !ok {
					added[conn] = len(conn.calls)
				}
				conn.calls = append(conn.calls, c.newCall(waiter, i))
			}
		}
	}
	c.callsUntil = g.End
	for conn, first := range added {
		slices.SortStableFunc(conn.calls[first:], func(a, b *call) int {
			return cmp.Or(cmp.Compare(a.arrived, b.arrived), cmp.Compare(a.waiter, b.waiter))
		})
		for _, k := range conn.calls[first:] {
			conn.callsByWaiter[k.waiter] = append(conn.callsByWaiter[k.waiter], k)
		}
	}
}

// waitsForAnswer reports whether a stack waits for an answer on a connection of HTTP/2.
func (c *Clients) waitsForAnswer(stack tracefmt.StackID) bool {
	return int(stack) < len(c.answerWaits) && c.answerWaits[stack]
}

// maxSendNS is how long before its wait a goroutine is searched for the time at which it began to send the request.
const maxSendNS = 100e6

// newCall returns the call that the wait with an index in spanScratch ends. The request was sent between the waiter's wait before
// and this one or, with net/http, by a goroutine that the waiter created; then its first write gives the time.
func (c *Clients) newCall(waiter uint64, index int) *call {
	wait := c.spanScratch[index]
	out := &call{waiter: waiter, firstSent: math.MinInt64, lastSent: wait.Start, arrived: wait.End}
	earlier := c.spanScratch[:index]
	if index == 0 {
		c.earlierScratch = c.window.Spans(waiter, wait.Start-maxSendNS, wait.Start, c.earlierScratch[:0])
		earlier = c.earlierScratch
	}
	for i := len(earlier) - 1; i >= 0; i-- {
		if earlier[i].End > wait.Start {
			continue
		}
		// The waiter may also have waited between sending and this wait, in the client library.
		if e := &earlier[i]; e.State == timeline.Waiting && (c.waitsForAnswer(e.Stack) || !c.stacks.rolesOf(e.Stack).Has(knowledge.PeerCall)) {
			if out.firstSent == math.MinInt64 {
				out.firstSent = e.End
			}
			break
		}
		if earlier[i].State != timeline.Runnable { // it sent nothing while it had no P
			out.firstSent = earlier[i].Start
		}
	}
	out.firstSent = max(min(out.firstSent, wait.Start), wait.Start-maxSendNS)
	c.window.Children(waiter, out.firstSent, wait.End, func(child timeline.Birth) bool {
		if !c.stacks.ofStart(child.Start).Has(knowledge.HTTP2ClientStream) {
			return true
		}
		out.firstSent, out.lastSent = child.Time, wait.End
		c.earlierScratch = c.window.Spans(child.G, child.Time, wait.End, c.earlierScratch[:0])
		for i := range c.earlierScratch {
			if s := &c.earlierScratch[i]; s.State == timeline.Syscall && c.stacks.hasBoth(s.Stack, knowledge.HTTP2ClientStream, knowledge.SocketWrite) {
				out.firstSent, out.lastSent = s.Start, max(s.Start, min(s.End, wait.End))
				break
			}
		}
		return false
	})
	return out
}

// pairStreams pairs the calls of a client's HTTP/2 connection with the requests of a server's connection. Each call has a request
// that begins inside of it, no two calls have the same request, and a connection keeps the order in which requests were sent. A
// call is paired only if these facts leave one request. began is when both recordings had begun: the request of a call that was sent
// before may be missing.
func pairStreams(calls []*call, requests []Request, l *Link, common interval, began int64) (f fit) {
	var list []streamCandidates
	early := 0
	for _, k := range calls {
		if k.arrived < common.from || k.arrived > common.to-edgeNS {
			continue
		}
		k.isAmbiguous = false
		if k.firstSent < began+l.slack {
			early++
			continue
		}
		list = append(list, newStreamCandidates(k, requests, l))
	}
	for range 8 {
		if !excludeRequests(list) {
			break
		}
	}
	for _, c := range list {
		switch {
		case c.count() == 0 && c.call.firstSent >= common.from:
			f.missed++
		case c.count() == 1:
			f.pairs = append(f.pairs, pair{exchange: Exchange{c.call.lastSent, c.call.arrived, true}, request: c.first})
			f.calls = append(f.calls, c.call)
		case c.count() > 1:
			c.call.isAmbiguous = true
			f.ambiguous++
		}
	}
	// Each request has a call, too, except one whose answer was there before the client waited for it.
	servedCount := 0
	for i := range requests {
		if r := &requests[i]; l.ToClient(r.Start) >= common.from+edgeNS && l.ToClient(r.End) <= common.to-edgeNS {
			servedCount++
		}
	}
	if unseen := servedCount - len(list) - early; unseen > len(list)/maxUnseenDivisor {
		f.missed += unseen
	}
	return f
}

// maxUnseenDivisor limits the requests without a call, of a connection, to one in so many calls.
const maxUnseenDivisor = 10

// A streamCandidates is a call with the requests that it may be for: those from first to last, if they are not those of other calls.
// Both ends are such requests.
type streamCandidates struct {
	*call
	first, last int
}

// newStreamCandidates returns a call with the requests that begin inside of it. They need not end in it: the goroutine that answers may
// wait for a P after it has written the answer.
func newStreamCandidates(k *call, requests []Request, l *Link) streamCandidates {
	from, to := l.ToServer(k.firstSent)-l.slack, l.ToServer(k.arrived)+l.slack
	first := sort.Search(len(requests), func(i int) bool { return requests[i].Birth >= from })
	return streamCandidates{k, first, first + sort.Search(len(requests)-first, func(i int) bool { return requests[first+i].Birth > to }) - 1}
}

// count returns the number of requests between both ends: 0 or 1 if the call has so many.
func (c *streamCandidates) count() int { return max(c.last-c.first+1, 0) }

// excludeRequests removes from each call the requests that it cannot be for: by the order of sending, or because another call has
// no other request. It reports whether it removed any, because then more may follow.
func excludeRequests(list []streamCandidates) (isChanged bool) {
	byFirst, byLast := make([]*streamCandidates, 0, len(list)), make([]*streamCandidates, 0, len(list))
	for i := range list {
		if c := &list[i]; c.count() > 0 {
			byFirst, byLast = append(byFirst, c), append(byLast, c)
		}
	}
	slices.SortStableFunc(byFirst, func(a, b *streamCandidates) int { return cmp.Compare(a.firstSent, b.firstSent) })
	slices.SortStableFunc(byLast, func(a, b *streamCandidates) int { return cmp.Compare(a.lastSent, b.lastSent) })
	next, lowest := 0, 0 // the requests of calls that were sent before are at least the one before this
	for _, c := range byFirst {
		for ; next < len(byLast) && byLast[next].lastSent < c.firstSent; next++ {
			if earlier := byLast[next]; earlier.count() > 0 {
				lowest = max(lowest, earlier.first+1)
			}
		}
		isChanged = isChanged || c.first < lowest
		c.first = max(c.first, lowest)
	}
	next, highest := len(byFirst)-1, math.MaxInt
	for i := len(byLast) - 1; i >= 0; i-- {
		c := byLast[i]
		for ; next >= 0 && byFirst[next].firstSent > c.lastSent; next-- {
			if candidate := byFirst[next]; candidate.count() > 0 {
				highest = min(highest, candidate.last-1)
			}
		}
		isChanged = isChanged || c.last > highest
		c.last = min(c.last, highest)
	}
	owners := make(map[int]*streamCandidates)
	for _, c := range byFirst {
		if c.count() == 1 {
			owners[c.first] = c
		}
	}
	isOther := func(c *streamCandidates, request int) bool {
		return c.count() > 0 && owners[request] != nil && owners[request] != c
	}
	for _, c := range byFirst {
		for ; isOther(c, c.first); c.first++ {
			isChanged = true
		}
		for ; isOther(c, c.last); c.last-- {
			isChanged = true
		}
	}
	return isChanged
}

// callOf returns the call of a waiter whose answer arrived at a time; nil if there is none.
func (conn *clientConnection) callOf(waiter uint64, arrived int64) *call {
	calls := conn.callsByWaiter[waiter]
	i := sort.Search(len(calls), func(i int) bool { return calls[i].arrived >= arrived })
	if i == len(calls) || calls[i].firstSent > arrived {
		return nil
	}
	return calls[i]
}

// allExchanges returns the exchanges of a connection in order of arrival; of HTTP/2, its calls as exchanges. The caller must not
// change them.
func (conn *clientConnection) allExchanges() []Exchange {
	if !conn.isMultiplexed {
		return conn.exchanges
	}
	out := make([]Exchange, len(conn.calls))
	for i, k := range conn.calls {
		out[i] = Exchange{k.firstSent, k.arrived, true}
	}
	return out
}
