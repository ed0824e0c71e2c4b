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

// Words says what time of a cause is spent on, without a place.
func Words(c *report.VerdictCause) string {
	if c.Queue != nil {
		return "queueing for " + termtext.Head(c.Queue.For, 100)
	}
	return doing(c)
}

// doing says what who works on a cause is at.
func doing(c *report.VerdictCause) string {
	switch {
	case c.Cause == report.CauseSTW && c.Kind != "":
		return "with the world stopped (" + termtext.Head(c.Kind, 40) + ")"
	case c.Cause == report.CauseNetwork && c.Kind == Pipe:
		return "waiting for the other end of a pipe"
	case c.Cause == report.CauseNetwork && c.Kind == "inbound":
		return "waiting for the client"
	case c.Cause == report.CauseNetwork && c.Kind == "outbound":
		return "waiting for a peer on the network"
	case c.Cause == report.CauseSyscall && c.Kind == report.InC:
		return "in C code"
	case c.Cause == report.CauseSleep && c.Kind == Deadline:
		return "waiting for a deadline"
	case c.Cause == report.CauseSleep && c.Kind == Timer:
		return "waiting for a timer or ticker"
	case c.Cause == report.CauseSleep && c.Kind == Limiter:
		return "waiting for a rate limiter"
	}
	if w, ok := causeWords[c.Cause]; ok {
		return w.text
	}
	return "on " + termtext.Head(c.Cause, 20)
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
