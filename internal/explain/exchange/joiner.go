// Package exchange joins the requests of services that were recorded in the same seconds: a request of one waits for the network while
// another one serves its call. No event connects the two.
//
// Input: the connections of the client's process with the times at which requests were sent and answers arrived (Clients), and the
// requests of the server's process with their causes (ServedRequests, Server). A Joiner pairs whole connections: on the two ends of one HTTP/1
// connection, exchanges and requests alternate in the same order, each request inside of its exchange, and it is opened and closed by the
// client first (lifetime). A pair counts only if no other connection fits to either end, and the times on the way are those of a network. Then the k-th exchange is the k-th request, and the
// walk of the client's request continues in it (critpath.RemoteAnswer). Calls on a connection of HTTP/2 overlap, but it keeps their order:
// a call whose order leaves several requests is not joined (pairStreams).
//
// Traces of different machines have different clocks. Then the offset is searched at which the exchanges of whole connections have requests
// (search), and each pair bounds it from both sides (bounds).
package exchange

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Joiner finds the requests of other services for which the requests of one service wait. It implements pass.Listener:
// RemoteAnswerTo knows the exchanges of all generations that were added.
type Joiner struct {
	*Clients
	// IsComplete says that all generations have been added, by an earlier reading. Then AddGeneration adds nothing.
	IsComplete bool
	peers      []*peer
	// joined are the connections with a known other end, by the goroutine that reads the answers.
	joined map[uint64]*joinedConnection
	// undecided are the connections that fit to several ones of a server that is called.
	undecided map[*clientConnection]*peer
}

// A peer is a server that the process may call.
type peer struct {
	*Server
	Link
	// isCalled says that the process is known to call it.
	isCalled     bool
	updatedUntil int64           // the client's time until which the link was updated
	joinedEnds   map[uint64]bool // its connections whose other end is connection
}

// A joinedConnection is a connection of the client with its answers, in order of time.
type joinedConnection struct {
	peer    *peer
	serverG uint64
	answers []critpath.RemoteAnswer
	waits   []Exchange
	client  *clientConnection
	next    int // exchanges of the connection before this one were compared
	// Of HTTP/2, calls are compared again together with those of the generation before, because they overlap: until is the end of
	// that generation, and from is that of the one before it.
	from, until int64
}

// NewJoiner returns a Joiner that knows no server.
func NewJoiner() *Joiner {
	return &Joiner{Clients: NewClients(), joined: make(map[uint64]*joinedConnection), undecided: make(map[*clientConnection]*peer)}
}

// Reset removes the servers and the joined connections. It keeps the client's connections.
func (j *Joiner) Reset() {
	j.peers = nil
	clear(j.joined)
	clear(j.undecided)
	for _, conn := range j.readers {
		for _, k := range conn.calls {
			k.answer, k.isAmbiguous = nil, false
		}
	}
}

// AddServer adds a server with the relation of its clock to the client's.
func (j *Joiner) AddServer(s *Server, l Link) {
	j.peers = append(j.peers, &peer{Server: s, Link: l.clone(), joinedEnds: make(map[uint64]bool)})
}

// AddGeneration implements pass.Listener. It adds a generation of the client's trace and joins connections, unless IsComplete.
func (j *Joiner) AddGeneration(g *timeline.Gen, syms *tracefmt.Symbols, gap bool) {
	if !j.IsComplete {
		j.Clients.AddGeneration(g, syms, gap)
		j.Join()
	}
}

// A candidate is a pair of connections that fit.
type candidate struct {
	conn    *clientConnection
	peer    *peer
	serverG uint64
	fit     fit
}

// wayTimes returns the times in ns that messages took to the server and back: see fit.wayTimes. The end of the connection is one.
func (c *candidate) wayTimes() (forwardTimes, returnTimes []int64) {
	forwardTimes, returnTimes = c.fit.wayTimes(c.peer.Connections[c.serverG], &c.peer.Link)
	if closed, read := c.conn.life.closed, c.peer.lifetimes[c.serverG].closed; closed != 0 && read != 0 {
		forwardTimes = append(forwardTimes, max(0, c.peer.ToClient(read)-closed))
	}
	return forwardTimes, returnTimes
}

// Join joins connections of the client with connections of servers, as far as the exchanges so far decide, and adds later answers
// to connections that are joined already.
func (j *Joiner) Join() {
	for _, p := range j.peers {
		p.update(max(j.commonInterval(p).from, p.updatedUntil), j.to)
		p.updatedUntil = j.to
	}
	var candidates []candidate
	for _, id := range j.readerOrder {
		conn := j.readers[id]
		if connection := j.joined[id]; connection != nil {
			j.addLaterAnswers(conn, connection)
			continue
		}
		candidates = append(candidates, j.candidatesOf(conn)...)
	}
	for j.joinUnique(&candidates) {
	}
	clear(j.undecided)
	for _, c := range candidates {
		if c.peer.isCalled {
			j.undecided[c.conn] = c.peer
		}
	}
}

