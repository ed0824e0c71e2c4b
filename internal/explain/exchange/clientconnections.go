package exchange

import (
	"math"
	"slices"

	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// An Exchange is one request on a connection of a client: when its first byte was written, and when the first byte of the answer was
// there. If HasSent is false, Sent is only a time before it: the answer before, or MinInt64.
type Exchange struct {
	Sent, Arrived int64
	HasSent       bool
}

// A Clients collects the connections of a process's HTTP clients. net/http serves each of HTTP/1 with two goroutines: one reads the
// answers, the other writes the requests. Of HTTP/2 and gRPC, one reads the answers for all calls. It implements pass.Listener.
type Clients struct {
	window      *timeline.Window
	stacks      stackRoles
	isSeen      map[uint64]bool
	readers     map[uint64]*clientConnection // by goroutine
	writers     map[uint64]*writer
	readerOrder []uint64
	from, to    int64
	spanScratch []timeline.Span

	// For connections of HTTP/2.
	streamReaders  int
	answerWaits    []bool   // by stack: it waits for an answer
	openWaits      []uint64 // goroutines that waited for an answer at the end of the last generation
	callsUntil     int64
	messageWaits   []bool // by stack: it waits for a message of a stream
	earlierScratch []timeline.Span
}

// A clientConnection is one connection of a client.
type clientConnection struct {
	reader    uint64
	writer    *writer // nil if it is not known
	birth     timeline.Birth
	life      lifetime
	arrivals  []int64
	exchanges []Exchange
	builtFrom int // how many arrivals exchanges cover
	isDead    bool

	// A connection of HTTP/2 has calls instead, in order of their ends.
	isMultiplexed bool
	calls         []*call
	callsByWaiter map[uint64][]*call

	// A stream of messages: reader receives them, and transport is the goroutine that reads the stream's connection.
	isStream  bool
	transport uint64
	readable  []int64 // by exchange: since when its answer may have been there to be read
}

// A writer is a goroutine that writes the requests of a connection, with the times at which it began to write.
type writer struct {
	g       uint64
	birth   timeline.Birth
	sends   []int64
	isTaken bool
	// transport is the goroutine that reads the connection, if that is one of HTTP/2: it wakes the writer to acknowledge data.
	transport uint64
}

// NewClients returns an empty Clients. SetWindow must be called before the first generation is added.
func NewClients() *Clients {
	return &Clients{
		isSeen: make(map[uint64]bool), readers: make(map[uint64]*clientConnection), writers: make(map[uint64]*writer),
		from: math.MinInt64, callsUntil: math.MinInt64,
	}
}

// AddGeneration implements pass.Listener. It finds the goroutines of client connections, adds the times of their reads and
// writes, and computes the exchanges of each connection.
func (c *Clients) AddGeneration(g *timeline.Gen, syms *tracefmt.Symbols, _ bool) {
	if c.stacks.memo == nil {
		c.from, c.stacks = g.Base, newStackRoles(syms)
	}
	c.stacks.symbols, c.to = syms, g.End
	g.EachStart(func(id uint64, start tracefmt.StackID, _ int) {
		if start == 0 && c.isSeen[id] {
			return
		}
		if start == 0 {
			c.isSeen[id] = true
			start = g.AnyStack(id)
		}
		c.addGoroutine(g, id, start)
	})
	c.classifyWaits()
	if c.from == g.Base {
		c.addStreams(g)
	}
	for _, id := range c.readerOrder {
		c.addArrivals(g, c.readers[id])
	}
	c.addCalls(g)
	for _, w := range c.writers {
		c.addSends(g, w)
	}
	c.assignWriters()
	for _, id := range c.readerOrder {
		c.readers[id].buildExchanges()
	}
}

// addGoroutine begins to follow a goroutine if the outermost function of its stack is that of a reader or writer of a client's
// connection.
func (c *Clients) addGoroutine(g *timeline.Gen, id uint64, stack tracefmt.StackID) {
	switch roles := c.stacks.ofStart(stack); {
	case roles.Has(knowledge.HTTP1ClientReader) && c.readers[id] == nil:
		conn := &clientConnection{reader: id}
		if birth, ok := g.BirthOf(id); ok {
			conn.birth, conn.life.opened = birth, c.openTime(birth)
		}
		c.readers[id] = conn
		c.readerOrder = append(c.readerOrder, id)
	case roles.Has(knowledge.HTTP2ClientReader) && c.readers[id] == nil:
		c.readers[id] = &clientConnection{reader: id, isMultiplexed: true, callsByWaiter: make(map[uint64][]*call)}
		c.streamReaders++
		c.readerOrder = append(c.readerOrder, id)
	case roles.Has(knowledge.ClientWriter) && c.writers[id] == nil:
		w := &writer{g: id}
		w.birth, _ = g.BirthOf(id)
		c.writers[id] = w
	}
}

// addArrivals adds the times at which the network ended the reader's waits for the first bytes of an answer (HTTP/1).
func (c *Clients) addArrivals(g *timeline.Gen, conn *clientConnection) {
	if conn.isMultiplexed || conn.isDead || !g.Knows(conn.reader) {
		return
	}
	c.spanScratch = c.window.Spans(conn.reader, g.Base, g.End+1, c.spanScratch[:0])
	for i := range c.spanScratch {
		s := &c.spanScratch[i]
		conn.isDead = conn.isDead || s.Died
		if s.State != timeline.Waiting || !s.Woken || (s.Waker != 0) != conn.isStream || s.End <= last(conn.arrivals) {
			continue
		}
		if conn.isStream {
			if c.endsMessageWait(s) {
				conn.readable = append(conn.readable, c.readableSince(s, max(last(conn.arrivals), s.End-maxUnreadNS)))
				conn.arrivals, conn.transport = append(conn.arrivals, s.End), s.Waker
			}
			continue
		}
		stack := s.Stack
		if stack == 0 { // it waited when the trace began: the next event shows for what
			for _, next := range c.spanScratch[i+1:] {
				if stack = next.Stack; stack != 0 {
					break
				}
			}
		}
		if c.stacks.hasBoth(stack, knowledge.HTTP1ClientReader, knowledge.RequestPeek) {
			conn.arrivals = append(conn.arrivals, s.End)
		}
	}
	if conn.isDead && !conn.isStream {
		conn.life.closed = c.closeTime(conn, c.spanScratch)
	}
}

// addSends adds the times at which the writer began to write to its socket.
func (c *Clients) addSends(g *timeline.Gen, w *writer) {
	if !g.Knows(w.g) {
		return
	}
	c.spanScratch = c.window.Spans(w.g, g.Base, g.End+1, c.spanScratch[:0])
	for i := range c.spanScratch {
		s := &c.spanScratch[i]
		if s.State == timeline.Syscall && s.Start > last(w.sends) && c.stacks.hasBoth(s.Stack, knowledge.ClientWriter, knowledge.SocketWrite) {
			w.sends = append(w.sends, s.Start)
		} else if conn := c.readers[s.Waker]; s.State == timeline.Waiting && conn != nil && conn.isMultiplexed {
			w.transport = s.Waker
		}
	}
}

// SetWindow sets the window that contains each generation when it is added.
func (c *Clients) SetWindow(window *timeline.Window) { c.window = window }

// last returns the last element, which is the latest because times are added in order; the least int64 if there is none.
func last(times []int64) int64 {
	if len(times) == 0 {
		return math.MinInt64
	}
	return times[len(times)-1]
}

// assignWriters finds the writer of each reader that has none. net/http creates both goroutines in succession, so the writer
// mostly has the next id, or else the same creator. The order of their events must fit as well (canHaveWriter). The writer of a
// stream is that of its connection.
func (c *Clients) assignWriters() {
	for _, id := range c.readerOrder {
		conn := c.readers[id]
		if conn.writer != nil || len(conn.arrivals) == 0 {
			continue
		}
		if conn.isStream {
			for _, w := range c.writers {
				if w.transport == conn.transport {
					conn.writer = w
				}
			}
			continue
		}
		var found *writer
		if w := c.writers[id+1]; w != nil && conn.canHaveWriter(w) {
			found = w
		} else if conn.birth.Creator != 0 {
			for _, w := range c.writers {
				if w.birth.Creator == conn.birth.Creator && w.birth.Time >= conn.birth.Time && conn.canHaveWriter(w) && (found == nil || w.birth.Time < found.birth.Time) {
					found = w
				}
			}
		}
		if found != nil {
			found.isTaken, conn.writer = true, found
			conn.exchanges, conn.builtFrom = conn.exchanges[:0], 0
		}
	}
}

// canHaveWriter reports whether goroutine w can be the writer of the connection: it wrote between the arrivals of any two
// answers, with few exceptions.
func (conn *clientConnection) canHaveWriter(w *writer) bool {
	if w.isTaken || len(w.sends) == 0 {
		return false
	}
	missing := 0
	for i := 1; i < len(conn.arrivals); i++ {
		k, _ := slices.BinarySearch(w.sends, conn.arrivals[i-1])
		if k == len(w.sends) || w.sends[k] > conn.arrivals[i] {
			missing++
		}
	}
	return missing <= len(conn.arrivals)/20+1
}

// buildExchanges pairs the times of arrival with the first write after the arrival before. Without a writer, an exchange only has
// the arrival before it as a bound of the time at which it was sent.
func (conn *clientConnection) buildExchanges() {
	for i := conn.builtFrom; i < len(conn.arrivals); i++ {
		arrived := conn.arrivals[i]
		previous := int64(math.MinInt64)
		if i > 0 {
			previous = conn.arrivals[i-1]
		}
		if conn.writer == nil || conn.isStream {
			conn.exchanges = append(conn.exchanges, Exchange{Sent: previous, Arrived: arrived})
			continue
		}
		k, _ := slices.BinarySearch(conn.writer.sends, previous)
		switch {
		case k < len(conn.writer.sends) && conn.writer.sends[k] < arrived:
			conn.exchanges = append(conn.exchanges, Exchange{conn.writer.sends[k], arrived, true})
		case i == 0:
			conn.exchanges = append(conn.exchanges, Exchange{Sent: math.MinInt64, Arrived: arrived}) // sent before the trace
		}
	}
	conn.builtFrom = len(conn.arrivals)
	if n := len(conn.exchanges); (conn.writer == nil || conn.isStream) && conn.isDead && conn.life.closed == 0 && n > 0 && len(conn.arrivals) > 0 {
		conn.exchanges, conn.arrivals = conn.exchanges[:n-1], nil // the server closed the connection
		conn.builtFrom = 0
	}
}
