package finding

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// The time for which requests wait for a P belongs to one rule:
//
//   - If the waiting goroutine serves many requests, it is a hub (WL1001).
//   - The share in which mark workers of the garbage collector ran belongs to WL3.
//   - The rest follows from the goroutines that ran during the wait. If more than half of that time is a herd of goroutines that
//     timers woke together, it is WL1004. The same holds if the herd's goroutines run at other times as well, provided that
//     most of the waits are in its moments. If it is long runs on otherwise free Ps, it is WL1007. Otherwise the Ps are
//     occupied (WL1002), or there are too few (WL1006).
//   - Waits during which a P was idle belong to WL1003 or WL1005.

// isSched reports whether a cause is a wait for a P while all Ps were busy, or for the network poll that no P made.
func isSched(c *report.Cause) bool {
	return c.Cause == report.CauseSched || c.Cause == report.CauseSchedPoll
}

// isNetwork reports whether a cause is a wait for the network.
func isNetwork(c *report.Cause) bool { return c.Cause == report.CauseNetwork }

// isPollGap reports whether a cause is time in which data may have been ready but no P polled the network.
func isPollGap(c *report.Cause) bool { return c.Cause == report.CauseSchedPoll }

// An occupant is a function in which goroutines, except mark workers, ran while requests waited for a P.
type occupant struct {
	site      *report.Site
	share     float64 // of the time of all occupants
	startFunc string  // start function of the goroutines that run there, "" if unknown
	longShare float64 // share of their time in long runs
}

// A runQueueWait is the time for which a group's requests wait for a P.
type runQueueWait struct {
	group     *report.Group
	hubs      []*hubWait
	share     float64 // of the group's time, without hubs
	gain      Gain
	occupants []occupant      // the largest first
	kindShare float64         // share of the largest kind of occupant
	ruleCode  report.RuleCode // the rule that the time without hubs belongs to
	herd      *process.Herd   // the herd in whose moments most of the wait is; nil if the rule follows from the occupants alone
	herdShare float64         // share of the wait in these moments
}

// runQueueWaitOf decides, by the precedence above, to which rule the time belongs that a group's requests wait for a P. Waits
// for hubs are taken out first; the rest belongs to one rule as a whole, to none (ruleCode "") if it is unknown what ran on the
// Ps.
func runQueueWaitOf(in *Input, g *report.Group) *runQueueWait {
	wait := &runQueueWait{group: g, hubs: hubWaitsOf(in, g)}
	wait.share, wait.gain = gainWithoutPart(g, func(c *report.Cause) float64 {
		if !isSched(c) || isBehindHub(wait.hubs, c) {
			return 0
		}
		return 1 - ranMarkingPart(c)
	})
	if wait.occupants = occupantsOf(in.Process, g); len(wait.occupants) == 0 {
		return wait
	}
	kinds := map[report.RuleCode]float64{}
	for i := range wait.occupants {
		kinds[ruleForOccupant(in, &wait.occupants[i])] += wait.occupants[i].share
	}
	if g.Kind == report.KindRun {
		kinds[report.RuleLongRuns] = 0 // long runs are what a batch program is for
	}
	wait.ruleCode = report.RulePsTaken
	for _, code := range []report.RuleCode{report.RuleHerd, report.RuleLongRuns} {
		if kinds[code] > 0.5 {
			wait.ruleCode = code
		}
	}
	wait.kindShare = kinds[wait.ruleCode]
	if wait.ruleCode != report.RuleHerd {
		wait.assignHerd(in)
	}
	if wait.ruleCode == report.RulePsTaken && hasTooFewPs(in) {
		wait.ruleCode = report.RuleTooFewPs
	}
	return wait
}

// assignHerd assigns the wait to WL1004 if one herd occupied the Ps for most of it, and most of the wait is in the herd's
// moments, which are a small part of the trace.
func (q *runQueueWait) assignHerd(in *Input) {
	if in.HerdOverlap == nil {
		return
	}
	for h := range each(in.Process.Herds) {
		ranShare := 0.0
		for k := range q.occupants {
			if q.occupants[k].startFunc == h.Start {
				ranShare += q.occupants[k].share
			}
		}
		if ranShare <= threshold.HalfShare {
			continue
		}
		if waited, time := in.HerdOverlap(q.group.ID, h.Start); waited > threshold.HalfShare && time <= max(threshold.MajorShare, waited/threshold.FarFactor) {
			q.ruleCode, q.kindShare, q.herd, q.herdShare = report.RuleHerd, ranShare, h, waited
			return
		}
	}
}

