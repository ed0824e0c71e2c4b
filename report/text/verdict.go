package text

import (
	"math"
	"strings"

	"github.com/whylate/whylate/internal/termtext"
	"github.com/whylate/whylate/report"
)

// bandWords says which requests a band holds.
func bandWords(band report.BandName) string {
	switch band {
	case report.Band99:
		return "The slowest 1%"
	case report.Band9099:
		return "From p90 to p99, requests"
	case report.Band5090:
		return "From p50 to p90, requests"
	}
	return "Requests"
}

// indent is where text begins beside a heading.
const indent = 9

// verdict says for each of the groups with the most latency what its slow requests spent their time on.
func (p *page) verdict() {
	var all int64
	for i := range p.r.Groups {
		all += p.r.Groups[i].TotalNS
	}
	head := span{bold, "why"}
	said := 0
	for i := range p.r.Groups {
		g := &p.r.Groups[i]
		if said == maxVerdicts || said > 0 && float64(g.TotalNS) < verdictShare*float64(all) && g.Open.Count == 0 {
			break
		}
		if g.Count == 0 && g.Open.Count == 0 {
			continue
		}
		p.line()
		p.groupVerdict(g, head, said == 0)
		head = span{}
		said++
	}
}

// groupVerdict says which requests were slow, and then in a line for each cause what for: the first cause, and those
// after it that matter.
func (p *page) groupVerdict(g *report.Group, head span, first bool) {
	b := g.Tail()
	if named := g.Band(p.opts.Band); named != nil {
		b = named
	}
	rows := merge(g, b)
	if g.Count == 0 || len(rows) == 0 || rows[0].total <= 0 {
		p.paragraph(head, indent, span{bold, p.groupName(g, p.width-indent-2)}, span{plain, ": no request ended in the trace."})
		p.open(g)
		return
	}
	which, spent := bandWords(b.Band)+" of ", " spent"
	switch {
	case b.Count == 1 && b.Band == report.Band99:
		which, spent = "The slowest request of ", " spent"
	case b.Count == 1:
		which = "One request of "
	}
	p.paragraph(head, indent, span{plain, which}, span{bold, p.groupName(g, p.width-indent-2)}, span{plain, " " + bandRange(g, b) + spent})
	most, least := 3, 0.10
	if !first {
		most, least = 2, 0.20
	}
	list := rows[:1]
	for _, r := range rows[1:min(most, len(rows))] {
		if r.share < least || r.cause == report.CauseOther {
			break
		}
		list = append(list, r)
	}
	eachWidth := 0
	for i := range list {
		eachWidth = max(eachWidth, termtext.Width(duration(list[i].total/int64(b.Count))))
	}
	for i := range list {
		p.spent(b, &list[i], eachWidth)
	}
	p.open(g)
}

// open says which requests had not ended, if one of them is late: a hung request is the latest of all, while one that is
// no older than others were at their end says nothing.
func (p *page) open(g *report.Group) {
	if g.Open.Count == 0 {
		return
	}
	for _, usual := range []*int64{g.LatencyNS.P99, g.LatencyNS.Max} {
		if usual != nil {
			if g.Open.OldestNS <= *usual {
				return
			}
			break
		}
	}
	spans := []span{{boldRed, count(g.Open.Count, "request", "requests") + " had not ended"}, {plain, " when the trace did, the oldest after " + duration(g.Open.OldestNS)}}
	if at := place(g.Open.Site, p.width-indent-2); at != nil {
		spans = append(append(spans, span{plain, " in "}), at...)
	}
	p.paragraph(span{}, indent, spans...)
}

// bandRange says from which latency to which the requests of a band took.
func bandRange(g *report.Group, b *report.Band) string {
	last := b.ToNS
	if m := g.LatencyNS.Max; m != nil && *m < last {
		last = *m
	}
	switch {
	case b.Count == 1 && b.Band == report.Band99, b.FromNS >= last && last > 0:
		return "(" + duration(last) + ")"
	case (b.FromNS == 0 || b.Band == report.BandAll) && g.LatencyNS.P50 != nil:
		return "(p50 " + duration(*g.LatencyNS.P50) + ", max " + duration(last) + ")"
	case b.FromNS == 0:
		return "(up to " + duration(last) + ")"
	}
	return "(" + duration(b.FromNS) + " to " + duration(last) + ")"
}

