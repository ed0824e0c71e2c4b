package export

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/output/jsontext"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/report"
)

var columns = []string{
	"group_id", "group", "kind", "band", "from_ns", "to_ns", "band_requests", "cause", "cause_kind", "func", "file", "line", "site_from", "via", "total_ns", "share",
	"requests", "module", "version", "called_from_func", "called_from_file", "called_from_line",
}

// CSV writes a row for each cause of each band of each group. Rows of one
// band add up to its time.
//
// A text that a spreadsheet would take for a formula (it begins with =, +, -,
// @, a tab or a carriage return) gets an apostrophe before it; characters that
// a terminal would obey are written as escapes.
func CSV(w io.Writer, r *report.Report) error {
	out := csv.NewWriter(w)
	num := func(n int64) string { return strconv.FormatInt(n, 10) }
	rows := [][]string{columns}
	for i := range r.Groups {
		g := &r.Groups[i]
		for _, b := range g.Bands {
			for k := range b.Causes {
				c := &b.Causes[k]
				var at report.Site
				var from report.Caller
				line, fromLine := "", ""
				if c.Site != nil {
					at = *c.Site
					line = strconv.Itoa(at.Line)
				}
				if at.CalledFrom != nil {
					from = *at.CalledFrom
					fromLine = strconv.Itoa(from.Line)
				}
				rows = append(rows, []string{
					g.ID, plain(g.Name), string(g.Kind), string(b.Band), num(b.FromNS), num(b.ToNS), strconv.Itoa(b.Count), string(c.Cause), plain(c.Kind), plain(at.Func), plain(at.File), line, c.SiteFrom,
					plain(viaText(c.Via)), num(c.TotalNS), strconv.FormatFloat(c.Share, 'g', 6, 64), strconv.Itoa(c.Requests),
					plain(at.Module), plain(at.Version), plain(from.Func), plain(from.File), fromLine,
				})
			}
		}
	}
	if err := out.WriteAll(rows); err != nil {
		return fmt.Errorf("writing CSV: %w", err)
	}
	return nil
}

func plain(s string) string {
	s = termtext.Escape(s)
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}

// requestTable writes a row for each request.
type requestTable struct {
	requestsOnly
	buf *bufio.Writer
	out *csv.Writer
	row []string
}

// newRequestTable returns a Sink that writes requests as CSV: id, group,
// goroutine, start and latency, and the time that went to each cause, in ns. A
// row's causes add up to its latency. Texts are made harmless as in CSV.
func newRequestTable(w io.Writer) *requestTable {
	t := &requestTable{buf: bufio.NewWriterSize(w, 1<<16)}
	t.out = csv.NewWriter(t.buf)
	head := []string{"id", "group_id", "group", "kind", "goroutine", "start_ns", "latency_ns"}
	for c := range cause.Cause(cause.Count) {
		head = append(head, c.String()+"_ns")
	}
	t.out.Write(head) // an error stays in the writer
	return t
}

// Request implements Sink.
func (t *requestTable) Request(q *Request) error {
	t.row = append(t.row[:0], q.ID, q.Group.ID, plain(q.Group.Name), string(q.Group.Kind), strconv.FormatUint(q.Goroutine, 10),
		strconv.FormatInt(q.StartNS, 10), strconv.FormatInt(q.LatencyNS, 10))
	for i := range cause.Count {
		t.row = append(t.row, strconv.FormatInt(q.CauseNS[i], 10))
	}
	if err := t.out.Write(t.row); err != nil {
		return fmt.Errorf("writing CSV: %w", err)
	}
	return nil
}

// Close implements Sink.
func (t *requestTable) Close(int64) error {
	t.out.Flush()
	if err := cmp.Or(t.out.Error(), t.buf.Flush()); err != nil {
		return fmt.Errorf("writing CSV: %w", err)
	}
	return nil
}

