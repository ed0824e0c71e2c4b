package verdict

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// A Style says how to show a piece of a sentence.
type Style uint8

// Styles.
const (
	Plain  Style = iota
	Strong       // the subject
	Function
	Position // a file and line
	Remark
)

// A Piece is part of a sentence.
type Piece struct {
	Style Style
	Text  string
}

// Join returns a sentence as plain text.
func Join(pieces []Piece) string {
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(p.Text)
	}
	return b.String()
}

// Describe returns a sentence about the time of a cause, in styled pieces: the cause, its site or its largest sites with their
// shares, what ran during it, and the waits that led there. Each site takes at most siteColumns columns.
func Describe(cause *report.VerdictCause, siteColumns int) []Piece {
	text := &sentence{siteColumns: siteColumns}
	text.add(Strong, cause.Words)
	if len(cause.Sites) == 0 {
		return text.pieces
	}
	top := &cause.Sites[0]
	if work := cause.AheadWork; work != nil {
		text.addQueueSites(cause)
		if first := work.Sites[0].Site; work.Kind == "inbound" && first != nil && knowledge.Has(first.Func, knowledge.HTTP1Connection) { // it holds nothing
			text.addSite(", until the next request comes, at ", first.OwnLine())
			return text.pieces
		}
		asWork := report.VerdictCause{Cause: work.Cause, Kind: work.Kind, TotalNS: work.TotalNS, Sites: work.Sites, RanMeanwhile: cause.RanMeanwhile, Queue: cause.Queue}
		text.add(Plain, ", behind others that are "+activity(&asWork))
		text.addSitesAndWaits(&asWork)
		return text.pieces
	}
	if cause.Cause == report.CauseQueue {
		text.addQueueSites(cause)
		text.add(Plain, ", until a timer ended the wait")
		return text.pieces
	}
	if cause.Queue != nil {
		via, _ := report.DivideAtServices(top.Via)
		if cause.Service != "" {
			_, via = report.DivideAtServices(top.Via)
		}
		if _, preposition := queueWaitIn([]*report.Queue{cause.Queue}, via); preposition != nil {
			text.addSite(" at ", preposition.Site.OwnLine())
		}
		text.add(Plain, aheadWords(cause)+activity(cause))
	}
	text.addSitesAndWaits(cause)
	return text.pieces
}

// aheadWords returns the words before the activity of those ahead in a queue. A reader waits for a writer, which perhaps waits for
// another reader.
func aheadWords(cause *report.VerdictCause) string {
	isOther := func(v report.Via) bool { return !knowledge.Has(v.Call, knowledge.ReadLock) }
	isWriter := func(v report.Via) bool { return knowledge.Has(v.Call, knowledge.WriteLock) }
	if slices.ContainsFunc(cause.Queue.Waits, isOther) || slices.ContainsFunc(cause.Sites[0].Via, isWriter) {
		return ", behind others that are "
	}
	return ", behind a writer that is "
}

// addQueueSites adds the line at which most requests wait in a queue, and the number of the other lines.
func (s *sentence) addQueueSites(cause *report.VerdictCause) {
	top := &cause.Sites[0]
	s.addSite(" at ", top.Site.OwnLine())
	if n := len(cause.Sites) - 1; n > 0 && float64(top.TotalNS) < 0.9*float64(cause.TotalNS) {
		s.add(Plain, " and "+words.Count(n, "other line", "other lines"))
	}
}

