// Package finding holds the rules: each reads what a report says of causes and of the runtime, and says what to change,
// with evidence. All lists them, and rules/CODE.txt says what each means. Rules never print and never read a trace: what
// they need beyond the report is summed up before, see Input.
//
// One fault has several symptoms, and is reported once. Time is divided among rules before they look at it: what requests wait for
// by claims.go, their waiting for Ps by scheduling.go, what the collector took by gc.go. What the rules found is settled afterwards,
// see Find: whether it is worth a word (severity.go), what a group says as well that is asked over the network (asked.go), and what
// explains what (order.go).
//
// The bias is to be rather silent than wrong: a rule speaks when its evidence leaves no likelier reading, and a healthy
// service yields nothing above info.
package finding

import (
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/allocs"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/report"
)

// A Rule looks for one thing to change.
type Rule struct {
	Code    report.RuleCode // stable: WL, a digit for the family, three for the rule
	Name    string          // short, with dashes
	Summary string          // one line
	Doc     Doc
	// Run returns what it finds: what a Verdict says of code, id and severity is filled in by Find.
	Run          func(*Input) []Verdict
	requirements []requirement // of a recording, to be sure where it finds nothing
}

// Doc is a rule's documentation, plain paragraphs. `whylate rules CODE` prints it, and pages show it.
type Doc struct {
	Means    string `json:"means"`            // what a finding says about the service
	Measured string `json:"measured"`         // how, and from what
	Before   string `json:"before,omitempty"` // an example of the fault, in Go or as a setting
	After    string `json:"after,omitempty"`  // the same, fixed
	Wrong    string `json:"wrong,omitempty"`  // when the finding is wrong or does not matter
}

// Families are the first digits of codes.
var families = map[byte]string{'1': "scheduling", '2': "waiting", '3': "memory", '4': "container", '5': "doubt"}

// Family is the word for what the rule is about.
func (r *Rule) Family() string { return families[r.Code[2]] }

// Input is what rules look at. Rules must not change it.
type Input struct {
	Report  *report.Report // whole but for its findings
	Process *process.Stats // what the whole process did; never nil
	// Services says whether requests queued for what they waited for on other
	// goroutines.
	Services []queues.ServiceStats
	// SlotWaits has facts about the goroutines that ended requests' waits: whether they hold places of a pool.
	SlotWaits []queues.SlotWaits
	// UnawaitedGroups are the groups, by id, that are turns of loops that begin them by their own pauses: nobody waits for those,
	// neither a client nor a goroutine.
	UnawaitedGroups map[string]bool
	// LongWaits says of requests that only wait at a line whether they had handed anything over before.
	LongWaits []queues.LongWaits
	// FindHolder finds a goroutine that perhaps holds the lock a function waits for: where it has stood for at least that long, the
	// trace's word for what it waits for, and for how long; nil: none. The field itself may be nil.
	FindHolder func(locks string, minNS int64) (site *report.Site, reason string, ns int64)
	// Streams says of requests that wait at a line repeatedly whether they write to their clients between.
	Streams []queues.Stream
	// SiblingShares says, for a lock's line, which part of the waits there goroutines of the same request ended.
	SiblingShares []queues.SiblingShare
	// HolderLines says which line of the function that took a lock or a place its holders are in while others wait.
	HolderLines []queues.HolderLine
	// PeerCalls says, by a group's id, how often its requests asked a peer from one line.
	PeerCalls map[string][]queues.PeerCalls
	// AcceptsConnections says that the process accepts connections for an unknown protocol: a goroutine that reads may then read from its client
	// or from a peer.
	AcceptsConnections bool
	// NoSelfConnections says that no socket of the process led to itself.
	NoSelfConnections bool
	// BacklogShares says, by a group's id, in which part of a loop's turns the work was already there when the turn before ended. For messages
	// on WebSockets it is the part of the handling time at whose end the next one was already there.
	BacklogShares map[string]float64
	// Hubs are goroutines for which requests of others waited while they were
	// late to run, those that held up the most time first.
	Hubs []queues.Hub
	// Allocs is what was allocated meanwhile; nil if nobody recorded it.
	Allocs *allocs.Profile
	// Thresholds are those of severity, the highest first; nil: see Thresholds.
	Thresholds []Threshold
	// OutlierMoments says, by a group's id, in how many separate stretches of time its outliers were open; nil, or none, if that is not known.
	OutlierMoments map[string]int
	// HerdOverlap says which share of the time that a group's requests waited for a P lies in the moments of herds with a start
	// function, and which part of all time these are; nil if that is not known.
	HerdOverlap func(group, start string) (waited, time float64)
	// WorksForServer says whether goroutines with a start function work for requests of a server only; nil if that is not known.
	WorksForServer func(start string) bool
	// Predict says what changes would win, all of them together, in the group with this id; nil if they do not meet it.
	// The field itself may be nil.
	Predict func(group string, changes []predict.Change) *report.Predicted
	// Polls says how requests of a group poll at the sleeps that changes are about; nil if they do not. The field itself may be nil.
	Polls func(group string, changes []predict.Change) *predict.Poll

	attributions map[*report.Group]*attribution // see claimsOf
	atSites      map[causeSite]split            // see claims.others
}

// predict says what changes would win in a group; nil if that is not known.
func (in *Input) predict(group string, changes ...predict.Change) *report.Predicted {
	if in.Predict == nil || group == "" || len(changes) == 0 {
		return nil
	}
	return in.Predict(group, changes)
}

