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
	verb             markVerb
	of, status, name tracefmt.StringID
}

// marker follows the marks of one goroutine.
type marker struct {
	depth int
	mark  openMark
	done  []doneMark // ended in this generation, not handed out yet
	// When the last one that was handed out began. What else is found around
	// it is the same request.
	last int64
	any  bool
	// Ids of a span that began before its mark, and when.
	span   Identity
	spanAt int64
}

type openMark struct {
	open
	name tracefmt.StringID
	id   Identity
}

type doneMark struct {
	openMark
	end int64
}

// Intern takes the words of a generation's marks into the symbols that the Finder's are a snapshot of. It comes before Add.
func (f *Finder) Intern(syms *tracefmt.Symbols, g *timeline.Gen) {
	if f.opts.NoMarks || f.funcs != nil {
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
		k.verb, k.of = markBegin, word()
	case "end":
		k.verb, k.of, k.status = markEnd, word(), word()
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

// markEvent follows a user log, if it is of a mark.
func (f *Finder) markEvent(e *timeline.UserEvent) {
	k := f.markKeys[e.Name]
	if k.verb == markNone {
		return
	}
	m := entry.In(f.marks, e.G)
	f.work.annotated[e.G] = true
	switch k.verb {
	case markBegin:
		if m.depth++; m.depth > 1 {
			break // a part of the one around it
		}
		m.mark = openMark{open: open{start: e.Time, from: e.Time}, name: k.name, id: Identity{Of: k.of, Before: -1}}
		if m.spanAt != 0 && e.Time-m.spanAt < maxSpanBefore {
			m.mark.id.Trace, m.mark.id.Span = m.span.Trace, m.span.Span
		}
		var caller Identity
		if caller.readTraceparent(f.syms.String(e.Value)) {
			if !m.mark.id.HasTrace() {
				m.mark.id.Trace = caller.Trace
			}
			m.mark.id.Parent = caller.Parent
		}
		m.spanAt = 0
	case markEnd:
		if m.depth > 1 {
			m.depth--
			break
		}
		d := doneMark{m.mark, e.Time}
		if m.depth == 0 {
			// It began before the trace, or while nobody traced.
			d = doneMark{openMark: openMark{open: open{cut: true}, id: Identity{Of: k.of, Before: -1}}}
			d.end = e.Time
		}
		m.depth = 0
		d.id.Status = k.status
		if k.name != 0 {
			d.name = k.name
		}
		m.done = append(m.done, d)
		f.work.ended(e.G, d.start, d.end)
	case markSpan:
		var own Identity
		if !own.readTraceparent(f.syms.String(e.Value)) {
			break
		}
		switch {
		case m.depth == 0:
			m.span, m.spanAt = Identity{Trace: own.Trace, Span: own.Parent}, e.Time
		case m.mark.id.Span == [8]byte{}:
			// Only the first one is the request's; others are parts of it.
			m.mark.id.Trace, m.mark.id.Span = own.Trace, own.Parent
		}
	}
}

// request is a mark that has ended.
func (d *doneMark) request(g uint64) Request {
	r := d.open.request(Request{Kind: Mark, End: d.end, G: g, Name: d.name})
	if d.cut {
		r.Start = 0
	}
	id := d.id
	r.Identity = &id
	return r
}

// marked hands out the marks in a request that was found otherwise, on
// goroutine id, and reports whether there were any: they stand for it. A cut
// request began before the trace.
func (f *Finder) marked(out *[]Request, id uint64, o *open, end int64) bool {
	m := f.marks[id]
	if m == nil {
		return false
	}
	found := false
	rest := m.done[:0]
	for i := range m.done {
		d := m.done[i]
		if d.end > end || !d.cut && !o.cut && d.start < o.start {
			rest = append(rest, d)
			continue
		}
		if !found && !d.cut && !o.cut {
			d.id.Before = d.start - o.start
		}
		found = true
		*out = append(*out, d.request(id))
		m.handed(&d)
	}
	m.done = rest
	return found || m.in(o, end)
}

// handed takes note that a mark was handed out.
func (m *marker) handed(d *doneMark) { m.last, m.any = max(m.last, d.start), true }

// in reports whether a mark that is open, or was handed out, began in another
// request that lasted from o until end.
func (m *marker) in(o *open, end int64) bool {
	began := func(t int64) bool { return t <= end && (o.cut || t >= o.start) }
	return m.depth > 0 && began(m.mark.start) || m.any && began(m.last)
}

// inMark reports whether what is open otherwise on a goroutine is a marked
// request, or a part of one.
func (f *Finder) inMark(id uint64, o *open) bool {
	m := f.marks[id]
	return m != nil && o.key == 0 && (m.depth > 0 && m.mark.start <= o.start || m.in(o, math.MaxInt64))
}

// markedToo reports whether a task or region that ended just now on a
// goroutine is in a mark or has marks in it: those are taken for the requests.
// Its parts were handed out if it was open for long; then the last must be too.
func (f *Finder) markedToo(id uint64, o *open) bool {
	m := f.marks[id]
	return m != nil && o.key == 0 && (f.inMark(id, o) || slices.ContainsFunc(m.done, func(d doneMark) bool { return d.start >= o.start || d.cut }))
}

// freeMarks hands out the marks whose request is not over yet as its protocol
// sees it, or that are in none, and forgets goroutines that are gone.
func (f *Finder) freeMarks(g *timeline.Gen) {
	for id, m := range f.marks {
		for i := range m.done {
			d := &m.done[i]
			if o := f.serving(id); o != nil && !d.cut && !o.cut && o.start <= d.start {
				d.id.Before = d.start - o.start
			}
			f.out = append(f.out, d.request(id))
			m.handed(d)
		}
		m.done = m.done[:0]
	}
	gone(f.marks, g, nil)
}

// serving returns the open request of a protocol on a goroutine.
func (f *Finder) serving(id uint64) *open {
	if c := f.conns[id]; c != nil && c.phase == connActive {
		return &c.open
	}
	if s := f.streams[id]; s != nil {
		return &s.open
	}
	if w := f.workers[id]; w != nil && w.busy {
		return &w.open
	}
	return nil
}
