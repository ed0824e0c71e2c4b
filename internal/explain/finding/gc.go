package finding

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/allocs"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/report"
)

// What the collector takes of requests shows in four ways: they help to mark (gc-assist), they wait for a phase
// (gc-wait), they wait for a P that marking takes (sched, with a worker or a helper among what ran meanwhile), and the
// world is stopped at both ends of a cycle (stw). All of it is one fault where a setting would do away with most
// cycles: then WL3004 has it. What code forces (runtime.GC) is WL3005's. Otherwise the larger part of a group's time
// decides between WL3001, if it is the requests' own work and waiting, and WL3002, if it is the workers' on the Ps; the
// stops are WL3003's.

const (
	forcedGC = "runtime.GC"
)

// gcPart is the part of a cause that the collector took: 0 or 1, or what its workers ran while requests waited for a P.
func gcPart(c *report.Cause) float64 {
	switch c.Cause {
	case report.CauseGCAssist, report.CauseGCWait:
		if isForcedWait(c) {
			return 0
		}
		return 1
	case "stw":
		return one(isGCStop(c.Kind))
	case "sched":
		return marksPart(c)
	}
	return 0
}

// isGCStop reports whether the world is stopped for a collection.
func isGCStop(kind string) bool { return strings.HasPrefix(kind, "GC ") }

// workersPart and helpersPart return the share of mark workers, and of goroutines that help to mark, in the time that ran while requests waited
// for a P.
func workersPart(c *report.Cause) float64 { return marked(c, stdlib.MarkWorker) }
func helpersPart(c *report.Cause) float64 { return marked(c, stdlib.MarkHelp) }

// marksPart is both: what the collector took of the Ps that requests waited for.
func marksPart(c *report.Cause) float64 { return workersPart(c) + helpersPart(c) }

func marked(c *report.Cause, fn string) (part float64) {
	if c.Cause != report.CauseSched {
		return 0
	}
	for _, r := range c.RanMeanwhile {
		if r.Site != nil && r.Site.Func == fn {
			part += r.Share
		}
	}
	return part
}

// isForcedWait reports whether a wait for the collector is one that code asked for.
func isForcedWait(c *report.Cause) bool {
	return c.Cause == report.CauseGCWait && (c.Call == forcedGC || strings.HasPrefix(c.Call, "runtime/debug."))
}

// A tuning is what a larger GOGC would do.
type tuning struct {
	perSecond float64 // collections now
	effective float64 // GOGC as goal and live heap show it, stacks and globals left out
	markShare float64 // of the time, with a mark phase under way
	gogc      int     // advised
	then      float64 // collections a second with it
	more      int64   // bytes of heap that it takes
}

// Thresholds of WL3004. A cycle marks all that lives, so its price does not depend on the room between live heap and
// goal: twice the room is half the cycles.
const (
	lowGOGC     = 60        // a goal this near to the live heap was set, or squeezed by a limit
	smallHeap   = 64 << 20  // under this goal more room costs little
	manyCycles  = 10        // a second, of a small heap
	affordable  = 256 << 20 // what advice may cost without asking
	usualGOGC   = 100
	largestGOGC = 500
	minHeap     = 4 << 20 // the runtime's smallest goal at GOGC=100
)

