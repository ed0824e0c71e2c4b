// Package difftext writes the changes from one report to another as text.
package difftext

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// noEvidence is shown instead of a change that may be chance.
const noEvidence = "~"

// Options say how a diff is written.
type Options struct {
	Width int  // columns of the terminal; 0 for 100
	Color bool // growth red, shrinking green
	// Full shows every group and every row; without it, a diff is about one screen.
	Full bool
}

// Limits of a diff of one screen. It shows the groups with the largest changes and their causes, and counts the others.
const (
	screenGroups = 3
	firstRows    = 5 // of the group that changed most, and as many of its slowest requests
	otherRows    = 2 // of the others
	screenNames  = 5
	screenValues = 2 // groups that did not change whose latencies are named
	defaultWidth = 100
	minWidth     = 72
	// A row with less than minRowPart of a change is not shown on one screen.
	minRowPart = 0.02
	largePart  = 0.10
)

// Write writes a diff as text.
func Write(w io.Writer, d *compare.Diff, opts Options) error {
	opts.Width = cmp.Or(opts.Width, defaultWidth)
	opts.Width = max(opts.Width, minWidth)
	p := &page{out: bufio.NewWriter(w), opts: opts}
	p.writeInputs(d)
	for _, note := range d.Warnings {
		p.wrapText("note  ", note.Text)
	}
	var unchanged, faster, slower, unknown, moved []string
	shown, hiddenGroups, isRare := 0, 0, false
	for _, g := range d.Populations() {
		switch {
		case g.Moved && !opts.Full:
			moved = append(moved, fmt.Sprintf("%s (%d → %d %s)", groupName(g.Kind, g.Name, opts.Width), g.OldCount, g.NewCount, nounOf(g.Kind, g.Unit)))
		case !g.Changed && !opts.Full:
			list := &unchanged
			numbers := g.Numbers()
			hint := slices.IndexFunc(numbers, func(n compare.Number) bool { return n.Probable })
			switch {
			case g.Mean.Low == nil:
				list = &unknown
			case hint >= 0 && *numbers[hint].Delta < 0:
				list = &faster
			case hint >= 0:
				list = &slower
			}
			text := groupName(g.Kind, g.Name, opts.Width)
			if len(*list) < screenValues {
				text += latencyValues(g)
				isRare = isRare || list == &unchanged && g.P99.Episodes != nil
			}
			*list = append(*list, text)
		case shown == screenGroups && !opts.Full:
			hiddenGroups++
		default:
			shown++
			p.writeGroup(g, shown == 1)
		}
	}
	if hiddenGroups > 0 {
		p.line("")
		p.wrapText("", fmt.Sprintf("%s changed as well: --full shows all groups.", words.Count(hiddenGroups, "group", "groups")))
	}
	if len(moved) > 0 {
		p.line("")
		p.wrapText("", "Not compared, because requests moved between them (a request shows its handler only if it waits): "+listNames(moved)+".")
	}
	if len(d.Appeared)+len(d.Vanished) > 0 {
		p.line("")
	}
	p.writeRefs("only in the new  ", d.Appeared)
	p.writeRefs("only in the old  ", d.Vanished)
	if len(d.Groups) == 0 {
		p.line("")
		p.line("The two recordings have no group of requests in common.")
	}
	for _, probable := range []struct {
		change string
		groups []string
	}{{"faster", faster}, {"slower", slower}} {
		if len(probable.groups) > 0 {
			p.line("")
			p.wrapText("", fmt.Sprintf("Probably %s, but no evidence: %s. Record for 30 s or more to be sure.", probable.change, listNames(probable.groups)))
		}
	}
	if len(unchanged) > 0 {
		p.line("")
		p.wrapText("", fmt.Sprintf("No evidence of a change in %s: %s.", words.Count(len(unchanged), "group", "groups"), listNames(unchanged)))
		if isRare {
			p.wrapText("", "A few episodes may be chance: record for longer, 30 s or more, to see whether p99 changed.")
		}
	}
	if len(unknown) > 0 {
		p.line("")
		p.wrapText("", fmt.Sprintf("Too few requests to judge %s: %s. Record for longer, 10 s or more.", words.Count(len(unknown), "group", "groups"), listNames(unknown)))
	}
	p.writeFindings("Findings that are new", d.NewFindings)
	p.writeFindings("Findings that are gone", d.GoneFindings)
	return p.out.Flush()
}

// nounOf returns the plural noun for the requests of a group.
func nounOf(kind report.Kind, unit string) string {
	return names.Requests(&report.Group{Kind: kind, Unit: unit})
}

// groupName returns a group's name as in other views: functions without their directories, routes unchanged.
func groupName(kind report.Kind, group string, room int) string {
	return names.GroupName(&report.Group{Kind: kind, Name: group}, room)
}

