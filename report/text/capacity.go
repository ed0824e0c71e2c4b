package text

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// WriteCapacity writes at which load each resource saturates, and latencies at other loads. columns 0 means 100.
func WriteCapacity(w io.Writer, c *report.Capacity, columns int) error {
	if columns == 0 {
		columns = 100
	}
	p := &printer{out: bufio.NewWriter(w), width: columns}
	p.paragraph(span{}, 0, span{plain, termtext.Escape(c.Text)})
	for _, change := range c.Changes {
		p.line(span{plain, "assumed: " + termtext.Escape(change)})
	}
	if len(c.Limits) > 0 {
		p.line()
		rows := [][]string{{"limit", "", "in use", "per request", "servers", "saturates at", ""}}
		for i := range c.Limits {
			l := &c.Limits[i]
			place := ""
			if l.Site != nil {
				place = termtext.Escape(names.SiteText(l.Site.OwnLine(), 48))
			}
			rows = append(rows, []string{string(l.Kind), place, words.PercentOr0(l.Utilisation), words.Brief(l.DemandNS), fmt.Sprintf("%.3g", l.Servers),
				words.Figure(l.SaturatesPerS) + "/s", "(" + words.Figure(l.SaturatesLow) + " to " + words.Figure(l.SaturatesHigh) + ")"})
		}
		p.out.WriteString(termtext.Table("", rows, 2))
		for i := range c.Limits {
			p.limitNotes(&c.Limits[i])
		}
	}
	p.notJudged(c)
	p.curve(c)
	return p.out.Flush()
}

// limitNotes writes the groups and the basis of a limit.
func (p *printer) limitNotes(l *report.Limit) {
	var notes []string
	if len(l.Groups) > 1 {
		var shares []string
		for _, g := range l.Groups[:min(len(l.Groups), maxListed)] {
			shares = append(shares, words.PercentOr0(g.Share)+" "+termtext.Escape(g.Name))
		}
		notes = append(notes, "used by "+strings.Join(shares, ", "))
	}
	if l.CollectorShare >= 0.01 {
		notes = append(notes, words.PercentOr0(l.CollectorShare)+" of it is garbage collection")
	}
	if g := l.Growth; g != nil {
		notes = append(notes, fmt.Sprintf("%s per request at %s/s, %s at %s/s", words.Brief(g.DemandNS[0]), words.Figure(g.LoadPerS[0]), words.Brief(g.DemandNS[1]), words.Figure(g.LoadPerS[1])))
	}
	notes = append(notes, "known by "+l.Basis)
	p.paragraph(span{plain, string(l.Kind)}, 11, span{plain, strings.Join(notes, "; ")})
}

// notJudged writes which other limits there may be.
func (p *printer) notJudged(c *report.Capacity) {
	p.line()
	p.line(span{plain, "not judged; each may be a lower limit:"})
	for i := range c.NotJudged {
		n, place := &c.NotJudged[i], ""
		if n.Site != nil {
			place = strings.TrimSpace(string(n.Kind)+" "+termtext.Escape(names.SiteText(n.Site.OwnLine(), 48))) + ": "
		}
		p.paragraph(span{}, 2, span{plain, place + termtext.Escape(n.Reason)})
	}
	if c.ClosedClients > 0 {
		p.line()
		p.paragraph(span{}, 0, span{plain, fmt.Sprintf("The clients keep %s in the process at all times, each sending the next one when it has an answer: the load cannot rise by itself, and the waits of this recording understate those of independent clients.", words.Count(c.ClosedClients, "request", "requests"))})
	}
}

// curve writes the latencies by load.
func (p *printer) curve(c *report.Capacity) {
	if len(c.Curve) == 0 {
		return
	}
	p.line()
	rows := [][]string{{"load", "p50", "", "p99", ""}}
	interval := func(e report.Estimate) string { return "(" + words.Rough(e.Low) + " to " + words.Rough(e.High) + ")" }
	for i := range c.Curve {
		point := &c.Curve[i]
		rows = append(rows, []string{words.Figure(point.LoadPerS) + "/s", words.Rough(point.P50NS), interval(point.P50), words.Rough(point.P99NS), interval(point.P99)})
	}
	p.out.WriteString(termtext.Table("", rows, 0))
	for _, g := range c.Goals {
		if g.LoadPerS == 0 {
			p.line(span{plain, fmt.Sprintf("%s=%s: at no load", g.Percentile, words.Brief(g.MostNS))})
			continue
		}
		p.line(span{plain, fmt.Sprintf("%s=%s: up to %s/s", g.Percentile, words.Brief(g.MostNS), words.Figure(g.LoadPerS))})
	}
}
