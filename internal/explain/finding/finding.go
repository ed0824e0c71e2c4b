// Package finding turns a report and the sums of its trace into findings: what to change in the service, where, with evidence,
// a severity and a prediction of the gain.
//
// What goes in is Input: a report without findings, and sums that the report does not show, such as who waited for a slot and
// who released it. All returns the rules (rules.go); rules/CODE.txt has the documentation of each of them and the texts of its
// findings (ruletexts.go). A rule neither prints nor reads a trace. What comes out of Find are the findings, the most severe first.
// Judge reports which rules lacked the data to find anything.
//
// One fault has several symptoms, but is reported once. Before the rules check anything, the time of requests is divided among
// them: what requests wait for by attribution.go, their waits for a P by runqueuewait.go, the time that the garbage collector
// took by gctime.go. Then Find
//
//  1. runs the rules, which return verdicts,
//  2. sets the severity (severity.go), id and prediction of each verdict, and drops those below all thresholds,
//  3. merges a group's verdicts with those of the groups that call it over the network (peergroups.go),
//  4. subtracts the time that another verdict explains (explanations.go), and orders the rest (findingorder.go).
//
// A missing finding is better than a wrong one: a rule reports a fault only if its evidence has no more likely explanation. A
// healthy service has no finding above info.
package finding

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/allocs"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/report"
)

// A Rule looks for one kind of fault.
type Rule struct {
	Code    report.RuleCode // stable: WL, a digit for the family, three digits for the rule
	Name    string          // short, with dashes
	Summary string          // one line
	Doc     Doc
	// Run returns a verdict for each fault that it finds. Find sets code, id and severity.
	Run          func(*Input) []Verdict
	requirements []requirement // of a recording, to be sure where it finds nothing
}

// Doc is a rule's documentation in plain paragraphs. "whylate rules CODE" prints it, and pages show it.
type Doc struct {
	Means    string `json:"means"`            // what a finding says about the service
	Measured string `json:"measured"`         // how, and from what
	Before   string `json:"before,omitempty"` // an example of the fault, in Go or as a setting
	After    string `json:"after,omitempty"`  // the same, fixed
	Wrong    string `json:"wrong,omitempty"`  // when the finding is wrong or does not matter
}

// families names the families of rules, by the first digit of their codes.
var families = map[byte]string{'1': "scheduling", '2': "waiting", '3': "memory", '4': "container", '5': "doubt"}

// Family names what the rule is about.
func (r *Rule) Family() string { return families[r.Code[2]] }

