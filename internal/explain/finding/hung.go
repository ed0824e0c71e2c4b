package finding

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

// checkHung is WL2009, hung.
func checkHung(in *Input, g *report.Group) (out []Verdict) {
	for i := range g.Open.Waits {
		if v, ok := in.hung(g, &g.Open.Waits[i]); ok {
			out = append(out, v)
		}
	}
	return out
}

// Bounds of WL2009.
const (
	hungFactor = 10
	hungLeast  = int64(100e6)
)

// hung returns the finding about open requests at one place, if they hang.
func (in *Input) hung(g *report.Group, w *report.OpenWait) (v Verdict, ok bool) {
	if g.Role != report.RoleRequests || g.Kind == report.KindLoop || g.Kind == report.KindFunc || w.Cause == report.CauseNetwork && w.Kind == "inbound" {
		return v, false
	}
	usual, limit := int64(0), max(scale.Patience, in.Report.Input.DurationNS*9/10)
	known := g.Count >= scale.Enough
	if known {
		if usual = *g.LatencyNS.Max; g.LatencyNS.P99 != nil {
			usual = *g.LatencyNS.P99
		}
		limit = max(hungLeast, hungFactor*usual)
	} else if g.Kind == report.KindGoroutine {
		return v, false // a goroutine that lives for as long as the process is no job
	} else if g.Count == 0 && w.Count == g.Open.Count && w.Count >= scale.Few && isMutex(w) && 10*w.StuckNS[0] >= 9*w.OldestNS {
		limit = scale.Patience // none of them has had the lock since the first came, perhaps in the middle of the trace
	}
	// The usual latency is that of whole requests: one that retries is as late as one that stands in a wait.
	ages := w.StuckNS
	if known {
		ages = w.AgesNS
	}
	n, total := 0, int64(0)
	for _, ns := range ages {
		if ns >= limit {
			n++
			total += ns
		}
	}
	if n == 0 {
		return v, false
	}
	stands := 2*w.StuckNS[0] >= ages[0]
	if n == len(ages) || !known {
		n = w.Count // no more ages than these are known; and where none gets on, those that came later hang as well
	}
	v = Verdict{Won: Won{TotalNS: total}, Changes: []predict.Change{}, Finding: report.Finding{
		Title: plural(n, "1 request hangs, ", "%d requests hang, ") + standing(w), Cause: w.Cause, Site: standingAt(w), Group: g.ID,
		Evidence: []report.Evidence{
			measured("longest time in this wait", w.StuckNS[0], "ns"),
			measured("age of the oldest", w.OldestNS, "ns"),
			measured("requests there at the end of the trace", w.Count, "count"),
		},
		Fix: "end the wait with the request's context, a deadline, or an answer in every case, also after an error; the stacks of all goroutines (/debug/pprof/goroutine?debug=2) show which goroutine should have ended it",
	}}
	if known {
		what := "99th percentile"
		if g.LatencyNS.P99 == nil {
			what = "maximum"
		}
		v.say(measured(what+" of the group's requests that ended", usual, "ns"))
	} else {
		v.say(measured("requests of the group that ended", g.Count, "count"))
	}
	many := n >= scale.Few || float64(n) >= scale.Some*float64(g.Count+g.Open.Count)
	v.Severe, v.Confidence, v.Fact = intended(w, stands, known, many)
	switch {
	case !stands:
		v.Title = plural(n, "1 request does not end: it keeps working", "%d requests do not end: they keep working") + ", at the end " + standing(w)
		v.Fix = "limit how often one request retries, by its context or by a number; if it is a stream, give it its own handler"
	case v.Fact:
		v.Title = plural(n, "1 request was open for the whole trace, ", "%d requests were open for the whole trace, ") + standing(w) +
			plural(n, ": it is a stream with nothing to send, or it hangs", ": they are streams with nothing to send, or they hang")
		v.Fix = "if it is not a stream: end the wait with the request's context or a deadline"
	case w.Cause == report.CauseLock && !strings.Contains(w.Call, "WaitGroup"):
		v.Fix = "find the holder that never releases the lock: the stacks of all goroutines (/debug/pprof/goroutine?debug=2) show it; hold no lock across calls that may not return, and unlock with defer"
		if site, reason, ns := in.goroutineHolds(w); site != nil {
			at := fmt.Sprintf("at %s (%s)", place(site), reason)
			v.sayFirst(measured("perhaps held by the goroutine "+at+", which stopped there before the first of them, by", ns-w.StuckNS[0], "ns"))
			v.Fix = "look first at the goroutine " + at + "; else " + v.Fix
		} else if o, before := in.holder(w); o != nil {
			at := standing(o)
			v.sayFirst(measured("perhaps held by the request "+at+", which stopped there before the first of them, by", before, "ns"))
			v.Fix = "look first at the request " + at + "; else " + v.Fix
		}
	case poolsOfStd[w.Call].kept != "":
		v.Fix = poolsOfStd[w.Call].kept
	}
	return v, true
}

