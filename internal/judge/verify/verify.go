// Package verify compares the predictions of findings with a recording after the change: how much faster requests were
// predicted to become, how much faster they are, and whether that may be chance.
//
// A promise is a finding's prediction for its group (report.Predicted). It is compared with the difference between the two
// recordings with its interval (package compare), but only with the part of it that the finding's own wait explains: a change of
// something else makes requests faster, too, and proves nothing about the finding (attribution.go). A ledger collects verdicts, so that
// the accuracy of predictions on this service can be computed.
package verify

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/report"
)

// Schema is the value of Result.Schema. Fields may be added, never renamed.
const Schema = "whylate.verify/v1"

// A Judgement is the result of comparing a promise with a recording.
type Judgement string

// Judgements.
const (
	PromiseKept   Judgement = "kept"      // the group is faster, and the promise is within the interval
	AbovePromise  Judgement = "better"    // faster than promised
	BelowPromise  Judgement = "short"     // less fast than promised by more than shortfall, and chance does not explain it
	MaybeChance   Judgement = "chance"    // both the promise and no change are within the interval
	Elsewhere     Judgement = "elsewhere" // the group is faster, but the finding's own wait is as long as before: the promise was not tested
	ChangeMissing Judgement = "unmade"    // the finding is still found and nothing is faster: the recorded program does not have the change
	Unknown       Judgement = "unknown"   // too few requests, or the group is missing
)

// shortfall is by which share a measured gain may fall short of a promise that is kept: predictions without what a fix leaves
// behind are upper bounds.
const shortfall = 0.2

// IsConclusive reports whether a judgement is evidence about the prediction.
func (j Judgement) IsConclusive() bool {
	return j == PromiseKept || j == AbovePromise || j == BelowPromise
}

// A Verdict is the judgement of one finding's promise. Differences are after minus before, in ns: negative is faster.
type Verdict struct {
	ID       string          `json:"id"` // of the finding and both recordings
	Before   string          `json:"before"`
	After    string          `json:"after"`
	When     *time.Time      `json:"when"` // the beginning of the second recording; null if unknown
	Code     report.RuleCode `json:"code"`
	Title    string          `json:"title"`
	Site     string          `json:"site"`   // its function, because lines move
	Group    string          `json:"group"`  // its name
	Change   string          `json:"change"` // the change that the promise assumes
	Metric   string          `json:"metric"` // p50 or p99
	WasNS    int64           `json:"was_ns"`
	IsNS     *int64          `json:"is_ns"`
	Promised report.Estimate `json:"promised_ns"`
	// Got is the part of Whole that the finding's own wait explains.
	Got       *int64    `json:"got_ns"`
	GotLow    *int64    `json:"got_low_ns"`
	GotHigh   *int64    `json:"got_high_ns"`
	Whole     *int64    `json:"whole_ns"` // the whole change of the metric
	Judgement Judgement `json:"judgement"`
	// OwnWasNS and OwnIsNS are the time per request of the finding's cause at its site; null if the report does not show it.
	OwnWasNS *int64 `json:"own_was_ns"`
	OwnIsNS  *int64 `json:"own_is_ns"`
	// FromArrival says that the promise is about latencies from the arrival of messages (report.Predicted.FromArrival). Got is then the
	// whole change, nil if the second recording does not show when messages arrive; chance is not computed.
	FromArrival bool `json:"from_arrival,omitempty"`
	// Population is the name of all requests of the server, if requests moved between their groups; else empty.
	Population string `json:"population,omitempty"`
}

// A Result contains the verdicts on all findings of a report that have a promise.
type Result struct {
	Schema   string           `json:"schema"`
	Verdicts []Verdict        `json:"verdicts"`
	Warnings []report.Warning `json:"warnings"` // why the recordings may not be comparable
	// Ledger is the accuracy over all verdicts of the ledger, if there is one.
	Ledger *Accuracy `json:"ledger,omitempty"`
}

// Reports judges what the findings of the report before predict by the report after. It skips findings that predict nothing or are ignored.
func Reports(before, after *report.Report) *Result {
	diff := compare.Reports(before, after)
	r := &Result{Schema: Schema, Verdicts: []Verdict{}, Warnings: diff.Warnings}
	for i := range before.Findings {
		f := &before.Findings[i]
		if f.Predicted == nil || f.Ignored != "" {
			continue
		}
		r.Verdicts = append(r.Verdicts, judgePromise(f, before, after, diff))
	}
	return r
}

