// Package verdict says what the slow requests of a report's largest groups spent their time on: which band speaks for
// them, the causes summed up first and then divided by place, and the words for it. It is computed once, stands in the
// JSON, and is what every view prints.
package verdict

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/report"
)

// What is worth saying.
const (
	maxGroups = 3 // groups with a verdict

	maxCauses, leastCause          = 3, 0.10 // causes that are mentioned, for the first group
	maxFurtherCauses, leastFurther = 2, 0.20 // and for the others
	maxSites                       = 5       // places of a cause that are kept
	maxSaidSites                   = 3       // and those that are mentioned
	wholly                         = 0.995
)

// Of returns the verdicts on the groups with the most latency, in the report's order.
func Of(r *report.Report) []report.Verdict { return OfBand(r, "") }

// OfBand is Of for the named band, if a group has it, instead of the band that represents its slow requests.
func OfBand(r *report.Report, band report.BandName) []report.Verdict {
	out := []report.Verdict{}
	var all int64
	for i := range r.Groups {
		if r.Groups[i].Role == report.RoleRequests {
			all += r.Groups[i].TotalNS
		}
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		if g.Role != report.RoleRequests {
			break // no request waits for its latency
		}
		if len(out) == maxGroups {
			break
		}
		if len(out) > 0 && float64(g.TotalNS) < scale.Little*float64(all) && !hung(r, g) {
			continue
		}
		if hangs := hung(r, g); g.Count > 0 || hangs {
			out = append(out, ofGroup(r, g, band, len(out) == 0, hangs))
		}
	}
	return out
}

// Causes returns what the requests of a band spent their time on: summed by who works, in the order in which they are mentioned.
func Causes(r *report.Report, g *report.Group, b *report.Band) []report.VerdictCause {
	list, first := queues(r, g)
	return spreadLast(withoutCPU(sums(b, list, first), r, b))
}

// hung reports whether requests of a group hang that were still running at the end of the trace: whether a finding above low says
// so. A request that waits for an event that may come at any time is normal.
func hung(r *report.Report, g *report.Group) bool {
	return slices.ContainsFunc(r.Findings, func(f report.Finding) bool {
		return f.Code == report.RuleHung && f.Group == g.ID && f.Severity.Loud()
	})
}

func ofGroup(r *report.Report, g *report.Group, band report.BandName, first, hung bool) report.Verdict {
	b := g.Tail()
	if named := g.Band(band); named != nil {
		b = named
	}
	v := report.Verdict{Group: g.ID, Band: b.Band, Requests: b.Count, Causes: Causes(r, g, b), Open: open(g, hung)}
	for i := range v.Causes {
		c := &v.Causes[i]
		nameHolder(c, r, g)
		for k := range c.Sites {
			_, asked := Beyond(c.Sites[k].Via)
			c.Sites[k].In = asks(r, g, asked)
		}
	}
	v.Lead, v.Range = lead(g, b)
	most, least := maxCauses, leastCause
	if !first {
		most, least = maxFurtherCauses, leastFurther
	}
	said := []string{}
	for i := range v.Causes {
		c := &v.Causes[i]
		c.Text = Join(Spell(c, wide))
		c.Said = c.Cause != report.CauseOther && len(said) < most && (c.Share >= least || len(said) == 0)
		if c.Said {
			said = append(said, words.PercentOr0(c.Share)+" "+c.Text)
		}
	}
	name := names.GroupName(g, wide)
	switch {
	case len(said) == 0:
		v.Text = name + ": no request ended in the trace"
	default:
		v.Text = v.Lead + " " + name + " " + v.Range + " spent " + strings.Join(said, "; ")
	}
	if v.Held = held(r); v.Held != "" {
		v.Text += "; " + v.Held
	}
	if v.Open != nil && v.Open.Late {
		v.Text += "; " + v.Open.Text
	}
	return v
}

// open says how many requests of a group have not ended.
func open(g *report.Group, hung bool) *report.VerdictOpen {
	if g.Open.Count == 0 {
		return nil
	}
	o := &report.VerdictOpen{Count: g.Open.Count, OldestNS: g.Open.OldestNS, Site: g.Open.Site, Late: hung}
	o.Text = words.Count(g.Open.Count, "request", "requests") + " still running at the end of the trace, the oldest for " + words.Duration(g.Open.OldestNS)
	if at := names.Place(g.Open.Site, wide); at != "" {
		o.Text += " in " + at
		if lead, fn, pos := names.CalledFrom(g.Open.Site, wide); fn+pos != "" {
			o.Text += ", " + lead + strings.TrimSpace(fn+" "+pos)
		}
	}
	return o
}

