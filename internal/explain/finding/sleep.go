package finding

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkSleep is WL2001, sleep: requests wait for a sleep or timer, on their own goroutine or on one that they wait for. Long
// polls and the pace of a stream, which delay no request, have verdicts of their own. The fix depends on the timer, on the library
// that sleeps, and on whether the sleep is the pause of a poll.
func checkSleep(attr *attribution, cand *candidate) Verdict {
	if p := attr.longPolls[cand.causeSite.site]; p != nil && cand.causeSite.cause == pollCause {
		return pollVerdict(attr, cand, p)
	}
	top := cand.heaviestRoute(report.CauseSleep)
	switch cand.causeSite.cause {
	case streamCause:
		return streamVerdict(attr, cand, top)
	case nextRequestCause:
		return nextRequestVerdict(attr, cand, top)
	}
	v := attr.newVerdict(cand, top)
	v.Changes = withoutAllSites(attr, cand)
	l := pausingLibrary(top)
	if l != nil && l.pauseAdvice != "" { // one option for all lines that wait there
		v.Changes = []predict.Change{predict.Remove(report.CauseSleep, predict.SiteText(top.Site.LineKey().Site(), report.CauseSleep))}
	}
	v.Title, v.Cause = textOf("title sleep", "goroutine", goroutineActivity(top)), report.CauseSleep
	attr.addSlowMean(&v, "evidence slow-mean-on", cand, top, top.via)
	pauses, pauseNS := attr.in.pausesOf(attr.group.ID, v.Changes), int64(0)
	if t := attr.in.serviceAt(top.Cause, top.via); t != nil && t.Sleeps > 0 {
		pauseNS = t.SleepNS
		v.addEvidence(evidenceOf("evidence sleep-length", t.SleepNS, "ns"))
		if t.BatchSize > 1.5 {
			v.addEvidence(evidenceOf("evidence sleep-sharers", t.BatchSize, "count"))
		}
	}
	if pauseNS == 0 && pauses != nil {
		pauseNS = pauses.EachNS
	}
	if pauses != nil && pauses.FloorNS > 0 && verdict.KindOf(top.Cause) != verdict.Deadline && len(top.via) == 0 && !attr.waitsForOthersAt(top.Site) {
		v.Title, v.Fix = textOf("title floor", "site", v.Site, "floor", words.Brief(pauses.FloorNS)), textOf("fix floor")
		v.Fact, v.Changes = true, []predict.Change{}
		return v
	}
	switch {
	case attr.rewriteForDeadline(&v, top, pauses):
	case top.Site != nil && top.Site.Module != "":
		v.Fix = textOf("fix sleep-in-dependency", "site", v.Site)
		if !slices.Contains(lockKinds, verdict.KindOf(top.Cause)) && (l == nil || l.pauseAdvice == "") {
			v.scaleTo(remainingPause)
		} else if l != nil && l.left > 0 {
			v.scaleTo(l.left)
		}
	case attr.pollingWorker(top) != nil:
		interval := words.Brief(attr.pollingWorker(top).SleepNS)
		v.Title, v.Fix = textOf("title polled-work", "interval", interval, "site", v.Site), textOf("fix polled-work", "interval", interval, "site", v.Site)
	case attr.rewriteForRetry(&v, top, pauses):
	case knowledge.Has(top.Call, knowledge.SleepWait):
		v.Fix = attr.sleepAdvice(top, pauses, cand.gain.Slow.NS)
	case attr.batchWindow(top) != nil:
		length := words.Brief(attr.batchWindow(top).ServiceNS)
		v.Title, v.Fix = textOf("title batch-window", "time", length, "site", v.Site), textOf("fix batch-window", "time", length)
		v.addEvidence(evidenceOf("evidence sleep-sharers", attr.batchWindow(top).BatchSize, "count"))
	default:
		v.Fix = textOf("fix sleep-of-timer", "site", v.Site)
		if failing, _ := attr.failingCall(top); failing != nil {
			v.Fix = textOf("fix sleep-before-retry", "site", v.Site, "call", textOf("phrase failing-call-at", "site", failing))
		}
	}
	if l != nil && (l.pauseAdvice != "" || l.retryAdvice != "") {
		advice, shorter, present, isShort := l.adviceForPause(pauseNS)
		v.Fix, v.hasOption = l.fix(advice), true
		if l.retryAdvice != "" {
			v.Title = textOf("title retry", "site", v.Site)
			call := textOf("phrase failing-call")
			if failing, _ := attr.failingCall(top); failing != nil {
				call = textOf("phrase failing-call-at", "site", failing)
			}
			filter := ""
			if l.retryFilter != "" {
				filter = textOf("phrase retry-filter", "filter", l.retryFilter)
			}
			v.Fix = textOf("fix retry", "call", call, "filter", filter, "library", l.name, "advice", advice)
			v.Changes, v.ChangeText = withoutAllSites(attr, cand), textOf("phrase change-first-try", "call", call)
		}
		if isShort && l.retryAdvice == "" {
			v.MaxSeverity = report.SeverityLow
		}
		if shorter > 0 && l.retryAdvice == "" {
			v.shortenTo(shorter, textOf("phrase change-shorter", "time", words.Brief(int64(shorter)), "default", present))
		}
	}
	if verdict.KindOf(top.Cause) == verdict.SharedLock {
		attr.rewriteForSharedLock(&v, top)
	}
	if attr.spansTrace() || attr.isRest(top) {
		v.MaxSeverity = report.SeverityLow
	}
	if attr.group.Kind == report.KindRun {
		title := textKey("title sleep-in-run")
		if len(top.via) > 0 {
			title = "title sleep-in-run-elsewhere"
		}
		v.Title = textOf(title, "activity", top.activity())
	}
	if l := cand.sharingLibrary(); l != nil {
		v.Fix, v.ChangeText = l.fix(l.shareAdvice), textOf("phrase change-unshared")
		return v
	}
	if rewriteForTransactions(attr.in, &v, top) || rewriteForGathering(attr.in, &v, top) {
		return v
	}
	switch receivers := attr.fewReceivers(top); {
	case receivers > 0:
		v.Fix = textOf("fix sleep-or-more-receivers", "fix", v.Fix, "site", top.via[0].Site, "n", receivers+1, "now", receivers)
	case len(top.via) > 0 && !isRoundTrip(&top.via[0]): // an answer is needed
		v.Fix = textOf("fix sleep-or-no-wait", "fix", v.Fix, "site", top.via[0].Site)
	}
	v.addEvidence(otherSiteEvidence(cand, top)...)
	switch {
	case len(top.via) == 0 && attr.rewriteForPolledWorker(&v, pauses):
	case pauses != nil && pauses.IsPoll:
		rewriteForPolling(attr.in, &v, top, pauses)
	}
	return v
}