// JSONL writes objects, one a line, distinguished by "type": input, group (with
// its latencies), cause (with group and band), finding, request, and segment,
// wake, lane and span (with the request's id, spans with the goroutine). Field
// names are those of the report. Requests are those that the report holds in
// full.
func JSONL(w io.Writer, r *report.Report) error {
	l := newLines(w, r)
	for i := range r.Groups {
		g := &r.Groups[i]
		for k := range g.Slowest {
			l.request(g, &g.Slowest[k])
		}
	}
	return l.Close(0)
}

// lines writes lines of JSON. The first error stays.
type lines struct {
	requestsOnly
	buf *bufio.Writer
	err error
	// detail is what the report holds of a request beyond its segments.
	detail map[string]*report.Request
}

// newLines returns a Sink that writes what JSONL does, but every request. It
// writes what is no request at once.
func newLines(w io.Writer, r *report.Report) *lines {
	l := &lines{buf: bufio.NewWriterSize(w, 1<<16), detail: make(map[string]*report.Request)}
	l.line("input", r.Input, nil)
	for i := range r.Groups {
		g := r.Groups[i]
		for k := range g.Slowest {
			l.detail[g.Slowest[k].ID] = &g.Slowest[k]
		}
		bands := g.Bands
		g.Bands, g.Slowest, g.Blocks, g.Typical = nil, nil, nil, nil
		l.line("group", g, nil)
		for _, b := range bands {
			for k := range b.Causes {
				l.line("cause", b.Causes[k], map[string]any{"group_id": g.ID, "group": g.Name, "band": b.Band})
			}
		}
	}
	for _, f := range r.Findings {
		l.line("finding", f, nil)
	}
	return l
}

// line writes v with its type and further fields.
func (l *lines) line(typ string, v any, more map[string]any) {
	if l.err != nil {
		return
	}
	fields, err := json.Marshal(v)
	if err != nil {
		l.err = err
		return
	}
	obj := map[string]json.RawMessage{}
	if l.err = json.Unmarshal(fields, &obj); l.err != nil {
		return
	}
	put := func(k string, v any) {
		raw, err := json.Marshal(v)
		obj[k], l.err = raw, cmp.Or(l.err, err)
	}
	put("type", typ)
	for k, v := range more {
		put(k, v)
	}
	l.write(obj)
}

// write writes a line.
func (l *lines) write(v any) {
	data, err := json.Marshal(v)
	if l.err = cmp.Or(l.err, err); l.err == nil {
		_, l.err = l.buf.Write(append(jsontext.Escape(data), '\n'))
	}
}

func (l *lines) request(g *report.Group, q *report.Request) {
	of := map[string]any{"request_id": q.ID}
	l.write(rowOfRequest(g, q))
	for k := range q.Segments {
		if s := &q.Segments[k]; s.Joined != nil {
			l.line("segment", s, of)
		} else {
			l.write(rowOfSegment(q.ID, s))
		}
	}
	for k := range q.Wakes {
		l.line("wake", q.Wakes[k], of)
	}
	for k := range q.Lanes {
		lane := q.Lanes[k]
		spans := lane.Spans
		lane.Spans = nil
		l.line("lane", lane, of)
		for i := range spans {
			l.line("span", spans[i], map[string]any{"request_id": q.ID, "goroutine": lane.Goroutine})
		}
	}
}

// Request implements Sink.
func (l *lines) Request(q *Request) error {
	full := q.Full()
	if d := l.detail[q.ID]; d != nil {
		full.Lanes, full.Wakes = d.Lanes, d.Wakes
	}
	l.request(q.Group, &full)
	if l.err != nil {
		return fmt.Errorf("writing lines of JSON: %w", l.err)
	}
	return nil
}

// Close implements Sink.
func (l *lines) Close(int64) error {
	if err := cmp.Or(l.err, l.buf.Flush()); err != nil {
		return fmt.Errorf("writing lines of JSON: %w", err)
	}
	return nil
}
