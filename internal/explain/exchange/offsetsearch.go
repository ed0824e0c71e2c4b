package exchange

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/whylate/whylate/internal/explain/threshold"
)

// The clocks of two machines may differ by more than calls last. Then every exchange fits to requests at many offsets, but only at the
// true one each exchange of a connection has a request of one connection of the server.

const (
	// These limit the search: connections of each process, exchanges of a connection, and possibilities of a pair of connections.
	maxSearchedConnections = 16
	maxSearchedExchanges   = 120
	maxPossibilities       = 8000
	// maxWeight is the weight of a request that lasts as long as its exchange. That of a request that is wayNS shorter is half of it.
	maxWeight = 1000
	wayNS     = 2 * threshold.LoopbackNS
)

// A possibility is the offsets at which a request fits into an exchange.
type possibility struct {
	from, to int64 // offsets
	exchange int
	weight   int // greater if the request fills more of the exchange
}

// A pairing is a connection of a client and one of a server.
type pairing struct {
	client        *clientConnection
	requests      []Request
	minCount      int // exchanges
	possibilities []possibility
	// At one offset: how many requests each exchange has, how many have one, and the sum of weights.
	requestCounts []int32
	count, weight int
}

// searchOffset returns a link with a smaller error for server s, whose clock is known to about maxWallErrorNS (l). It tries at
// which offset of the clocks the exchanges of whole connections have requests. It returns false if no offset fits twice as well
// as all others.
func (c *Clients) searchOffset(s *Server, l Link) (link Link, found bool) {
	conns := make([]*clientConnection, 0, len(c.readerOrder))
	for _, id := range c.readerOrder {
		conns = append(conns, c.readers[id])
	}
	slices.SortStableFunc(conns, func(a, b *clientConnection) int { return cmp.Compare(b.count(), a.count()) })
	servers := slices.Collect(maps.Keys(s.Connections))
	slices.SortFunc(servers, func(a, b uint64) int {
		return cmp.Or(cmp.Compare(len(s.Connections[b]), len(s.Connections[a])), cmp.Compare(a, b))
	})
	from, to := max(c.from, s.From+l.offset), min(c.to, s.To+l.offset)
	middle := from + (to-from)/2
	var list []*pairing
	for _, conn := range conns[:min(len(conns), maxSearchedConnections)] {
		exchanges := conn.searchedExchanges(middle)
		for _, g := range servers[:min(len(servers), maxSearchedConnections)] {
			if requests := s.Connections[g]; requests[0].IsStream == conn.isMultiplexed {
				list = append(list, newPairing(conn, exchanges, requests, &l, middle))
			}
		}
	}
	best := bestOffset(list)
	clients := make(map[*clientConnection]int)
	for _, p := range best.pairings {
		clients[p.client]++
	}
	for _, p := range list { // what other pairs fit at another offset
		p.possibilities = slices.DeleteFunc(p.possibilities, func(f possibility) bool { return f.from <= best.to && f.to >= best.from })
	}
	if best.count < minProof || bestOffset(list).weight > best.weight/2 {
		return l, false
	}
	center := (best.from + best.to) / 2
	l = Link{offset: center, slack: best.to - center + threshold.LoopbackNS, bounds: &bounds{offset: center}}
	slices.SortStableFunc(best.pairings, func(a, b *pairing) int { return cmp.Compare(b.minCount, a.minCount) })
	for _, p := range best.pairings { // the first one is the surest
		if clients[p.client] > 1 {
			continue
		}
		for reach := int64(searchReachNS); l.bounds.tryAdd(func() { l.addBounds(p, middle-reach, middle+reach) }); reach *= 2 {
			l.update(max(from, middle-2*reach), min(to, middle+2*reach))
			if middle-reach <= from {
				break
			}
		}
	}
	l.update(from, to)
	return l, l.bounds.vertices != nil
}

// searchReachNS is how far from the middle of a recording the drift of clocks is negligible.
const searchReachNS = 50e6

// addBounds adds the bounds of the offset from exchanges that arrived between from and to and that only one request fits.
func (l *Link) addBounds(p *pairing, from, to int64) {
	for _, x := range p.client.allExchanges() {
		if x.Arrived < from || x.Arrived > to || x.Sent == math.MinInt64 {
			continue
		}
		var fitting *Request
		count := 0
		for _, r := range p.requestsNear(x, l) {
			offset, slack := l.OffsetAt(r.orderTime())
			if low, high := r.offsetRange(x); low <= high && low <= offset+slack && high >= offset-slack {
				fitting, count = &r, count+1
			}
		}
		if count == 1 {
			l.bounds.add(fitting, x)
		}
	}
}