// Input is what rules check. Rules must not change it.
type Input struct {
	Report  *report.Report // complete except for its findings
	Process *process.Stats // of the whole process; never nil
	// Services describes the goroutines that requests waited for, and whether requests queued for them.
	Services []queues.ServiceStats
	// SlotWaits describes the goroutines that ended requests' waits, and whether they held slots of a pool.
	SlotWaits []queues.SlotWaits
	// TaskWaits describes waits for tasks that workers of pools do.
	TaskWaits []queues.TaskWaits
	// UnawaitedGroups has the ids of groups for which neither a client nor a goroutine waits: iterations of loops that begin
	// each iteration after a pause of their own and, in a process that serves requests, work that those did not begin.
	UnawaitedGroups map[string]bool
	// AllGroups has the groups of the trace, also those that the rules do not check.
	AllGroups []report.Group
	// LongWaits describes requests that spend most of their time in one wait, and whether they had handed work over before it.
	LongWaits []queues.LongWaits
	// FindHolder returns a goroutine that perhaps holds the lock that a function waits for: where it has waited for minNS or
	// longer, the trace's reason for that wait, and its length; nil if there is none. The field may be nil.
	FindHolder func(lockFunc string, minNS int64) (site *report.Site, reason string, ns int64)
	// Streams describes requests that wait at one line repeatedly, and how often they write to their client between these waits.
	Streams []queues.Stream
	// SiblingShares has, for the line of a lock, the share of the waiting time that goroutines of the same request ended.
	SiblingShares []queues.SiblingShare
	// HolderLines has, for a lock or slot, the line of the function that took it which its holders execute while others wait.
	HolderLines []queues.HolderLine
	// LockedWaits has, for sleeps until a database is no longer locked, the transactions that were open in that time.
	LockedWaits []queues.LockedWait
	// HeldBodies has the lines at which requests wait for an answer while flow control holds up the request's body.
	HeldBodies []queues.HeldBody
	// Limiters has the rate limiters that requests wait for.
	Limiters []queues.Limiter
	// HeldAnswers has, by group id, which goroutine writes the answers to messages that the group only reads.
	HeldAnswers map[string]*queues.HeldAnswers
	// PeerCalls has, by group id, how often requests call a peer from one line.
	PeerCalls map[string][]queues.PeerCalls
	// ConnOpens has, by group id, the connections that requests open.
	ConnOpens map[string]queues.ConnOpens
	// CallCounts has, by group id, how many calls slow requests and others make from one line.
	CallCounts map[string][]queues.CallCounts
	// SharedLoads are the lines whose calls all requests make that come during one.
	SharedLoads []queues.SharedLoad
	// SyscallCounts has the system calls of requests, by group id.
	SyscallCounts map[string]*queues.SyscallCount
	// AcceptsConnections means that the process accepts connections for an unknown protocol: a goroutine that reads may read
	// from its client or from a peer.
	AcceptsConnections bool
	// NoSelfConnections means that no socket of the process led to the process itself.
	NoSelfConnections bool
	// BacklogShares has, by group id, the share of a loop's iterations whose work was already there when the iteration before
	// ended. For messages on WebSockets it is the share of the handling time at whose end the next message was already there.
	BacklogShares map[string]float64
	// BackgroundCalls are those on goroutines that serve no requests.
	BackgroundCalls []queues.PeerCalls
	// MessageLoops are the loops that serve requests and are no groups.
	MessageLoops []MessageLoop
	// Hubs are goroutines that ran late while requests waited for them, those that delayed requests for the longest time first.
	Hubs []queues.Hub
	// HasFunction reports whether a stack of the trace has a function whose name begins with prefix. The field may be nil.
	HasFunction func(prefix string) bool
	// Allocs is the allocation profile of the recording's time; nil if none was recorded.
	Allocs *allocs.Profile
	// Thresholds are the thresholds of the severities, the highest severity first; nil means Thresholds().
	Thresholds []Threshold
	// OutlierMoments has, by group id, in how many separate intervals the group's outliers were open. It lacks groups for which
	// that is not known.
	OutlierMoments map[string]int
	// HerdOverlap returns the share of the time in which a group's requests waited for a P that falls within herds of
	// goroutines with a start function, and the share of the whole trace that these herds cover. It is nil if that is not
	// known.
	HerdOverlap func(group, start string) (waited, time float64)
	// WorksForServer reports whether goroutines with a start function work for requests of a server only. It is nil if that is
	// not known.
	WorksForServer func(start string) bool
	// Predict returns what all changes together would save in the group with this id; nil if the group has nothing that they
	// change. The field may be nil.
	Predict func(group string, changes []predict.Change) *report.Predicted
	// AddPool makes a pool known to Predict. The field may be nil.
	AddPool func(predict.Pool)
	// WorkShare returns which share of the requests do the work that a change is about; false if none wait for it. The field may be nil.
	WorkShare func(group string, change predict.Change) (share predict.WorkShare, ok bool)
	// Pauses describes how requests of a group sleep where changes are about; nil if they do not. The field may be nil.
	Pauses func(group string, changes []predict.Change) *predict.Pauses

	failures     map[report.RuleCode]string     // of rules that panicked
	attributions map[*report.Group]*attribution // computed by attributionOf
	siteTimes    map[causeSite]siteTime         // computed by attribution.siteTimeOfAllGroups
}

// predict returns what the changes together would save in the group with this id; nil if there is no prediction.
func (in *Input) predict(group string, changes ...predict.Change) *report.Predicted {
	if in.Predict == nil || group == "" || len(changes) == 0 {
		return nil
	}
	return in.Predict(group, changes)
}

// fillPrediction completes a verdict's changes, their data in the finding, and the prediction with its text. If the rule named no
// changes, the change is that the finding's cause at its site is gone.
func (in *Input) fillPrediction(v *Verdict) {
	if v.Changes == nil && v.Cause != "" && v.Site != nil {
		v.Changes = []predict.Change{predict.Remove(v.Cause, predict.SiteText(v.Site, v.Cause))}
	}
	for _, c := range v.Changes {
		v.Finding.Changes = append(v.Finding.Changes, c.Data())
	}
	if v.Predicted == nil {
		v.Predicted = in.predict(v.Group, v.Changes...)
	}
	if v.Predicted != nil && in.isIdleRun(v) {
		v.Predicted = nil
	}
	if v.Predicted != nil && v.Predicted.ChangeText == "" {
		v.Predicted.ChangeText = cmp.Or(v.ChangeText, changeText(v))
	}
}