// spent says what a share of a band's time was spent on, and how much that is for each request.
func (p *page) spent(b *report.Band, row *row, eachWidth int) {
	numbers := termtext.PadLeft(percent(row.share), 4) + "  " + termtext.PadLeft(duration(row.total/int64(b.Count)), eachWidth)
	head := span{heat(row.share, true), strings.Repeat(" ", indent) + numbers}
	hang := indent + termtext.Width(numbers) + 2
	room := p.width - hang - 2
	var spans []span
	say := func(st style, text string) { spans = append(spans, span{st, text}) }
	words, at := causeWords(row.cause)
	switch {
	case row.cause == report.CauseSTW && row.kind != "":
		words = "with the world stopped (" + termtext.Head(row.kind, 40) + ")"
	case row.cause == report.CauseNetwork && row.pipe:
		words = "waiting for the other end of a pipe"
	case row.cause == report.CauseNetwork && row.kind == "inbound":
		words = "waiting for the client"
	case row.cause == report.CauseNetwork && row.kind == "outbound":
		words = "waiting for a peer on the network"
	}
	say(bold, words)
	if site := place(row.site, room); site != nil {
		say(plain, at)
		spans = append(spans, site...)
	}
	for _, ran := range row.ran {
		if ran.Site != nil && ran.Share >= 0.1 {
			say(plain, " while ")
			spans = append(spans, place(ran.Site, room)...)
			say(plain, " ran ("+percent(ran.Share)+" of that)")
			break
		}
	}
	if via, part, _ := row.way(); part >= 0.2 {
		lead := ", via "
		if part < 0.995 {
			lead = ", " + percent(part) + " of it via "
		}
		say(dim, lead+termtext.Head(via[0].Wait, 12))
		for i, s := range place(via[0].Site, room) {
			if i == 0 {
				s.text = " " + s.text
			}
			say(dim, s.text)
		}
		if n := len(via) - 1; n > 0 {
			say(dim, " and "+number(int64(n))+" more")
		}
	}
	p.paragraph(head, hang, spans...)
}

// causeWords says a cause in words, and what leads to its site.
func causeWords(cause report.CauseName) (words, at string) {
	switch cause {
	case report.CauseCPU:
		return "computing", " in "
	case report.CauseSched:
		return "ready to run, waiting for a CPU", ", at "
	case report.CauseSchedWake:
		return "ready to run beside an idle CPU", ", at "
	case report.CauseSchedPoll:
		return "with data perhaps ready that nobody polled for", ", at "
	case report.CauseThrottle:
		return "frozen by the CPU quota", ", at "
	case report.CauseGCAssist:
		return "helping the garbage collector", ", allocating in "
	case report.CauseGCWait:
		return "waiting for the garbage collector", ", in "
	case report.CauseSTW:
		return "with the world stopped", ", by "
	case report.CauseSleep:
		return "asleep", " in "
	case report.CauseNetwork:
		return "waiting for the network", " in "
	case report.CauseSyscall:
		return "in the kernel", ", called from "
	case report.CauseLock:
		return "waiting for a lock", " in "
	case report.CauseChan:
		return "waiting on a channel", " in "
	case report.CauseUnknown:
		return "in ways the trace does not show", ", at "
	case report.CauseOther:
		return "on many small causes", ", at "
	}
	return "on " + termtext.Head(cause, 20), ", at "
}

// heat is the style of a share: the larger, the more it stands out.
func heat(share float64, always bool) style {
	switch {
	case share >= 0.3:
		return boldRed
	case share >= 0.1:
		return yellow
	case always:
		return bold
	}
	return plain
}

// groupName is the group's name, in the short form of functions where it is one. Tasks, regions and RPC methods have
// names of their own, in which a slash is no directory.
func (p *page) groupName(g *report.Group, max int) string {
	switch g.Kind {
	case report.KindTask, report.KindRegion, report.KindGRPC:
		return termtext.Middle(g.Name, max)
	}
	if strings.Contains(g.Name, " ") {
		return termtext.Middle(g.Name, max)
	}
	return funcName(&report.Site{Func: g.Name}, max)
}

// estimate writes a prediction and its range, no finer than the range allows.
func estimate(e report.Estimate) string {
	if e.Low == e.High {
		return duration(e.Est)
	}
	write := duration
	if float64(e.High-e.Low) > 0.1*float64(e.Est) {
		write = rough
	}
	return write(e.Est) + " (" + write(e.Low) + " to " + write(e.High) + ")"
}