// waitsForOthersAt reports whether goroutines end waits of the group's requests at a line: a timer there is a time-out.
func (a *attribution) waitsForOthersAt(site *report.Site) bool {
	return slices.ContainsFunc(a.group.All().Causes, func(c report.Cause) bool {
		return slices.ContainsFunc(c.Via, func(v report.Via) bool { return v.Site.Matches(site) })
	})
}

// asksOnAnotherGoroutine reports whether the select in which a route's timer ends a wait mostly receives from goroutines that the request started.
func (a *attribution) asksOnAnotherGoroutine(p *causeRoute) bool {
	return isEndedByChildren(a.in.slotWaitsAt(waitKey{kind: report.WaitSelect, call: p.Call, site: p.Site.LineKey()}))
}

// longestBudgetNS is the length of a deadline that says what an answer is worth. Time-outs, which end what has failed, are longer: those of client
// libraries take a second and more.
const longestBudgetNS = 100e6

// shortRetryNS is what a request may pause before it makes a call again: client libraries begin with some tens of milliseconds.
const shortRetryNS = 100e6

// isRest reports whether a route is the rest of a loop: few of its iterations wait for a timer themselves, which begins the next of many.
func (a *attribution) isRest(p *causeRoute) bool {
	return a.group.Kind == report.KindLoop && len(p.via) == 0 && !knowledge.Has(p.Call, knowledge.SleepWait) && p.Requests > 0 &&
		float64(p.Requests) < threshold.MinorShare*float64(a.group.Count)
}

