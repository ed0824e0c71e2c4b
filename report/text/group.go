package text

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// A row is a cause at a site, over all wait chains that lead to it.
type row struct {
	cause             report.CauseName
	kind              string
	site              *report.Site
	inferred          bool           // the site is only inferred from the events before and after
	routes            []report.Route // wait chains that lead to it, in the band by which rows are sorted, else in the first band with it
	hasSortBandRoutes bool           // the routes are those of the band by which rows are sorted
	running           []report.Share
	share             float64 // in the band by which rows are sorted
	bands             []float64
}

// addRoutes adds the wait chains of a cause to the row's.
func (r *row) addRoutes(c *report.Cause) {
	for _, added := range c.AllRoutes() {
		index := slices.IndexFunc(r.routes, func(route report.Route) bool {
			return slices.EqualFunc(route.Via, added.Via, sameVia) && sameWork(route.AheadWork, added.AheadWork)
		})
		if index < 0 {
			r.routes = append(r.routes, added)
		} else {
			r.routes[index].TotalNS += added.TotalNS
		}
	}
	if r.running == nil {
		r.running = c.RanMeanwhile
	}
}

func sameVia(a, b report.Via) bool { return a.Equal(&b) }

func sameWork(a, b *report.Work) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Cause == b.Cause && a.Site.Equal(b.Site)
}

// largestChain returns the wait chain with the most time, its fraction of the row's time, and the number of chains. It ignores routes
// without waits.
func (r *row) largestChain() (via []report.Via, fraction float64, chains int) {
	var all, largest int64
	for i := range r.routes {
		route := &r.routes[i]
		all += route.TotalNS
		if len(route.Via) == 0 {
			continue
		}
		chains++
		if route.TotalNS > largest || via == nil {
			via, largest = route.Via, route.TotalNS
		}
	}
	if all > 0 {
		fraction = float64(largest) / float64(all)
	}
	return via, fraction, chains
}

type rowKey struct {
	cause report.CauseName
	kind  string
	site  report.SiteKey
}