// tune says what a larger GOGC would do; ok is false where collections are not too frequent for the heap, or too few
// were seen.
//
// The goal of a cycle is live + (live + stacks + globals) * GOGC/100, at least 4 MiB * GOGC/100 (A Guide to the Go
// Garbage Collector, "GOGC"; runtime/mgcpacer.go). What is allocated in a cycle is about goal less live, so with the
// same rate of allocation the cycles a second go as 1/(goal - live).
func tune(c *process.Stats) (t tuning, ok bool) {
	gc := &c.GC
	if gc.Measured < 3 || c.SpanNS <= 0 || gc.LiveBytes <= 0 || gc.GoalBytes <= gc.LiveBytes {
		return t, false
	}
	seconds := float64(c.SpanNS) / 1e9
	free := gc.Cycles - gc.Forced
	room := float64(gc.GoalBytes - gc.LiveBytes)
	t.perSecond = float64(free) / seconds
	t.effective = 100 * room / float64(gc.LiveBytes)
	t.markShare = float64(gc.MarkNS) / float64(c.SpanNS)
	if free < 3 || t.markShare < scale.Little {
		return t, false
	}
	if t.effective > lowGOGC && (gc.GoalBytes > smallHeap || t.perSecond < manyCycles) {
		return t, false
	}
	if t.gogc = usualGOGC; t.effective > lowGOGC {
		t.gogc = largestGOGC
	}
	goal := func(gogc int) float64 {
		return max(float64(gc.LiveBytes)*float64(gogc)/100, minHeap*float64(gogc)/100-float64(gc.LiveBytes))
	}
	for t.gogc < 400 && goal(2*t.gogc)-room < affordable/4 {
		t.gogc *= 2
	}
	newRoom := goal(t.gogc)
	t.then = t.perSecond * room / newRoom
	t.more = int64(newRoom - room)
	return t, t.then < 0.7*t.perSecond
}

// limitIsFull reports whether what lives fills the memory limit, so that one collection begins as the last one ends. More
// GOGC does nothing then.
func limitIsFull(c *process.Stats) bool {
	gc := &c.GC
	return gc.Full >= 3 && gc.Full > gc.Measured && c.SpanNS > 0 && float64(gc.MarkNS) >= scale.Little*float64(c.SpanNS)
}

// moreRoom advises to let the heap grow, by what bounds it: a goal that is at times no higher than what lives, or this near to it, is
// most likely a memory limit's, and more GOGC does nothing then.
func moreRoom(c *process.Stats) string {
	gc := &c.GC
	if gc.Full > 0 || gc.Measured > 0 && gc.LiveBytes > 0 && 100*(gc.GoalBytes-gc.LiveBytes) <= lowGOGC*gc.LiveBytes {
		return "raise GOMEMLIMIT, if one is set, where memory allows: the heap's goal is so close to the live heap that a limit seems to hold it there, and a larger GOGC then changes nothing"
	}
	return "raise GOGC where memory allows"
}

// fullLimit is the finding where the memory limit is full. It predicts half of the collector's work, whatever the room
// that this takes: with no room at all the trace does not show how much is allocated in a cycle.
func (in *Input) fullLimit(g *report.Group) []Verdict {
	share, won := weighPart(g, gcPart)
	if share < scale.Some {
		return nil
	}
	gc := &in.Process.GC
	site, causes := in.allocator()
	perSecond := float64(gc.Cycles-gc.Forced) / (float64(in.Process.SpanNS) / 1e9)
	f := report.Finding{
		Title: fmt.Sprintf("the live heap fills the memory limit: it is collected %s times a second", words.Figure(perSecond)),
		Cause: report.FamilyGC, Site: site, Group: g.ID, Share: share, Confidence: 0.9,
		Evidence: append([]report.Evidence{
			{Text: "collections", Value: perSecond, Unit: "1/s"},
			{Text: "mean live heap after a collection", Value: float64(gc.FullBytes), Unit: "bytes"},
			{Text: "share of collections after which the goal was no higher", Value: part1(int64(gc.Full), int64(gc.Full+gc.Measured)), Unit: "share"},
			{Text: "share of time spent marking", Value: float64(gc.MarkNS) / float64(in.Process.SpanNS), Unit: "share"},
		}, append(partsEvidence(g), causes...)...),
		Fix: fmt.Sprintf("raise GOMEMLIMIT by at least half of the live heap (%s), where the container's memory allows; or keep less alive (a smaller cache). A larger GOGC changes nothing: the limit starts the collections",
			words.Bytes(gc.FullBytes/2)),
	}
	if site != nil {
		f.Fix += "; allocating less at " + place(site) + " also makes fewer collections"
	}
	return []Verdict{{Won: won, Finding: f, Changes: []predict.Change{{Cause: report.FamilyGC, Relative: true, Scale: 0.5}}}}
}