// fewReceivers returns how many goroutines receive from the channel to which requests send at the first wait of a route, if the work
// at its end is theirs; 0 if that is not known, or if they are many. A larger buffer would only let requests queue in the channel.
func (a *attribution) fewReceivers(p *causeRoute) int {
	const most = 8 // with more of them, the program starts a receiver for each piece of work, as a rule
	if len(p.via) != 1 || p.via[0].Wait != report.WaitChanSend {
		return 0
	}
	if s := a.in.serviceAt(p.Cause, p.via); s != nil && s.OtherRequestShare <= 0.5 && s.MaxServers <= most {
		return s.MaxServers
	}
	return 0
}

// rewriteForDeadline rewrites a verdict on waits that a deadline ended: that of a context, or a timer in a select that also receives a peer's
// answer from a goroutine of the request. It returns false for other sleeps. If the line asks a peer whose other answers take far less, the
// deadline can be shorter. If it is short, and ends a wait of some requests for one of several answers, or for that of a goroutine which
// continues, it is a budget, as is any of at most longestBudgetNS: the verdict is at most low. If most requests wait until it passes, the peer
// is out of order.
func (a *attribution) rewriteForDeadline(v *Verdict, top *causeRoute, pauses *predict.Pauses) bool {
	isOfContext := verdict.KindOf(top.Cause) == verdict.Deadline
	isHere := func(s *report.Site) bool { return s.OwnLine().Key() == top.ownLine().Key() }
	answer := firstMatch(a.group.All().Causes, func(c *report.Cause) bool {
		return isPeerWait(c) && c.Requests > 0 && (isHere(c.Site) || slices.ContainsFunc(c.Via, func(v report.Via) bool { return isHere(v.Site) }))
	})
	if !isOfContext && (pauses == nil || answer == nil || len(top.via) > 0 || !a.asksOnAnotherGoroutine(top)) {
		return false
	}
	v.Fix = textOf("fix sleep-until-deadline", "site", v.Site)
	if pauses == nil {
		return true
	}
	v.Title = textOf("title deadline", "time", words.Brief(pauses.EachNS), "site", v.Site)
	if answer == nil {
		return true
	}
	usualNS := answer.TotalNS / int64(answer.Requests)
	answerRoute := &causeRoute{Cause: answer, via: answer.Via}
	v.Title = textOf("title deadline-of-answer", "answer", answerText(answerRoute), "time", words.Brief(pauses.EachNS), "site", v.Site)
	shorter := time.Duration(threshold.FarFactor * usualNS).Round(time.Millisecond)
	isShort := shorter < time.Millisecond || 2*int64(shorter) > pauses.EachNS
	// Requests receive other answers at a line if they wait there both for a deadline and for an answer of another goroutine.
	isOneOfSeveral := !isOfContext || len(top.via) > 0 || !isHere(answer.Site) && float64(answer.Requests+top.Requests-a.group.Count) >= threshold.MostShare*float64(top.Requests)
	switch {
	case (isShort && isOneOfSeveral || pauses.EachNS <= longestBudgetNS) && !a.concernsMost(top.Requests):
		v.MaxSeverity = report.SeverityLow
		v.Title = textOf("title deadline-budget", "n", top.Requests, "of", a.group.Count, "answer", answerText(answerRoute), "time", words.Brief(pauses.EachNS), "site", v.Site)
		v.Fix = textOf("fix deadline-budget", "peer", a.in.peerText(answerRoute))
		return true
	case isShort:
		v.Fix = textOf("fix deadline-of-answer", "peer", a.in.peerText(answerRoute))
		return true
	}
	v.Fix = textOf("fix shorter-deadline", "peer", a.in.peerText(answerRoute), "usual", words.Brief(usualNS), "time", words.Brief(int64(shorter)), "deadline", words.Brief(pauses.EachNS))
	v.shortenTo(shorter, textOf("phrase change-deadline", "time", words.Brief(int64(shorter))))
	return true
}