// isIdleRun reports whether a verdict's change would leave next to nothing of a program's run. Then the program waits for work as a
// rule, and does not end earlier without the waits.
func (in *Input) isIdleRun(v *Verdict) bool {
	g, p := in.Report.Group(v.Group), v.Predicted
	return g != nil && g.Kind == report.KindRun && p.MaxNS != nil && p.WasMaxNS != nil && float64(p.MaxNS.Est) < (1-threshold.NearlyAllShare)*float64(*p.WasMaxNS)
}

// A Verdict is a finding before its severity is known.
type Verdict struct {
	report.Finding
	// Gain is what the fix would save; the severity follows from it.
	Gain Gain
	// FixedSeverity replaces the severity that follows from Gain, such as for requests that never ended; "" if it does not apply.
	FixedSeverity report.Severity
	// MaxSeverity is an upper bound of the severity, MinSeverity the severity if Gain is below all thresholds; "" if there is
	// none.
	MaxSeverity, MinSeverity report.Severity
	// MaxSeverityByAll bounds the severity that follows from the time of all requests, not that from the time of slow ones; ""
	// if there is no such bound.
	MaxSeverityByAll report.Severity
	// Fact marks information that is no fault: its severity is info, whatever it costs.
	Fact bool
	// Changes are what the fix changes. Nil means that the finding's cause at its site goes away. An empty list means that
	// requests cannot be timed again with the fix.
	Changes []predict.Change
	// hasOption says that the fix names an option of a library.
	hasOption bool
	// isOneAnswer says that requests wait for one answer of an unknown peer, of which only the time is known; isSequence that they
	// wait for several, one after the other.
	isOneAnswer, isSequence bool
	// isAnswerTime says that the verdict is about how long answers take, which depends on other processes of the machine; the number of calls
	// and of missing answers does not.
	isAnswerTime bool
	// isBestCase says that the prediction is for an answer that takes no time: none does, and how little it could take is unknown.
	isBestCase bool
	// ChangeText says the changes in words; "" means those that follow from the changes (see changeText).
	ChangeText string
	// slowEvidence is the evidence that is about slow requests only.
	slowEvidence []report.Evidence
}

// doubt sets a verdict's confidence, and why it is low.
func (v *Verdict) doubt(confidence float64, reason string) {
	v.Confidence, v.Doubt = confidence, reason
}

// addEvidence appends evidence.
func (v *Verdict) addEvidence(evidence ...report.Evidence) {
	v.Evidence = append(v.Evidence, evidence...)
}

// addSlowEvidence appends evidence that holds for slow requests only, which replaceSlowEvidence may remove.
func (v *Verdict) addSlowEvidence(evidence report.Evidence) {
	v.addEvidence(evidence)
	v.slowEvidence = append(v.slowEvidence, evidence)
}

// prependEvidence puts evidence before the evidence that the verdict has.
func (v *Verdict) prependEvidence(evidence ...report.Evidence) {
	v.Evidence = append(evidence, v.Evidence...)
}

// Find runs rules and returns their findings, the most severe first, each id once. The package comment lists the steps.
func Find(in *Input, rules []Rule) []report.Finding {
	var all []Verdict
	for i := range rules {
		for _, v := range mergeReuses(in, in.run(&rules[i])) {
			v.Code = rules[i].Code
			if in.completeVerdict(&v) {
				all = append(all, v)
			}
		}
	}
	all = mergeCallers(in, all)
	all = subtractExplained(in, all)
	preferWork(all)
	linkHolderFindings(in, all)
	raiseSecondAnswers(all)
	in.sortVerdicts(all)
	for i := range all {
		if all[i].isBestCase {
			all[i].Predicted = nil
		}
	}
	predictTogether(in, all)
	out := make([]report.Finding, 0, len(all))
	seenIDs := map[string]bool{}
	for i := range all {
		f := &all[i].Finding
		if seenIDs[f.ID] {
			continue // one rule found the same fault twice: keep the one that costs more
		}
		seenIDs[f.ID] = true
		out = append(out, *f)
	}
	return out
}

// run returns the verdicts of a rule. If the rule panics, the report is without its findings, and says so (Judge).
func (in *Input) run(r *Rule) (list []Verdict) {
	defer func() {
		if p := recover(); p != nil {
			if in.failures == nil {
				in.failures = map[report.RuleCode]string{}
			}
			in.failures[r.Code], list = fmt.Sprint(p), nil
		}
	}()
	return r.Run(in)
}