// addSitesAndWaits adds the site of a cause, if one has nine tenths of its time, else the largest sites with their shares. It
// also adds what ran during that time, and the waits that led there.
func (s *sentence) addSitesAndWaits(cause *report.VerdictCause) {
	top := &cause.Sites[0]
	preposition := cmp.Or(causeWords[cause.Cause].preposition, ", at ")
	if cause.Kind == report.InC {
		preposition = ", through "
	}
	if cause.TotalNS == 0 || float64(top.TotalNS) >= 0.9*float64(cause.TotalNS) { // one place
		if isAnswer(cause, top.Site) {
			s.addSite(preposition, top.Site.OwnLine())
			if cause.Kind != "inbound" && cause.Kind != FlowControl && (top.Site.Module != "" || top.Site.Does == "") && names.LineForReaders(top.Site) == top.Site {
				s.addSite(", read in ", top.Site)
			}
		} else {
			s.addSite(preposition, top.Site)
			s.addCaller(", ", top.Site)
		}
		s.addConcurrent(cause)
		if cause.Queue == nil {
			s.addRoute(top, ", ", "", true)
		}
		return
	}
	s.addConcurrent(cause)
	if isScattered(cause) {
		s.add(Plain, " in many short runs")
	}
	sites, lead := namedSites(cause.Sites), ": "
	haveOneCaller := hasOneCaller(sites) && !isAnswer(cause, sites[0].Site)
	for i, site := range sites {
		if i > 0 && !haveOneCaller && site.Site.CalledFrom != nil && !isAnswer(cause, site.Site) && site.Site.LineKey() == sites[i-1].Site.LineKey() {
			s.add(Plain, lead+words.PercentOr0(site.Share)+" there") // called from another line of the service
		} else {
			line, before := site.Site, lead+words.PercentOr0(site.Share)
			switch {
			case !isAnswer(cause, line):
				before += strings.TrimPrefix(preposition, ",")
			case i > 0 && sites[i-1].Site.OwnLine().LineKey() == line.OwnLine().LineKey(): // another wait for the same call
				before += " there, in "
			default:
				before, line = before+strings.TrimPrefix(preposition, ","), line.OwnLine()
			}
			s.addSite(before, line)
		}
		if !haveOneCaller && !isAnswer(cause, site.Site) {
			s.addCaller(" ", site.Site)
		}
		if i == 0 && cause.Queue == nil {
			s.addRoute(site, " (", ")", !haveOneCaller)
		}
		lead = ", "
		if i := strings.LastIndexByte(strings.TrimSuffix(preposition, " "), ' '); i > 0 {
			preposition = preposition[i:] // write "allocating in" once
		}
	}
	if haveOneCaller {
		s.addCaller(", all ", sites[0].Site)
	}
	if rest := restOfSites(cause, sites); rest != "" {
		s.add(Plain, ", "+rest+" elsewhere")
	}
}

// restOfSites returns the percentage that the shares of the named sites leave of the cause's share, so that the percentages of a sentence
// add up to that of its cause; "" if it is small, or if sites is empty.
func restOfSites(cause *report.VerdictCause, sites []*report.VerdictSite) string {
	rest := math.Round(100 * cause.Share)
	for _, site := range sites {
		rest -= math.Round(100 * site.Share)
	}
	if len(sites) == 0 || rest < 100*threshold.NoticeableShare {
		return ""
	}
	return words.Percent(rest / 100)
}

// isAnswer reports whether a site is the line where a library's own goroutine reads an answer for a line of the service. The
// sentence then names the service's line, which the reader knows.
func isAnswer(cause *report.VerdictCause, site *report.Site) bool {
	return cause.Cause == report.CauseNetwork && site != nil && site.CalledFrom.Awaits()
}

// A sentence collects pieces. Each site takes at most siteColumns columns.
type sentence struct {
	pieces      []Piece
	siteColumns int
}

// add appends a piece of text.
func (s *sentence) add(style Style, text string) { s.pieces = append(s.pieces, Piece{style, text}) }

// addSite adds a site, or nothing if the site has no name.
func (s *sentence) addSite(before string, site *report.Site) {
	fn, pos := names.SiteParts(site, s.siteColumns)
	s.addFunction(before, fn, pos)
}

// addCaller adds the line of the service that called a dependency.
func (s *sentence) addCaller(before string, site *report.Site) {
	lead, fn, pos := names.CallerParts(site, s.siteColumns)
	s.addFunction(before+lead, fn, pos)
}

// addFunction adds a function (fn) and its file and line (pos) after the text before. Either may be empty; if both are, it adds
// nothing.
func (s *sentence) addFunction(before, fn, pos string) {
	if fn == "" && pos == "" {
		return
	}
	s.add(Plain, before)
	if fn != "" && pos != "" {
		fn += " "
	}
	if fn != "" {
		s.add(Function, fn)
	}
	if pos != "" {
		s.add(Position, pos)
	}
}

// isWorthNaming reports whether a site after the first is named. Inferred lines, of runs too short for a sample, are
// many and mean little, unless one of them has a large share.
func isWorthNaming(s *report.VerdictSite) bool {
	return s.Share >= threshold.MinorShare && (!s.Inferred || s.Share >= threshold.NoticeableShare)
}

// isScattered reports whether a cause has further sites that are not named because they are only inferred, while the
// first site has less than half of the time.
func isScattered(c *report.VerdictCause) bool {
	return len(c.Sites) > 1 && c.Sites[0].Inferred && 2*c.Sites[0].TotalNS < c.TotalNS && c.Sites[1].Share >= threshold.MinorShare && !isWorthNaming(&c.Sites[1])
}