// rewriteForRetry rewrites a verdict on pauses of some requests before they make a call again. It returns false for other pauses, and for those of
// most requests, which may ask whether something is ready.
func (a *attribution) rewriteForRetry(v *Verdict, top *causeRoute, pauses *predict.Pauses) bool {
	call, isRepeated := a.failingCall(top)
	if call == nil || !isRepeated || pauses == nil || pauses.IsPoll || float64(top.Requests) >= threshold.HalfShare*float64(a.group.Count) {
		return false
	}
	pausedNS := int64(float64(pauses.EachNS) * pauses.Number)
	v.Title, v.Fix = textOf("title pause-of-retry", "time", words.Brief(pausedNS), "site", v.Site, "call", call), textOf("fix pause-of-retry", "call", textOf("phrase failing-call-at", "site", call))
	if pausedNS <= shortRetryNS {
		v.MaxSeverity = report.SeverityLow
	}
	return true
}

// failingCall returns the call that is perhaps tried again after a pause: the line at which the slowest requests wait for a peer last before each
// such pause; nil if there is none, it is not always the same, or the pause is the interval of a loop, in its body. isRepeated reports whether
// that is also the next line at which they wait for one after each pause.
func (a *attribution) failingCall(pause *causeRoute) (call *report.Site, isRepeated bool) {
	if a.group.Kind == report.KindLoop && a.group.Entry != nil && pause.Site.LineKey().Func == a.group.Entry.Func {
		return nil, false
	}
	isRepeated = true
	for i := range a.group.Slowest {
		var last *report.Site
		isPaused := false
		for k := range a.group.Slowest[i].Segments {
			switch s := &a.group.Slowest[i].Segments[k]; {
			case s.Cause == report.CauseNetwork && s.Kind != "inbound" && s.Site != nil:
				last = s.Site.OwnLine()
				isRepeated, isPaused = isRepeated && (!isPaused || last.Key() == call.Key()), false
			case s.Cause == report.CauseSleep && pause.Site.Equal(s.Site):
				if last == nil || isStdSite(last) || call != nil && call.Key() != last.Key() {
					return nil, false
				}
				call, isPaused = last, true
			}
		}
		isRepeated = isRepeated && !isPaused
	}
	return call, isRepeated
}

// batchWindow returns the facts about the timers (time.AfterFunc) that end a route, if those requests that arrive before one fires join the
// batch of the first, which has started it; nil for other sleeps.
func (a *attribution) batchWindow(top *causeRoute) *queues.ServiceStats {
	service := a.in.serviceAt(top.Cause, top.via)
	if service == nil || top.Call != "" || service.Requests < 2*threshold.SmallSample || service.BatchSize < 1.5 || !isSharedCall(service) {
		return nil
	}
	return service
}

// pollingWorker returns the facts about the goroutine in time.Sleep at the end of a route, if it polls for work: its sleeps began before the
// requests waited, and nothing that these did ends them or starts others; nil for other sleeps.
func (a *attribution) pollingWorker(top *causeRoute) *queues.ServiceStats {
	service := a.in.serviceAt(top.Cause, top.via)
	if service == nil || len(top.via) != 1 || top.via[0].Wait == report.WaitChanSend || !knowledge.Has(top.Call, knowledge.SleepWait) || service.OtherRequestShare > threshold.HalfShare || service.BegunEarlyShare < threshold.MostShare || service.Requests < threshold.MedianSample {
		return nil
	}
	if waits := a.in.longWaitsAt(top.via[0].Site); waits == nil || waits.HandoverShare > threshold.NoticeableShare {
		return nil
	}
	return service
}

