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

var csvColumns = []string{
	"group_id", "group", "kind", "band", "from_ns", "to_ns", "band_requests", "cause", "cause_kind", "func", "file", "line", "site_from", "via", "total_ns", "share",
	"requests", "module", "version", "called_from_func", "called_from_file", "called_from_line",
}

// CSV writes a row for each cause of each band of each group. Rows of one band add up to its time.
//
// A text that a spreadsheet would treat as a formula (it begins with =, +, -, @, a tab or a carriage return) gets an
// apostrophe before it. Characters that a terminal would interpret become escapes.
func CSV(w io.Writer, r *report.Report) error {
	out := csv.NewWriter(w)
	num := func(n int64) string { return strconv.FormatInt(n, 10) }
	rows := [][]string{csvColumns}
	for i := range r.Groups {
		g := &r.Groups[i]
		for _, b := range g.Bands {
			for k := range b.Causes {
				c := &b.Causes[k]
				var site report.Site
				var caller report.Caller
				line, fromLine := "", ""
				if c.Site != nil {
					site = *c.Site
					line = strconv.Itoa(site.Line)
				}
				if site.CalledFrom != nil {
					caller = *site.CalledFrom
					fromLine = strconv.Itoa(caller.Line)
				}
				rows = append(rows, []string{
					g.ID, spreadsheetText(g.Name), string(g.Kind), string(b.Band), num(b.FromNS), num(b.ToNS), strconv.Itoa(b.Count), string(c.Cause), spreadsheetText(c.Kind), spreadsheetText(site.Func), spreadsheetText(site.File), line, c.SiteFrom,
					spreadsheetText(viaText(c.Via)), num(c.TotalNS), strconv.FormatFloat(c.Share, 'g', 6, 64), strconv.Itoa(c.Requests),
					spreadsheetText(site.Module), spreadsheetText(site.Version), spreadsheetText(caller.Func), spreadsheetText(caller.File), fromLine,
				})
			}
		}
	}
	if err := out.WriteAll(rows); err != nil {
		return fmt.Errorf("writing CSV: %w", err)
	}
	return nil
}

// spreadsheetText returns a text escaped (termtext.Escape), with a quote before it if a spreadsheet took it for a formula: if it
// begins with a sign such as =.
func spreadsheetText(s string) string {
	s = termtext.Escape(s)
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}

// requestTable writes a row for each request.
type requestTable struct {
	noGenerations
	buf *bufio.Writer
	out *csv.Writer
	row []string
}

// newRequestTable returns a Sink that writes requests as CSV: id, group, goroutine, start and latency, and the time of each
// cause, in ns. A row's causes add up to its latency. Texts are escaped as by CSV.
func newRequestTable(w io.Writer) *requestTable {
	t := &requestTable{buf: bufio.NewWriterSize(w, 1<<16)}
	t.out = csv.NewWriter(t.buf)
	head := []string{"id", "group_id", "group", "kind", "goroutine", "start_ns", "latency_ns"}
	for c := range cause.Cause(cause.Count) {
		head = append(head, c.String()+"_ns")
	}
	t.out.Write(head) // the writer keeps an error
	return t
}