// namedSites returns the sites that a sentence names: the first with a source line, and those after it up to the first that is
// not worth naming, at most maxNamedSites. It is empty if none has a source line.
func namedSites(sites []report.VerdictSite) (out []*report.VerdictSite) {
	for i := range sites {
		s := &sites[i]
		if len(out) == maxNamedSites || len(out) > 0 && !isWorthNaming(s) {
			break
		}
		if s.Site != nil {
			out = append(out, s)
		}
	}
	return out
}

// hasOneCaller reports whether the same line of the service, by the same kind of call, led to all named sites.
func hasOneCaller(sites []*report.VerdictSite) bool {
	return len(sites) > 1 && !slices.ContainsFunc(sites, func(s *report.VerdictSite) bool {
		from, first := s.Site.Key().From, sites[0].Site
		return from.Func == "" || from != first.Key().From || names.CallerLead(s.Site.CalledFrom) != names.CallerLead(first.CalledFrom)
	})
}

// addConcurrent adds what ran most on the Ps during the waits of a cause: a site, or the garbage collector's mark workers and
// assists together if they ran more. Shares below threshold.NoticeableShare are not worth adding.
func (s *sentence) addConcurrent(c *report.VerdictCause) {
	markShare := 0.0
	for _, r := range c.RanMeanwhile {
		if r.Site != nil && knowledge.Has(r.Site.Func, knowledge.GCMark) {
			markShare += r.Share
		}
	}
	for _, r := range c.RanMeanwhile {
		if r.Site != nil && r.Share >= max(threshold.NoticeableShare, markShare) {
			s.addSite(adverbForShare(r.Share)+" while ", r.Site)
			s.add(Plain, " ran")
			return
		}
	}
	if markShare >= threshold.NoticeableShare {
		s.add(Plain, adverbForShare(markShare)+" while the garbage collector marked")
	}
}

// adverbForShare returns "", ", mostly" or ", partly" for an event that fills a share of a time.
func adverbForShare(share float64) string {
	switch {
	case share >= threshold.NearlyAllShare:
		return ""
	case share >= threshold.HalfShare:
		return ", mostly"
	}
	return ", partly"
}

// addRoute adds the chain of waits with most time that leads to a site, between the texts open and end. It adds nothing if that
// chain has less than threshold.MajorShare of the site's time, or if its first wait is at the line that the sentence has just
// named (siteIsNamed).
func (s *sentence) addRoute(site *report.VerdictSite, open, end string, siteIsNamed bool) {
	if len(site.Via) == 0 || site.ViaPart < threshold.MajorShare {
		return
	}
	via, _ := AfterLastAnswer(site.Via)
	if outer, inner := report.DivideAtServices(site.Via); inner != nil {
		s.addServiceRoute(site, outer, inner, open, end)
		return
	}
	lead := open
	if site.In != "" {
		lead += "in this process's own " + site.In + ", asked over the network"
	}
	isNamed := len(via) == 0 || site.Site != nil && site.Site.OwnLine().LineKey() == via[0].Site.OwnLine().LineKey() ||
		siteIsNamed && (site.Site.WaitedAt(&via[0]) || site.Site != nil && site.Site.CalledFrom.Awaits())
	switch {
	case isNamed && site.In == "":
		return
	case !isNamed && site.In != "":
		lead += ", "
	case !isNamed:
		lead += strings.TrimLeft(adverbForShare(site.ViaPart)+" ", ", ")
	}
	if isNamed {
		s.add(Remark, lead+end)
		return
	}
	s.add(Remark, lead+waitWords(&via[0])+" at")
	s.addSite(" ", via[0].Site.OwnLine())
	if end != "" {
		s.add(Remark, end)
	}
}

// waitWords returns how a wait leads to the goroutine that it is for.
func waitWords(v *report.Via) string {
	switch v.Wait {
	case report.WaitLock:
		return "behind a lock"
	case report.WaitOnce:
		return "behind a sync.Once"
	}
	return "awaited"
}

// addServiceRoute adds the first wait in another service that leads to a site, and the line of this service that calls that
// one. The text open precedes the first of these; end follows only after a wait in the other service. outer are the waits of
// this service, inner those of the other one.
func (s *sentence) addServiceRoute(site *report.VerdictSite, outer, inner []report.Via, open, end string) {
	lead := open
	if len(inner) > 0 {
		s.add(Remark, lead+waitWords(&inner[0]))
		if site.Site.WaitedAt(&inner[0]) {
			s.add(Remark, " there")
		} else {
			s.addSite(" at ", inner[0].Site)
		}
		lead = ", "
	}
	for i := len(outer); i < len(site.Via); i++ { // the first service that is called
		if v := &site.Via[i]; v.Service != "" {
			s.addSite(lead+"called by ", v.Site.OwnLine())
			break
		}
	}
	if end != "" && lead != open {
		s.add(Remark, end)
	}
}
