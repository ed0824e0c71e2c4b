package finding

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/report"
)

// Time that requests wait for a P belongs to one rule: behind a goroutine that others' requests wait for, it is the hub's
// (WL1001), and the part in which workers of the collector ran is WL3's. The rest is by what ran on the Ps meanwhile, where
// that is more than half of it: a herd of goroutines that timers woke together (WL1004), also where its goroutines run at other times
// or are woken by something else in between, if most of the waits are in its moments; long runs on Ps that are
// otherwise free (WL1007); else the Ps are taken by whatever ran (WL1002), or there are too few (WL1006). Waits during which a P stood idle are WL1003's, or WL1005's.

// isSched reports whether a cause is a wait for a P while all were busy, or the poll that nobody had a P for.
func isSched(c *report.Cause) bool {
	return c.Cause == report.CauseSched || c.Cause == report.CauseSchedPoll
}

func isNetwork(c *report.Cause) bool { return c.Cause == report.CauseNetwork }
func isPollGap(c *report.Cause) bool { return c.Cause == report.CauseSchedPoll }

// A taker is a function of other goroutines than the collector's that ran while requests waited for a P.
type occupant struct {
	site      *report.Site
	share     float64 // of what ran
	startFunc string  // start function of the goroutines that run there, "" if unknown
	longShare float64 // share of their time that is in long runs
}

// A queue is a group's waiting for Ps.
type runQueueWait struct {
	group     *report.Group
	hubs      []*hubWait
	share     float64 // of the group's time that is not the hubs'
	gain      Gain
	occupants []occupant      // the largest first
	kindShare float64         // share of the largest kind of taker
	ruleCode  report.RuleCode // the rule that the rest belongs to
	herd      *process.Herd   // in whose moments most of the time was waited; nil if it is known by what ran alone
	herdShare float64         // which share of it
}

// runQueueWaitOf sorts out a group's waiting for Ps.
func runQueueWaitOf(in *Input, g *report.Group) *runQueueWait {
	q := &runQueueWait{group: g, hubs: hubWaitsOf(in, g)}
	q.share, q.gain = weighPart(g, func(c *report.Cause) float64 {
		if !isSched(c) || isBehindHub(q.hubs, c) {
			return 0
		}
		return 1 - marksPart(c)
	})
	if q.occupants = occupantsOf(in.Process, g); len(q.occupants) == 0 {
		return q
	}
	kinds := map[report.RuleCode]float64{}
	for i := range q.occupants {
		kinds[ruleForOccupant(in, &q.occupants[i])] += q.occupants[i].share
	}
	q.ruleCode = report.RulePsTaken
	for _, code := range []report.RuleCode{report.RuleHerd, report.RuleLongRuns} {
		if kinds[code] > 0.5 {
			q.ruleCode = code
		}
	}
	q.kindShare = kinds[q.ruleCode]
	if q.ruleCode != report.RuleHerd {
		q.assignHerd(in)
	}
	if q.ruleCode == report.RulePsTaken && hasTooFewPs(in) {
		q.ruleCode = report.RuleTooFewPs
	}
	return q
}

// assignHerd gives a queue to the herd in whose moments it is.
func (q *runQueueWait) assignHerd(in *Input) {
	if in.HerdOverlap == nil {
		return
	}
	for i := range in.Process.Herds {
		h := &in.Process.Herds[i]
		ranShare := 0.0
		for k := range q.occupants {
			if q.occupants[k].startFunc == h.Start {
				ranShare += q.occupants[k].share
			}
		}
		if ranShare <= scale.Half {
			continue
		}
		if waited, time := in.HerdOverlap(q.group.ID, h.Start); waited > scale.Half && time <= max(scale.Much, waited/scale.Far) {
			q.ruleCode, q.kindShare, q.herd, q.herdShare = report.RuleHerd, ranShare, h, waited
			return
		}
	}
}

// occupantsOf adds up what ran while requests of a group waited.
func occupantsOf(c *process.Stats, g *report.Group) []occupant {
	var out []occupant
	total := 0.0
	for i := range g.All().Causes {
		cause := &g.All().Causes[i]
		if cause.Cause != report.CauseSched {
			continue
		}
		for _, r := range cause.RanMeanwhile {
			if r.Site == nil || stdlib.Marks(r.Site.Func) {
				continue
			}
			ns := r.Share * float64(cause.TotalNS)
			total += ns
			k := slices.IndexFunc(out, func(t occupant) bool { return t.site.Func == r.Site.Func })
			if k < 0 {
				k, out = len(out), append(out, occupant{site: r.Site})
			}
			out[k].share += ns
		}
	}
	for i := range out {
		out[i].share /= total
		out[i].startFunc, out[i].longShare = runsEndingIn(c, out[i].site.Func)
	}
	slices.SortStableFunc(out, func(a, b occupant) int {
		return cmp.Or(cmp.Compare(b.share, a.share), strings.Compare(a.site.Func, b.site.Func))
	})
	return out
}