// mergeReuses makes one of a rule's verdicts on a group that have the same advice to keep connections open, because one option of the pool
// does that for all lines: their savings add up, and the first names the lines of the others.
func mergeReuses(in *Input, list []Verdict) (merged []Verdict) {
	keepsOpen := func(v *Verdict) bool {
		return len(v.Changes) > 0 && v.Site != nil && !slices.ContainsFunc(v.Changes, func(c predict.Change) bool { return c.Kind != report.ChangeReuse })
	}
	for _, v := range list {
		first := firstMatch(merged, func(o *Verdict) bool { return o.Group == v.Group && o.Fix == v.Fix && keepsOpen(o) && keepsOpen(&v) })
		if first == nil {
			merged = append(merged, v)
			continue
		}
		first.Title = textOf("title also-at", "title", first.Title, "site", v.Site.OwnLine())
		first.addGain(v.Share, v.Gain)
		first.Changes = append(first.Changes, v.Changes...)
		if p := in.predict(v.Group, first.Changes...); p != nil && first.Predicted != nil {
			p.ChangeText, first.Predicted = first.Predicted.ChangeText, p
		}
	}
	return merged
}

// predictTogether sets Combined of each verdict of medium or high severity: what its changes win together with those of the
// earlier ones of its group.
func predictTogether(in *Input, all []Verdict) {
	changes := map[string][]predict.Change{}
	for v := range each(all) {
		if !v.Severity.IsMajor() || v.Predicted == nil {
			continue
		}
		earlier := changes[v.Group]
		for _, c := range v.Changes {
			if !slices.Contains(changes[v.Group], c) {
				changes[v.Group] = append(changes[v.Group], c)
			}
		}
		if len(earlier) > 0 && len(changes[v.Group]) > len(earlier) {
			if v.Combined = in.predict(v.Group, changes[v.Group]...); v.Combined != nil {
				v.Combined.ChangeText = textOf("phrase change-together")
			}
		}
	}
}

// completeVerdict sets what a rule leaves open: severity, caps of the severity, id, remedy and prediction. It returns false if
// the verdict is below all thresholds.
func (in *Input) completeVerdict(v *Verdict) bool {
	negligible := in.discountRareHandler(v)
	if v.Severity, v.Decided = in.decideSeverity(v); v.Severity == "" || negligible && !v.Fact {
		return false
	}
	in.doubtPreempted(v)
	v.capByConfidence()
	switch {
	case v.Code[2] != '2':
	case in.UnawaitedGroups[v.Group]:
		// No client and no goroutine waits for these requests. An option of a library may be worth knowing nevertheless.
		if v.capSeverity(report.SeverityLow); !v.hasOption {
			v.capSeverity(report.SeverityInfo)
		}
	case in.servesMoreThan(v.Group):
		v.capSeverity(report.SeverityLow) // the network began the work, but no request waits for it
	}
	if v.Decided != nil && v.Decided.Requests == report.DecidedByBeside {
		v.prependEvidence(in.otherTailEvidence(v))
	}
	if g := in.Report.Group(v.Group); g != nil {
		if predicate, ok := strings.CutPrefix(v.Title, "requests "); ok && g.Kind == report.KindRun {
			v.Title = textOf("phrase in-run", "predicate", predicate)
		} else if ok {
			v.Title = names.Requests(g) + " " + predicate
		}
	}
	if v.Confidence >= trustedConfidence {
		v.Doubt, v.DoubtedBy = "", ""
	}
	replaceSlowEvidence(v)
	v.ID = findingID(&v.Finding)
	v.Fix, v.Remedy = splitRemedy(v.Fix)
	in.fillPrediction(v)
	if v.FixedSeverity == "" && v.MinSeverity == "" && !v.Code.OfMachine() && savesNothing(v.Predicted, v.Severity == report.SeverityMedium) {
		v.capSeverity(report.SeverityLow)
	}
	if v.Evidence == nil {
		v.Evidence = []report.Evidence{}
	}
	return true
}

// servesMoreThan reports whether a group consists of jobs or iterations that no request waits for, in a process that answers more requests
// of clients than there are of these: then the requests are what the process is for.
func (in *Input) servesMoreThan(id string) bool {
	work, requests := in.Report.Group(id), 0
	if work == nil || !work.Kind.IsWork() {
		return false
	}
	for g := range each(in.Report.Groups) {
		if g.Kind.IsCall() && g.Role == report.RoleRequests {
			requests += g.Count
		}
	}
	return requests >= threshold.MedianSample && requests > work.Count
}

// trustedConfidence is the least confidence that needs no reason.
const trustedConfidence = 0.8

