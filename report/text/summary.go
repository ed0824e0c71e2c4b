package text

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// NamedReport is a report with a short name of its subject, such as the recorded replica.
type NamedReport struct {
	Name   string
	Report *report.Report
}

// maxSummary is how many groups a summary compares.
const maxSummary = 3

// WriteSummary compares the reports of several replicas of a service. It writes a line for every replica, in the order given, for each
// of the groups with the most latency over all replicas. The guarantees of Write hold. It uses only Width and Color of the options.
func WriteSummary(w io.Writer, list []NamedReport, opts Options) error {
	p := newPage(w, opts)
	type shared struct {
		group *report.Group // one of them, for the name
		total int64
		on    int
	}
	groups := map[string]*shared{}
	nameWidth := 0
	for _, n := range list {
		nameWidth = max(nameWidth, termtext.Width(termtext.Middle(n.Name, p.width/3)))
		for i := range n.Report.Groups {
			g := &n.Report.Groups[i]
			s := groups[g.ID]
			if s == nil {
				s = &shared{group: g}
				groups[g.ID] = s
			}
			s.total += g.TotalNS
			s.on++
		}
	}
	order := make([]*shared, 0, len(groups))
	for _, s := range groups {
		order = append(order, s)
	}
	slices.SortFunc(order, func(a, b *shared) int {
		return cmp.Or(cmp.Compare(b.total, a.total), cmp.Compare(a.group.Name, b.group.Name), cmp.Compare(a.group.ID, b.group.ID))
	})
	nameWidth = max(nameWidth, 12)
	for i, s := range order {
		if i == maxSummary {
			p.line(span{dim, "and " + words.Count(len(order)-i, "more group", "more groups") + " in the reports"})
			break
		}
		if i > 0 {
			p.line()
		}
		p.line(span{bold, names.GroupName(s.group, p.width-30)}, span{dim, fmt.Sprintf("  in %d of %d recordings", s.on, len(list))})
		p.line(padRight(dim, "", nameWidth), padLeft(dim, "requests", 10), padLeft(dim, "p50", 8), padLeft(dim, "p99", 8), padLeft(dim, "max", 8), span{dim, "  most of the slowest"})
		for _, n := range list {
			name := padRight(plain, termtext.Middle(n.Name, p.width/3), nameWidth)
			index := slices.IndexFunc(n.Report.Groups, func(g report.Group) bool { return g.ID == s.group.ID })
			if index < 0 {
				p.line(name, padLeft(dim, words.Unknown, 10))
				continue
			}
			p.line(append([]span{name}, p.groupCells(&n.Report.Groups[index], nameWidth)...)...)
		}
	}
	if len(order) == 0 {
		p.line(span{plain, "no requests in any of the traces"})
	}
	if err := p.out.Flush(); err != nil {
		return fmt.Errorf("writing the summary: %w", err)
	}
	return nil
}

// groupCells returns the cells of a group's line in a table, after its name.
func (p *page) groupCells(g *report.Group, nameWidth int) []span {
	spans := []span{padLeft(plain, words.ShortNumber(g.Count), 10), padLeft(plain, words.DurationOrUnknown(g.LatencyNS.P50), 8),
		padLeft(plain, words.DurationOrUnknown(g.LatencyNS.P99), 8), padLeft(plain, words.DurationOrUnknown(g.LatencyNS.Max), 8), {plain, "  "}}
	if rows := rowsOf(g, g.Tail()); len(rows) > 0 && g.Count > 0 {
		spans = append(spans, span{plain, words.Percent(rows[0].share) + " "}, span{names.CauseStyle(rows[0].cause), causeName(rows[0].cause)}, span{plain, " "})
		return append(spans, siteSpans(rows[0].site, max(p.width-nameWidth-widthOf(spans), 0))...)
	}
	if g.Open.Count > 0 {
		spans = append(spans, span{boldRed, words.Number(int64(g.Open.Count)) + " still running"})
	}
	return spans
}
