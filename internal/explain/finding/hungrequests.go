package finding

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/report"
)

// checkHung is WL2009, hung: requests are open at the end of the trace and have been in one wait for far longer than requests of
// their group usually take. Each such wait has a verdict (hungVerdict).
func checkHung(in *Input, group *report.Group) (out []Verdict) {
	for i := range group.Open.Waits {
		if v, ok := in.hungVerdict(group, &group.Open.Waits[i]); ok {
			out = append(out, v)
		}
	}
	return out
}

// An open request hangs if it is older than hungFactor times the usual latency, and than minHungAge (in ns).
const (
	hungFactor = 10
	minHungAge = int64(100e6)
)

// hungVerdict returns the verdict about the open requests of a group in one wait; false if they do not hang. A request hangs if
// it is older than hungFactor times the usual latency. If too few requests ended for a usual latency, it must have waited for
// nine tenths of the trace, or no request may have got the lock since the first waiter came.
func (in *Input) hungVerdict(group *report.Group, wait *report.OpenWait) (v Verdict, ok bool) {
	if group.Role != report.RoleRequests || group.Kind == report.KindLoop || group.Kind == report.KindFunc || wait.Cause == report.CauseNetwork && wait.Kind == "inbound" {
		return v, false
	}
	usualNS, minAge := int64(0), max(threshold.PatienceNS, in.Report.Input.DurationNS*9/10)
	hasUsual := group.Count >= threshold.MedianSample
	if hasUsual {
		if usualNS = *group.LatencyNS.Max; group.LatencyNS.P99 != nil {
			usualNS = *group.LatencyNS.P99
		}
		minAge = max(minHungAge, hungFactor*usualNS, *group.LatencyNS.Max+1) // a request that has run for less may still end as that one did
	} else if group.Kind == report.KindGoroutine {
		return v, false // a goroutine that runs for as long as the process is no job
	} else if group.Count == 0 && wait.Count == group.Open.Count && wait.Count >= threshold.SmallSample && isMutexWait(wait) && 10*wait.StuckNS[0] >= 9*wait.OldestNS {
		minAge = threshold.PatienceNS // no request got the lock since the first one came, perhaps in the middle of the trace
	}
	// The usual latency is that of whole requests: a request that retries is as late as one that is stuck in a wait.
	ages := wait.StuckNS
	if hasUsual {
		ages = wait.AgesNS
	}
	hanging, totalNS := 0, int64(0)
	for _, ns := range ages {
		if ns >= minAge {
			hanging++
			totalNS += ns
		}
	}
	if hanging == 0 {
		return v, false
	}
	isStuck := 2*wait.StuckNS[0] >= ages[0]
	if hanging == len(ages) || !hasUsual {
		hanging = wait.Count // only these ages are known; and if no request proceeds, later ones hang as well
	}
	v = Verdict{Gain: Gain{TotalNS: totalNS}, Changes: []predict.Change{}, Finding: report.Finding{
		Cause: wait.Cause, Site: openWaitSite(wait), Group: group.ID, Fix: textOf("fix hung"),
		Evidence: []report.Evidence{
			evidenceOf("evidence hung-longest", wait.StuckNS[0], "ns"),
			evidenceOf("evidence hung-oldest", wait.OldestNS, "ns"),
			evidenceOf("evidence hung-requests", wait.Count, "count"),
		},
	}}
	switch {
	case !hasUsual:
		v.addEvidence(evidenceOf("evidence hung-ended", group.Count, "count"))
	case group.LatencyNS.P99 != nil:
		v.addEvidence(evidenceOf("evidence hung-usual-p99", usualNS, "ns"))
	default:
		v.addEvidence(evidenceOf("evidence hung-usual-maximum", usualNS, "ns"))
	}
	isMany := hanging >= threshold.SmallSample || float64(hanging) >= threshold.NoticeableShare*float64(group.Count+group.Open.Count)
	v.FixedSeverity, v.Confidence, v.Fact = judgeHang(wait, isStuck, hasUsual, isMany)
	if v.Confidence < trustedConfidence && !isResourceWait(wait) {
		v.Doubt = textOf("phrase doubt-may-be-stream")
	}
	title := plural(hanging, "title hung-one", "title hung-many")
	switch {
	case !isStuck:
		title, v.Fix = plural(hanging, "title endless-one", "title endless-many"), textOf("fix endless")
	case v.Fact:
		title, v.Fix = plural(hanging, "title open-stream-one", "title open-stream-many"), textOf("fix open-stream")
	case wait.Cause == report.CauseLock && !knowledge.Has(wait.Call, knowledge.WaitGroup):
		v.Fix = textOf("fix hung-lock")
		if site, reason, ns := in.holdingGoroutine(wait); site != nil {
			v.Evidence = slices.Insert(v.Evidence, 1, evidenceOf("evidence hung-holder-goroutine", ns-wait.StuckNS[0], "ns", "site", site, "reason", reason))
			v.Fix = textOf("fix hung-lock-goroutine", "site", site, "reason", reason, "fix", v.Fix)
		} else if o, before := in.holdingRequest(wait); o != nil {
			v.Evidence = slices.Insert(v.Evidence, 1, evidenceOf("evidence hung-holder-request", before, "ns", "wait", openWaitText(o)))
			v.Fix = textOf("fix hung-lock-request", "wait", openWaitText(o), "fix", v.Fix)
		}
	case stdPool(wait.Call).leakAdvice != "":
		v.Fix = stdPool(wait.Call).leakAdvice
	}
	v.Title = textOf(title, "n", hanging, "wait", openWaitText(wait))
	return v, true
}