// savesNothing reports whether a prediction shortens none of the median, p90, p99 and the maximum by 5 %. Where the fault is of medium severity
// (isMedium), slow requests must certainly be faster, or the median. It returns false if nothing was predicted.
func savesNothing(p *report.Predicted, isMedium bool) bool {
	if p == nil {
		return false
	}
	const leastGain = 0.05 // what severity low needs
	isKnown := false
	for _, latency := range []struct {
		before *int64
		after  *report.Estimate
	}{{p.WasP50NS, &p.P50NS}, {p.WasP90NS, p.P90NS}, {p.WasP99NS, &p.P99NS}, {p.WasMaxNS, p.MaxNS}} {
		if latency.before == nil || latency.after == nil {
			continue
		}
		after := latency.after.Est
		if isMedium && p.WasP50NS != nil && latency.after != &p.P50NS {
			after = latency.after.High
		}
		if isKnown = true; float64(after) < (1-leastGain)*float64(*latency.before) {
			return false
		}
	}
	return isKnown
}

// replaceSlowEvidence replaces evidence about slow requests whose number is 0 by the mean of all requests, if the time of all
// requests decided the severity.
func replaceSlowEvidence(v *Verdict) {
	isZero := func(e report.Evidence) bool { return e.Value == 0 && slices.Contains(v.slowEvidence, e) }
	if v.Decided == nil || v.Decided.Requests != report.DecidedByAll || !slices.ContainsFunc(v.Evidence, isZero) {
		return
	}
	v.Evidence = slices.DeleteFunc(v.Evidence, isZero)
	v.prependEvidence(evidenceOf("evidence mean-of-all", v.Gain.All.NS, "ns"))
}

// otherTailEvidence returns the evidence for a severity that the other band of slow requests decided (see Gain.OtherTail): the
// verdict's other evidence is about the first band.
func (in *Input) otherTailEvidence(v *Verdict) report.Evidence {
	if g := in.Report.Group(v.Group); g != nil && g.Tail().Band != report.BandOutliers {
		return evidenceOf("evidence mean-of-outliers", v.Gain.OtherTail.NS, "ns", "n", g.Band(report.BandOutliers).Count)
	}
	return evidenceOf("evidence mean-of-slow-by-percentiles", v.Gain.OtherTail.NS, "ns")
}

// discountRareHandler treats named groups of few requests next to a group of the same protocol with ten times as many requests
// without a handler: the few show their handler only because they waited. It returns true if the verdict's time is below 2 % of
// the time of both groups. If the group is too small for a band of slow requests, it marks the losses as rare, which raises the thresholds,
// unless enough requests of all handlers wait at that line: then they are the slow ones of all. A collection may hit any request anywhere.
func (in *Input) discountRareHandler(v *Verdict) (negligible bool) {
	const manyTimes, negligibleShare = 10, 0.02
	group := in.Report.Group(v.Group)
	if group == nil || !group.Named {
		return false
	}
	for other := range each(in.Report.Groups) {
		if other.Named || other.Kind != group.Kind || other.Count < manyTimes*group.Count {
			continue
		}
		if group.Count < report.TailRequests {
			v.Gain.Slow.IsRare, v.Gain.All.IsRare, v.Gain.OtherTail.IsRare = true, true, true
			if waiting, meanNS, all := in.requestsOfKind(group.Kind, v); v.Code[2] == '2' && !areTooRare(waiting, all) {
				v.Gain.Slow = Loss{v.Gain.All.Share, min(meanNS, v.Gain.All.NS), false}
			}
		}
		negligible = negligible || float64(v.Gain.TotalNS) < negligibleShare*float64(other.TotalNS+group.TotalNS)
	}
	return negligible
}

// requestsOfKind returns how many requests of a kind wait for what a verdict is about, for how long on average, and how many there are.
func (in *Input) requestsOfKind(kind report.Kind, v *Verdict) (waiting int, meanNS int64, all int) {
	for g := range each(in.Report.Groups) {
		if g.Kind != kind {
			continue
		}
		all += g.Count
		if c := firstMatch(g.All().Causes, func(c *report.Cause) bool { return c.Cause == v.Cause && c.Site.Equal(v.Site) }); c != nil {
			waiting, meanNS = waiting+c.Requests, meanNS+c.TotalNS
		}
	}
	return waiting, meanNS / int64(max(waiting, 1)), all
}

// findingID returns an id that depends only on the rule, the group and the site, so that the same fault has the same id in each
// run.
func findingID(f *report.Finding) string {
	fn := ""
	if f.Site != nil {
		fn = fmt.Sprintf("%s:%d", f.Site.Func, f.Site.Line)
		if c := f.Site.CalledFrom; c != nil {
			fn += fmt.Sprintf(" %s:%d", c.Func, c.Line)
		}
	}
	return spell.ID("finding", string(f.Code), f.Group, fn)
}