// nameHolder has a cause's words say who takes the time, where that is known: what stopped the process, or the peer. If the peer is
// named already, the way to the place is left out.
func nameHolder(c *report.VerdictCause, r *report.Report, g *report.Group) {
	if s := r.Runtime.Stops; c.Cause == report.CauseThrottle && s != nil && s.By != "" && !r.Runtime.Throttle.Verdict.HeldBack() {
		c.Words = "stopped with the whole process"
	}
	if g.Peer == nil || c.Cause != report.CauseNetwork || c.Kind != "outbound" || c.Queue != nil {
		return
	}
	of := names.PeerNames(g.Peer)
	switch {
	case g.Peer.Followed():
		c.Words = "on the way to this process's own " + of + " and back, over the network"
	case g.Peer.Recording != "":
		c.Words = "waiting over the network for " + of + " in " + termtext.Head(g.Peer.Recording, 80)
		if g.Peer.Spent != "" {
			c.Words += " (which spent " + termtext.Head(g.Peer.Spent, 200) + ")"
		}
	case g.Peer.Confidence < 0.8:
		c.Words = "waiting for a peer on the network, perhaps this process's own " + of
	default:
		c.Words = "waiting over the network for this process's own " + of
	}
}

// asks follows the groups that answer a group's requests that many times, and names the last one.
func asks(r *report.Report, g *report.Group, times int) string {
	of := ""
	for ; times > 0 && g != nil && g.Peer.Followed(); times-- {
		of = names.PeerNames(g.Peer)
		g = r.Group(g.Peer.Group)
	}
	return of
}

// held says that the process did not run for some time, and how many requests that hit.
func held(r *report.Report) string {
	s := r.Runtime.Stops
	if s == nil || !slices.ContainsFunc(r.Findings, func(f report.Finding) bool { return f.Code == report.RuleStopped && f.Severity.Loud() }) {
		return ""
	}
	text := "the process did not run for " + words.Duration(s.TotalNS) + " in " + words.Count(s.Count, "interval", "intervals")
	if s.By == "" {
		text = "perhaps " + text
	}
	return text + ": " + words.Count(s.After, "request", "requests") + " that arrived in that time waited before latency begins, " + words.Number(int64(s.During)) + " were in progress"
}

// wide is the most columns for a place in text without line limits.
const wide = 160

// lead says which requests a band holds, and how late they were.
func lead(g *report.Group, b *report.Band) (lead, latency string) {
	switch {
	case b.Band == report.BandOutliers && b.Count == 1:
		lead = "One far slower request of"
	case b.Band == report.BandOutliers:
		lead = words.Number(int64(b.Count)) + " far slower requests of"
	case b.Count == 1 && b.Band == report.Band99:
		lead = "The slowest request of"
	case b.Count == 1:
		lead = "One request of"
	case b.Band == report.Band99 && b.Count*20 > g.Count:
		lead = "The slowest requests of" // equally slow ones can be more than a hundredth
	default:
		lead = Which(b.Band) + " of"
	}
	return lead, Range(g, b)
}

// Which says which requests a band holds.
func Which(band report.BandName) string {
	switch band {
	case report.Band99:
		return "The slowest 1%"
	case report.Band9099:
		return "From p90 to p99, requests"
	case report.BandOutliers:
		return "Far slower requests"
	case report.Band5090:
		return "From p50 to p90, requests"
	}
	return "Requests"
}

// Range says between which latencies the requests of a band lie.
func Range(g *report.Group, b *report.Band) string {
	last := b.ToNS
	if m := g.LatencyNS.Max; m != nil && *m < last {
		last = *m
	}
	switch {
	case b.Band == report.BandOutliers && g.LatencyNS.P50 != nil:
		of := words.Duration(last)
		if b.Count > 1 && words.Duration(b.FromNS) != of {
			of = words.Duration(b.FromNS) + " to " + of
		}
		return "(" + of + "; p50 " + words.Duration(*g.LatencyNS.P50) + ")"
	case b.Count == 1 && b.Band == report.Band99, b.FromNS >= last && last > 0:
		return "(" + words.Duration(last) + ")"
	case (b.FromNS == 0 || b.Band == report.BandAll) && g.LatencyNS.P50 != nil:
		return "(p50 " + words.Duration(*g.LatencyNS.P50) + ", max " + words.Duration(last) + ")"
	case b.FromNS == 0:
		return "(up to " + words.Duration(last) + ")"
	}
	return "(" + words.Duration(b.FromNS) + " to " + words.Duration(last) + ")"
}