// rowsOf returns the causes of a group's bands as rows, sorted by their share in sortBand, the largest first. A row has its shares in
// all bands, in the group's order.
func rowsOf(g *report.Group, sortBand *report.Band) []row {
	index := map[rowKey]int{}
	var rows []row
	for i := range g.Bands {
		b := &g.Bands[i]
		sorting := b.Band == sortBand.Band
		for j := range b.Causes {
			c := &b.Causes[j]
			key := rowKey{cause: c.Cause, kind: c.Kind, site: c.Site.Key()}
			rowIndex, ok := index[key]
			if !ok {
				rowIndex = len(rows)
				index[key] = rowIndex
				rows = append(rows, row{cause: c.Cause, kind: c.Kind, site: c.Site, inferred: c.SiteFrom == "bracket", bands: make([]float64, len(g.Bands))})
			}
			r := &rows[rowIndex]
			r.bands[i] += c.Share
			if sorting {
				r.share += c.Share
			}
			switch {
			case sorting && !r.hasSortBandRoutes:
				// The routes of other bands are used only if sortBand has none.
				r.routes, r.running, r.hasSortBandRoutes = nil, nil, true
				r.addRoutes(c)
			case sorting || !r.hasSortBandRoutes && len(r.routes) == 0:
				r.addRoutes(c)
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		// The row that completes the sum comes last, whatever its share.
		if ao, bo := a.cause == report.CauseOther, b.cause == report.CauseOther; ao != bo {
			if ao {
				return 1
			}
			return -1
		}
		return cmp.Compare(b.share, a.share)
	})
	return rows
}

// groups writes the groups: the first in full, the next maxShort (those with finished requests) in short, the rest in a table;
// with Options.AllGroups all in full. Below it names the work that was found but is no group.
func (p *page) groups() {
	var rest []*report.Group
	shown := 0
	for i := range p.report.Groups {
		g := &p.report.Groups[i]
		switch {
		case p.opts.AllGroups || shown == 0:
			p.group(g, true)
		case shown <= maxShort && g.Count > 0:
			p.group(g, false)
		default:
			rest = append(rest, g)
			continue
		}
		shown++
	}
	p.groupTable(rest)
	p.leftOut()
}

// maxNamed is how many kinds of left-out work are named.
const maxNamed = 3

// leftOut names the work that was found but is no group.
func (p *page) leftOut() {
	for _, reason := range report.LeftOutReasons() {
		var list []report.LeftOut
		for _, l := range p.report.Input.LeftOut {
			if l.Reason == reason {
				list = append(list, l)
			}
		}
		if len(list) == 0 {
			continue
		}
		var names []string
		for _, l := range list[:min(len(list), maxNamed)] {
			noun := l.Kind.RequestNoun() + "s"
			if l.Kind == report.KindRegion {
				noun = "regions" // of a library: no requests
			}
			names = append(names, termtext.Middle(words.FuncName(l.Name), p.width/2)+" ("+words.Number(int64(l.Count))+" "+noun+")")
		}
		if len(list) > maxNamed {
			names = append(names, words.Count(len(list)-maxNamed, "other", "others"))
		}
		head, text := "besides", ": done for requests, whose latency includes it"
		switch reason {
		case report.LeftOutPart:
			text = ": parts of the run, which nothing waits for by themselves"
		case report.LeftOutLibrary:
			head, text = "left out", ": a library's own work, without code of the service"
		}
		p.line()
		p.paragraph(span{dim, head}, indent, span{dim, strings.Join(names, ", ") + text})
	}
}

// group writes one group.
func (p *page) group(g *report.Group, full bool) {
	p.line()
	p.title(g)
	p.latency(g)
	if len(g.Bands) == 0 || g.Count == 0 {
		return
	}
	if p.opts.Band != "" {
		p.band(g)
	} else {
		p.causes(g, full)
	}
	if full {
		for i := range min(len(g.Slowest), p.opts.Slowest) {
			p.chain(&g.Slowest[i])
		}
	}
}

// title writes a group's name, with its kind and number of requests, and whether they stream or still run.
func (p *page) title(g *report.Group) {
	facts := []string{kindWords(g.Kind), names.CountRequests(g, g.Count)}
	if g.Role != report.RoleRequests {
		facts = append(facts, termtext.Head(g.Role, 20))
	}
	if !g.Named {
		facts = append(facts, "handler not seen")
	}
	if g.Streaming {
		facts = append(facts, "streaming")
	}
	if g.Open.Count > 0 {
		facts = append(facts, words.Number(int64(g.Open.Count))+" still running")
	}
	rest := "  " + strings.Join(facts, ", ")
	p.line(span{bold, names.GroupName(g, max(p.width-termtext.Width(rest), 20))}, span{dim, termtext.Head(rest, p.width-20)})
}

// kindWords returns a kind of group in words: its protocol, if it has one.
func kindWords(kind report.Kind) string {
	if p := kind.Protocol(); p != "" {
		return p
	}
	switch kind {
	case report.KindGoroutine:
		return "a goroutine each"
	case report.KindFunc:
		return "calls"
	}
	return termtext.Head(kind, 12)
}

// latency writes the percentiles of a group's latency and of the delay before its requests ran, and its peer.
func (p *page) latency(g *report.Group) {
	l := &g.LatencyNS
	p.quantiles("latency", []quantile{{"p50", l.P50}, {"p90", l.P90}, {"p99", l.P99}, {"p99.9", l.P999}, {"max", l.Max}, {"mean", l.Mean}})
	if b := g.Backlog; b != nil {
		p.quantiles("before read", []quantile{{"p50", b.WaitNS.P50}, {"p90", b.WaitNS.P90}, {"p99", b.WaitNS.P99}, {"max", b.WaitNS.Max}, {"mean", b.WaitNS.Mean}})
		p.quantiles("from arrival", []quantile{{"p50", b.TotalNS.P50}, {"p90", b.TotalNS.P90}, {"p99", b.TotalNS.P99}, {"max", b.TotalNS.Max}, {"mean", b.TotalNS.Mean}})
	}
	if r, gap := &g.ReadyToRunNS, &g.PollGapNS; r.P50 != nil || r.Max != nil {
		list := []quantile{{"p50", r.P50}, {"p99", r.P99}, {"max", r.Max}}
		if gap.Max != nil && *gap.Max > 0 {
			if gap.P99 != nil {
				list = append(list, quantile{"poll gap p99", gap.P99}, quantile{"max", gap.Max})
			} else {
				list = append(list, quantile{"poll gap max", gap.Max})
			}
		}
		p.quantiles("ready to run", list)
	}
	if g.Peer != nil {
		p.paragraph(padRight(dim, "  its peer", 16), 16, span{plain, names.DescribePeer(g.Peer)})
	}
}

// A quantile is a point of a distribution, nil if there are too few requests to know it.
type quantile struct {
	name  string
	value *int64
}

// quantiles writes as many points of a distribution as fit into a line.
func (p *page) quantiles(label string, list []quantile) {
	spans := []span{padRight(dim, "  "+label, 16)}
	for _, q := range list {
		if q.value == nil {
			continue
		}
		st := plain
		if q.name == "p99" {
			st = bold
		}
		next := append(spans, span{dim, q.name + " "}, span{st, words.Duration(*q.value)})
		if widthOf(next) > p.width {
			break
		}
		spans = append(next, span{plain, "  "})
	}
	p.line(spans...)
}

// column is a band as shown in the table of causes.
type column struct {
	band  *report.Band
	index int
	head  string
	width int
}

// columns returns the bands with requests, as many as fit.
func (p *page) columns(g *report.Group) []column {
	var cols []column
	for i := range g.Bands {
		b := &g.Bands[i]
		if b.Count == 0 {
			continue
		}
		head := termtext.Head(b.Band, 10)
		if b.Band == report.Band99 {
			head = "p99+"
		}
		cols = append(cols, column{b, i, head, termtext.Width(head) + 2})
	}
	// The middle bands have the least information.
	for len(cols) > 3 && p.width < 90 {
		cols = slices.Delete(cols, len(cols)-2, len(cols)-1)
	}
	return cols
}

const causeColumn = 12

// causes writes the table of a group's causes by band.
func (p *page) causes(g *report.Group, full bool) {
	tail := g.Tail()
	cols := p.columns(g)
	room := p.width - 2 - causeColumn
	for i := range cols {
		if d := bandMean(cols[i].band); full && termtext.Width(d)+2 > cols[i].width {
			cols[i].width = termtext.Width(d) + 2
		}
		room -= cols[i].width
	}
	head := []span{padRight(dim, "  share of time in", 2+causeColumn+room)}
	for _, c := range cols {
		head = append(head, padLeft(dim, c.head, c.width))
	}
	p.line(head...)
	if full {
		counts := []span{padRight(dim, "  requests", 2+causeColumn+room)}
		means := []span{padRight(dim, "  mean latency", 2+causeColumn+room)}
		for _, c := range cols {
			counts = append(counts, padLeft(dim, words.ShortNumber(c.band.Count), c.width))
			means = append(means, padLeft(dim, bandMean(c.band), c.width))
		}
		p.line(counts...)
		p.line(means...)
	}
	limit := shortRows
	if full {
		limit = fullRows
	}
	rest := row{bands: make([]float64, len(g.Bands))}
	hidden := map[report.CauseName]float64{}
	rows := rowsOf(g, tail)
	for i, show := range chooseRows(rows, limit) {
		if show {
			p.row(&rows[i], cols, room)
			continue
		}
		for j := range rest.bands {
			rest.bands[j] += rows[i].bands[j]
		}
		hidden[rows[i].cause] += rows[i].share
	}
	if slices.ContainsFunc(cols, func(c column) bool { return rest.bands[c.index] > 0 }) {
		spans := []span{{plain, "  "}, padRight(dim, "other", causeColumn), padRight(dim, termtext.Head(sharesText(hidden), room-1), room)}
		for _, c := range cols {
			spans = append(spans, padLeft(dim, words.Percent(rest.bands[c.index]), c.width))
		}
		p.line(spans...)
	}
}

// sharesText names the largest of the causes that a table leaves out, with their shares of a band's time.
func sharesText(shares map[report.CauseName]float64) string {
	largest := slices.SortedFunc(maps.Keys(shares), func(a, b report.CauseName) int {
		return cmp.Or(cmp.Compare(shares[b], shares[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, c := range largest {
		if c != report.CauseOther && shares[c] >= 0.01 && len(parts) < 3 {
			parts = append(parts, causeName(c)+" "+words.Percent(shares[c]))
		}
	}
	return strings.Join(parts, ", ")
}

// chooseRows selects the rows that are shown: at most limit, those with the largest share in the slow band or in all requests, at
// least one, and no other below 1 % in both.
func chooseRows(rows []row, limit int) []bool {
	weight := func(r *row) float64 {
		if r.cause == report.CauseOther {
			return 0
		}
		if len(r.bands) == 0 {
			return r.share
		}
		return max(r.share, r.bands[0])
	}
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(weight(&rows[b]), weight(&rows[a])) })
	show := make([]bool, len(rows))
	for n, i := range order[:min(len(order), limit)] {
		show[i] = n == 0 && rows[i].cause != report.CauseOther || weight(&rows[i]) >= 0.01
	}
	return show
}

// row writes a row of causes with its share of each column's band, and its details below. room is the width for the place.
func (p *page) row(r *row, cols []column, room int) {
	spans := []span{{plain, "  "}, padRight(names.CauseStyle(r.cause), causeName(r.cause), causeColumn)}
	spans = append(spans, padTo(p.rowPlace(r, room), room)...)
	for i, c := range cols {
		st := plain
		if i == len(cols)-1 {
			st = shareStyle(r.bands[c.index], false)
		}
		spans = append(spans, padLeft(st, words.Percent(r.bands[c.index]), c.width))
	}
	p.line(spans...)
	p.rowDetails(r)
}

// rowPlace returns the kind and the site of a row.
func (p *page) rowPlace(r *row, room int) []span {
	var spans []span
	if r.inferred && r.site != nil {
		spans = append(spans, span{dim, "inferred "})
	}
	if r.kind != "" && (r.cause != report.CauseQueue || r.site == nil) {
		spans = append(spans, span{plain, termtext.Head(r.kind, max(room/2, 12)) + " "})
	}
	if r.site == nil && r.kind == "" && r.cause != report.CauseOther {
		return append(spans, span{dim, "no place known"})
	}
	return append(spans, siteSpans(r.site, room-widthOf(spans)-1)...)
}

// A wait chain with less than minChainFraction of its cause's time is not shown.
const minChainFraction = 0.03

// queueDetails writes what requests queue for, and what those ahead of them mostly do.
func (p *page) queueDetails(r *row, indent string) {
	spans := []span{{plain, indent}, {dim, "for " + termtext.Head(r.kind, 60)}}
	works := (&report.Cause{Cause: r.cause, TotalNS: 1, Routes: r.routes}).Works()
	largest := 0
	for i := range works {
		if works[i].TotalNS > works[largest].TotalNS {
			largest = i
		}
	}
	if len(works) > 0 {
		spans = append(spans, span{dim, ", behind "}, span{names.CauseStyle(works[largest].Cause), causeName(works[largest].Cause) + " "})
		spans = append(spans, siteSpans(works[largest].Site, max(p.width-widthOf(spans)-1, 12))...)
	}
	p.line(spans...)
}

// rowDetails writes the waits that lead to a cause, and the code that ran during the wait.
func (p *page) rowDetails(r *row) {
	via, fraction, chains := r.largestChain()
	running := r.running
	indent := strings.Repeat(" ", 2+causeColumn)
	shown := len(via) == 1 && chains == 1 && fraction >= 0.995 && r.site.WaitedAt(&via[0]) // as the way
	if callerPlace := callerSpans(r.site, p.width-len(indent)); callerPlace != nil && !shown {
		p.line(append([]span{{plain, indent}}, callerPlace...)...)
	}
	if r.cause == report.CauseQueue {
		p.queueDetails(r, indent)
	}
	if len(via) > 0 && fraction >= minChainFraction && !(r.cause == report.CauseQueue && len(via) == 1) { // the one wait is that in the queue
		lead, moreChains := "via ", ""
		if fraction < 0.995 {
			lead = words.Percent(fraction) + " via "
		}
		if chains > 1 {
			moreChains = ", " + words.Count(chains-1, "more way", "more ways")
		}
		spans := append([]span{{plain, indent}, {dim, lead}}, p.chainOfWaits(via, p.width-len(indent)-len(lead)-len(moreChains))...)
		spans = append(spans, span{dim, moreChains})
		p.line(spans...)
	}
	if len(running) > 0 {
		spans := []span{{plain, indent}, {dim, "while "}}
		used := widthOf(spans)
		for i := range running[:min(len(running), 3)] {
			s := &running[i]
			if i > 0 && s.Share < 0.05 {
				break
			}
			place := siteSpans(s.Site, 44)
			if place == nil {
				place = []span{{dim, "others"}}
			}
			place = append(place, span{plain, " " + words.Percent(s.Share)})
			if i > 0 {
				place = append([]span{{plain, ", "}}, place...)
			}
			if used+widthOf(place) > p.width {
				break
			}
			spans, used = append(spans, place...), used+widthOf(place)
		}
		if used > len(indent)+6 {
			p.line(spans...)
		}
	}
}

// maxHops is how many waits of a chain are shown: the first ones from the request, and the last one before the cause.
const maxHops = 3

// chainOfWaits writes waits, outermost first, in at most max columns. It shortens the names as far as necessary; if even the shortest
// do not fit, it omits waits.
func (p *page) chainOfWaits(via []report.Via, max int) []span {
	for hops := min(len(via), maxHops); ; hops-- {
		for room := max; room >= 24 || hops == 1; room -= 3 {
			out := waits(via, hops, room)
			if widthOf(out) <= max || room < 12 {
				return out
			}
		}
	}
}

// waits writes the given number of waits, each in about room columns.
func waits(via []report.Via, hops, room int) []span {
	var out []span
	skipped := len(via) - hops
	for i := range hops {
		h := &via[i]
		if i == hops-1 && hops > 1 {
			h = &via[len(via)-1]
		}
		if i > 0 {
			out = append(out, span{dim, " → "})
			if skipped > 0 && i == hops-1 {
				out = append(out, span{dim, words.Number(int64(skipped)) + " more → "})
			}
		}
		out = append(out, span{dim, termtext.Head(h.Wait, 12)})
		for j, s := range siteSpans(h.Site, room-termtext.Width(string(h.Wait))) {
			if j == 0 {
				s.text = " " + s.text
			}
			out = append(out, span{dim, s.text})
		}
	}
	if skipped > 0 && hops == 1 {
		out = append(out, span{dim, " → " + words.Number(int64(skipped)) + " more"})
	}
	return out
}

// band writes the causes of the band that the options name, each wait chain separately, with their mean time per request: the
// first bandRows, and the number of the others. If that band has no requests, it says so.
func (p *page) band(g *report.Group) {
	b := g.Band(p.opts.Band)
	if b == nil || b.Count == 0 {
		p.line(span{dim, "  no requests in band " + termtext.Head(p.opts.Band, 20)})
		return
	}
	p.paragraph(span{}, 2, span{dim, verdict.BandText(g, b.Band) + " " + verdict.LatencyRange(g, b) + ": " + names.CountRequests(g, b.Count) + ", mean " + bandMean(b)})
	const share, perRequest, touched = 7, 9, 10
	var largest int64
	for i := range b.Causes {
		largest = max(largest, b.Causes[i].TotalNS/int64(b.Count))
	}
	u := words.UnitFor(largest)
	room := p.width - 2 - causeColumn - share - perRequest - touched
	p.line(padRight(dim, "  cause", 2+causeColumn), padRight(dim, "where", room), padLeft(dim, "share", share), padLeft(dim, "each", perRequest), padLeft(dim, "requests", touched))
	for i := range b.Causes {
		c := &b.Causes[i]
		if i == bandRows {
			p.line(span{dim, "  and " + words.Count(len(b.Causes)-i, "more cause", "more causes") + " in the JSON"})
			break
		}
		r := row{cause: c.Cause, kind: c.Kind, site: c.Site, inferred: c.SiteFrom == "bracket"}
		r.addRoutes(c)
		spans := []span{{plain, "  "}, padRight(names.CauseStyle(c.Cause), causeName(c.Cause), causeColumn)}
		spans = append(spans, padTo(p.rowPlace(&r, room), room)...)
		p.line(append(spans, padLeft(shareStyle(c.Share, false), words.Percent(c.Share), share), padLeft(plain, u.Format(c.TotalNS/int64(b.Count)), perRequest),
			padLeft(plain, words.ShortNumber(c.Requests), touched))...)
		p.rowDetails(&r)
	}
}

// groupTable writes a line for each group.
func (p *page) groupTable(groups []*report.Group) {
	if len(groups) == 0 {
		return
	}
	nameWidth := 12
	for _, g := range groups[:min(len(groups), maxTableGroups)] {
		nameWidth = max(nameWidth, termtext.Width(names.GroupName(g, p.width/3)))
	}
	p.line()
	p.line(padRight(dim, "also", nameWidth), padLeft(dim, "requests", 10), padLeft(dim, "p50", 8), padLeft(dim, "p99", 8), padLeft(dim, "max", 8), span{dim, "  most of the slowest"})
	for i, g := range groups {
		if i == maxTableGroups {
			p.line(span{dim, "and " + words.Count(len(groups)-i, "more group", "more groups") + " in the JSON"})
			break
		}
		p.line(append([]span{padRight(plain, names.GroupName(g, p.width/3), nameWidth)}, p.groupCells(g, nameWidth)...)...)
	}
}

// bandMean returns the mean latency of a band's requests as text.
func bandMean(b *report.Band) string {
	if b.Count <= 0 {
		return words.Unknown
	}
	return words.Duration(b.TotalNS() / int64(b.Count))
}

func causeName(cause report.CauseName) string { return termtext.Head(cause, causeColumn-1) }
