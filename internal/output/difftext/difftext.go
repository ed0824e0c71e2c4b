// Package difftext writes what changed from one report to another for people.
package difftext

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// noEvidence stands where a difference may as well be chance.
const noEvidence = "~"

// Options say how a diff is written.
type Options struct {
	Width int  // columns of the terminal; 0 for 100
	Color bool // growth red, shrinking green
	// Full shows every group and every row; without it, a diff is about one screen.
	Full bool
}

// What fits one screen: the groups that changed most and what they changed by, the rest is counted.
const (
	screenGroups = 3
	firstRows    = 5 // of the group that changed most, and as many of its slowest requests
	otherRows    = 2 // of the others
	screenNames  = 5
	screenValues = 2 // groups that did not change whose latencies are named
	defaultWidth = 100
	leastWidth   = 72
	// leastPart of a change is what a row must have had to be shown on one screen.
	leastPart = 0.02
	largePart = 0.10
)

// Write writes a diff for people.
func Write(w io.Writer, d *compare.Diff, opts Options) error {
	opts.Width = cmp.Or(opts.Width, defaultWidth)
	opts.Width = max(opts.Width, leastWidth)
	p := &page{out: bufio.NewWriter(w), opts: opts}
	p.inputs(d)
	for _, note := range d.Warnings {
		p.wrapped("note  ", note.Text)
	}
	var quiet, unknown []string
	shown, more := 0, 0
	for i := range d.Groups {
		g := &d.Groups[i]
		switch {
		case !g.Changed && !opts.Full:
			list := &quiet
			if g.Mean.Low == nil {
				list = &unknown
			}
			said := name(g.Kind, g.Name, opts.Width)
			if len(*list) < screenValues {
				said += values(g)
			}
			*list = append(*list, said)
		case shown == screenGroups && !opts.Full:
			more++
		default:
			shown++
			p.group(g, d.Confidence, shown == 1)
		}
	}
	if more > 0 {
		p.line("")
		p.wrapped("", fmt.Sprintf("%s changed as well: --full shows all groups.", words.Count(more, "group", "groups")))
	}
	if len(d.Appeared)+len(d.Vanished) > 0 {
		p.line("")
	}
	p.refs("only in the new  ", d.Appeared)
	p.refs("only in the old  ", d.Vanished)
	if len(d.Groups) == 0 {
		p.line("")
		p.line("The two recordings have no group of requests in common.")
	}
	if len(quiet) > 0 {
		p.line("")
		p.wrapped("", fmt.Sprintf("No evidence of a change in %s: %s.", words.Count(len(quiet), "group", "groups"), listed(quiet)))
	}
	if len(unknown) > 0 {
		p.line("")
		p.wrapped("", fmt.Sprintf("Too few requests to judge %s: %s. Record for longer, 10 s or more.", words.Count(len(unknown), "group", "groups"), listed(unknown)))
	}
	return p.out.Flush()
}

// name is a group's as in other views: of a function without its directories, of a route as it is.
func name(kind report.Kind, group string, room int) string {
	return names.GroupName(&report.Group{Kind: kind, Name: group}, room)
}

// values are a group's latencies before and after, in brackets: what did not change is still worth knowing.
func values(g *compare.Group) string {
	var said []string
	for _, v := range []struct {
		name string
		c    *compare.Change
	}{{"p50", &g.P50}, {"p99", &g.P99}, {"mean", &g.Mean}} {
		if v.c.Old != nil && v.c.New != nil && len(said) < 2 {
			said = append(said, v.name+" "+words.Duration(*v.c.Old)+" → "+words.Duration(*v.c.New))
		}
	}
	if len(said) == 0 {
		return ""
	}
	return " (" + strings.Join(said, ", ") + ")"
}

func listed(list []string) string {
	if len(list) > screenNames {
		return strings.Join(list[:screenNames], ", ") + fmt.Sprintf(" and %d more", len(list)-screenNames)
	}
	return strings.Join(list, ", ")
}

type page struct {
	out  *bufio.Writer
	opts Options
}

// line writes escaped text.
func (p *page) line(s string) {
	p.out.WriteString(strings.TrimRight(s, " "))
	p.out.WriteByte('\n')
}

// wrapped writes text of any origin after a head, broken at spaces under itself.
func (p *page) wrapped(head, s string) {
	room := p.opts.Width - termtext.Width(head)
	said := strings.Fields(s)
	for i := range said {
		said[i] = termtext.Middle(said[i], room)
	}
	p.line(head + strings.Join(termtext.Wrap(said, room), "\n"+strings.Repeat(" ", termtext.Width(head))))
}

func (p *page) inputs(d *compare.Diff) {
	room := min(p.opts.Width-58, 60)
	names := [2]string{termtext.Middle(d.Old.Name, room), termtext.Middle(d.New.Name, room)}
	wide := max(termtext.Width(names[0]), termtext.Width(names[1]))
	for i, in := range []*compare.Input{&d.Old, &d.New} {
		cut := ""
		if in.Truncated {
			cut = ", cut"
		}
		p.line(fmt.Sprintf("%s  %s  %7s  Go %s  GOMAXPROCS %d  %d requests%s", [2]string{"old", "new"}[i], termtext.Pad(names[i], wide),
			words.Duration(in.DurationNS), termtext.Head(in.Go, 8), in.GOMAXPROCS, in.Requests, cut))
	}
}

