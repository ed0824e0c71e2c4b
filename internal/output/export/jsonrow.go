package export

import (
	"encoding/json"
	"strconv"

	"github.com/whylate/whylate/internal/output/jsontext"
	"github.com/whylate/whylate/report"
)

// A jsonRow is an object under construction, for the lines of which there are
// millions. [lines.line] needs 17 times as long for them, because what it puts
// together is a type's fields and some more: it encodes, decodes and encodes
// again. Both write the same bytes: keys are sorted.
type jsonRow []byte

// begin begins a line, with a first key that has a text.
func (b *jsonRow) begin(key, text string) {
	*b = append((*b)[:0], '{', '"')
	b.text(append(append(*b, key...), '"', ':'), text)
}

// end ends the line.
func (b *jsonRow) end() { *b = append(*b, '}', '\n') }

// key begins a further field.
func (b *jsonRow) key(key string) jsonRow {
	return append(append(append(*b, ',', '"'), key...), '"', ':')
}

func (b *jsonRow) number(key string, n int64) { *b = strconv.AppendInt(b.key(key), n, 10) }

func (b *jsonRow) unsigned(key string, n uint64) { *b = strconv.AppendUint(b.key(key), n, 10) }

func (b *jsonRow) string(key, text string) { b.text(b.key(key), text) }

// optional is string for a field that is left out if it is empty.
func (b *jsonRow) optional(key, text string) {
	if text != "" {
		b.string(key, text)
	}
}

// text appends a text to what there is.
func (b *jsonRow) text(to jsonRow, text string) {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&':
			quoted, _ := json.Marshal(text) // a string has no error
			*b = append(to, jsontext.Escape(quoted)...)
			return
		}
	}
	*b = append(append(append(to, '"'), text...), '"')
}

// site appends a site to what there is.
func (b *jsonRow) site(to jsonRow, s *report.Site) {
	if s == nil {
		*b = append(to, "null"...)
		return
	}
	b.text(append(to, `{"func":`...), s.Func)
	b.string("file", s.File)
	b.number("line", int64(s.Line))
	b.optional("does", s.Does)
	b.optional("module", s.Module)
	b.optional("version", s.Version)
	if s.CalledFrom != nil {
		b.site(b.key("called_from"), s.CalledFrom.Site())
		if c := s.CalledFrom.Calls; c != "" {
			*b = (*b)[:len(*b)-1]
			b.string("calls", c)
			*b = append(*b, '}')
		}
	}
	*b = append(*b, '}')
}

func (b *jsonRow) via(key string, list []report.Via) {
	*b = b.key(key)
	if list == nil {
		*b = append(*b, "null"...)
		return
	}
	*b = append(*b, '[')
	for i := range list {
		v := &list[i]
		if i > 0 {
			*b = append(*b, ',')
		}
		b.text(append(*b, `{"wait":`...), string(v.Wait))
		b.site(b.key("site"), v.Site)
		if v.Call != "" {
			b.string("call", v.Call)
		}
		*b = append(*b, '}')
	}
	*b = append(*b, ']')
}

// request fills the line of a request without its segments, lanes and wakes.
func (b *jsonRow) request(g *report.Group, q *report.Request) {
	if q.DatadogSpanID != "" {
		b.begin("datadog_span_id", q.DatadogSpanID)
		b.unsigned("goroutine", q.Goroutine)
	} else {
		*b = strconv.AppendUint(append((*b)[:0], `{"goroutine":`...), q.Goroutine, 10)
	}
	b.string("group", g.Name)
	b.string("group_id", g.ID)
	b.string("id", q.ID)
	b.number("latency_ns", q.LatencyNS)
	b.optional("parent_span_id", q.ParentSpanID)
	*b = append(*b, `,"segments":null`...)
	b.optional("span_id", q.SpanID)
	b.number("start_ns", q.StartNS)
	b.optional("status", q.Status)
	b.optional("trace_id", q.TraceID)
	*b = append(*b, `,"type":"request"`...)
	b.end()
}

// segment fills the line of a segment that is not joined of several.
func (b *jsonRow) segment(request string, s *report.Segment) {
	b.begin("cause", string(s.Cause))
	b.number("duration_ns", s.DurationNS)
	b.unsigned("goroutine", s.Goroutine)
	if s.Kind != "" {
		b.string("kind", s.Kind)
	}
	b.string("request_id", request)
	b.site(b.key("site"), s.Site)
	b.number("start_ns", s.StartNS)
	*b = append(*b, `,"type":"segment"`...)
	b.via("via", s.Via)
	b.end()
}