// judgePromise judges a prediction: what a finding of the report before promised, and how its group's 99th percentile (or the
// median, if only that has evidence) changed until the report after, by diff. The judgement remains Unknown if the reports do
// not show it.
func judgePromise(f *report.Finding, before, after *report.Report, diff *compare.Diff) Verdict {
	v := Verdict{
		Before: before.Input.Name, After: after.Input.Name, When: after.Input.Start, Code: f.Code, Title: f.Title, Site: siteOf(f), Group: groupName(before, f.Group),
		Change: f.Predicted.Change, Metric: "p99", Judgement: Unknown,
	}
	v.ID = idOf(f.ID, v.Before, v.After, startOf(before), startOf(after))
	group := populationOf(f, v.Group, before, diff)
	if group != nil && group.Members != nil {
		v.Population = group.Name
	}
	// The promise concerns the 99th percentile; if the recordings do not show its change, the median is used.
	promised, baseline := f.Predicted.P99NS, f.Predicted.WasP99NS
	var got *compare.Change
	if group != nil {
		got = &group.P99
	}
	v.FromArrival = f.Predicted.FromArrival
	if baseline == nil || !v.FromArrival && (got == nil || got.Low == nil || !got.Evidence && group.P50.Evidence && f.Predicted.WasP50NS != nil) {
		v.Metric, promised, baseline = "p50", f.Predicted.P50NS, f.Predicted.WasP50NS
		if group != nil {
			got = &group.P50
		}
	}
	if baseline == nil {
		return v
	}
	v.WasNS = *baseline
	v.Promised = report.Estimate{Est: promised.Est - *baseline, Low: promised.Low - *baseline, High: promised.High - *baseline}
	if v.FromArrival {
		v.compareFromArrival(f, after)
		return v
	}
	explained := attribute(f, group, before, after)
	if explained.isShown {
		v.OwnWasNS, v.OwnIsNS = &explained.wasNS, &explained.isNS
	}
	faster := false
	if got != nil {
		v.IsNS, v.Whole = got.New, got.Delta
		faster = got.High != nil && *got.High < 0
		v.Got, v.GotLow, v.GotHigh = explained.partOf(got.Delta, v.Metric, got.Old), explained.partOf(got.Low, v.Metric, got.Old), explained.partOf(got.High, v.Metric, got.Old)
	}
	// If requests are faster but the finding is still there, the change was partial: a shorter sleep is still a sleep.
	switch {
	case !faster && isStillFound(f, v.Group, after):
		v.Judgement = ChangeMissing
	case v.Got == nil || v.GotLow == nil:
	case faster && explained.isShown && !explained.wentAway():
		v.Judgement = Elsewhere
	case faster && !explained.isShown:
	case *v.GotHigh < v.Promised.Low:
		v.Judgement = AbovePromise
	case float64(*v.GotLow) > (1-shortfall)*float64(v.Promised.High):
		v.Judgement = BelowPromise
	case faster:
		v.Judgement = PromiseKept
	default:
		v.Judgement = MaybeChance
	}
	return v
}

// compareFromArrival sets what a promise about latencies from the arrival of messages can be compared with: the same latency
// in the second recording. Latencies from when messages are taken would make any such promise look kept.
func (v *Verdict) compareFromArrival(f *report.Finding, after *report.Report) {
	i := slices.IndexFunc(after.Groups, func(g report.Group) bool { return g.ID == f.Group || g.Name == v.Group })
	if i >= 0 && after.Groups[i].Backlog != nil {
		total := &after.Groups[i].Backlog.TotalNS
		if v.IsNS = total.P50; v.Metric == "p99" {
			v.IsNS = total.P99
		}
		if v.IsNS != nil {
			v.Got = new(*v.IsNS - v.WasNS)
		}
	}
	if isStillFound(f, v.Group, after) && (v.Got == nil || float64(-*v.Got) < shortfall*float64(v.WasNS)) {
		v.Judgement = ChangeMissing
	}
}

// isStillFound reports whether the later report has the finding, with at least half of its share.
func isStillFound(f *report.Finding, group string, after *report.Report) bool {
	for i := range after.Findings {
		g := &after.Findings[i]
		if g.Code == f.Code && g.SamePlace(f) && 2*g.Share >= f.Share && (g.Group == f.Group || groupName(after, g.Group) == group) {
			return true
		}
	}
	return false
}

// groupName returns the name of the group with an id, the id itself if the report has no such group.
func groupName(r *report.Report, id string) string {
	if g := r.Group(id); g != nil {
		return g.Name
	}
	return id
}

// siteOf returns the function to change: the caller in the service's own code if the site is a dependency's; "" without a site.
func siteOf(f *report.Finding) string {
	if f.Site == nil {
		return ""
	}
	return f.Site.OwnLine().Func
}

// startOf returns the time of day at which a recording began as text, "" if it is unknown.
func startOf(r *report.Report) string {
	if r.Input.Start == nil {
		return ""
	}
	return r.Input.Start.UTC().Format(time.RFC3339Nano)
}

// idOf returns a hash of the parts.
func idOf(parts ...string) string {
	h := fnv.New64a()
	h.Write([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(h.Sum(nil))
}

// Text describes a verdict in a sentence. duration formats ns.
func (v *Verdict) Text(duration func(int64) string) string {
	change := func(ns int64) string {
		if ns > 0 {
			return duration(ns) + " more"
		}
		return duration(-ns) + " less"
	}
	promised := fmt.Sprintf("%s: promised %s", v.Metric, change(v.Promised.Est))
	got := ""
	if v.Got != nil {
		got = ", measured " + change(*v.Got)
	}
	switch v.Judgement {
	case PromiseKept:
		return promised + got
	case AbovePromise:
		return promised + got + "; a larger change than promised"
	case BelowPromise:
		return promised + got + "; a smaller change than promised, and not by chance"
	case MaybeChance:
		return promised + got + "; that may be chance: record for longer"
	case Elsewhere:
		s := promised + "; requests are faster, but not by this"
		if v.OwnWasNS != nil && v.OwnIsNS != nil {
			s += fmt.Sprintf(": it took %s of a request and takes %s", duration(*v.OwnWasNS), duration(*v.OwnIsNS))
		}
		return s
	case ChangeMissing:
		return promised + "; the finding is still there, so this recording does not have the change"
	}
	switch {
	case v.FromArrival && v.Got != nil:
		return promised + got + "; both from a message's arrival, and how much of that is chance is not known"
	case v.FromArrival:
		return promised + " from a message's arrival; the second recording does not show when messages arrive, so they cannot be compared"
	}
	if v.Got != nil && v.GotLow != nil {
		return promised + "; the recording does not show the time of this finding apart from other time, so nothing is attributed to it"
	}
	if v.WasNS == 0 {
		return "too few requests to measure what was promised"
	}
	return promised + "; one of the recordings has too few requests to judge it"
}