// Synchronise searches the clock offset of each server that has another clock (searchOffset). It removes the servers that share
// the client's clock, and those whose offset is not found.
func (j *Joiner) Synchronise() {
	j.peers = slices.DeleteFunc(j.peers, func(p *peer) bool {
		if p.IsExact() {
			return false
		}
		var isFound bool
		p.Link, isFound = j.searchOffset(p.Server, p.Link)
		return !isFound
	})
}

// Links returns the relation of the clocks for each server with a joined connection, as exact as the exchanges in both recordings
// allow.
func (j *Joiner) Links() map[*Server]Link {
	out := make(map[*Server]Link)
	for _, k := range j.joined {
		common := j.commonInterval(k.peer)
		k.peer.update(common.from, common.to)
		out[k.peer.Server] = k.peer.Link
	}
	return out
}

// commonInterval returns the interval that both recordings cover, on the client's clock.
func (j *Joiner) commonInterval(p *peer) interval {
	return interval{max(j.from, p.ToClient(p.From)), min(j.to, p.ToClient(p.To))}
}

// candidatesOf returns the pairs of the client's connection with those connections of servers whose requests fit its exchanges.
func (j *Joiner) candidatesOf(conn *clientConnection) (out []candidate) {
	for _, p := range j.peers {
		common := j.commonInterval(p)
		for _, g := range p.connectionsIn(conn.allExchanges(), common) {
			if p.Connections[g][0].IsStream != conn.isMultiplexed || conn.isStream && conn.writer == nil || !conn.life.canBeOf(p.lifetimes[g], &p.Link) {
				continue
			}
			c := candidate{conn, p, g, conn.pairWith(0, p.Connections[g], &p.Link, common, common.from)}
			if c.fit.isConsistent() && (!conn.isStream || c.isCloseStream()) {
				out = append(out, c)
			}
		}
	}
	return out
}

// connectionsIn returns the server's connections, not yet joined, with a request that may begin inside of the shortest exchange
// of the client's connection. Others cannot be its other end, because each exchange has a request.
func (p *peer) connectionsIn(exchanges []Exchange, common interval) (out []uint64) {
	shortest := -1
	for i, x := range exchanges {
		if x.Sent >= common.from && x.Arrived <= common.to && (shortest < 0 || x.Arrived-x.Sent < exchanges[shortest].Arrived-exchanges[shortest].Sent) {
			shortest = i
		}
	}
	if shortest < 0 {
		return nil
	}
	p.eachBetween(p.ToServer(exchanges[shortest].Sent)-p.slack, p.ToServer(exchanges[shortest].Arrived)+p.slack, func(r *Request) {
		if !p.joinedEnds[r.Conn] && !slices.Contains(out, r.Conn) {
			out = append(out, r.Conn)
		}
	})
	return out
}

// joinUnique joins those pairs of connections of which neither end fits another connection, if it is proven that the process
// calls the server. It removes the pairs that are no longer possible from candidates, and reports whether it joined any: then
// others may have become unique.
func (j *Joiner) joinUnique(candidates *[]candidate) (hasJoined bool) {
	type end struct {
		peer    *peer
		serverG uint64
	}
	byConn, byEnd := make(map[*clientConnection]int), make(map[end]int)
	for _, c := range *candidates {
		byConn[c.conn]++
		byEnd[end{c.peer, c.serverG}]++
	}
	var unique []candidate
	for _, c := range *candidates {
		if byConn[c.conn] == 1 && byEnd[end{c.peer, c.serverG}] == 1 {
			unique = append(unique, c)
		}
	}
	for _, p := range j.peers {
		p.isCalled = p.isCalled || p.hasProof(unique)
	}
	slices.SortStableFunc(unique, func(a, b candidate) int { return cmp.Compare(len(b.fit.pairs), len(a.fit.pairs)) })
	for _, c := range unique {
		forwardTimes, returnTimes := c.wayTimes()
		if !c.peer.isCalled || len(c.fit.pairs) >= threshold.Repeats && !isClose(forwardTimes, returnTimes, c.peer.slack, 1) || !c.fit.addBounds(c.peer.bounds, c.peer.Connections[c.serverG]) {
			continue
		}
		connection := &joinedConnection{peer: c.peer, serverG: c.serverG, client: c.conn, from: j.from, until: j.to}
		connection.addAnswers(&c.fit)
		connection.next = c.conn.count()
		j.joined[c.conn.reader], c.peer.joinedEnds[c.serverG], hasJoined = connection, true, true
	}
	if hasJoined {
		*candidates = slices.DeleteFunc(*candidates, func(c candidate) bool {
			return j.joined[c.conn.reader] != nil || c.peer.joinedEnds[c.serverG]
		})
	}
	return hasJoined
}

// minProof is the number of exchanges that must fit before a process is known to call another one.
const minProof = 8

// hasProof reports whether unique pairs of connections prove that the process calls the server: at least minProof exchanges fit,
// on a connection with threshold.SmallSample of them or on many, and the times on the way are as short as between two sockets.
func (p *peer) hasProof(unique []candidate) bool {
	var forwardTimes, returnTimes []int64
	isLong := false
	for _, c := range unique {
		if c.peer == p {
			t, b := c.wayTimes()
			forwardTimes, returnTimes = append(forwardTimes, t...), append(returnTimes, b...)
			isLong = isLong || len(c.fit.pairs) >= threshold.SmallSample
		}
	}
	if !isLong && len(returnTimes) < threshold.MedianSample || len(returnTimes) < minProof {
		return false
	}
	return isClose(forwardTimes, returnTimes, p.slack, threshold.SmallSample)
}

