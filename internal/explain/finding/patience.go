package finding

import (
	"fmt"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// patience is how long a request must be ready to wait in one wait for it to be a long poll: intervals at which something
// is done or looked at again are shorter, the time-outs of long polls are seconds.
const patience = int64(1e9)

// nearlyAll is the part of a group's time that long polls wait, and of what is behind these waits that must be nobody's work.
const nearlyAll = 0.9

// alike is the part of the longest wait that the mean of those at a line must be, for them to be of one length: some requests
// are told to have waited there for a moment before others' part of their wait begins.
const alike = 0.75

// A longPoll is a wait on purpose.
type longPoll struct {
	*report.Cause       // of those whose time was up
	limit         int64 // for how long that lets them wait
	news          int64 // for how long the others waited, in all
}

// findPatience notes where requests wait on purpose until something comes or their time is up. Nobody is late there, whoever
// brings the news and whenever. They are known by what they do: they wait once, in a select or for a context, for nearly all
// of their time; where a timer ended that, always after the same time, of a second or more; and where somebody else did, he
// had rested before, so that nobody has been at work for them. Requests that give up after a second what workers have no
// time for wait for those workers' work.
func (cl *claims) findPatience() {
	g := cl.g
	if g.Kind != report.KindMark && !g.Kind.IsCall() {
		return
	}
	cl.each(func(c *report.Cause, r *report.Route) {
		if c.Cause != report.CauseSleep || len(r.Via) > 0 || c.Site == nil || c.Call != "runtime.selectgo" && !strings.HasPrefix(c.Call, "context.") {
			return
		}
		limit := timeOut(g, c.Site)
		if limit < patience || float64(r.TotalNS) < alike*float64(limit)*float64(c.Requests) {
			return
		}
		news, rest := int64(0), int64(0)
		cl.each(func(o *report.Cause, r *report.Route) {
			if len(r.Via) == 0 || !isHandOver(r.Via[0].Wait) || !c.Site.Meets(r.Via[0].Site) {
				return
			}
			news += r.TotalNS
			if o.Cause == report.CauseNetwork && o.Kind == "inbound" || o.Cause == report.CauseSleep && o.Call != "time.Sleep" || o.Cause == report.CauseChan {
				rest += r.TotalNS
			}
		})
		if float64(r.TotalNS+news) < nearlyAll*float64(g.TotalNS) || float64(rest) < nearlyAll*float64(news) {
			return
		}
		cl.polls[leafOf(c)] = &longPoll{Cause: c, limit: limit, news: news}
	})
}

// timeOut returns for how long the slowest requests waited at a line, if each did so once and for nearly all of its time.
func timeOut(g *report.Group, at *report.Site) (limit int64) {
	for i := range g.Slowest {
		q := &g.Slowest[i]
		longest := int64(0)
		for k := range q.Segments {
			if s := &q.Segments[k]; s.Cause == report.CauseSleep && len(s.Via) == 0 && s.Site != nil && s.Site.LineKey() == at.LineKey() {
				longest = max(longest, s.DurationNS)
			}
		}
		if float64(longest) < nearlyAll*float64(q.LatencyNS) {
			return 0
		}
		limit = max(limit, longest)
	}
	return limit
}

// polled returns the long poll through whose wait a way leads.
func (cl *claims) polled(via []report.Via) *longPoll {
	if len(via) == 0 || !isHandOver(via[0].Wait) {
		return nil
	}
	for _, p := range cl.polls {
		if p.Site.Meets(via[0].Site) {
			return p
		}
	}
	return nil
}

// pollVerdict is what WL2001 says of a long poll.
func pollVerdict(cl *claims, c *claim, p *longPoll) Verdict {
	v := Verdict{Won: c.won, Changes: []predict.Change{}, Severe: report.SeverityLow, Finding: report.Finding{
		Cause: report.CauseSleep, Site: users(p.Cause, nil), Group: cl.g.ID, Share: c.share, Confidence: 0.5,
		Evidence: []report.Evidence{
			{Text: "requests whose time was up", Value: float64(p.Requests), Unit: "count"},
			{Text: "after", Value: float64(p.limit), Unit: "ns"},
		},
		Fix: "nothing, if a request waits there for what may come: its latency is then nobody's; ignore the finding with that reason, or mark the requests by what follows the wait",
	}}
	if p.news > 0 {
		v.Title = fmt.Sprintf("requests wait at %s until something comes or %s are over: a long poll", place(v.Site), words.Brief(p.limit))
		v.Confidence = 0.8
		return v
	}
	v.Title = fmt.Sprintf("requests wait at %s until %s are over: a long poll to which nothing came, or a pause", place(v.Site), words.Brief(p.limit))
	v.Fix += "; if nothing can come there, make the pause shorter"
	return v
}