func frequentRule() Rule {
	return Rule{
		Code: report.RuleGCTooFrequent, Name: "gc-too-frequent",
		Summary: "the garbage collector runs too often for the size of the heap, and requests pay for it",
		Doc: Doc{
			Means: "The next collection begins soon after the last one ended. Either a small GOGC or a memory limit keeps the heap's goal close to the live " +
				"heap, or the heap is so small that it reaches the usual goal soon. Each cycle marks the whole live heap, however little was freed, so a " +
				"little more room saves most of the work.",
			Measured: "The trace has each cycle's live heap and goal, the cycles per second, and the time spent marking. With live heap L and goal G, a cycle lasts " +
				"until about G - L bytes are allocated, so at a constant rate of allocation the cycles per second are proportional to 1/(G - L). G = L + (L + " +
				"stacks + globals) x GOGC/100, at least 4 MiB x GOGC/100 (A Guide to the Go Garbage Collector). The rule reports where G is within 60 % above " +
				"L, or under 64 MiB with 10 or more cycles per second; where marking takes at least 5 % of the time; and where the advice would save 30 % of " +
				"the cycles. It does not report less than 10 % of a group's time. Where the goal is no higher than the live heap (within 3 %) after most " +
				"collections, the live heap fills a memory limit, and the advice says so. The share is what requests spent helping to mark, waiting for the " +
				"collector, and waiting for a P while others marked. Sites come from the recording's allocation profile if it has at least ten samples " +
				"(about 5 MB), else from where assists happened: that shows who pays, not who allocates. Where GOGC has its usual value and one place has at " +
				"least half of the profile's bytes, the advice names that place first. Confidence is 0.9, or 0.75 without a profile.",
			Before: "GOGC=10",
			After:  "GOGC=400 GOMEMLIMIT=900MiB // in a container of 1 GiB: the limit bounds what GOGC allows",
			Wrong: "Where memory is really short, only fewer or smaller allocations help. A memory limit that the heap approaches but does not fill looks like a " +
				"small GOGC; a larger GOGC then changes nothing. The rule assumes a constant rate of allocation; faster requests may allocate more per " +
				"second.",
		},
		Run: func(in *Input) []Verdict {
			if limitIsFull(in.Process) {
				return in.eachGroup(in.fullLimit)
			}
			t, ok := tune(in.Process)
			if !ok {
				return nil
			}
			return in.eachGroup(func(g *report.Group) []Verdict {
				share, won := weighPart(g, gcPart)
				if share < scale.Some {
					return nil
				}
				gc := &in.Process.GC
				site, causes := in.allocator()
				f := report.Finding{
					Title: fmt.Sprintf("the heap is collected %s times a second, %s above the live heap", words.Figure(t.perSecond), words.Bytes(gc.GoalBytes-gc.LiveBytes)),
					Cause: report.FamilyGC, Site: site, Group: g.ID, Share: share, Confidence: 0.75,
					Evidence: append([]report.Evidence{
						{Text: "collections", Value: t.perSecond, Unit: "1/s"},
						{Text: "mean live heap", Value: float64(gc.LiveBytes), Unit: "bytes"},
						{Text: "mean goal", Value: float64(gc.GoalBytes), Unit: "bytes"},
						{Text: "GOGC that follows from these two", Value: math.Round(t.effective), Unit: "%"},
						{Text: "share of time spent marking", Value: t.markShare, Unit: "share"},
						{Text: fmt.Sprintf("collections with GOGC=%d", t.gogc), Value: t.then, Unit: "1/s"},
						{Text: "additional heap for that", Value: float64(max(0, t.more)), Unit: "bytes"},
					}, append(partsEvidence(g), causes...)...),
				}
				if in.Allocs != nil {
					f.Confidence = 0.9
				}
				f.Fix = fmt.Sprintf("GOGC=%d: %s collections a second instead of %s for %s more heap (also set GOMEMLIMIT to 90 %% of the container's memory)",
					t.gogc, words.Figure(t.then), words.Figure(t.perSecond), words.Bytes(t.more))
				if t.effective <= lowGOGC {
					f.Fix = fmt.Sprintf("GOGC=%d, and GOMEMLIMIT at 90 %% of the container's memory (a lower one keeps the goal close to the live heap with any GOGC): %s collections a second instead of %s for %s more heap",
						t.gogc, words.Figure(t.then), words.Figure(t.perSecond), words.Bytes(t.more))
				}
				switch {
				case site != nil && in.mostBytesAt() && t.effective > lowGOGC: // GOGC is as usual: it is one place's garbage
					f.Fix = "allocate less at " + in.allocating() + ", which allocates most of the bytes; or " + f.Fix
					f.Evidence = slices.Concat(causes[:1], f.Evidence[:len(f.Evidence)-len(causes)], causes[1:])
				case site != nil:
					f.Fix += "; and allocate less at " + place(site)
				}
				return []Verdict{{Won: won, Finding: f, Changes: []predict.Change{{Cause: report.FamilyGC, Relative: true, Scale: t.then / t.perSecond}}}}
			})
		},
	}
}