// addAnswers stores the requests that answer the exchanges of a fit, on the client's clock.
func (k *joinedConnection) addAnswers(f *fit) {
	list := k.peer.Connections[k.serverG]
	for i, p := range f.pairs {
		r := &list[p.request]
		offset, _ := k.peer.OffsetAt(r.Start)
		start := r.Start + offset
		if !r.IsWoken {
			start = max(start, p.exchange.Sent)
		}
		answer := critpath.RemoteAnswer{Start: start, End: r.End + offset, G: r.G, Offset: offset, Parts: r.Parts, WayCause: k.peer.WayCause, Service: k.peer.Name, Group: r.Group}
		if p.lastSend != 0 {
			answer.Sender, answer.Sent = k.client.writer.g, p.lastSend
		}
		if f.calls != nil {
			if f.calls[i].answer == nil {
				f.calls[i].answer = &answer
			}
			continue
		}
		k.answers, k.waits = append(k.answers, answer), append(k.waits, p.exchange)
	}
}

// addLaterAnswers adds the answers of exchanges that are new on a joined connection, if these fit the server's requests as well.
func (j *Joiner) addLaterAnswers(conn *clientConnection, connection *joinedConnection) {
	common := j.commonInterval(connection.peer)
	began := common.from
	if n := len(connection.waits); n > 0 {
		common.from = max(common.from, connection.waits[n-1].Arrived)
	}
	if conn.isMultiplexed {
		common.from = max(common.from, connection.from)
		connection.next = sort.Search(len(conn.calls), func(i int) bool { return conn.calls[i].arrived >= common.from })
		connection.from, connection.until = connection.until, j.to
	}
	f := conn.pairWith(connection.next, connection.peer.Connections[connection.serverG], &connection.peer.Link, common, began)
	if connection.next = conn.count(); f.isConsistent() && f.addBounds(connection.peer.bounds, connection.peer.Connections[connection.serverG]) {
		connection.addAnswers(&f)
	}
}

// pairWith pairs the exchanges of a connection, from index next on, with the requests of a server's connection that began at
// began.
func (conn *clientConnection) pairWith(next int, requests []Request, l *Link, common interval, began int64) fit {
	if conn.isMultiplexed {
		return pairStreams(conn.calls[next:], requests, l, common, began)
	}
	f := pairExchanges(conn.exchanges[next:], requests, l, common, conn.isStream)
	if conn.isStream {
		conn.setTimes(&f, requests, l)
	}
	return f
}

// count returns the number of exchanges.
func (conn *clientConnection) count() int { return len(conn.exchanges) + len(conn.calls) }

// RemoteAnswerTo returns the request of another service that answers the network wait, from start to end, of goroutine g; nil if
// none is known. On a connection of HTTP/2, g reads for several callers and streams, and waiter is the one that it woke. See critpath.Walker.
func (j *Joiner) RemoteAnswerTo(g, waiter uint64, start, end int64) *critpath.RemoteAnswer {
	if stream := j.joined[waiter]; stream != nil && stream.client.isStream && stream.client.transport == g {
		return stream.answerTo(start, end)
	}
	connection := j.joined[g]
	if connection == nil {
		return nil
	}
	if connection.client.isMultiplexed {
		if k := connection.client.callOf(waiter, end); k != nil && k.answer != nil && k.answer.Start < end && k.answer.End > start && len(k.answer.Parts) > 0 {
			return k.answer
		}
		return nil
	}
	i := sort.Search(len(connection.answers), func(i int) bool { return connection.answers[i].End > start })
	// The wait may end with the answer's last bytes, or with the first ones of a longer answer.
	if i == len(connection.answers) || connection.answers[i].Start >= end || connection.waits[i].Sent != math.MinInt64 && connection.waits[i].Sent >= end || len(connection.answers[i].Parts) == 0 {
		return nil
	}
	return &connection.answers[i]
}

// Callees returns, by server, the number of exchanges that are joined with one of its requests.
func (j *Joiner) Callees() map[*Server]int {
	out := make(map[*Server]int)
	for _, k := range j.joined {
		out[k.peer.Server] += len(k.answers)
		for _, c := range k.client.calls {
			if c.answer != nil {
				out[k.peer.Server]++
			}
		}
	}
	return out
}

// AmbiguousCallees returns, by server, the number of calls that several of its requests may answer: on joined connections of
// HTTP/2, and on connections that fit several of the server's.
func (j *Joiner) AmbiguousCallees() map[*Server]int {
	out := make(map[*Server]int)
	for _, k := range j.joined {
		for _, c := range k.client.calls {
			if c.answer == nil && c.isAmbiguous {
				out[k.peer.Server]++
			}
		}
	}
	for conn, p := range j.undecided {
		out[p.Server] += conn.count()
	}
	return out
}