// occupantsOf returns the functions that ran on the Ps while requests of a group waited for one, with their shares, the largest
// first. Functions and shares are those of the group's scheduling causes; stats adds where their goroutines started and how many of
// their runs were long. Mark workers and assists are left out, because rules WL3xxx judge them, and so is the recording itself: the
// runtime's tracer, at the end of each of its generations, and what writes traces and profiles. The result is empty if the recording
// ran for more than half of that time: then the service has nothing to change.
func occupantsOf(stats *process.Stats, g *report.Group) (out []occupant) {
	total, recordingNS := 0.0, 0.0
	for cause := range each(g.All().Causes) {
		if cause.Cause != report.CauseSched {
			continue
		}
		for _, r := range cause.RanMeanwhile {
			if r.Site == nil {
				continue
			}
			ns, roles := r.Share*float64(cause.TotalNS), knowledge.Of(r.Site.Func)
			if roles.Has(knowledge.GCMark) {
				continue
			}
			if roles.Has(knowledge.Tracing) || roles.Has(knowledge.TraceRecorder) {
				recordingNS += ns
				continue
			}
			total += ns
			entry.FindOrAppend(&out, func(t occupant) bool { return t.site.Func == r.Site.Func }, occupant{site: r.Site}).share += ns
		}
	}
	if recordingNS > total {
		return nil
	}
	for i := range out {
		out[i].share /= total
		out[i].startFunc, out[i].longShare = startOfRunsIn(stats, out[i].site.Func)
	}
	slices.SortStableFunc(out, func(a, b occupant) int {
		return cmp.Or(cmp.Compare(b.share, a.share), strings.Compare(a.site.Func, b.site.Func))
	})
	return out
}

// startOfRunsIn returns, of the goroutines whose runs ended in function fn, the start function with the most running time, and
// the share of long runs (process.LongNS) in the time of all these runs. The start function is "" if no run ended there.
func startOfRunsIn(c *process.Stats, fn string) (start string, longShare float64) {
	nsByStart := map[string]int64{}
	var all, longNS int64
	for r := range each(c.RunningTimes) {
		if r.Site != nil && r.Site.Func == fn {
			nsByStart[r.Start] += r.NS
			all += r.NS
			longNS += min(r.LongNS, r.NS)
			if nsByStart[r.Start] > nsByStart[start] {
				start = r.Start
			}
		}
	}
	if all == 0 {
		return "", 0
	}
	return start, float64(longNS) / float64(all)
}

// ruleForOccupant decides which rule the share of one occupant counts for: WL1004 if it is a herd, WL1007 if most of its time is
// long runs while the Ps are mostly idle, else WL1002.
func ruleForOccupant(in *Input, t *occupant) report.RuleCode {
	switch {
	case herdOf(in.Process, t) != nil:
		return report.RuleHerd
	case isHandshake(t.site): // it cannot yield
	case t.longShare > 0.5 && psInUse(in) < threshold.MostShare && !areLongRunsCPUWaits(in, t):
		return report.RuleLongRuns
	}
	return report.RulePsTaken
}

// areLongRunsCPUWaits reports whether an occupant's runs are long only because its threads waited for a CPU: at the rate at which
// the threads got CPU time, the mean long run has less CPU time than process.LongNS. Yielding more often would not shorten such
// runs.
func areLongRunsCPUWaits(in *Input, t *occupant) bool {
	cpuShare, runs := cpuShareOfRunning(in), t.runsIn(in.Process)
	return cpuShare > 0 && cpuShare < threshold.MostShare && cpuShare*float64(runs.LongNS) < process.LongNS*float64(runs.LongCount)
}

// psInUse returns the share of the Ps' time in which they ran goroutines. If the trace does not show Ps, there are as many as goroutines
// ran concurrently: while requests wait for a P, all are in use.
func psInUse(in *Input) float64 {
	c := in.Process
	if procs := max(float64(c.Procs), c.Parallelism); procs > 0 && c.SpanNS > 0 {
		return min(float64(c.BusyNS)/(procs*float64(c.SpanNS)), 1)
	}
	return 0
}

// herdOf returns the herd that an occupant belongs to: the herd's wake-ups account for more than half of the running time of
// goroutines with its start function. It returns nil if there is none.
func herdOf(c *process.Stats, t *occupant) *process.Herd {
	for h := range each(c.Herds) {
		if h.Start != t.startFunc && (h.Site == nil || h.Site.Func != t.site.Func) {
			continue
		}
		ranNS := int64(0)
		for k := range c.RunningTimes {
			if c.RunningTimes[k].Start == h.Start {
				ranNS += c.RunningTimes[k].NS
			}
		}
		if 2*h.RanNS > ranNS {
			return h
		}
	}
	return nil
}