// gcElsewhere reports whether what the collector takes is left to the rules of too frequent or forced collections.
func (in *Input) gcElsewhere() bool {
	_, frequent := tune(in.Process)
	return frequent || limitIsFull(in.Process) || mostlyForced(&in.Process.GC)
}

func mostlyForced(gc *process.GC) bool { return 2*gc.Forced > gc.Cycles }

// eachGroup gathers verdicts on all groups.
func (in *Input) eachGroup(f func(g *report.Group) []Verdict) []Verdict {
	var out []Verdict
	for i := range in.Report.Groups {
		out = append(out, f(&in.Report.Groups[i])...)
	}
	return out
}

// partsEvidence says in which ways the collector took a group's time.
func partsEvidence(g *report.Group) []report.Evidence {
	var out []report.Evidence
	for _, w := range []struct {
		text string
		part func(*report.Cause) float64
	}{
		{"share of the group's time spent on GC assists", func(c *report.Cause) float64 { return one(c.Cause == report.CauseGCAssist) }},
		{"spent in the collector's stops of the world", func(c *report.Cause) float64 { return one(c.Cause == report.CauseSTW && isGCStop(c.Kind)) }},
		{"spent waiting for the collector", func(c *report.Cause) float64 { return one(c.Cause == report.CauseGCWait && !isForcedWait(c)) }},
		{"spent waiting for a P while mark workers ran", workersPart},
		{"spent waiting for a P while others helped to mark", helpersPart},
	} {
		if share, _ := weighPart(g, w.part); share >= 0.01 {
			out = append(out, report.Evidence{Text: w.text, Value: share, Unit: "share"})
		}
	}
	return out
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// mostBytesAt reports whether the allocation profile has half of the bytes or more at one place.
func (in *Input) mostBytesAt() bool {
	p := in.Allocs
	return p != nil && len(p.Sites) > 0 && 2*p.Sites[0].Bytes >= p.Bytes
}

// allocating writes the place that allocates most by the profile, with the function of the standard library that it calls.
func (in *Input) allocating() string { return allocatingAt(&in.Allocs.Sites[0]) }

func allocatingAt(s *allocs.Site) string {
	if call := inCall(s.Call); call != "" && !strings.HasPrefix(call, "runtime.") {
		return place(&s.Site) + " in " + call
	}
	return place(&s.Site)
}

// mostAllocators bounds how many allocating sites evidence lists.
const mostAllocators = 5

// allocator returns the site that allocates most, by the profile; without one the site where most assists
// were. The evidence lists the first of them.
func (in *Input) allocator() (*report.Site, []report.Evidence) {
	var out []report.Evidence
	if p := in.Allocs; p != nil && len(p.Sites) > 0 {
		for i := range p.Sites[:min(len(p.Sites), mostAllocators)] {
			s := &p.Sites[i]
			if share := float64(s.Bytes) / float64(p.Bytes); share >= 0.02 {
				text := "share of the bytes allocated at " + allocatingAt(s)
				if s.From.Func != "" {
					text += ", most of it for " + place(&s.From)
				}
				out = append(out, report.Evidence{Text: text, Value: share, Unit: "share"})
			}
		}
		return &p.Sites[0].Site, out
	}
	type sum struct {
		site *report.Site
		ns   int64
	}
	var sums []sum
	var total int64
	for i := range in.Report.Groups {
		g := &in.Report.Groups[i]
		if len(g.Bands) == 0 {
			continue
		}
		for k := range g.All().Causes {
			c := &g.All().Causes[k]
			if c.Cause != report.CauseGCAssist || c.Site == nil {
				continue
			}
			total += c.TotalNS
			at := slices.IndexFunc(sums, func(s sum) bool { return s.site.Equal(c.Site) })
			if at < 0 {
				at = len(sums)
				sums = append(sums, sum{site: c.Site})
			}
			sums[at].ns += c.TotalNS
		}
	}
	if len(sums) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(sums, func(a, b sum) int { return cmp.Compare(b.ns, a.ns) })
	for _, s := range sums[:min(len(sums), mostAllocators)] {
		if share := part1(s.ns, total); share >= 0.02 {
			out = append(out, report.Evidence{Text: "share of the assists paid at " + place(s.site), Value: share, Unit: "share"})
		}
	}
	return sums[0].site, out
}

// assistPart is what requests do and wait for themselves while the collector is at work, or wait for others to have done.
func assistPart(c *report.Cause) float64 {
	return one(c.Cause == report.CauseGCAssist || c.Cause == report.CauseGCWait && !isForcedWait(c)) + helpersPart(c)
}

func assistsAndWorkers(c *report.Cause) float64 { return assistPart(c) + workersPart(c) }

// mostlyAssists reports whether a group pays the collector more by its own work than by waiting for its workers. Both
// together are one fault, which belongs to the rule of the larger part.
func mostlyAssists(g *report.Group) bool {
	assists, _ := weighPart(g, assistPart)
	workers, _ := weighPart(g, workersPart)
	return assists >= workers
}

func assistRule() Rule {
	return Rule{
		Code: report.RuleMarkAssist, Name: "mark-assist",
		Summary: "requests help to mark the heap, or wait for the collector, because the service allocates faster than its workers can mark",
		Doc: Doc{
			Means: "While a collection runs, a goroutine that allocates must mark in proportion. Requests pay for garbage with their own time, and those that " +
				"allocate most are the latest.",
			Measured: "Mark assists are ranges in the trace. The part of them that lies on requests' critical paths is cause gc-assist; waits for a phase of the " +
				"collector are cause gc-wait. Their stacks show who pays. The allocation profile of a recording (x.whylate, or explain of a URL) shows who " +
				"allocates: its sites by bytes are the evidence, and the first is the finding's site. Waits for Ps that mark workers ran on are included " +
				"where they are the smaller part (else WL3002 reports). Where a larger GOGC would save most cycles for little memory, WL3004 reports instead. " +
				"Less than 10 % of a group's time is not reported. Confidence is 0.9 with a profile, 0.75 without.",
			Before: "log.Debug(fmt.Sprintf(\"checked %v in %v\", target, d)) // formatted although the level is off",
			After:  "if log.Enabled(ctx, slog.LevelDebug) {\n\tlog.Debug(\"checked\", \"target\", target, \"in\", d)\n}",
			Wrong:  "Without a profile the site is where assists were paid: a site that allocates little may pay for another's garbage.",
		},
		Run: func(in *Input) []Verdict {
			if in.gcElsewhere() {
				return nil
			}
			return in.eachGroup(func(g *report.Group) []Verdict {
				if !mostlyAssists(g) {
					return nil
				}
				share, won := weighPart(g, assistsAndWorkers)
				if share < scale.Some {
					return nil
				}
				gc := &in.Process.GC
				site, causes := in.allocator()
				f := report.Finding{
					Title: "requests help the garbage collector instead of doing their own work", Cause: report.CauseGCAssist, Site: site, Group: g.ID, Share: share, Confidence: 0.75,
					Evidence: append(append([]report.Evidence{
						{Text: "mean per slow request", Value: float64(won.SlowNS), Unit: "ns"},
						{Text: "collections", Value: float64(gc.Cycles) / float64(max(in.Process.SpanNS, 1)) * 1e9, Unit: "1/s"},
						{Text: "mean live heap", Value: float64(gc.LiveBytes), Unit: "bytes"},
					}, partsEvidence(g)...), causes...),
					Fix: "allocate less in requests: do not format text that is never read, reuse buffers, keep fewer pointers alive",
				}
				if site != nil {
					f.Fix = "allocate less, starting at " + place(site) + ": do not format text that is never read, reuse buffers (sync.Pool), keep fewer pointers alive; or " + moreRoom(in.Process)
				}
				if in.Allocs != nil {
					f.Confidence = 0.9
				}
				return []Verdict{{Won: won, Finding: f, Changes: []predict.Change{predict.Half(report.CauseGCAssist, "")}}}
			})
		},
	}
}

func workersRule() Rule {
	return Rule{
		Code: report.RuleGCTakesPs, Name: "gc-takes-ps",
		Summary: "requests wait for a P while the collector's workers run on them",
		Doc: Doc{
			Means: "Marking uses a quarter of the Ps, and every other P that is idle at the moment. On few Ps one worker runs on each of them for a part of the " +
				"time (25 % of each on up to three), so requests that are ready to run wait behind it.",
			Measured: "The part of the requests' waits for a P (cause sched) during which mark workers ran, taken from a sample of the waits. The trace's labels " +
				"give the workers' running time by mode (dedicated, fractional, idle). The rule reports where that part is more than what requests helped to " +
				"mark (else WL3001 reports), and includes that help. The site is what allocates most by the profile, else where most collections began. Where " +
				"a larger GOGC would save most cycles for little memory, WL3004 reports instead. Less than 10 % of a group's time is not reported. Confidence " +
				"is 0.8, because the sample is small.",
			Before: "cache map[string]*entry // millions of pointers to mark in each cycle",
			After:  "cache map[uint64]uint32; entries []entry // no pointers: nothing to mark",
			Wrong:  "Where requests keep the Ps busy anyway: without the workers other goroutines would run there (see WL1).",
		},
		Run: func(in *Input) []Verdict {
			if in.gcElsewhere() {
				return nil
			}
			return in.eachGroup(func(g *report.Group) []Verdict {
				if mostlyAssists(g) {
					return nil
				}
				share, won := weighPart(g, assistsAndWorkers)
				if share < scale.Some {
					return nil
				}
				gc, ps := &in.Process.GC, float64(max(in.Process.Procs, 1))*float64(max(in.Process.SpanNS, 1))
				site, causes := in.allocator()
				if in.Allocs == nil && gc.BegunAt != nil { // who pays assists is not who takes the Ps
					site = gc.BegunAt
					causes = []report.Evidence{{Text: "share of the collections started by allocations at " + place(site), Value: gc.BegunShare, Unit: "share"}}
				}
				return []Verdict{{Won: won, Changes: []predict.Change{}, Finding: report.Finding{
					Title: "requests wait for a P while the garbage collector's workers run", Cause: report.CauseSched, Site: site, Group: g.ID, Share: share, Confidence: 0.8,
					Evidence: append([]report.Evidence{
						{Text: "mean per slow request", Value: float64(won.SlowNS), Unit: "ns"},
						{Text: "share of the Ps' time used by dedicated workers", Value: float64(gc.DedicatedNS) / ps, Unit: "share"},
						{Text: "by fractional workers", Value: float64(gc.FractionalNS) / ps, Unit: "share"},
						{Text: "by idle workers", Value: float64(gc.IdleNS) / ps, Unit: "share"},
						{Text: "share of time spent marking", Value: float64(gc.MarkNS) / float64(max(in.Process.SpanNS, 1)), Unit: "share"},
						{Text: "mean live heap", Value: float64(gc.LiveBytes), Unit: "bytes"},
					}, causes...),
					Fix: "give the collector less to mark: keep fewer pointers alive (indices instead of pointers, larger objects, data outside of the heap); or collect less often: allocate less, or " + moreRoom(in.Process),
				}}}
			})
		},
	}
}

func forcedRule() Rule {
	return Rule{
		Code: report.RuleForcedGC, Name: "forced-gc",
		Summary: "requests wait for a collection that code forces, or are slowed down by it",
		Doc: Doc{
			Means: "runtime.GC and debug.FreeOSMemory run a whole cycle, and the caller waits for all of it: marking, and sweeping the heap. All other " +
				"goroutines help or wait while it runs.",
			Measured: "Waits for the collector under these functions on requests' critical paths, and in addition all other time that the collector took from the " +
				"group while code forced most of its cycles. Where no request waits for a whole cycle, because another goroutine forces them, only that other " +
				"time counts, from 10 % on. Confidence is 0.95.",
			Before: "runtime.GC() // after each large request",
			After:  "debug.SetMemoryLimit(...) // the runtime collects when it must",
			Wrong:  "In tests, and where a phase ends and the collection is intended.",
		},
		Run: func(in *Input) []Verdict {
			gc := &in.Process.GC
			mostly := mostlyForced(gc)
			return in.eachGroup(func(g *report.Group) []Verdict {
				var site *report.Site
				for i := range g.Bands {
					for k := range g.Bands[i].Causes {
						if c := &g.Bands[i].Causes[k]; site == nil && isForcedWait(c) {
							site = c.Site
						}
					}
				}
				behind := site == nil // nobody waits for a whole cycle, but all for what cycles take
				if behind && (!mostly || gc.ForcedAt == nil) {
					return nil
				}
				share, won := weighPart(g, func(c *report.Cause) float64 {
					if isForcedWait(c) {
						return 1
					}
					return one(mostly) * gcPart(c)
				})
				title, cause, changes := "requests wait for a garbage collection that is forced at ", report.CauseGCWait, []predict.Change{predict.Gone(report.FamilyGC, "")}
				if behind {
					if share < scale.Some {
						return nil
					}
					site = gc.ForcedAt
					title, cause = "requests are slowed down by garbage collections that another goroutine forces, at ", report.FamilyGC
					changes = []predict.Change{} // waits for Ps are not timed again
				}
				return []Verdict{{Won: won, Changes: changes, Finding: report.Finding{
					Title: title + place(site), Cause: cause, Site: site, Group: g.ID, Share: share, Confidence: 0.95,
					Evidence: []report.Evidence{
						{Text: "mean per slow request", Value: float64(won.SlowNS), Unit: "ns"},
						{Text: "collections forced by code", Value: float64(gc.Forced), Unit: "count"},
						{Text: "all collections", Value: float64(gc.Cycles), Unit: "count"},
					},
					Fix: "remove the call; to keep memory down, set GOMEMLIMIT",
				}}}
			})
		},
	}
}