// sums adds up a band's time by who works, and each sum by place; the largest first, the rest of a sum last. Time in a queue for
// something and a request's own time at it are separate causes, but both together decide what comes first; of the two, the queue
// comes first if the first finding is about it.
func sums(b *report.Band, list []*report.Queue, line *report.Queue) []report.VerdictCause {
	var of [][]piece
	for _, p := range pieces(b, list) {
		k := slices.IndexFunc(of, func(have []piece) bool { return have[0].who == p.who })
		if k < 0 {
			k = len(of)
			of = append(of, nil)
		}
		of[k] = append(of[k], p)
	}
	out := []report.VerdictCause{}
	both := map[who]int64{}
	for _, list := range of {
		c := report.VerdictCause{Cause: list[0].cause, Kind: list[0].kind, Queue: list[0].queue, Sites: []report.VerdictSite{}}
		for i := range list {
			c.TotalNS += list[i].ns
			c.Share += list[i].share
		}
		if b.Count > 0 {
			c.EachNS = c.TotalNS / int64(b.Count)
		}
		c.Share = min(c.Share, 1)
		if c.Share < scale.Speck || c.TotalNS <= 0 {
			continue
		}
		both[bothOf(&c)] += c.TotalNS
		places(&c, list)
		c.Words = Words(&c)
		out = append(out, c)
	}
	slices.SortStableFunc(out, largest)
	first := 0
	for i := range out {
		c, f := &out[i], &out[first]
		mine, most := both[bothOf(c)], both[bothOf(f)]
		if last(c.Cause) == 0 && (mine > most || mine == most && line != nil && c.Queue == line && f.Queue != line) {
			first = i
		}
	}
	if first > 0 {
		c := out[first]
		copy(out[1:], out[:first])
		out[0] = c
	}
	return out
}

// bothOf is what a queue for something and a request's own time at it have in common. All stops of the world are one, whatever
// stopped it.
func bothOf(c *report.VerdictCause) who {
	if c.Cause == report.CauseSTW {
		return who{cause: c.Cause}
	}
	return who{cause: c.Cause, kind: c.Kind}
}

// largest orders causes, the largest first; the sum of all others comes last.
func largest(a, b report.VerdictCause) int {
	return cmp.Or(last(a.Cause)-last(b.Cause), cmp.Compare(b.TotalNS, a.TotalNS))
}

func last(c report.CauseName) int {
	if c == report.CauseOther {
		return 1
	}
	return 0
}

// A placed is the sum for one place.
type placed struct {
	site   report.VerdictSite
	near   int64 // ns whose line is only inferred
	routes []report.Route
}

// places divides a cause by place, and fills in what its places have in common.
func places(c *report.VerdictCause, list []piece) {
	var all []placed
	ran, ranAt := map[report.SiteKey]float64{}, map[report.SiteKey]*report.Site{}
	for i := range list {
		of := &list[i]
		row := of.row
		if c.Cause == report.CauseSTW {
			if i == 0 {
				c.Kind = row.Kind
			} else if c.Kind != row.Kind {
				c.Kind = ""
			}
		}
		k := slices.IndexFunc(all, func(p placed) bool { return p.site.Kind == row.Kind && p.site.Site.Equal(row.Site) })
		if k < 0 {
			k = len(all)
			all = append(all, placed{site: report.VerdictSite{Site: row.Site, Kind: row.Kind, Via: []report.Via{}}})
		}
		p := &all[k]
		p.site.TotalNS += of.ns
		p.site.Share = min(p.site.Share+of.share, 1)
		if row.SiteFrom == "bracket" {
			p.near += of.ns
		}
		p.addRoutes(of.routes)
		for _, s := range row.RanMeanwhile {
			if s.Site != nil && c.TotalNS > 0 {
				ranAt[s.Site.Key()] = s.Site
				ran[s.Site.Key()] += s.Share * float64(of.ns) / float64(c.TotalNS)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Compare(b.site.TotalNS, a.site.TotalNS) })
	for i := range all {
		if p := &all[i]; i < maxSites && (p.site.Share >= scale.Speck || i == 0) {
			p.way()
			p.site.Inferred = p.near > p.site.TotalNS/2
			c.Sites = append(c.Sites, p.site)
		}
	}
	for site, share := range ran {
		if share >= scale.Speck {
			c.RanMeanwhile = append(c.RanMeanwhile, report.Share{Site: ranAt[site], Share: min(share, 1)})
		}
	}
	slices.SortFunc(c.RanMeanwhile, func(a, b report.Share) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), a.Site.Compare(b.Site))
	})
	c.RanMeanwhile = c.RanMeanwhile[:min(len(c.RanMeanwhile), maxSites)]
}