// runsEndingIn returns the start function of most of the time that ended in a function, and the share of it in long runs.
func runsEndingIn(c *process.Stats, fn string) (start string, longShare float64) {
	nsByStart := map[string]int64{}
	var all, longNS int64
	for i := range c.Runs {
		if r := &c.Runs[i]; r.Site != nil && r.Site.Func == fn {
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

// ruleForOccupant returns the code, or family, of the rule that a taker speaks for.
func ruleForOccupant(in *Input, t *occupant) report.RuleCode {
	switch {
	case herdOf(in.Process, t) != nil:
		return report.RuleHerd
	case t.longShare > 0.5 && psInUse(in) < scale.Most && !haveShortCPUTime(in, t):
		return report.RuleLongRuns
	}
	return report.RulePsTaken
}

// haveShortCPUTime reports whether a taker's long runs are short ones whose threads waited for a CPU meanwhile: by the threads' own clocks
// a run had a CPU for less than what counts as long. Such goroutines would be no shorter if they yielded.
func haveShortCPUTime(in *Input, t *occupant) bool {
	cpuShare := cpuShareOfRunning(in)
	var runs, ns int64
	for i := range in.Process.Runs {
		if r := &in.Process.Runs[i]; r.Site != nil && r.Site.Func == t.site.Func {
			runs, ns = runs+r.Long, ns+r.LongNS
		}
	}
	return cpuShare > 0 && cpuShare < scale.Most && cpuShare*float64(ns) < process.LongNS*float64(runs)
}

// psInUse returns the share of the Ps' time in which they ran goroutines.
func psInUse(in *Input) float64 {
	if c := in.Process; c.Procs > 0 && c.SpanNS > 0 {
		return min(float64(c.BusyNS)/(float64(c.Procs)*float64(c.SpanNS)), 1)
	}
	return 0
}

// herdOf returns the herd that a taker belongs to, nil if none: most of what ran there must have been woken in herds.
func herdOf(c *process.Stats, t *occupant) *process.Herd {
	for i := range c.Herds {
		h := &c.Herds[i]
		if h.Start != t.startFunc && (h.Site == nil || h.Site.Func != t.site.Func) {
			continue
		}
		ranNS := int64(0)
		for k := range c.Runs {
			if c.Runs[k].Start == h.Start {
				ranNS += c.Runs[k].NS
			}
		}
		if 2*h.RanNS > ranNS {
			return h
		}
	}
	return nil
}

// shortFunc returns a function's name without the directories of its package.
func shortFunc(fn string) string { return fn[strings.LastIndexByte(fn, '/')+1:] }

// name names what ran, with the goroutine's start function where that is another one.
func (t *occupant) name() string {
	if t.startFunc == "" || t.startFunc == t.site.Func {
		return shortFunc(t.site.Func)
	}
	return shortFunc(t.site.Func) + " (of " + shortFunc(t.startFunc) + ")"
}

// occupantEvidence lists the largest takers.
func occupantEvidence(takers []occupant) []report.Evidence {
	var out []report.Evidence
	for i := range takers {
		if t := &takers[i]; len(out) < 3 && (t.share >= 0.1 || i == 0) {
			out = append(out, measurement(t.name()+" ran meanwhile", t.share, "share"))
		}
	}
	return out
}

// newVerdict begins what is said of a group's waiting for Ps.
func (q *runQueueWait) newVerdict(site *report.Site, confidence float64) Verdict {
	return Verdict{Gain: q.gain, Changes: q.predictedChanges(), Finding: report.Finding{Cause: report.CauseSched, Site: site, Group: q.group.ID, Share: q.share, Confidence: confidence}}
}

// waitEvidence is the evidence that each of these rules begins with.
func (q *runQueueWait) waitEvidence() report.Evidence {
	return measurement("mean wait for a P per slow request", q.gain.Slow.NS, "ns")
}

// servesRequests reports whether what ran belongs to requests themselves.
func (t *occupant) servesRequests(in *Input) bool {
	for i := range in.Report.Groups {
		g := &in.Report.Groups[i]
		if g.Entry != nil && g.Entry.Func == t.startFunc {
			return true
		}
		for k := range g.All().Causes {
			if c := &g.All().Causes[k]; c.Cause == report.CauseCPU && c.Share >= 0.05 && len(c.Via) == 0 && c.Site != nil && c.Site.Func == t.site.Func {
				return true
			}
		}
	}
	return false
}

// maxChangeSites bounds the sites of one prediction: more of them would say little to a reader.
const maxChangeSites = 4

// predictedChanges are half of the waiting for Ps, without what is a hub's. None if that takes too many sites to say: the site of
// such a finding is that of what ran, not of what waited.
func (q *runQueueWait) predictedChanges() []predict.Change {
	if len(q.hubs) == 0 {
		return []predict.Change{predict.Halve(report.CauseSched, "")}
	}
	type siteWait struct {
		ns     int64
		shared bool // with a hub
	}
	sites := map[string]*siteWait{}
	total, coveredNS := int64(0), int64(0)
	for i := range q.group.All().Causes {
		c := &q.group.All().Causes[i]
		if !isSched(c) || c.Site == nil {
			continue
		}
		w := entry.In(sites, predict.SiteText(c.Site, c.Cause))
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
			out = append(out, predict.Halve(report.CauseSched, text))
			coveredNS += w.ns
		}
	}
	if float64(coveredNS) < 0.8*float64(total) {
		return []predict.Change{}
	}
	return out
}

// topSite returns the site with the most time of those causes of a group that match.
func topSite(g *report.Group, match func(*report.Cause) bool) *report.Site {
	for i := range g.All().Causes { // by share
		if c := &g.All().Causes[i]; match(c) && c.Site != nil {
			return c.Site
		}
	}
	return nil
}