// latencyValues returns a group's first two latencies that both reports have: " (p50 1.2ms → 3ms, p99 ...)", with the space, to
// follow a text; "" if there are none. They are useful also if they did not change.
func latencyValues(g *compare.Group) string {
	var texts []string
	for _, v := range []struct {
		name string
		c    *compare.Change
	}{{"p50", &g.P50}, {"p99", &g.P99}, {"mean", &g.Mean}} {
		if v.c.Old != nil && v.c.New != nil && len(texts) < 2 {
			texts = append(texts, v.name+" "+words.Duration(*v.c.Old)+" → "+words.Duration(*v.c.New))
		}
	}
	if e := g.P99.Episodes; e != nil {
		texts[1] += ": " + e.String()
	}
	if len(texts) == 0 {
		return ""
	}
	return " (" + strings.Join(texts, ", ") + ")"
}

// listNames joins names by commas: the first screenNames, and the number of the others.
func listNames(list []string) string {
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

// wrapText writes a head, and after it text of any origin, which it breaks at spaces and indents to the head's width.
func (p *page) wrapText(head, s string) {
	room := p.opts.Width - termtext.Width(head)
	fields := strings.Fields(s)
	for i := range fields {
		fields[i] = termtext.Middle(fields[i], room)
	}
	p.line(head + strings.Join(termtext.Wrap(fields, room), "\n"+strings.Repeat(" ", termtext.Width(head))))
}

// writeInputs writes a line for each of both recordings, with its duration, Go release and number of requests.
func (p *page) writeInputs(d *compare.Diff) {
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

// writeRefs writes a head and a list of groups that only one of the recordings has; nothing if the list is empty.
func (p *page) writeRefs(head string, list []compare.GroupRef) {
	var texts []string
	for _, r := range list {
		s := fmt.Sprintf("%s (%d %s", groupName(r.Kind, r.Name, p.opts.Width), r.Count, nounOf(r.Kind, r.Unit))
		if r.LatencyNS.Mean != nil {
			s += ", mean " + words.Duration(*r.LatencyNS.Mean)
		}
		if r.Open > 0 {
			s += fmt.Sprintf(", %d still running", r.Open)
		}
		texts = append(texts, s+")")
	}
	if len(texts) > 0 {
		p.wrapText(head, listNames(texts))
	}
}

// writeFindings writes, below head, the findings that only one of the recordings has, without Options.Full at most screenNames;
// nothing for an empty list.
func (p *page) writeFindings(head string, list []compare.FindingRef) {
	if len(list) == 0 {
		return
	}
	p.line("")
	p.line(head + ":")
	for i := range list {
		f := &list[i]
		if i == screenNames && !p.opts.Full {
			p.line(fmt.Sprintf("  and %d more: --full shows all", len(list)-i))
			return
		}
		p.wrapText("  "+termtext.Pad(termtext.Head(f.Severity, 6), 8)+termtext.Head(string(f.Code), 6)+"  ", f.Title)
	}
}

const (
	valueColumn  = 9
	changeColumn = 10
)

// writeGroup writes the changes of a group: its percentiles, then the causes of its mean and of its slowest requests. The first
// group, which changed most, has more rows.
func (p *page) writeGroup(g *compare.Group, first bool) {
	p.line("")
	room := p.opts.Width - 40
	p.line(p.paint(termtext.Bold, termtext.Middle(groupName(g.Kind, g.Name, room), room)) + fmt.Sprintf("  %s, %d → %d %s", termtext.Head(g.Kind, 12), g.OldCount, g.NewCount, nounOf(g.Kind, g.Unit)))
	if g.OldOpen != g.NewOpen {
		p.line(fmt.Sprintf("  still running at the end of the trace: %d → %d", g.OldOpen, g.NewOpen))
	}
	p.line("  " + termtext.Pad("", 4) + termtext.PadLeft("old", valueColumn) + termtext.PadLeft("new", valueColumn) + termtext.PadLeft("change", changeColumn) +
		"  " + confidenceText(g.Confidence) + " interval of the change")
	hasHint := false
	for _, l := range g.Numbers() {
		if l.Old == nil && l.New == nil {
			continue
		}
		s := "  " + termtext.Pad(l.Name, 4) + termtext.PadLeft(words.DurationOrUnknown(l.Old), valueColumn) + termtext.PadLeft(words.DurationOrUnknown(l.New), valueColumn)
		change := noEvidence
		switch {
		case l.Evidence:
			change = words.Change(l.Ratio())
		case l.Probable:
			change, hasHint = words.Change(l.Ratio())+"?", true
		}
		s += p.colourChange(termtext.PadLeft(change, changeColumn), l.Evidence, l.Delta)
		switch {
		case l.Delta == nil:
			s += "  too few " + nounOf(g.Kind, g.Unit)
		case l.Low == nil:
			s += "  too few intervals with requests"
		default:
			s += "  " + signedDuration(*l.Low) + " to " + signedDuration(*l.High)
		}
		p.line(s)
	}
	if hasHint {
		p.line("  ?: probable, but no evidence: record for 30 s or more to be sure")
	}
	if slices.ContainsFunc(g.Members, func(m compare.Member) bool { return m.Moved }) {
		var texts []string
		for i := range g.Members {
			m := &g.Members[i]
			texts = append(texts, fmt.Sprintf("%s %d → %d", groupName(g.Kind, m.Name, room), m.OldCount, m.NewCount))
		}
		p.wrapText("  its requests by group  ", listNames(texts))
	}
	if g.Mean.Delta != nil {
		limit := otherRows
		if first {
			limit = firstRows
		}
		p.writeRows("the mean", g.Causes, limit, g.Mean.Evidence, func(r *compare.Row) bool { return r.Evidence })
	}
	if g.P99.Evidence && (first || p.opts.Full) {
		p.writeRows("the slowest 1%", g.Tail, firstRows, true, func(*compare.Row) bool { return true })
	}
}

// confidenceText returns a confidence in percent, with a digit after the point if it needs one.
func confidenceText(confidence float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", 100*confidence), ".0") + "%"
}

// writeRows writes the rows of which a change of subject ("the mean") consists: with Options.Full all, else at most limit that have a notable part of
// it. isSignificant says that a row has evidence; evidence, that the change has. Then rows with a large part, and those before a row with evidence, are shown even without their own
// evidence. Without such rows it writes nothing.
func (p *page) writeRows(subject string, rows []compare.Row, limit int, evidence bool, isSignificant func(*compare.Row) bool) {
	var totalDelta float64
	for i := range rows {
		totalDelta += float64(rows[i].DeltaNS)
	}
	// A row that is most of a change with evidence is evident, too.
	hasEvidence := func(r *compare.Row) bool {
		return isSignificant(r) || evidence && float64(r.DeltaNS)*totalDelta > 0 && 2*math.Abs(float64(r.DeltaNS)) > math.Abs(totalDelta)
	}
	var shown []*compare.Row
	for i := range rows {
		r := &rows[i]
		part := math.Abs(float64(r.DeltaNS)) / math.Abs(totalDelta)
		// Rows that are larger than one with evidence may say the opposite.
		isLarge := evidence && part >= largePart || slices.ContainsFunc(rows[i:], func(r compare.Row) bool { return hasEvidence(&r) })
		if p.opts.Full || len(shown) < limit && (hasEvidence(r) && part >= minRowPart || isLarge && part >= largePart) {
			shown = append(shown, r)
		}
	}
	if len(shown) == 0 {
		return
	}
	p.line("  what " + subject + " changed by")
	room := p.opts.Width - 4 - changeColumn - 2 - 11 - 2*valueColumn - 4
	for _, r := range shown {
		change := noEvidence
		if hasEvidence(r) {
			change = signedDuration(r.DeltaNS)
		}
		place := names.SiteText(r.Site(), room)
		switch {
		case place == "" && r.Kind != "":
			place = termtext.Head(r.Kind, room)
		case place == "" && r.Cause == report.CauseOther:
			place = "all other places"
		case place == "":
			place = "place unknown"
		}
		delta := r.DeltaNS
		p.line("  " + p.colourChange(termtext.PadLeft(change, changeColumn), hasEvidence(r), &delta) + "  " + termtext.Pad(termtext.Head(r.Cause, 10), 11) +
			termtext.Pad(place, room) + termtext.PadLeft(words.Duration(r.OldNS), valueColumn) + " →" + termtext.PadLeft(words.Duration(r.NewNS), valueColumn))
		const lead = 4 + changeColumn + 11
		if r.Cause == report.CauseQueue && hasEvidence(r) {
			queue := "for " + r.Kind
			if r.AheadWork != nil {
				queue += ", behind " + string(r.AheadWork.Cause) + " " + names.SiteText(r.AheadWork.Site, room)
			}
			p.line("  " + termtext.Pad("", lead-2) + termtext.Head(queue, p.opts.Width-lead))
		} else if n := len(r.Via); n > 0 && hasEvidence(r) {
			// The requests' own wait first: a lock whose holder waits for a peer is no wait for the peer.
			text, room := "via ", p.opts.Width-lead-4
			if n > 1 {
				room = room/2 - 3
				text += waitText(&r.Via[0], room) + " → "
			}
			p.line("  " + termtext.Pad("", lead-2) + termtext.Head(text+waitText(&r.Via[n-1], room), p.opts.Width-lead))
		}
	}
}

// waitText returns a wait and where it is, in at most room columns.
func waitText(v *report.Via, room int) string {
	return string(v.Wait) + " " + names.SiteText(v.Site, room-1-termtext.Width(string(v.Wait)))
}

// colourChange returns the text s of a change: red if delta is an increase and green if it is a decrease, and without colour if
// there is no evidence or delta is nil.
func (p *page) colourChange(s string, evidence bool, delta *int64) string {
	switch {
	case !evidence || delta == nil:
		return s
	case *delta > 0:
		return p.paint(termtext.Red, s)
	}
	return p.paint(termtext.Green, s)
}

// paint returns s in a style, or unchanged without colour.
func (p *page) paint(style termtext.Style, s string) string {
	if !p.opts.Color {
		return s
	}
	return style.Paint(s)
}

// signedDuration returns a duration in ns as text with its sign, also a plus.
func signedDuration(ns int64) string {
	if ns > 0 {
		return "+" + words.Duration(ns)
	}
	return words.Duration(ns)
}
