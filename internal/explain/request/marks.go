package request

import (
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// The form of marks in user logs, as service/mark writes it and docs/mark.md
// describes it: the key says everything about a request but its trace's id.
//
//	whylate.mark/1 begin KIND [NAME]          traceparent of the caller
//	whylate.mark/1 end KIND STATUS [NAME]
//	whylate.mark/1 span                       the request's own ids, as a traceparent
const markPrefix = "whylate.mark/1 "

type markVerb uint8

const (
	markNone markVerb = iota
	markBegin
	markEnd
	markSpan
)

// A markKey is the key of a user log, parsed.
type markKey struct {
	verb               markVerb
	kind, status, name tracefmt.StringID
}

// marker follows the marks of one goroutine.
type marker struct {
	depth int
	mark  openMark
	ended []endedMark // ended in this generation, not handed out yet
	// When the last one that was handed out began. What else is found around
	// it is the same request.
	lastStart  int64
	hasEmitted bool
	// Ids of a span that began before its mark, and when.
	earlySpan     Identity
	earlySpanTime int64
}

type openMark struct {
	openRequest
	name tracefmt.StringID
	id   Identity
}

type endedMark struct {
	openMark
	endTime int64
}

// InternMarks takes the words of a generation's marks into the symbols that the Finder's are a snapshot of. It comes before Add.
func (f *Finder) InternMarks(syms *tracefmt.Symbols, g *timeline.Gen) {
	if f.opts.NoMarks || f.calls != nil {
		return
	}
	for i := range g.User {
		e := &g.User[i]
		if _, ok := f.markKeys[e.Name]; !ok && e.Kind == timeline.LogMessage {
			f.markKeys[e.Name] = readMark(syms, syms.String(e.Name))
		}
	}
}

// readMark returns what a log's key says.
func readMark(syms *tracefmt.Symbols, text string) markKey {
	k := markKey{verb: markNone}
	rest, ok := strings.CutPrefix(text, markPrefix)
	if !ok {
		return k
	}
	verb, rest, _ := strings.Cut(rest, " ")
	word := func() tracefmt.StringID {
		var w string
		if w, rest, _ = strings.Cut(rest, " "); w == "" {
			return 0
		}
		return syms.Intern(w)
	}
	switch verb {
	case "begin":
		k.verb, k.kind = markBegin, word()
	case "end":
		k.verb, k.kind, k.status = markEnd, word(), word()
	case "span":
		k.verb = markSpan
	}
	if rest != "" {
		k.name = syms.Intern(rest)
	}
	return k
}

// maxSpanBefore is how long before its request a span may begin.
const maxSpanBefore = 1e6

// followMark follows a user log, if it is of a mark.
func (f *Finder) followMark(e *timeline.UserEvent) {
	k := f.markKeys[e.Name]
	if k.verb == markNone {
		return
	}
	m := entry.In(f.markers, e.G)
	f.work.annotated[e.G] = true
	switch k.verb {
	case markBegin:
		if m.depth++; m.depth > 1 {
			break // a part of the one around it
		}
		m.mark = openMark{openRequest: openRequest{start: e.Time, pieceStart: e.Time}, name: k.name, id: Identity{MarkKind: k.kind, BeforeMark: -1}}
		if m.earlySpanTime != 0 && e.Time-m.earlySpanTime < maxSpanBefore {
			m.mark.id.TraceID, m.mark.id.SpanID = m.earlySpan.TraceID, m.earlySpan.SpanID
		}
		var caller Identity
		if caller.readTraceparent(f.syms.String(e.Value)) {
			if !m.mark.id.HasTraceID() {
				m.mark.id.TraceID = caller.TraceID
			}
			m.mark.id.ParentSpanID = caller.ParentSpanID
		}
		m.earlySpanTime = 0
	case markEnd:
		if m.depth > 1 {
			m.depth--
			break
		}
		d := endedMark{m.mark, e.Time}
		if m.depth == 0 {
			// It began before the trace, or while nobody traced.
			d = endedMark{openMark: openMark{openRequest: openRequest{cutAtStart: true}, id: Identity{MarkKind: k.kind, BeforeMark: -1}}}
			d.endTime = e.Time
		}
		m.depth = 0
		d.id.Status = k.status
		if k.name != 0 {
			d.name = k.name
		}
		m.ended = append(m.ended, d)
		f.work.addAnnotation(e.G, d.start, d.endTime)
	case markSpan:
		var own Identity
		if !own.readTraceparent(f.syms.String(e.Value)) {
			break
		}
		switch {
		case m.depth == 0:
			m.earlySpan, m.earlySpanTime = Identity{TraceID: own.TraceID, SpanID: own.ParentSpanID}, e.Time
		case m.mark.id.SpanID == [8]byte{}:
			// Only the first one is the request's; others are parts of it.
			m.mark.id.TraceID, m.mark.id.SpanID = own.TraceID, own.ParentSpanID
		}
	}
}

// request is a mark that has ended.
func (d *endedMark) request(g uint64) Request {
	r := d.openRequest.complete(Request{Kind: Mark, End: d.endTime, G: g, Name: d.name})
	if d.cutAtStart {
		r.Start = 0
	}
	id := d.id
	r.Identity = &id
	return r
}

// emitMarks hands out the marks in a request that was found otherwise, on
// goroutine id, and reports whether there were any: they stand for it. A cut
// request began before the trace.
func (f *Finder) emitMarks(out *[]Request, id uint64, o *openRequest, end int64) bool {
	m := f.markers[id]
	if m == nil {
		return false
	}
	found := false
	rest := m.ended[:0]
	for i := range m.ended {
		d := m.ended[i]
		if d.endTime > end || !d.cutAtStart && !o.cutAtStart && d.start < o.start {
			rest = append(rest, d)
			continue
		}
		if !found && !d.cutAtStart && !o.cutAtStart {
			d.id.BeforeMark = d.start - o.start
		}
		found = true
		*out = append(*out, d.request(id))
		m.setLastEmitted(&d)
	}
	m.ended = rest
	return found || m.hasMarkWithin(o, end)
}

// setLastEmitted takes note that a mark was handed out.
func (m *marker) setLastEmitted(d *endedMark) {
	m.lastStart, m.hasEmitted = max(m.lastStart, d.start), true
}

// hasMarkWithin reports whether a mark that is open, or was handed out, began in another
// request that lasted from o until end.
func (m *marker) hasMarkWithin(o *openRequest, end int64) bool {
	began := func(t int64) bool { return t <= end && (o.cutAtStart || t >= o.start) }
	return m.depth > 0 && began(m.mark.start) || m.hasEmitted && began(m.lastStart)
}

// isMarked reports whether what is open otherwise on a goroutine is a marked
// request, or a part of one.
func (f *Finder) isMarked(id uint64, o *openRequest) bool {
	m := f.markers[id]
	return m != nil && o.pieceKey == 0 && (m.depth > 0 && m.mark.start <= o.start || m.hasMarkWithin(o, math.MaxInt64))
}

// isPartlyMarked reports whether a task or region that ended just now on a
// goroutine is in a mark or has marks in it: those are taken for the requests.
// Its parts were handed out if it was open for long; then the last must be too.
func (f *Finder) isPartlyMarked(id uint64, o *openRequest) bool {
	m := f.markers[id]
	return m != nil && o.pieceKey == 0 && (f.isMarked(id, o) || slices.ContainsFunc(m.ended, func(d endedMark) bool { return d.start >= o.start || d.cutAtStart }))
}

// emitFreeMarks hands out the marks whose request is not over yet as its protocol
// sees it, or that are in none, and forgets goroutines that are gone.
func (f *Finder) emitFreeMarks(g *timeline.Gen) {
	for id, m := range f.markers {
		for i := range m.ended {
			d := &m.ended[i]
			if o := f.protocolRequest(id); o != nil && !d.cutAtStart && !o.cutAtStart && o.start <= d.start {
				d.id.BeforeMark = d.start - o.start
			}
			f.emitted = append(f.emitted, d.request(id))
			m.setLastEmitted(d)
		}
		m.ended = m.ended[:0]
	}
	removeEnded(f.markers, g, nil)
}

// protocolRequest returns the open request of a protocol on a goroutine.
func (f *Finder) protocolRequest(id uint64) *openRequest {
	if c := f.connections[id]; c != nil && c.phase == connActive {
		return &c.openRequest
	}
	if s := f.streams[id]; s != nil {
		return &s.openRequest
	}
	if w := f.grpcWorkers[id]; w != nil && w.busy {
		return &w.openRequest
	}
	return nil
}