// Request implements Sink.
func (t *requestTable) Request(q *Request) error {
	t.row = append(t.row[:0], q.ID, q.Group.ID, spreadsheetText(q.Group.Name), string(q.Group.Kind), strconv.FormatUint(q.Goroutine, 10),
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

// JSONL writes objects, one a line, distinguished by "type": input, group (with its latencies), cause (with group and band),
// finding, request, and segment, wake, lane and span (with the request's id, spans with the goroutine). Field names are those
// of the report. The requests are those that the report contains in full.
func JSONL(w io.Writer, r *report.Report) error {
	l := newJSONLines(w, r)
	for i := range r.Groups {
		g := &r.Groups[i]
		for k := range g.Slowest {
			l.writeRequest(g, &g.Slowest[k])
		}
	}
	return l.Close(0)
}

// jsonLines writes lines of JSON. It keeps the first error.
type jsonLines struct {
	noGenerations
	buf *bufio.Writer
	err error
	// fullRequests is what the report holds of a request beyond its segments.
	fullRequests map[string]*report.Request
}

// newJSONLines returns a Sink that writes the same as JSONL, but every request. It writes the lines of the report immediately.
func newJSONLines(w io.Writer, r *report.Report) *jsonLines {
	l := &jsonLines{buf: bufio.NewWriterSize(w, 1<<16), fullRequests: make(map[string]*report.Request)}
	l.writeTyped("input", r.Input, nil)
	for i := range r.Groups {
		g := r.Groups[i]
		for k := range g.Slowest {
			l.fullRequests[g.Slowest[k].ID] = &g.Slowest[k]
		}
		bands := g.Bands
		g.Bands, g.Slowest, g.Blocks, g.Typical = nil, nil, nil, nil
		l.writeTyped("group", g, nil)
		for _, b := range bands {
			for k := range b.Causes {
				l.writeTyped("cause", b.Causes[k], map[string]any{"group_id": g.ID, "group": g.Name, "band": b.Band})
			}
		}
	}
	for _, f := range r.Findings {
		l.writeTyped("finding", f, nil)
	}
	return l
}

// writeTyped writes v as a line of JSON, with a field "type" and the extra fields. It stores the first error in l.err, and does
// nothing after it.
func (l *jsonLines) writeTyped(typ string, v any, extraFields map[string]any) {
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
	for k, v := range extraFields {
		put(k, v)
	}
	l.writeLine(obj)
}

// writeLine writes v as a line of JSON. After an error it does nothing.
func (l *jsonLines) writeLine(v any) {
	data, err := json.Marshal(v)
	if l.err = cmp.Or(l.err, err); l.err == nil {
		_, l.err = l.buf.Write(append(jsontext.Escape(data), '\n'))
	}
}

// writeRequest writes a line for the request and one for each of its segments, wakes, lanes, and the spans of goroutines,
// threads and CPUs.
func (l *jsonLines) writeRequest(g *report.Group, q *report.Request) {
	requestID := map[string]any{"request_id": q.ID}
	l.writeLine(rowOfRequest(g, q))
	for k := range q.Segments {
		if s := &q.Segments[k]; s.Joined != nil {
			l.writeTyped("segment", s, requestID)
		} else {
			l.writeLine(rowOfSegment(q.ID, s))
		}
	}
	for k := range q.Wakes {
		l.writeTyped("wake", q.Wakes[k], requestID)
	}
	for k := range q.Lanes {
		lane := q.Lanes[k]
		spans, threads := lane.Spans, lane.Threads
		lane.Spans, lane.Threads = nil, nil
		l.writeTyped("lane", lane, requestID)
		goroutine := map[string]any{"request_id": q.ID, "goroutine": lane.Goroutine}
		for i := range spans {
			l.writeTyped("span", spans[i], goroutine)
		}
		for i := range threads {
			l.writeTyped("thread_span", threads[i], goroutine)
		}
	}
	for k := range q.CPUs {
		for i := range q.CPUs[k].Spans {
			l.writeTyped("cpu_span", q.CPUs[k].Spans[i], map[string]any{"request_id": q.ID, "cpu": q.CPUs[k].CPU})
		}
	}
}

// Request implements Sink.
func (l *jsonLines) Request(q *Request) error {
	full := q.Full()
	if d := l.fullRequests[q.ID]; d != nil {
		full.Lanes, full.Wakes, full.CPUs = d.Lanes, d.Wakes, d.CPUs
	}
	l.writeRequest(q.Group, &full)
	if l.err != nil {
		return fmt.Errorf("writing lines of JSON: %w", l.err)
	}
	return nil
}

// Close implements Sink.
func (l *jsonLines) Close(int64) error {
	if err := cmp.Or(l.err, l.buf.Flush()); err != nil {
		return fmt.Errorf("writing lines of JSON: %w", err)
	}
	return nil
}
