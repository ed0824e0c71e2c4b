package finding

import (
	"fmt"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

func hungRule() Rule {
	return Rule{
		Code: report.RuleHung, Name: "hung",
		Summary: "requests hang: they had not ended when the trace did, and stood at one place for far longer than what is usual",
		Doc: Doc{
			Means: "Some requests do not come back: each has stood in one and the same wait for many times as long as others of its group take, or for the whole trace where none of its group ended. " +
				"No percentile knows of them, for they have no latency yet; their clients wait, and what they hold (memory, places of pools, locks) is held.",
			Measured: fmt.Sprintf("Of requests that had not ended, their age and the last wait on their path, by place. They count where they are more than %d times as old as the 99th percentile (the maximum where that is not known) of at least %d requests of the group that did end, and %s; "+
				"or, where fewer ended, where that wait has lasted for nine tenths of the trace and %s, or since the first of at least %d came and %[4]s where all of them wait for one lock. How sure that is depends on the wait: nobody waits for a lock, a WaitGroup or a place of a pool on purpose; a peer, a channel or a select may be a stream or a long poll that has nothing to say. "+
				"So a select, an answer that is being read and a library's call for what comes next are at most low or a fact, and so is who goes on instead of standing at one place. Waiting for the client is nobody's fault here, and a sleep ends by itself. High: at least a tenth of the group's requests, or five.",
				hungFactor, scale.Enough, words.Brief(hungLeast), words.Brief(scale.Patience), scale.Few),
			Before: "v := <-results // nobody sends after an error",
			After:  "select {\ncase v := <-results:\ncase <-ctx.Done():\n\treturn ctx.Err()\n}",
			Wrong:  "A long poll, a subscription or a watch beside short requests of the same handler looks the same, if it waits by a plain channel.",
		},
		Run: func(in *Input) []Verdict {
			return in.eachGroup(func(g *report.Group) []Verdict {
				var out []Verdict
				for i := range g.Open.Waits {
					if v, ok := in.hung(g, &g.Open.Waits[i]); ok {
						out = append(out, v)
					}
				}
				return out
			})
		},
	}
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
		limit = scale.Patience // none of them has had the lock since the first came, in the middle of the trace perhaps
	}
	// What is usual is for whole requests: one that tries again and again is as late as one that stands.
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
		n = w.Count // of more than these it is not told for how long; and who came later to where none got on stands as well
	}
	severe, confidence := report.SeverityMedium, 0.95
	if n >= scale.Few || float64(n) >= scale.Some*float64(g.Count+g.Open.Count) {
		severe = report.SeverityHigh
	}
	switch {
	case !stands: // it goes on, as a stream does
		severe, confidence = report.SeverityLow, 0.6
	case isPlace(w): // nobody waits for that on purpose
	case w.Call == "runtime.selectgo" || w.Cause == report.CauseSleep:
		severe, confidence = report.SeverityLow, 0.5
	case w.Cause == report.CauseChan:
		severe, confidence = report.SeverityMedium, 0.7
	case w.Cause == report.CauseNetwork:
		confidence = 0.8
	}
	if !known && confidence < 0.95 {
		switch {
		case w.Call == "runtime.selectgo" || w.Cause == report.CauseSleep || readsOn(w):
			severe, confidence, v.Fact = "", 0.4, true // a stream, or a long poll
		default:
			confidence = 0.6 // nothing but what it waits for can end it, not even a client that gives up
		}
	}
	row := report.Cause{Cause: w.Cause, Site: w.Site, Call: w.Call, Kind: w.Kind}
	site := users(&row, w.Via)
	v.Severe = severe
	v.Won = Won{TotalNS: total}
	v.Changes = []predict.Change{}
	verb := "requests hang: they stand"
	if n == 1 {
		verb = "request hangs: it stands"
	}
	v.Finding = report.Finding{
		Title: fmt.Sprintf("%d %s %s", n, verb, standing(&row, site)), Cause: w.Cause, Site: site, Group: g.ID, Confidence: confidence,
		Evidence: []report.Evidence{
			{Text: "in this very wait, the longest", Value: float64(w.StuckNS[0]), Unit: "ns"},
			{Text: "the oldest was open for", Value: float64(w.OldestNS), Unit: "ns"},
			{Text: "requests that stood there when the trace ended", Value: float64(w.Count), Unit: "count"},
		},
		Fix: "let the wait end: with the request's context, a deadline, or an answer in every case, also that of an error; the stacks of all goroutines (/debug/pprof/goroutine?debug=2) show who should have ended it",
	}
	if known {
		v.Evidence = append(v.Evidence, report.Evidence{Text: "requests of the group that ended took, 99 of a hundred, at most", Value: float64(usual), Unit: "ns"})
	} else {
		v.Evidence = append(v.Evidence, report.Evidence{Text: "requests of the group that ended", Value: float64(g.Count), Unit: "count"})
	}
	switch {
	case !stands:
		v.Title = fmt.Sprintf("%d requests do not end: they go on, at last %s", n, standing(&row, site))
		if n == 1 {
			v.Title = "1 request does not end: it goes on, at last " + standing(&row, site)
		}
		v.Fix = "bound what one request may try again, by its context or by a number; if it is a stream, give it a handler of its own"
	case v.Fact:
		if n == 1 {
			v.Title = fmt.Sprintf("1 request was open for the whole trace, %s: a stream that has nothing to say, or it hangs", standing(&row, site))
		} else {
			v.Title = fmt.Sprintf("%d requests were open for the whole trace, %s: streams that have nothing to say, or they hang", n, standing(&row, site))
		}
		v.Fix = "if it is no stream: end the wait with the request's context or a deadline"
	case w.Cause == report.CauseLock && !strings.Contains(w.Call, "WaitGroup"):
		v.Fix = "find who holds the lock and does not come back: the stacks of all goroutines (/debug/pprof/goroutine?debug=2) show it; hold no lock over what may not end, and unlock with defer"
		if site, reason, ns := in.goroutineHolds(w); site != nil {
			at := fmt.Sprintf("at %s (%s)", place(site), reason)
			v.Evidence = append([]report.Evidence{{Text: "perhaps held by the goroutine that stands " + at + ": it came to stand there before the first of them, by", Value: float64(ns - w.StuckNS[0]), Unit: "ns"}}, v.Evidence...)
			v.Fix = "look first at the goroutine that stands " + at + "; else " + v.Fix
		} else if o, before := in.holder(w); o != nil {
			at := standing(&report.Cause{Cause: o.Cause, Site: o.Site, Call: o.Call, Kind: o.Kind}, users(&report.Cause{Site: o.Site}, o.Via))
			v.Evidence = append([]report.Evidence{{Text: "perhaps held by the request that stands " + at + ": it came to stand there before the first of them, by", Value: float64(before), Unit: "ns"}}, v.Evidence...)
			v.Fix = "look first at the request that stands " + at + "; else " + v.Fix
		}
	case w.Call == sqlPool:
		v.Fix = "find what keeps the connections of the pool: rows that are not closed, transactions that are not ended, queries without a deadline; give each query the request's context"
	}
	return v, true
}

