package export

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/whylate/whylate/report"
)

var columns = []string{
	"group_id", "group", "kind", "band", "from_ns", "to_ns", "band_requests", "cause", "cause_kind", "func", "file", "line", "site_from", "via", "total_ns", "share",
	"requests",
}

// CSV writes a row for each cause of each band of each group. Rows of one
// band add up to its time.
//
// A text that a spreadsheet would take for a formula (it begins with =, +, -,
// @, a tab or a carriage return) gets an apostrophe before it.
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
				line := ""
				if c.Site != nil {
					at = *c.Site
					line = strconv.Itoa(at.Line)
				}
				rows = append(rows, []string{
					g.ID, plain(g.Name), g.Kind, b.Band, num(b.FromNS), num(b.ToNS), strconv.Itoa(b.Count), c.Cause, plain(c.Kind), plain(at.Func), plain(at.File), line, c.SiteFrom,
					plain(viaText(c.Via)), num(c.TotalNS), strconv.FormatFloat(c.Share, 'g', 6, 64), strconv.Itoa(c.Requests),
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
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}

// JSONL writes objects, one a line, told apart by "type": input, group (with
// its latencies), cause (with group and band), request and segment (with the
// request's id). Field names are those of the report.
func JSONL(w io.Writer, r *report.Report) error {
	out := json.NewEncoder(w)
	line := func(typ string, v any, more map[string]any) error {
		fields, err := json.Marshal(v)
		if err != nil {
			return err
		}
		obj := map[string]any{}
		dec := json.NewDecoder(strings.NewReader(string(fields)))
		dec.UseNumber()
		if err := dec.Decode(&obj); err != nil {
			return err
		}
		obj["type"] = typ
		for k, v := range more {
			obj[k] = v
		}
		return out.Encode(obj)
	}
	err := line("input", r.Input, nil)
	for i := 0; i < len(r.Groups) && err == nil; i++ {
		g := r.Groups[i]
		bands, slowest := g.Bands, g.Slowest
		g.Bands, g.Slowest, g.Blocks, g.Typical = nil, nil, nil, nil
		err = line("group", g, nil)
		for _, b := range bands {
			for k := 0; k < len(b.Causes) && err == nil; k++ {
				err = line("cause", b.Causes[k], map[string]any{"group_id": g.ID, "group": g.Name, "band": b.Band})
			}
		}
		for _, q := range slowest {
			segments := q.Segments
			q.Segments, q.Lanes, q.Wakes = nil, nil, nil
			if err == nil {
				err = line("request", q, map[string]any{"group_id": g.ID, "group": g.Name})
			}
			for k := 0; k < len(segments) && err == nil; k++ {
				err = line("segment", segments[k], map[string]any{"request_id": q.ID})
			}
		}
	}
	if err != nil {
		return fmt.Errorf("writing lines of JSON: %w", err)
	}
	return nil
}