// name returns the name of the occupant's function, with the start function of its goroutines if that is another one.
func (t *occupant) name() string {
	if t.startFunc == "" || t.startFunc == t.site.Func {
		return words.FuncName(t.site.Func)
	}
	return textOf("phrase occupant", "function", words.FuncName(t.site.Func), "start", words.FuncName(t.startFunc))
}

// occupantEvidence lists the largest occupant, and the next two if they have 10 % or more.
func occupantEvidence(occupants []occupant) (out []report.Evidence) {
	for i := range occupants {
		if t := &occupants[i]; len(out) < 3 && (t.share >= 0.1 || i == 0) {
			out = append(out, evidenceOf("evidence ran-meanwhile", t.share, "share", "function", t.name()))
		}
	}
	return out
}

// newVerdict returns a verdict, without title and fix, on a group's waits for a P. site is what occupies the Ps.
func (q *runQueueWait) newVerdict(site *report.Site, confidence float64) Verdict {
	return Verdict{Gain: q.gain, Changes: q.predictedChanges(), Finding: report.Finding{Cause: report.CauseSched, Site: site, Group: q.group.ID, Share: q.share, Confidence: confidence}}
}

// addWaitEvidence adds how long a slow request waits for a P, on average.
func (q *runQueueWait) addWaitEvidence(v *Verdict) {
	v.addSlowEvidence(evidenceOf("evidence p-wait", q.gain.Slow.NS, "ns"))
}

// servesRequests reports whether an occupant works for requests like those of group: its goroutines begin at a group's entry, or
// requests of a group compute in its function for 5 % of their time, on their own goroutine or, if the occupant's were started for one task,
// on those that they wait for. Jobs in the background are no requests of a client.
func (t *occupant) servesRequests(in *Input, group *report.Group) bool {
	isStarted := knowledge.Has(t.startFunc, knowledge.GenericStarter) || knowledge.Has(t.startFunc, knowledge.Errgroup)
	for g := range each(in.Report.Groups) {
		if g.Entry == nil || g.Entry.Func != t.startFunc {
			continue
		}
		if g.Kind != report.KindGoroutine || group.Kind == report.KindGoroutine {
			return true
		}
		isStarted = true
	}
	for g := range each(in.Report.Groups) {
		for c := range each(g.All().Causes) {
			isAwaited := len(c.Via) > 0 && c.Via[0].Wait == report.WaitGroup
			if c.Cause == report.CauseCPU && c.Share >= 0.05 && (len(c.Via) == 0 && !isStarted || isAwaited && isStarted) && c.Site != nil && c.Site.Func == t.site.Func {
				return true
			}
		}
	}
	return false
}

// maxChangeSites bounds the sites in one prediction: a reader cannot use more.
const maxChangeSites = 4

// predictedChanges returns the changes that remove the waits for a P without those for hubs. If there are hubs, they name the
// lines that wait; there is no change if maxChangeSites lines cover less than 80 % of the time.
func (q *runQueueWait) predictedChanges() []predict.Change {
	if len(q.hubs) == 0 {
		return []predict.Change{predict.Remove(report.CauseSched, "")}
	}
	type siteWait struct {
		ns     int64
		shared bool // with a hub
	}
	sites := map[string]*siteWait{}
	total, coveredNS := int64(0), int64(0)
	for c := range each(q.group.All().Causes) {
		if !isSched(c) || c.Site == nil {
			continue
		}
		w := entry.GetOrAdd(sites, predict.SiteText(c.Site, c.Cause))
		if isBehindHub(q.hubs, c) {
			w.shared = true
			continue
		}
		w.ns += c.TotalNS
		total += c.TotalNS
	}
	texts := slices.SortedFunc(maps.Keys(sites), func(a, b string) int {
		return cmp.Or(cmp.Compare(sites[b].ns, sites[a].ns), strings.Compare(a, b))
	})
	out := []predict.Change{}
	for _, text := range texts {
		if w := sites[text]; w.ns > 0 && !w.shared && len(out) < maxChangeSites {
			out = append(out, predict.Remove(report.CauseSched, text))
			coveredNS += w.ns
		}
	}
	if float64(coveredNS) < 0.8*float64(total) {
		return []predict.Change{}
	}
	return out
}

// topSite returns the site of the largest of those causes of a group that match and have one, nil without any.
func topSite(g *report.Group, match func(*report.Cause) bool) *report.Site {
	for c := range each(g.All().Causes) { // by share
		if match(c) && c.Site != nil {
			return c.Site
		}
	}
	return nil
}
