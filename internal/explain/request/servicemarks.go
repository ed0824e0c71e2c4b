package request

import (
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// The format of marks in user logs, which service/mark writes and docs/mark.md describes. The key holds everything but
// the ids:
//
//	whylate.mark/1 begin KIND [NAME]          traceparent of the caller
//	whylate.mark/1 end KIND STATUS [NAME]
//	whylate.mark/1 span                       the request's own ids, as a traceparent
const markPrefix = "whylate.mark/1 "

// A markVerb is what a user log of service/mark does: begin or end a mark, or give the ids of its span.
type markVerb uint8

const (
	markNone markVerb = iota
	markBegin
	markEnd
	markSpan
)

// A markKey is the parsed key of a user log.
type markKey struct {
	verb               markVerb
	kind, status, name tracefmt.StringID
}

// marker follows the marks of one goroutine.
type marker struct {
	depth int
	mark  openMark
	ended []endedMark // in this generation, to be emitted
	// lastStart is when the mark that was emitted last began. Requests of other sources around it are the same request.
	lastStart  int64
	hasEmitted bool
	// The ids of a span that began before its mark, and when it did.
	earlySpan     Identity
	earlySpanTime int64
}

// markSource finds the requests that service/mark delimits.
type markSource struct {
	sourceStubs
	isIgnored bool
	markers   map[uint64]*marker
	keys      map[tracefmt.StringID]markKey
}

// An openMark is a mark that has begun.
type openMark struct {
	openRequest
	name tracefmt.StringID
	id   Identity
}

// An endedMark is a mark that has ended and was not emitted yet.
type endedMark struct {
	openMark
	endTime int64
}

// InternMarks parses the marks of a generation and adds their words to syms. It must be called before the Finder's snapshot of
// the symbols is taken, and that before Add.
func (f *Finder) InternMarks(syms *tracefmt.Symbols, g *timeline.Gen) {
	if f.marks.isIgnored {
		return
	}
	for e := range entry.Each(g.User) {
		if _, ok := f.marks.keys[e.Name]; !ok && e.Kind == timeline.LogMessage {
			f.marks.keys[e.Name] = readMark(syms, syms.String(e.Name))
		}
	}
}

// readMark parses the key of a user log; the verb is markNone if the log is not a mark.
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

// maxSpanBefore is how long before its request's mark a span may begin.
const maxSpanBefore = 1e6

// addEvent begins or ends a mark, or adds the ids of a span to it, if the user log is a mark. Marks within a mark are parts of
// the outer one.
func (ms *markSource) addEvent(c *collector, event *timeline.UserEvent) {
	key := ms.keys[event.Name]
	if key.verb == markNone {
		return
	}
	marker := entry.GetOrAdd(ms.markers, event.G)
	c.annotated[event.G] = true
	switch key.verb {
	case markBegin:
		if marker.depth++; marker.depth > 1 {
			break // a part of the outer mark
		}
		marker.mark = openMark{
			openRequest: openAt(event.Time), name: key.name,
			id: Identity{MarkKind: key.kind, BeforeMark: -1},
		}
		if marker.earlySpanTime != 0 && event.Time-marker.earlySpanTime < maxSpanBefore {
			marker.mark.id.TraceID, marker.mark.id.SpanID = marker.earlySpan.TraceID, marker.earlySpan.SpanID
		}
		var caller Identity
		if caller.readTraceparent(c.syms.String(event.Value)) {
			if !marker.mark.id.HasTraceID() {
				marker.mark.id.TraceID = caller.TraceID
			}
			marker.mark.id.ParentSpanID = caller.ParentSpanID
		}
		marker.earlySpanTime = 0
	case markEnd:
		if marker.depth > 1 {
			marker.depth--
			break
		}
		ended := endedMark{marker.mark, event.Time}
		if marker.depth == 0 {
			// The mark began before the trace, or while no trace was recorded.
			ended = endedMark{openMark: openMark{
				openRequest: openRequest{cutAtStart: true}, id: Identity{MarkKind: key.kind, BeforeMark: -1},
			}}
			ended.endTime = event.Time
		}
		marker.depth = 0
		ended.id.Status = key.status
		if key.name != 0 {
			ended.name = key.name
		}
		marker.ended = append(marker.ended, ended)
		c.addAnnotation(event.G, ended.start, ended.endTime)
	case markSpan:
		var spanIDs Identity
		if !spanIDs.readTraceparent(c.syms.String(event.Value)) {
			break
		}
		switch {
		case marker.depth == 0:
			marker.earlySpan, marker.earlySpanTime = Identity{TraceID: spanIDs.TraceID, SpanID: spanIDs.ParentSpanID}, event.Time
		case marker.mark.id.SpanID == [8]byte{}:
			// The first span is the request's own; later ones are parts of it.
			marker.mark.id.TraceID, marker.mark.id.SpanID = spanIDs.TraceID, spanIDs.ParentSpanID
		}
	}
}

// request returns the mark as a request on goroutine g.
func (d *endedMark) request(g uint64) Request {
	r := d.openRequest.complete(Request{Kind: Mark, End: d.endTime, G: g, Name: d.name})
	if d.cutAtStart {
		r.Start = 0
	}
	id := d.id
	r.Identity = &id
	return r
}

// emitInstead emits to out the ended marks that are within a request of a protocol. It returns true if there were any, or if an
// open mark is within the request: then the marks represent it.
func (ms *markSource) emitInstead(out *[]Request, begin *openRequest, served Request) bool {
	id, end := served.G, served.End
	marker := ms.markers[id]
	if marker == nil {
		return false
	}
	found := false
	remaining := marker.ended[:0]
	for i := range marker.ended {
		mark := marker.ended[i]
		if mark.endTime > end || !mark.cutAtStart && !begin.cutAtStart && mark.start < begin.start {
			remaining = append(remaining, mark)
			continue
		}
		if !found && !mark.cutAtStart && !begin.cutAtStart {
			mark.id.BeforeMark = mark.start - begin.start
		}
		found = true
		*out = append(*out, mark.request(id))
		marker.setLastEmitted(&mark)
	}
	marker.ended = remaining
	return found || marker.hasMarkWithin(begin, end)
}

// setLastEmitted remembers the start of a mark that was emitted.
func (m *marker) setLastEmitted(d *endedMark) {
	m.lastStart, m.hasEmitted = max(m.lastStart, d.start), true
}

// hasMarkWithin reports whether a mark, open or emitted, began between the start of request o and end.
func (m *marker) hasMarkWithin(o *openRequest, end int64) bool {
	began := func(t int64) bool { return t <= end && (o.cutAtStart || t >= o.start) }
	return m.depth > 0 && began(m.mark.start) || m.hasEmitted && began(m.lastStart)
}

// isMarked reports whether open request o of another source on goroutine id is within an open mark or contains a mark. Then the
// mark is reported in its place.
func (ms *markSource) isMarked(id uint64, o *openRequest) bool {
	m := ms.markers[id]
	return m != nil && o.pieceKey == 0 && (m.depth > 0 && m.mark.start <= o.start || m.hasMarkWithin(o, math.MaxInt64))
}

// isPartlyMarked reports whether a task or region o that ended now is within a mark or contains marks: then the marks are the
// requests. It returns false if pieces of o were emitted, because the last piece must follow.
func (ms *markSource) isPartlyMarked(id uint64, o *openRequest) bool {
	m := ms.markers[id]
	return m != nil && o.pieceKey == 0 && (ms.isMarked(id, o) ||
		slices.ContainsFunc(m.ended, func(d endedMark) bool { return d.start >= o.start || d.cutAtStart }))
}

// finishGeneration emits the marks that ended and are in no request of a protocol that has ended. The request around a mark may
// end later, or not exist.
func (ms *markSource) finishGeneration(c *collector, g *timeline.Gen) {
	for id, m := range ms.markers {
		for d := range entry.Each(m.ended) {
			if o := c.openServed(id); o != nil && !d.cutAtStart && !o.cutAtStart && o.start <= d.start {
				d.id.BeforeMark = d.start - o.start
			}
			c.emitted = append(c.emitted, d.request(id))
			m.setLastEmitted(d)
		}
		m.ended = m.ended[:0]
	}
	removeEnded(ms.markers, g, nil)
}

// isOpenAt reports whether goroutine g has an open mark that began by t.
func (ms *markSource) isOpenAt(g uint64, t int64) bool {
	m := ms.markers[g]
	return m != nil && m.depth > 0 && m.mark.start <= t
}

// visitOpen visits the outermost open mark of each goroutine.
func (ms *markSource) visitOpen(visit func(*openRequest, Request)) {
	for id, m := range ms.markers {
		if m.depth > 0 {
			visit(&m.mark.openRequest, Request{Kind: Mark, G: id, Name: m.mark.name, Identity: &m.mark.id})
		}
	}
}