func (p *page) refs(head string, list []compare.GroupRef) {
	var said []string
	for _, r := range list {
		s := fmt.Sprintf("%s (%d requests", name(r.Kind, r.Name, p.opts.Width), r.Count)
		if r.LatencyNS.Mean != nil {
			s += ", mean " + words.Duration(*r.LatencyNS.Mean)
		}
		if r.Open > 0 {
			s += fmt.Sprintf(", %d still running", r.Open)
		}
		said = append(said, s+")")
	}
	if len(said) > 0 {
		p.wrapped(head, listed(said))
	}
}

const (
	valueColumn  = 9
	changeColumn = 10
)

func (p *page) group(g *compare.Group, confidence float64, first bool) {
	p.line("")
	room := p.opts.Width - 40
	p.line(p.paint(termtext.Bold, termtext.Middle(name(g.Kind, g.Name, room), room)) + fmt.Sprintf("  %s, %d → %d requests", termtext.Head(g.Kind, 12), g.OldCount, g.NewCount))
	if g.OldOpen != g.NewOpen {
		p.line(fmt.Sprintf("  still running at the end of the trace: %d → %d", g.OldOpen, g.NewOpen))
	}
	p.line("  " + termtext.Pad("", 4) + termtext.PadLeft("old", valueColumn) + termtext.PadLeft("new", valueColumn) + termtext.PadLeft("change", changeColumn) +
		fmt.Sprintf("  %.0f%% interval of the change", 100*confidence))
	for _, l := range g.Numbers() {
		if l.Old == nil && l.New == nil {
			continue
		}
		s := "  " + termtext.Pad(l.Name, 4) + termtext.PadLeft(words.Maybe(l.Old), valueColumn) + termtext.PadLeft(words.Maybe(l.New), valueColumn)
		change := noEvidence
		if l.Evidence {
			change = words.Change(l.Ratio())
		}
		s += p.tinted(termtext.PadLeft(change, changeColumn), l.Evidence, l.Delta)
		switch {
		case l.Delta == nil:
			s += "  too few requests"
		case l.Low == nil:
			s += "  too few intervals with requests"
		default:
			s += "  " + signed(*l.Low) + " to " + signed(*l.High)
		}
		p.line(s)
	}
	if g.Mean.Delta != nil {
		limit := otherRows
		if first {
			limit = firstRows
		}
		p.rows("the mean", g.Causes, limit, g.Mean.Evidence, func(r *compare.Row) bool { return r.Evidence })
	}
	if g.P99.Evidence && (first || p.opts.Full) {
		p.rows("the slowest 1%", g.Tail, firstRows, true, func(*compare.Row) bool { return true })
	}
}

// rows writes what a change is made of. If there is evidence of the change itself, its large parts are shown even if there
// is none of them one by one.
func (p *page) rows(what string, rows []compare.Row, limit int, evidence bool, counts func(*compare.Row) bool) {
	var whole float64
	for i := range rows {
		whole += float64(rows[i].DeltaNS)
	}
	var shown []*compare.Row
	for i := range rows {
		r := &rows[i]
		part := math.Abs(float64(r.DeltaNS)) / math.Abs(whole)
		if p.opts.Full || len(shown) < limit && (counts(r) && part >= leastPart || evidence && part >= largePart) {
			shown = append(shown, r)
		}
	}
	if len(shown) == 0 {
		return
	}
	p.line("  what " + what + " changed by")
	room := p.opts.Width - 4 - changeColumn - 2 - 11 - 2*valueColumn - 4
	for _, r := range shown {
		change := noEvidence
		if counts(r) {
			change = signed(r.DeltaNS)
		}
		where := names.Place(r.Site(), room)
		switch {
		case where == "" && r.Kind != "":
			where = termtext.Head(r.Kind, room)
		case where == "" && r.Cause == report.CauseOther:
			where = "all other places"
		case where == "":
			where = "place unknown"
		}
		delta := r.DeltaNS
		p.line("  " + p.tinted(termtext.PadLeft(change, changeColumn), counts(r), &delta) + "  " + termtext.Pad(termtext.Head(r.Cause, 10), 11) +
			termtext.Pad(where, room) + termtext.PadLeft(words.Duration(r.OldNS), valueColumn) + " →" + termtext.PadLeft(words.Duration(r.NewNS), valueColumn))
		if n := len(r.Via); n > 0 && counts(r) {
			const lead = 4 + changeColumn + 11
			p.line("  " + termtext.Pad("", lead-2) + termtext.Head("via "+string(r.Via[n-1].Wait)+" "+names.Place(r.Via[n-1].Site, room), p.opts.Width-lead))
		}
	}
}

// tinted marks what there is evidence of.
func (p *page) tinted(s string, evidence bool, delta *int64) string {
	switch {
	case !evidence || delta == nil:
		return s
	case *delta > 0:
		return p.paint(termtext.Red, s)
	}
	return p.paint(termtext.Green, s)
}

func (p *page) paint(style termtext.Style, s string) string {
	if !p.opts.Color {
		return s
	}
	return style.Paint(s)
}

func signed(ns int64) string {
	if ns > 0 {
		return "+" + words.Duration(ns)
	}
	return words.Duration(ns)
}