func (p *placed) addRoutes(routes []report.Route) {
	for _, add := range routes {
		at := slices.IndexFunc(p.routes, func(have report.Route) bool {
			return slices.EqualFunc(have.Via, add.Via, func(a, b report.Via) bool { return a.Equal(&b) })
		})
		if at < 0 {
			p.routes = append(p.routes, add)
		} else {
			p.routes[at].TotalNS += add.TotalNS
		}
	}
}

// way picks the chain of waits with the most time, and its share.
func (p *placed) way() {
	var all, most int64
	for i := range p.routes {
		r := &p.routes[i]
		all += r.TotalNS
		if len(r.Via) > 0 && r.TotalNS > most {
			p.site.Via, most = r.Via, r.TotalNS
		}
	}
	if all > 0 && most > 0 {
		p.site.ViaPart = float64(most) / float64(all)
	}
}

// causeWords are causes in words, and the preposition before their places.
var causeWords = map[report.CauseName]struct{ text, at string }{
	report.CauseCPU:       {"computing", " in "},
	report.CauseSched:     {"ready to run, waiting for a CPU", ", at "},
	report.CauseSchedWake: {"ready to run although a P was idle", ", at "},
	report.CauseSchedPoll: {"with data perhaps ready that no P polled for", ", at "},
	report.CauseThrottle:  {"throttled by the CPU quota", ", at "},
	report.CauseGCAssist:  {"helping the garbage collector", ", allocating in "},
	report.CauseGCWait:    {"waiting for the garbage collector", ", in "},
	report.CauseSTW:       {"with the world stopped", ", by "},
	report.CauseSleep:     {"asleep", " in "},
	report.CauseNetwork:   {"waiting for the network", " in "},
	report.CauseSyscall:   {"in the kernel", ", called from "},
	report.CauseLock:      {"waiting for a lock", " in "},
	report.CauseChan:      {"waiting on a channel", " in "},
	report.CauseUnknown:   {"in ways the trace does not show", ", at "},
	report.CauseOther:     {"on many small causes", ", at "},
}

// A Look says how to show a piece of a sentence.
type Look uint8

// Looks.
const (
	Plain  Look = iota
	Strong      // the subject
	Function
	Position // a file and line
	Aside
)

// A Piece is part of a sentence.
type Piece struct {
	Look Look
	Text string
}

// Join returns a sentence as plain text.
func Join(pieces []Piece) string {
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(p.Text)
	}
	return b.String()
}

// Spell says what a cause's time was spent on: the cause in words, its place or, if there are several, the largest ones with
// their shares, what ran meanwhile, and which waits led there. Each place takes at most room columns.
func Spell(c *report.VerdictCause, room int) []Piece {
	s := &sentence{room: room}
	s.say(Strong, c.Words)
	if len(c.Sites) == 0 {
		return s.pieces
	}
	top := &c.Sites[0]
	if c.Queue != nil {
		if _, at := inLine([]*report.Queue{c.Queue}, top.Via); at != nil {
			s.place(" at ", at.Site.Own())
		}
		s.say(Plain, ", behind others that are "+doing(c))
	}
	at := cmp.Or(causeWords[c.Cause].at, ", at ")
	if c.Kind == report.InC {
		at = ", through "
	}
	if c.TotalNS == 0 || float64(top.TotalNS) >= 0.9*float64(c.TotalNS) { // one place
		s.place(at, top.Site)
		s.inferred(top)
		s.called(", ", top.Site)
		s.ranMeanwhile(c)
		if c.Queue == nil {
			s.way(top, ", ", "", true)
		}
		return s.pieces
	}
	s.ranMeanwhile(c)
	if isScattered(c) {
		s.say(Plain, " in many short runs")
	}
	sites, lead := mentioned(c.Sites), ": "
	one := oneCaller(sites)
	for i, site := range sites {
		if i > 0 && !one && site.Site.CalledFrom != nil && site.Site.LineKey() == sites[i-1].Site.LineKey() {
			s.say(Plain, lead+words.PercentOr0(site.Share)+" there") // called from another line of the service's own
		} else {
			s.place(lead+words.PercentOr0(site.Share)+strings.TrimPrefix(at, ","), site.Site)
		}
		s.inferred(site)
		if !one {
			s.called(" ", site.Site)
		}
		if i == 0 && c.Queue == nil {
			s.way(site, " (", ")", !one)
		}
		lead = ", "
		if i := strings.LastIndexByte(strings.TrimSuffix(at, " "), ' '); i > 0 {
			at = at[i:] // write "allocating in" once
		}
	}
	if one {
		s.called(", all ", sites[0].Site)
	}
	return s.pieces
}