// remainingPause is the share of a library's pauses that a shorter option is assumed to leave, if no advice for it is known: that of
// fixes which were measured is from nothing to 4 %.
const remainingPause = 0.05

// pausesOf returns how requests of a group sleep at the sites of the changes; nil if that is not known.
func (in *Input) pausesOf(group string, changes []predict.Change) *predict.Pauses {
	if in.Pauses == nil {
		return nil
	}
	return in.Pauses(group, changes)
}

// sleepAdvice returns the fix for calls of time.Sleep that are not the pauses of a poll: how many there are in a request, and how
// long each is. Only the program's authors know whether a pause is intended, so the advice has that condition. Requests that wait for a
// goroutine that sleeps may wait for its sleeps for others as well: slowNS is the time of slow requests.
func (a *attribution) sleepAdvice(top *causeRoute, p *predict.Pauses, slowNS int64) string {
	settingHint, pkg, site := "", "", top.nonStdSite()
	line := cmp.Or(names.Position(site), siteText(site))
	if site != nil && a.group.Entry != nil {
		pkg, _, _ = strings.Cut(words.FuncName(site.Func), ".")
		if entry, _, _ := strings.Cut(words.FuncName(a.group.Entry.Func), "."); pkg != entry && pkg != "main" {
			settingHint = textOf("phrase pause-of-package", "package", pkg)
		}
	}
	switch {
	case a.group.Kind == report.KindRun:
		return textOf("fix sleep-in-run", "line", line, "whose", settingHint)
	case p == nil:
		return textOf("fix sleep-call", "line", line, "whose", settingHint)
	case len(top.via) > 0 && slowNS > p.EachNS+p.EachNS/2:
		return textOf("fix sleep-elsewhere-repeatedly", "line", line, "whose", settingHint, "time", words.Brief(p.EachNS), "slow", words.Brief(slowNS))
	case len(top.via) > 0 && math.Round(p.Number) <= 1:
		return textOf("fix sleep-elsewhere", "line", line, "whose", settingHint, "time", words.Brief(p.EachNS))
	case math.Round(p.Number) <= 1:
		return textOf("fix sleep-once", "line", line, "whose", settingHint, "time", words.Brief(p.EachNS))
	}
	return textOf("fix sleep-times", "line", line, "whose", settingHint, "n", words.Figure(math.Round(p.Number)), "time", words.Brief(p.EachNS))
}

// spansTrace reports whether the group is a run of the program, or spans that are open for nearly the whole trace: nothing waits for
// their pauses.
func (a *attribution) spansTrace() bool {
	return a.group.Kind == report.KindRun ||
		a.group.Count > 0 && float64(a.group.TotalNS) >= threshold.NearlyAllShare*float64(a.group.Count)*float64(a.in.Report.Input.DurationNS)
}

// rewriteForTransactions rewrites a verdict on pauses between attempts to use a locked database, so that it names the transaction
// that held the lock. It returns false, and changes nothing, if no transaction was open for half of that time.
func rewriteForTransactions(in *Input, v *Verdict, top *causeRoute) bool {
	locked := firstMatch(in.LockedWaits, func(l *queues.LockedWait) bool { return l.Site.Matches(top.Site) })
	if locked == nil || locked.Share < threshold.HalfShare {
		return false
	}
	title := textOf("title transaction-holds", "begin", locked.Begin.OwnLine(), "site", v.Site)
	fix := textOf("fix transaction-holds", "begin", locked.Begin.OwnLine(), "share", words.Percent(locked.Share))
	if work, eachNS := in.computingNear(locked.Begin.OwnLine()); work != nil {
		title = textOf("title transaction-computes", "begin", locked.Begin.OwnLine(), "site", v.Site, "work", work)
		fix = textOf("fix transaction-computes", "begin", locked.Begin.OwnLine(), "work", work, "time", words.Brief(eachNS), "share", words.Percent(locked.Share))
	}
	v.addEvidence(evidenceOf("evidence transaction-open", locked.Share, "share", "begin", locked.Begin.OwnLine()))
	if locked.WorkShare >= threshold.HalfShare {
		work, waitsAt := siteText(locked.Work), locked.Work
		if locked.Line != nil && !locked.Line.Matches(locked.Work.OwnLine()) {
			work = textOf("phrase work-below", "work", work, "line", locked.Line)
			waitsAt = locked.Line
		}
		title = textOf("title transaction-holds-during", "begin", locked.Begin.OwnLine(), "site", v.Site, "work", waitsAt)
		fix = textOf("fix transaction-holds-during", "begin", locked.Begin.OwnLine(), "work", work)
		v.addEvidence(evidenceOf("evidence transaction-work", locked.WorkShare, "share", "work", work))
	}
	v.Title, v.Fix, v.ChangeText = title, fix, textOf("phrase change-not-locked")
	return true
}