// judgeHang returns the severity and confidence of a hang, or that it is only a fact, without severity, because the wait is
// probably intended (a stream, a long poll). isStuck: the requests have been in this wait for most of their age. hasUsual: the
// usual latency is known. isMany: many requests are in the wait.
func judgeHang(wait *report.OpenWait, isStuck, hasUsual, isMany bool) (severity report.Severity, confidence float64, fact bool) {
	severity, confidence = report.SeverityMedium, 0.95
	if isMany {
		severity = report.SeverityHigh
	}
	canTimeOut := knowledge.Has(wait.Call, knowledge.SelectWait) || wait.Cause == report.CauseSleep
	switch {
	case !isStuck: // the requests proceed, as streams do
		severity, confidence = report.SeverityLow, 0.6
	case isResourceWait(wait): // no code waits for that on purpose
	case canTimeOut:
		severity, confidence = report.SeverityLow, 0.5
	case wait.Cause == report.CauseChan:
		severity, confidence = report.SeverityMedium, 0.7
	case wait.Cause == report.CauseNetwork:
		confidence = 0.8
	}
	switch {
	case hasUsual || confidence == 0.95:
		return severity, confidence, false
	case canTimeOut || isReadingStream(wait):
		return "", 0.4, true
	}
	return severity, 0.6, false // only the awaited event can end it, not even a client that gives up
}

// plural returns the key of a text for the number n: one for 1, many for others.
func plural(n int, one, many textKey) textKey {
	if n == 1 {
		return one
	}
	return many
}

// isReadingStream reports whether a request waits in a read of a peer's answer, of which more may come at any time, or for a
// library's next item.
func isReadingStream(wait *report.OpenWait) bool {
	if wait.Cause == report.CauseNetwork && knowledge.Has(wait.Call, knowledge.ResponseBody) {
		return true
	}
	s := wait.Site
	return s != nil && (s.Module != "" && knowledge.Has(s.Func, knowledge.Fetch) || s.CalledFrom != nil && knowledge.Has(s.CalledFrom.Calls, knowledge.Fetch))
}