// checked says what requests that met as much of a cause as a change leaves, or none, tell of a prediction, and, where it is something else, what that
// may mean.
func checked(c *report.Check) []span {
	met := "at most " + rough(c.AtMostNS)
	if c.AtLeastNS > 0 {
		met = rough(c.AtLeastNS) + " to " + rough(c.AtMostNS)
	}
	told := count(c.Requests, "request", "requests") + " met " + met + " of it: p50 " + duration(c.P50NS) + ", "
	predicted := " predicted"
	if c.Gone {
		predicted += " without it"
	}
	switch {
	case c.Agrees && !c.Gone:
		return []span{{plain, "checked: "}, {dim, told + "which fits"}}
	case c.Agrees:
		return []span{{plain, "checked: "}, {dim, told + "which fits the " + rough(c.PredictedNS.Est) + predicted}}
	}
	why := "something else makes them slow, which may remain, or they are of another kind"
	if c.P50NS < c.PredictedNS.Est {
		why = "they may have less to do, or more may go with it"
	}
	return []span{{yellow, "differs: "}, {plain, told + "where " + estimate(c.PredictedNS) + " is" + predicted + "; " + why}}
}

// rough writes two digits of a duration.
func rough(ns int64) string {
	step := int64(1)
	for ns/step >= 100 {
		step *= 10
	}
	text := duration((min(ns, math.MaxInt64-step/2) + step/2) / step * step)
	unit := strings.TrimLeft(text, "0123456789.")
	if number := strings.TrimSuffix(text, unit); strings.Contains(number, ".") {
		return strings.TrimRight(strings.TrimRight(number, "0"), ".") + unit
	}
	return text
}

// goals says whether latencies keep what was asked of them, and what would.
func (p *page) goals() {
	for i := range p.r.Goals {
		g := &p.r.Goals[i]
		p.line()
		head := span{bold, "goal"}
		text := []span{{bold, breakable(termtext.Head(FuncName(g.Name), 200), p.width/2)}, {plain, ": " + g.Percentile + " of at most " + duration(g.MostNS) + " "}}
		switch pr := g.Predicted; {
		case g.IsNS == nil:
			text = append(text, span{dim, "is not known, there were too few requests"})
		case g.Kept:
			text = append(text, span{green, "is kept: " + duration(*g.IsNS)})
		case pr == nil:
			text = append(text, span{plain, "is not kept, it is " + duration(*g.IsNS) + ", and no change can be predicted"})
		default:
			then := pr.P99NS
			if g.Percentile == "p50" {
				then = pr.P50NS
			}
			if g.Reached {
				text = append(text, span{plain, "is reached, from " + duration(*g.IsNS) + " to "}, span{green, estimate(then)}, span{plain, ", by "})
			} else {
				text = append(text, span{plain, "is not kept, it is " + duration(*g.IsNS) + "; no three changes reach it. Nearest, with "}, span{plain, estimate(then)}, span{plain, ", comes "})
			}
			text = append(text, span{plain, breakable(termtext.Head(pr.Change, 400), p.width/2)})
		}
		p.paragraph(head, indent, text...)
	}
}

// whatIf says what the changes asked for would win.
func (p *page) whatIf() {
	head := span{bold, "what if"}
	for i := range p.r.WhatIf {
		w := &p.r.WhatIf[i]
		pr := &w.Predicted
		p.line()
		was := func(ns *int64) string {
			if ns == nil {
				return ""
			}
			return duration(*ns) + " → "
		}
		text := []span{{plain, breakable(termtext.Head(pr.Change, 400), p.width/2)}, {dim, " in "}, {bold, breakable(termtext.Head(FuncName(w.Name), 200), p.width/2)},
			{plain, ": p50 " + was(pr.WasP50NS)}, {green, estimate(pr.P50NS)}, {plain, ", p99 " + was(pr.WasP99NS)}, {green, estimate(pr.P99NS)}}
		if pr.WasP99NS == nil {
			text = append(text, span{dim, " (of few requests)"})
		}
		p.paragraph(head, indent, text...)
		head = span{}
		if pr.Check != nil {
			p.paragraph(head, indent+2, checked(pr.Check)...)
		}
	}
	if p.r.WhatIf != nil && len(p.r.WhatIf) == 0 {
		p.line()
		p.paragraph(head, indent, span{plain, "no group of requests meets the change"})
	}
}
