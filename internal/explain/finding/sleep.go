package finding

import (
	"fmt"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

func sleepRule() Rule {
	return Rule{
		Code: report.RuleSleep, Name: "sleep",
		Summary: "requests wait for a sleep, a timer or a deadline",
		Doc: Doc{
			Means: "Requests cannot end before a time.Sleep, a timer or a deadline on their critical path has run out, on their own goroutine or on another one " +
				"that they wait for. Nothing computes in that time, so a CPU profile does not show it.",
			Measured: "Every interval of a request's critical path in which the goroutine that it waits for sleeps has cause sleep, with the line that went to " +
				"sleep and, in via, the waits that lead there. If no goroutine ended a wait for a channel or a select, a timer did; if a function of package " +
				"context ended it, a deadline did. Sleeps behind a lock are left to WL2002, those behind a queue to WL2003, and those at a fixed period that " +
				"had begun before the request to WL2004. A long poll, which waits once, in a select or for a context, until something arrives or its time of " +
				"at least a second is up, is low. A request that writes to its client between most of at least three waits at one line, which a timer " +
				"ends here or on another goroutine, sends a stream: info. Many sleeps of the same length at one line, a different number in each request, with little computing between them, " +
				"are a poll: only the last pause can be won. Confidence is 0.9: the sleep certainly was on the path, but it may be intended.",
			Before: "for !c.ready() {\n\ttime.Sleep(100 * time.Millisecond)\n}",
			After:  "<-c.readyC // closed by the code that makes it ready",
			Wrong: "Where the caller asked for the pause: a long poll whose time is up before a second, a stream of fewer parts, a back-off after a failure " +
				"whose cause is elsewhere. Ignore it then, with the reason.",
		},
		Run: func(in *Input) []Verdict {
			var out []Verdict
			claimsBy(in, report.RuleSleep, func(cl *claims, c *claim) { out = append(out, sleepVerdict(cl, c)) })
			return out
		},
	}
}

func sleepVerdict(cl *claims, c *claim) Verdict {
	if p := cl.polls[c.leaf.site]; p != nil && c.leaf.cause == pollLeaf {
		return pollVerdict(cl, c, p)
	}
	top := c.heaviest("sleep")
	if c.leaf.cause == streamLeaf {
		return streamVerdict(cl, c, top)
	}
	f := report.Finding{
		Title: "requests wait while " + onePlace(top), Cause: report.CauseSleep, Site: users(top.Cause, top.via), Group: cl.g.ID, Share: c.share, Confidence: 0.9,
		Evidence: []report.Evidence{
			{Text: "mean per slow request, " + onWhose(top.via), Value: float64(c.won.SlowNS), Unit: "ns"},
			cl.met(c, top, "have this wait"),
		},
	}
	if t := cl.in.turns(top.Cause, top.via); t != nil && t.Sleeps > 0 {
		f.Evidence = append(f.Evidence, report.Evidence{Text: "mean length of one sleep", Value: float64(t.SleepNS), Unit: "ns"})
		if t.Together > 1.5 {
			f.Evidence = append(f.Evidence, report.Evidence{Text: "requests that wait for the same sleep, on average", Value: t.Together, Unit: "count"})
		}
	}
	switch {
	case verdict.KindOf(top.Cause) == verdict.Deadline:
		f.Fix = "find out why the awaited answer does not come; a shorter deadline only limits the damage"
	case top.Site != nil && top.Site.Module != "":
		f.Fix = "if this is a pause before a retry, find out why the first try fails; the library's options set its length"
	case top.Call == pause:
		f.Fix = "block on a channel or sync.Cond instead of polling, or make the pause shorter"
	default:
		f.Fix = "make the timer's or ticker's interval shorter, or also wait for the event itself; before a retry, find out why the first try fails"
	}
	if l := libraryOf(top); l != nil && l.wait != "" {
		f.Fix = "in " + l.name + ": " + l.wait
	}
	switch {
	case len(top.via) > 0 && top.via[0].Wait == "chan send":
		f.Fix += fmt.Sprintf("; or give the channel sent to at %s a larger buffer, so that more run at a time", place(top.via[0].Site))
	case len(top.via) > 0:
		f.Fix += fmt.Sprintf("; or do not wait for it at %s", place(top.via[0].Site))
	}
	f.Evidence = append(f.Evidence, together(c, top)...)
	v := Verdict{Won: c.won, Finding: f, Changes: halfOfAll(cl, c)}
	if cl.in.Polls != nil {
		if p := cl.in.Polls(cl.g.ID, v.Changes); p != nil {
			lookVerdict(cl.in, &v, p)
		}
	}
	return v
}

// lookVerdict has a verdict about sleeps say that they are the pauses of a poll: only the last one can be won, and who makes true
// what is looked for is not in the trace.
func lookVerdict(in *Input, v *Verdict, p *predict.Poll) {
	every := words.Brief(p.PauseNS)
	v.Title = fmt.Sprintf("%s every %s for an event that comes after %s", strings.Replace(v.Title, " sleeps at ", " polls at ", 1), every, words.Brief(p.AfterNS))
	v.Fix = fmt.Sprintf("block on a channel or sync.Cond instead of polling every %s: that wins about one pause; the rest is the time until the event, which a shorter pause does not change", every)
	v.Evidence = append(v.Evidence, report.Evidence{Text: "polls per request, on average", Value: p.Pauses, Unit: "count"})
	if in.severity(v) == "" {
		return
	}
	part := float64(p.PauseNS) / float64(max(p.AfterNS, p.PauseNS))
	v.Won.scale(part)
	if in.severity(v) == "" {
		v.Severe = report.SeverityLow
	}
}

// streamLeaf is what a stream is paced by: no cause of its own, but one pace, whatever waits for it.
const streamLeaf report.CauseName = "stream"

// streams reports whether who waits at a line repeatedly writes to its client between, as a rule.
func (in *Input) streams(at *report.Site) bool {
	for i := range in.Streams {
		if s := &in.Streams[i]; s.Wrote >= scale.Half && s.Site.Meets(at) {
			return true
		}
	}
	return false
}

// streamVerdict promises nothing: who has parts meanwhile does not wait for the whole.
func streamVerdict(cl *claims, c *claim, top *part) Verdict {
	at := users(top.Cause, nil)
	if len(top.via) > 0 {
		at = top.via[0].Site
	}
	f := report.Finding{
		Title: "requests send a stream: they write to their client between the waits at " + place(at), Cause: report.CauseSleep, Site: at, Group: cl.g.ID, Share: c.share, Confidence: 0.8,
		Evidence: []report.Evidence{
			{Text: "mean per slow request, " + onWhose(nil), Value: float64(c.won.SlowNS), Unit: "ns"},
			cl.met(c, top, "have this wait"),
		},
		Fix: "nothing, if the pace is intended: the client receives each part at once; if it waits for the whole, do not pause between the parts",
	}
	return Verdict{Won: c.won, Changes: []predict.Change{}, Fact: true, Finding: f}
}

// onePlace says who does what where.
func onePlace(p *part) string {
	who := "another goroutine "
	if len(p.via) == 0 {
		who = "their own goroutine "
	}
	return who + doing(p.Cause, p.via)
}
