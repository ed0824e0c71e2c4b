package export

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/explain/cause"
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