// rewriteForGathering rewrites a verdict on the time limit of requests that receive answers until then: all that come are there long before.
// Without the limit's wait, they end at the last answer. It returns false, and changes nothing, for other requests.
func rewriteForGathering(in *Input, v *Verdict, top *causeRoute) bool {
	if len(top.via) != 1 || verdict.KindOf(top.Cause) == verdict.Deadline {
		return false
	}
	r := in.longWaitsAt(top.via[0].Site)
	if r == nil || r.GatheredShare < threshold.HalfShare || 2*r.GatheredNS > r.LimitNS {
		return false
	}
	site := top.via[0].Site.OwnLine()
	v.Title = textOf("title gathering", "site", site, "time", words.Brief(r.GatheredNS), "limit", words.Brief(r.LimitNS))
	v.Fix, v.ChangeText = textOf("fix gathering", "site", site, "limit", words.Brief(r.LimitNS)), textOf("phrase change-gathering")
	for i := range v.Changes {
		v.Changes[i].Scale, v.Changes[i].Relative = 0, false
	}
	return true
}

// lockKinds are the kinds of pauses that end when a lock is free: no option sets how long that takes.
var lockKinds = []string{verdict.DatabaseLock, verdict.SharedLock}

// rewriteForSharedLock rewrites a verdict on pauses between tries to take a library's lock, which other processes share: requests
// queue for it. The title and the fix name the longest work of holders, if they are requests of this process.
func (a *attribution) rewriteForSharedLock(v *Verdict, top *causeRoute) {
	l := libraryOfFunc(top.Site)
	if l == nil || l.lockAdvice == "" {
		return
	}
	v.Title, v.ChangeText = textOf("title shared-lock", "library", l.name, "site", top.ownLine()), textOf("phrase change-no-queue")
	v.Fix = l.fix(l.lockAdvice)
	var longest *report.Cause
	for c := range each(a.group.All().Causes) {
		isHeld := func(u *queues.HolderLine) bool {
			return u.WaitSite.OwnLine().LineKey() == top.ownLine().LineKey() && u.HolderSite.Matches(c.Site)
		}
		if (longest == nil || c.TotalNS > longest.TotalNS) && firstMatch(a.in.HolderLines, isHeld) != nil {
			longest = c
		}
	}
	if longest != nil {
		work := &causeRoute{Cause: longest, via: longest.Via}
		v.Title = textOf("title shared-lock-held", "library", l.name, "site", top.ownLine(), "activity", work.activity())
		v.Fix = textOf("fix shared-lock", "library", l.name, "advice", l.lockAdvice, "work", work.ownLine())
	}
}

// computingNear returns the line after begin, in the same function, at which requests compute longest, and the mean time there
// of a slow request of that group; nil if that is less than a tenth of their time.
func (in *Input) computingNear(begin *report.Site) (line *report.Site, eachNS int64) {
	for group := range each(in.Report.Groups) {
		band := group.Tail()
		sums := map[report.SiteKey]int64{}
		for c := range each(band.Causes) {
			if c.Cause != report.CauseCPU || c.Site == nil {
				continue
			}
			site := c.Site.OwnLine()
			if site.Func != begin.Func || site.Line <= begin.Line {
				continue
			}
			sums[site.Key()] += c.TotalNS
			if meanNS := sums[site.Key()] / int64(max(band.Count, 1)); meanNS > eachNS && float64(sums[site.Key()]) >= threshold.NoticeableShare*float64(band.TotalNS()) {
				line, eachNS = site, meanNS
			}
		}
	}
	return line, eachNS
}