// A sentence is made of pieces; a place in it takes at most room columns.
type sentence struct {
	pieces []Piece
	room   int
}

func (s *sentence) say(look Look, text string) { s.pieces = append(s.pieces, Piece{look, text}) }

// place names a site, and nothing if it has no name.
func (s *sentence) place(before string, at *report.Site) {
	fn, pos := names.Parts(at, s.room)
	s.function(before, fn, pos)
}

// called names the service's own line that called a dependency.
func (s *sentence) called(before string, at *report.Site) {
	lead, fn, pos := names.CalledFrom(at, s.room)
	s.function(before+lead, fn, pos)
}

func (s *sentence) function(before, fn, pos string) {
	if fn == "" && pos == "" {
		return
	}
	s.say(Plain, before)
	if fn != "" && pos != "" {
		fn += " "
	}
	if fn != "" {
		s.say(Function, fn)
	}
	if pos != "" {
		s.say(Position, pos)
	}
}

// worthSaying reports whether a place after the first is mentioned. Lines that are only inferred, for runs too short for a
// sample, are many and say little, unless one of them has a large share.
func worthSaying(s *report.VerdictSite) bool {
	return s.Share >= scale.Little && (!s.Inferred || s.Share >= scale.Some)
}

// isScattered reports whether places of a cause are left out because they are only inferred, while the first has a small share
// itself.
func isScattered(c *report.VerdictCause) bool {
	return len(c.Sites) > 1 && c.Sites[0].Inferred && 2*c.Sites[0].TotalNS < c.TotalNS && c.Sites[1].Share >= scale.Little && !worthSaying(&c.Sites[1])
}

// mentioned are the places of a cause that are named.
func mentioned(sites []report.VerdictSite) (out []*report.VerdictSite) {
	for i := range sites {
		s := &sites[i]
		if len(out) == maxSaidSites || len(out) > 0 && !worthSaying(s) {
			break
		}
		if s.Site != nil {
			out = append(out, s)
		}
	}
	return out
}

// oneCaller reports whether the same line led to all places that are mentioned, and in the same way.
func oneCaller(sites []*report.VerdictSite) bool {
	return len(sites) > 1 && !slices.ContainsFunc(sites, func(s *report.VerdictSite) bool {
		from, first := s.Site.Key().From, sites[0].Site
		return from.Func == "" || from != first.Key().From || names.Lead(s.Site.CalledFrom) != names.Lead(first.CalledFrom)
	})
}

// inferred marks a line that no sample shows: the events around a short run suggest it.
func (s *sentence) inferred(at *report.VerdictSite) {
	if at.Inferred && at.Site != nil {
		s.say(Aside, " (inferred)")
	}
}

func (s *sentence) ranMeanwhile(c *report.VerdictCause) {
	marked := 0.0
	for _, r := range c.RanMeanwhile {
		if r.Site != nil && stdlib.Marks(r.Site.Func) {
			marked += r.Share
		}
	}
	for _, r := range c.RanMeanwhile {
		if r.Site != nil && r.Share >= max(scale.Some, marked) {
			s.place(" while ", r.Site)
			s.say(Plain, " ran ("+words.Percent(r.Share)+" of that)")
			return
		}
	}
	if marked >= scale.Some {
		s.say(Plain, " while the garbage collector marked ("+words.Percent(marked)+" of that)")
	}
}

// way says which wait leads to a place. If that is at the service's own line that was just named, the line is not repeated.
func (s *sentence) way(to *report.VerdictSite, open, end string, told bool) {
	if len(to.Via) == 0 || to.ViaPart < scale.Much {
		return
	}
	via, _ := Beyond(to.Via)
	lead := open
	if to.ViaPart < wholly {
		lead += words.Percent(to.ViaPart) + " of it "
	}
	if to.In != "" {
		lead += "in this process's own " + to.In + ", asked over the network"
		if len(via) == 0 {
			s.say(Aside, lead+end)
			return
		}
		lead += ", "
	}
	s.say(Aside, lead+"via "+termtext.Head(via[0].Wait, 12))
	if told && to.Site.WaitedAt(&via[0]) {
		s.say(Aside, " there")
	} else {
		s.place(" ", via[0].Site)
	}
	if n := len(via) - 1; n > 0 {
		s.say(Aside, " and "+words.Number(int64(n))+" more")
	}
	if end != "" {
		s.say(Aside, end)
	}
}