// fillPrediction fills in what half of a finding's cause at its site would win, for rules that know no better change.
func (in *Input) fillPrediction(v *Verdict) {
	if v.Predicted != nil {
		return
	}
	if v.Changes == nil && v.Cause != "" && v.Site != nil {
		v.Changes = []predict.Change{predict.Half(v.Cause, predict.SiteText(v.Site, v.Cause))}
	}
	v.Predicted = in.predict(v.Group, v.Changes...)
}

// A Verdict is a finding before its severity is known.
type Verdict struct {
	report.Finding
	// Won is what the fix would win; see Severity.
	Won Won
	// FixedSeverity is a severity that does not follow from what requests that ended would win; "" if it does.
	FixedSeverity report.Severity
	// MaxSeverity is the loudest that it may be, and Least what it is if it would win next to nothing; "" if what it would win decides alone.
	MaxSeverity, MinSeverity report.Severity
	// MaxSeverityByAll is the loudest that it may be by what all requests spend alike; "" if that is as good as what slow ones lose.
	MaxSeverityByAll report.Severity
	// Fact marks what is worth knowing but no fault: its severity is info whatever it costs.
	Fact bool
	// Changes are what the prediction assumes. Nil means half of the finding's cause at its site; empty, that the fix is
	// none that a request can be timed again with.
	Changes []predict.Change
}

// capSeverity makes a verdict no louder than this.
func (v *Verdict) capSeverity(s report.Severity) {
	if rank(v.Severity) < rank(s) {
		v.Severity, v.Decided = s, nil
	}
}

// addEvidence adds evidence.
func (v *Verdict) addEvidence(evidence ...report.Evidence) {
	v.Evidence = append(v.Evidence, evidence...)
}

// prependEvidence puts evidence before the rest.
func (v *Verdict) prependEvidence(evidence ...report.Evidence) {
	v.Evidence = append(evidence, v.Evidence...)
}

// Find runs rules and returns their findings, in the order of inOrder.
func Find(in *Input, rules []Rule) []report.Finding {
	var all []Verdict
	for i := range rules {
		for _, v := range rules[i].Run(in) {
			v.Code = rules[i].Code
			if in.completeVerdict(&v) {
				all = append(all, v)
			}
		}
	}
	all = mergeCallers(in, all)
	all = explained(in, all)
	oneFault(in, all)
	inOrder(all)
	out := make([]report.Finding, 0, len(all))
	seenIDs := map[string]bool{}
	for i := range all {
		f := &all[i].Finding
		if seenIDs[f.ID] {
			continue // the same fault seen twice by one rule: the weightier stays
		}
		seenIDs[f.ID] = true
		out = append(out, *f)
	}
	return out
}

// completeVerdict gives a verdict its severity, id and prediction; false if it is not worth a word.
func (in *Input) completeVerdict(v *Verdict) bool {
	next := in.discountRareHandler(v)
	if v.Severity, v.Decided = in.judge(v); v.Severity == "" || next && !v.Fact {
		return false
	}
	if v.Confidence < scale.Half {
		v.capSeverity(report.SeverityLow) // it is more likely not so
	}
	if in.UnawaitedGroups[v.Group] && v.Code[2] == '2' {
		v.capSeverity(report.SeverityInfo) // its wait is no latency
	}
	if v.Decided != nil && v.Decided.By == report.DecidedByBeside {
		v.prependEvidence(in.otherTailEvidence(v))
	}
	replaceSlowEvidence(v)
	v.ID = findingID(&v.Finding)
	in.fillPrediction(v)
	if v.Evidence == nil {
		v.Evidence = []report.Evidence{}
	}
	return true
}

// replaceSlowEvidence replaces the evidence about slow requests where they spent nothing and the time of all requests decided: 0 s is no
// evidence.
func replaceSlowEvidence(v *Verdict) {
	isZero := func(e report.Evidence) bool { return e.Value == 0 && strings.Contains(e.Text, "slow request") }
	if v.Decided == nil || v.Decided.By != report.DecidedByAll || !slices.ContainsFunc(v.Evidence, isZero) {
		return
	}
	v.Evidence = slices.DeleteFunc(v.Evidence, isZero)
	v.prependEvidence(measured("mean of all requests; slow ones spent none of their time on it", v.Won.All.NS, "ns"))
}

// otherTailEvidence is the evidence of a verdict that the requests beside the slow ones decided, of which the rest of its evidence says nothing.
func (in *Input) otherTailEvidence(v *Verdict) report.Evidence {
	text := "mean per request that is slow by percentiles"
	if g := in.Report.Group(v.Group); g != nil && g.Tail().Band != report.BandOutliers {
		text = fmt.Sprintf("mean per request of the %d far slower ones", g.Band(report.BandOutliers).Count)
	}
	return measured(text, v.Won.Beside.NS, "ns")
}

// discountRareHandler reports whether a verdict is about the few requests of a handler that show it at all, because they waited, while
// many times as many show none, and of all of them the wait is next to nothing. Otherwise, where they are too few for a band of
// slow ones, they count as a few.
func (in *Input) discountRareHandler(v *Verdict) (negligible bool) {
	const manyTimes, negligibleShare = 10, 0.02
	g := in.Report.Group(v.Group)
	if g == nil || !g.Named {
		return false
	}
	for k := range in.Report.Groups {
		o := &in.Report.Groups[k]
		if o.Named || o.Kind != g.Kind || o.Count < manyTimes*g.Count {
			continue
		}
		if g.Count < report.TailRequests {
			v.Won.Slow.Few, v.Won.All.Few, v.Won.Beside.Few = true, true, true
		}
		negligible = negligible || float64(v.Won.TotalNS) < negligibleShare*float64(o.TotalNS+g.TotalNS)
	}
	return negligible
}

// findingID is the same for the same fault in every run, whatever the lines around it do.
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