// rewriteForPolling rewrites a verdict on sleeps that are the pauses of a poll. Only a part of the last pause can be saved,
// because the trace does not show when the condition became true; so the gain is scaled to one pause.
func rewriteForPolling(in *Input, v *Verdict, top *causeRoute, p *predict.Pauses) {
	pauseText, activity := words.Brief(p.EachNS), top.activity()
	if activityOf(top.Cause) == "phrase sleeps" {
		activity = textOf("phrase polls", "site", top.nonStdSite())
	}
	v.Title = textOf("title sleep-polling", "goroutine", goroutineDoes(top, activity), "pause", pauseText, "total", words.Brief(p.TotalNS))
	v.Fix, v.ChangeText = textOf("fix sleep-polling", "pause", pauseText, "total", words.Brief(p.TotalNS)), textOf("phrase change-no-poll")
	v.addEvidence(evidenceOf("evidence polls", p.Number, "count"))
	if in.severity(v) == "" {
		return
	}
	v.Gain = v.Gain.scaled(float64(p.EachNS) / float64(max(p.TotalNS, p.EachNS)))
	if in.severity(v) == "" {
		v.FixedSeverity = report.SeverityLow
	}
}

// rewriteForPolledWorker rewrites a verdict on the pauses of requests that poll for the work of a goroutine which begins each iteration after a
// pause of its own. No event connects them, but the waits are then spread evenly over that goroutine's interval, and half of a request's
// own pause comes on top. It returns false, and changes nothing, unless that is true of one goroutine.
func (a *attribution) rewriteForPolledWorker(v *Verdict, p *predict.Pauses) bool {
	if p == nil || a.group.LatencyNS.P90 == nil {
		return false
	}
	var worker *report.Group
	var interval int64
	for group := range each(a.in.AllGroups) {
		period := a.in.Report.Input.DurationNS / int64(max(group.Count, 1))
		fits := func(ns, share float64) bool {
			return math.Abs(ns-float64(p.EachNS)/2-share*float64(period)) <= max(threshold.NoticeableShare*float64(period), float64(p.EachNS)/2)
		}
		if a.in.UnawaitedGroups[group.ID] && isOwnCode(group.Entry) && group.Count >= threshold.SmallSample && p.EachNS < period &&
			fits(max(float64(p.TotalNS), p.Number*float64(p.EachNS)), 0.5) && fits(float64(*a.group.LatencyNS.P90), 0.9) {
			if worker != nil {
				return false
			}
			worker, interval = group, period
		}
	}
	if worker == nil {
		return false
	}
	v.Title = textOf("title polled-worker", "site", v.Site, "pause", words.Brief(p.EachNS), "worker", worker.Entry, "interval", words.Brief(interval))
	v.Fix = textOf("fix polled-worker", "worker", worker.Entry, "site", v.Site)
	v.doubt(0.7, textOf("phrase doubt-polled-worker"))
	if p.IsPoll {
		v.Changes = []predict.Change{} // predictions assume that the awaited event comes no earlier
	}
	return true
}

// goroutineActivity returns a phrase for the activity at the end of a route, and whose goroutine it is on.
func goroutineActivity(p *causeRoute) string { return goroutineDoes(p, p.activity()) }

// goroutineDoes returns a phrase which says that the request's own goroutine, or another one, does an activity.
func goroutineDoes(p *causeRoute, activity string) string {
	if len(p.via) == 0 {
		return textOf("phrase own-goroutine-does", "activity", activity)
	}
	return textOf("phrase other-goroutine-does", "activity", activity)
}