// requestsNear returns the requests that may begin within exchange x, at any offset that link l allows.
func (p *pairing) requestsNear(x Exchange, l *Link) []Request {
	from, to := l.ToServer(x.Sent)-l.slack, l.ToServer(x.Arrived)+l.slack
	first := sort.Search(len(p.requests), func(k int) bool { return p.requests[k].orderTime() >= from })
	return p.requests[first : first+sort.Search(len(p.requests)-first, func(k int) bool { return p.requests[first+k].orderTime() > to })]
}

// searchedExchanges returns the exchanges that the search of an offset uses, in order of arrival: at most maxSearchedExchanges
// complete ones around the time middle.
func (conn *clientConnection) searchedExchanges(middle int64) []Exchange {
	list := conn.allExchanges()
	i := sort.Search(len(list), func(i int) bool { return list[i].Arrived >= middle })
	from := max(0, min(i-maxSearchedExchanges/2, len(list)-maxSearchedExchanges))
	return slices.DeleteFunc(slices.Clone(list[from:min(len(list), from+maxSearchedExchanges)]), func(x Exchange) bool { return x.Sent == math.MinInt64 })
}

// newPairing returns a pair of connections with the intervals of clock offsets at which each request fits an exchange. Offsets
// are widened by the drift that clocks may have between the exchange and the time middle.
func newPairing(client *clientConnection, exchanges []Exchange, requests []Request, l *Link, middle int64) *pairing {
	out := &pairing{client: client, requests: requests}
	fitting := make(map[int]bool)
	for i, x := range exchanges {
		if len(out.possibilities) >= maxPossibilities {
			break
		}
		drift := int64(maxRate * float64(max(x.Arrived-middle, middle-x.Arrived)))
		for _, r := range out.requestsNear(x, l) {
			if low, high := r.offsetRange(x); low <= high {
				fitting[i] = true
				out.possibilities = append(out.possibilities, possibility{low - drift, high + drift, i, int(maxWeight * wayNS / (wayNS + high - low))})
			}
		}
	}
	// Near the ends of the recordings, the request may not be in the server's.
	out.minCount = max(2, len(fitting)-len(fitting)/4)
	return out
}

// offsetRange returns the least and the greatest clock offset, in ns, at which the request answers an exchange.
func (r *Request) offsetRange(x Exchange) (low, high int64) {
	switch {
	case r.IsStream:
		low = x.Sent - r.Birth
	case r.IsWoken:
		low = x.Sent - r.Start
	default:
		low = x.Sent - r.AnswerTime
	}
	return low, x.Arrived - r.AnswerTime
}

// A searchResult is the offsets at which the requests of exchanges have the greatest weight, of the pairings in which nearly all exchanges
// have a request.
type searchResult struct {
	from, to      int64
	count, weight int
	pairings      []*pairing
}

// bestOffset returns the interval of offsets at which requests fit the exchanges best. It sweeps over the ends of all intervals
// and maximises the sum, over the client's connections, of the weight of their best pairing.
func bestOffset(list []*pairing) (best searchResult) {
	type change struct {
		offset  int64
		pairing int
		possibility
		isEnd bool
	}
	var changes []change
	for i, p := range list {
		for _, f := range p.possibilities {
			changes = append(changes, change{f.from, i, f, false}, change{f.to, i, f, true})
		}
	}
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.pairing, b.pairing))
	})
	byClient := make(map[*clientConnection][]*pairing)
	for _, p := range list {
		p.requestCounts, p.count, p.weight = make([]int32, maxSearchedExchanges), 0, 0
		byClient[p.client] = append(byClient[p.client], p)
	}
	bestOf := func(client *clientConnection) (n int) {
		for _, p := range byClient[client] {
			if p.count >= p.minCount {
				n = max(n, p.weight)
			}
		}
		return n
	}
	sum, isBest := 0, false
	for _, c := range changes {
		p := list[c.pairing]
		if isBest && c.isEnd {
			best.to, isBest = c.offset, false
		}
		isRelevant := p.count+1 >= p.minCount // before or after the change
		if isRelevant {
			sum -= bestOf(p.client)
		}
		if !c.isEnd {
			p.weight += c.weight
			if p.requestCounts[c.exchange]++; p.requestCounts[c.exchange] == 1 {
				p.count++
			}
		} else {
			p.weight -= c.weight
			if p.requestCounts[c.exchange]--; p.requestCounts[c.exchange] == 0 {
				p.count--
			}
		}
		if !isRelevant {
			continue
		}
		if sum += bestOf(p.client); sum <= best.weight {
			continue
		}
		best = searchResult{weight: sum, from: c.offset, pairings: best.pairings[:0]}
		isBest = true
		for _, p := range list {
			if p.count >= p.minCount && p.weight == bestOf(p.client) {
				best.pairings = append(best.pairings, p)
				best.count += p.count
			}
		}
	}
	return best
}