// readsOn reports whether who waits has had an answer, of which more may come at any time, or asks a library for whatever comes next.
func readsOn(w *report.OpenWait) bool {
	if w.Cause == report.CauseNetwork && w.Call == "net/http.(*body).Read" {
		return true
	}
	s := w.Site
	return s != nil && (s.Module != "" && request.AsksForNext(s.Func) || s.CalledFrom != nil && request.AsksForNext(s.CalledFrom.Calls))
}

// goroutineHolds returns where a goroutine stands that perhaps holds the lock that requests wait for at w: for longer than the first of
// them, in a method of the same type or in the same function.
func (in *Input) goroutineHolds(w *report.OpenWait) (at *report.Site, reason string, ns int64) {
	if in.Holder == nil || w.Site == nil || !isMutex(w) || isStd(w.Site) {
		return nil, "", 0
	}
	return in.Holder(w.Site.Func, w.StuckNS[0])
}

// holder returns where somebody stands who may hold what requests wait for at w: the one of all open requests that came to stand
// elsewhere last before the first of these did, and how long before. No event of the trace says who has a lock.
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

// isPlace reports whether a wait is for a lock, a WaitGroup or a place of a pool, where nobody waits for what may come at any
// time.
func isPlace(w *report.OpenWait) bool {
	if w.Cause == report.CauseLock {
		return !strings.Contains(w.Call, "Cond)")
	}
	return w.Call == sqlPool || w.Call == httpPool || w.Site != nil && strings.HasPrefix(w.Site.Func, "golang.org/x/sync/semaphore.")
}

// isMutex reports whether a wait is for a lock that somebody has.
func isMutex(w *report.OpenWait) bool {
	return w.Cause == report.CauseLock && !strings.Contains(w.Call, "Cond)") && !strings.Contains(w.Call, "WaitGroup")
}

// standing says what requests that have not ended are at.
func standing(c *report.Cause, site *report.Site) string {
	at := " at " + place(site)
	switch {
	case c.Cause == report.CauseCPU:
		return "computing in " + place(site)
	case c.Call == sqlPool:
		return "waiting for a connection of a database/sql pool" + at
	case c.Cause == report.CauseLock && strings.Contains(c.Call, "WaitGroup"):
		return "waiting for a WaitGroup" + at
	case c.Cause == report.CauseLock && strings.Contains(c.Call, "Cond)"):
		return "waiting for a Cond" + at
	case c.Cause == report.CauseLock:
		return "waiting for a lock" + at
	case c.Call == "runtime.selectgo":
		return "waiting in a select" + at
	case c.Cause == report.CauseChan:
		return "waiting on a channel" + at
	case c.Cause == report.CauseNetwork:
		return "waiting for a peer" + at
	case c.Cause == report.CauseSyscall && c.Kind == report.InC:
		return "in C code, called" + at
	case c.Cause == report.CauseSyscall:
		return "in the kernel, called" + at
	}
	if c.Cause == report.CauseSleep {
		return "asleep" + at
	}
	return "waiting" + at
}