// holdingGoroutine guesses which goroutine holds the lock that requests wait for: one that has been in another wait, for reason
// and ns, since before the first waiter came, in a method of the same type or in the same function. The site is nil if there is
// none. No event of a trace shows the holder of a lock.
func (in *Input) holdingGoroutine(wait *report.OpenWait) (site *report.Site, reason string, ns int64) {
	if in.FindHolder == nil || wait.Site == nil || !isMutexWait(wait) || isStdSite(wait.Site) {
		return nil, "", 0
	}
	return in.FindHolder(wait.Site.Func, wait.StuckNS[0])
}

// holdingRequest guesses which open request holds the lock that requests wait for: of those in other waits, the one that stopped
// last before the first waiter came, aheadNS earlier. It returns nil if none did. No event of a trace shows the holder of a lock.
func (in *Input) holdingRequest(wait *report.OpenWait) (holder *report.OpenWait, aheadNS int64) {
	for i := range in.Report.Groups {
		waits := in.Report.Groups[i].Open.Waits
		for req := range each(waits) {
			if req.Cause == report.CauseLock || req.Cause == report.CauseNetwork && req.Kind == "inbound" {
				continue
			}
			for _, ns := range req.StuckNS {
				if d := ns - wait.StuckNS[0]; d >= 0 && (holder == nil || d < aheadNS) {
					holder, aheadNS = req, d
				}
			}
		}
	}
	return holder, aheadNS
}

// isResourceWait reports whether a wait is for a lock, a WaitGroup or a slot of a pool, and not for an event that may come at
// any time.
func isResourceWait(wait *report.OpenWait) bool {
	if wait.Cause == report.CauseLock {
		return !knowledge.Has(wait.Call, knowledge.CondWait)
	}
	return isStdPool(wait.Call) || wait.Site != nil && knowledge.Has(wait.Site.Func, knowledge.Semaphore)
}

// isMutexWait reports whether a wait is for a lock that another goroutine holds.
func isMutexWait(wait *report.OpenWait) bool {
	return wait.Cause == report.CauseLock && !knowledge.Has(wait.Call, knowledge.CondWait) && !knowledge.Has(wait.Call, knowledge.WaitGroup)
}

// openWaitSite returns the site that a finding names for requests in an open wait: the nearest one outside the standard library.
func openWaitSite(wait *report.OpenWait) *report.Site {
	return nonStdSite(&report.Cause{Site: wait.Site}, wait.Via)
}

// openWaitKeys are the keys of the phrases for requests in an open wait, by its cause.
var openWaitKeys = map[report.CauseName]textKey{
	report.CauseCPU: "phrase computing", report.CauseLock: "phrase waiting-for-lock", report.CauseChan: "phrase waiting-on-channel",
	report.CauseNetwork: "phrase waiting-for-peer", report.CauseSyscall: "phrase in-kernel", report.CauseSleep: "phrase asleep",
}

// openWaitText returns a phrase for the activity of the requests in an open wait, such as "waiting for a lock at main.get
// (main.go:12)".
func openWaitText(wait *report.OpenWait) string {
	key, slot := cmp.Or(openWaitKeys[wait.Cause], "phrase waiting"), stdPool(wait.Call)
	switch {
	case wait.Cause == report.CauseCPU:
	case slot.slotWait == neverOpens:
		key = "phrase waiting-for-slot"
	case wait.Cause == report.CauseLock && knowledge.Has(wait.Call, knowledge.WaitGroup):
		key = "phrase waiting-for-waitgroup"
	case wait.Cause == report.CauseLock && knowledge.Has(wait.Call, knowledge.CondWait):
		key = "phrase waiting-for-cond"
	case wait.Cause != report.CauseLock && knowledge.Has(wait.Call, knowledge.SelectWait):
		key = "phrase waiting-in-select"
	case wait.Cause == report.CauseSyscall && wait.Kind == report.InC:
		key = "phrase in-c-code"
	}
	return textOf(key, "slot", slot.slotPhrase("phrase connection", 0), "site", openWaitSite(wait))
}