// intended returns how severe it is that requests are in a wait, how certain it is that they should not be, and whether the wait is most
// likely intended: a stream, or a long poll. Stands says that they have been in it for most of their age, known that the usual latency
// is known.
func intended(w *report.OpenWait, stands, known, many bool) (severe report.Severity, confidence float64, fact bool) {
	severe, confidence = report.SeverityMedium, 0.95
	if many {
		severe = report.SeverityHigh
	}
	timed := w.Call == inSelect || w.Cause == report.CauseSleep
	switch {
	case !stands: // it goes on, as a stream does
		severe, confidence = report.SeverityLow, 0.6
	case isPlace(w): // nobody waits for that on purpose
	case timed:
		severe, confidence = report.SeverityLow, 0.5
	case w.Cause == report.CauseChan:
		severe, confidence = report.SeverityMedium, 0.7
	case w.Cause == report.CauseNetwork:
		confidence = 0.8
	}
	switch {
	case known || confidence == 0.95:
		return severe, confidence, false
	case timed || readsOn(w):
		return "", 0.4, true
	}
	return severe, 0.6, false // nothing but what it waits for can end it, not even a client that gives up
}

// plural returns one text for one and another for many, in which %d is the number.
func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return strings.Replace(many, "%d", strconv.Itoa(n), 1)
}

// readsOn reports whether a request reads an answer of which more may come at any time, or asks a library for the next item.
func readsOn(w *report.OpenWait) bool {
	if w.Cause == report.CauseNetwork && w.Call == "net/http.(*body).Read" {
		return true
	}
	s := w.Site
	return s != nil && (s.Module != "" && request.IsFetchCall(s.Func) || s.CalledFrom != nil && request.IsFetchCall(s.CalledFrom.Calls))
}

// goroutineHolds returns a goroutine that perhaps holds the lock that requests wait for at w: it has stood for longer than the first of
// them, in a method of the same type or in the same function.
func (in *Input) goroutineHolds(w *report.OpenWait) (at *report.Site, reason string, ns int64) {
	if in.Holder == nil || w.Site == nil || !isMutex(w) || isStdSite(w.Site) {
		return nil, "", 0
	}
	return in.Holder(w.Site.Func, w.StuckNS[0])
}

// holder returns an open request that may hold what requests wait for at w, and how long before them it stopped: of all that stand
// elsewhere, the last one that stopped before the first of these. No event of the trace says who has a lock.
func (in *Input) holder(w *report.OpenWait) (at *report.OpenWait, before int64) {
	for i := range in.Report.Groups {
		waits := in.Report.Groups[i].Open.Waits
		for k := range waits {
			o := &waits[k]
			if o.Cause == report.CauseLock || o.Cause == report.CauseNetwork && o.Kind == "inbound" {
				continue
			}
			for _, ns := range o.StuckNS {
				if d := ns - w.StuckNS[0]; d >= 0 && (at == nil || d < before) {
					at, before = o, d
				}
			}
		}
	}
	return at, before
}

// isPlace reports whether a wait is for a lock, a WaitGroup or a place of a pool: not for an event that may come at any time.
func isPlace(w *report.OpenWait) bool {
	if w.Cause == report.CauseLock {
		return !strings.Contains(w.Call, "Cond)")
	}
	return isPoolOfStd(w.Call) || w.Site != nil && strings.HasPrefix(w.Site.Func, semaphores)
}

// isMutex reports whether a wait is for a lock that another goroutine has.
func isMutex(w *report.OpenWait) bool {
	return w.Cause == report.CauseLock && !strings.Contains(w.Call, "Cond)") && !strings.Contains(w.Call, "WaitGroup")
}

// standingAt is the service's line at which requests wait that have not ended.
func standingAt(w *report.OpenWait) *report.Site {
	return nonStdSite(&report.Cause{Site: w.Site}, w.Via)
}

// standing says what requests that have not ended are at.
func standing(w *report.OpenWait) string {
	site := standingAt(w)
	at := " at " + place(site)
	switch {
	case w.Cause == report.CauseCPU:
		return "computing in " + place(site)
	case poolsOfStd[w.Call].only:
		return "waiting for " + poolsOfStd[w.Call].place + at
	case w.Cause == report.CauseLock && strings.Contains(w.Call, "WaitGroup"):
		return "waiting for a WaitGroup" + at
	case w.Cause == report.CauseLock && strings.Contains(w.Call, "Cond)"):
		return "waiting for a Cond" + at
	case w.Cause == report.CauseLock:
		return "waiting for a lock" + at
	case w.Call == inSelect:
		return "waiting in a select" + at
	case w.Cause == report.CauseChan:
		return "waiting on a channel" + at
	case w.Cause == report.CauseNetwork:
		return "waiting for a peer" + at
	case w.Cause == report.CauseSyscall && w.Kind == report.InC:
		return "in C code, called" + at
	case w.Cause == report.CauseSyscall:
		return "in the kernel, called" + at
	case w.Cause == report.CauseSleep:
		return "asleep" + at
	}
	return "waiting" + at
}
