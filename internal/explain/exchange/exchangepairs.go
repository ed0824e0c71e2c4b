package exchange

import (
	"sort"

	"github.com/whylate/whylate/internal/explain/threshold"
)

// A pair is an exchange and the index of the request that answers it.
type pair struct {
	exchange Exchange
	request  int
	// Of a stream: when the client last wrote before the request began, and since when the answer may have been there to be read; 0:
	// unknown.
	lastSend, readable int64
}

// A fit says how the exchanges of a client's connection and the requests of a server's fit to each other.
type fit struct {
	pairs []pair
	// missed counts the exchanges without a request and the requests without an exchange, in the time of both recordings.
	missed int
	// unseen counts the messages of a stream whose answer was there before the client waited for it.
	unseen int
	// Of a connection of HTTP/2, calls are those of pairs, and ambiguous counts the calls that may be for several requests.
	calls     []*call
	ambiguous int
}

// An interval of time, on the client's clock.
type interval struct{ from, to int64 }

// edgeNS is how long before the end of a recording an event may be missing in it: the threads end their buffers one by one.
const edgeNS = 2e6

// pairExchanges pairs the exchanges of a client's connection with the requests of a server's connection, both of HTTP/1 and in
// order of time. A request begins after its exchange was sent and before the answer arrived, and each exchange has one request.
// common is the interval of both recordings. It stops when too many lack a partner. The client of a stream (isStream) takes an answer that
// is there without a wait, and sends the next message then: of several requests in one exchange, it waited for the last.
func pairExchanges(exchanges []Exchange, requests []Request, l *Link, common interval, isStream bool) (f fit) {
	limit := 2 + len(exchanges)/20
	i := sort.Search(len(exchanges), func(i int) bool { return exchanges[i].Arrived >= common.from })
	j := sort.Search(len(requests), func(j int) bool { return l.ToClient(requests[j].Start) >= common.from-l.slack })
	for (i < len(exchanges) || j < len(requests)) && f.missed <= limit {
		switch order := relateInTime(exchanges, i, requests, j, l); {
		case order == 0 && isStream && j+1 < len(requests) && relateInTime(exchanges, i, requests, j+1, l) == 0:
			f.unseen++
			j++
		case order == 0:
			f.pairs = append(f.pairs, pair{exchange: exchanges[i], request: j})
			i, j = i+1, j+1
		case order < 0:
			if x := exchanges[i]; x.Sent >= common.from && x.Arrived <= common.to-edgeNS {
				f.missed++
			}
			i++
		default:
			if r := &requests[j]; l.ToClient(r.Start) >= common.from+edgeNS && l.ToClient(r.End) <= common.to-edgeNS {
				f.missed++
			}
			j++
		}
	}
	return f
}

// relateInTime returns 0 if request j may answer exchange i, -1 if the exchange is before the request, and 1 if it is after it.
// An index beyond the end counts as later than all.
func relateInTime(exchanges []Exchange, i int, requests []Request, j int, l *Link) int {
	switch {
	case i == len(exchanges):
		return 1
	case j == len(requests):
		return -1
	}
	x, r := exchanges[i], &requests[j]
	start, end := l.ToClient(r.Start), l.ToClient(r.End)
	if x.Sent > end+l.slack || r.IsWoken && x.Sent > start+l.slack {
		return 1
	}
	if i+1 < len(exchanges) && exchanges[i+1].Sent <= start-l.slack {
		return -1 // the next exchange began before the request
	}
	answered := l.ToClient(r.AnswerTime)
	if r.AnswerTime <= r.Start { // not known; the first part of an answer is not written before half of the time
		if !r.IsWoken {
			start = max(start, x.Sent)
		}
		answered = end - max(threshold.LoopbackNS, (end-start)/2)
	}
	if x.Arrived < answered-l.slack {
		return -1
	}
	return 0
}

// isConsistent reports whether at most 2 % of the exchanges and requests lack a partner: as many as the finder of requests may
// miss.
func (f *fit) isConsistent() bool {
	return len(f.pairs) > 0 && f.missed <= (len(f.pairs)+f.ambiguous)/50 && f.unseen <= len(f.pairs)/maxUnseenDivisor
}

// addBounds adds to b the bounds of the clock offset that follow from the pairs. It returns false if they contradict other
// bounds: then the pairs are wrong. b is nil if both traces share a clock.
func (f *fit) addBounds(b *bounds, requests []Request) bool {
	return b == nil || b.tryAdd(func() {
		for i, p := range f.pairs {
			x := p.exchange
			if f.calls != nil {
				x.Sent = f.calls[i].firstSent
			}
			b.add(&requests[p.request], x)
		}
	})
}

// wayTimes returns, in the order of the pairs, the times in ns that messages took to the server (forwardTimes, only of pairs
// where sending and arrival are known) and back (returnTimes).
func (f *fit) wayTimes(requests []Request, l *Link) (forwardTimes, returnTimes []int64) {
	for _, p := range f.pairs {
		r := &requests[p.request]
		switch {
		case p.lastSend != 0 && r.IsWoken:
			forwardTimes = append(forwardTimes, max(0, l.ToClient(r.Start)-p.lastSend))
		case p.exchange.HasSent && (r.IsWoken || f.calls != nil):
			forwardTimes = append(forwardTimes, max(0, l.ToClient(r.Start)-p.exchange.Sent))
		}
		back := p.exchange.Arrived - l.ToClient(r.End)
		switch {
		case f.calls != nil:
			back = max(back, -back) // requests need not end inside of calls
		case back < 0: // the answer has several parts
			back = p.exchange.Arrived - l.ToClient(max(r.AnswerTime, r.Start))
		case p.readable != 0:
			back = max(0, p.readable-l.ToClient(r.End))
		}
		returnTimes = append(returnTimes, back)
	}
	return forwardTimes, returnTimes
}

// isClose reports whether in both directions a quarter of the messages were on the way for no longer than between two sockets of one
// machine or, because in a burst most wait for a CPU, at least enough messages and a tenth of all. Requests that are inside of exchanges
// by chance begin and end at any time in them.
func isClose(forwardTimes, returnTimes []int64, slack int64, enough int) bool {
	hasClose := func(times []int64) bool {
		closeCount := 0
		for _, ns := range times {
			if ns <= threshold.LoopbackNS+slack {
				closeCount++
			}
		}
		return closeCount >= max(min(enough, (len(times)+3)/4), len(times)/10)
	}
	return hasClose(forwardTimes) && hasClose(returnTimes)
}
