package capacity

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A Question asks for more than the limits: goals, changes, latencies.
type Question struct {
	Goals      []report.CapacityGoal // to be answered
	Changes    []Change
	LimitsOnly bool // no latencies at other loads, which take longer than the rest
}

// An Input is what Judge needs in addition to the Sum.
type Input struct {
	Report   *report.Report
	Groups   map[path.GroupID]*report.Group // those that a client waits for
	Stats    *process.Stats
	Facts    *predict.Facts
	Speller  *spell.Speller
	Question Question
}

// Judge computes the capacity: the resources, at which load each saturates, and latencies at other loads. It returns nil if no
// client waits for a request, and an error if one of the changes is not possible. Merge must have been called.
func (s *Sum) Judge(in *Input) (*report.Capacity, error) {
	a := &analysis{Sum: s, in: in}
	a.indexRequests()
	if a.load == 0 || in.Report.Input.DurationNS <= 0 {
		return nil, nil
	}
	out := &report.Capacity{LoadPerS: roundToThreeDigits(a.requestCount / float64(in.Report.Input.DurationNS) * 1e9), Limits: []report.Limit{}, Curve: []report.CurvePoint{}}
	a.addQueues()
	a.addCPU()
	var err error
	if out.AskedLoadPerS, err = a.applyChanges(in.Question.Changes, out.LoadPerS); err != nil {
		return nil, err
	}
	for _, c := range in.Question.Changes {
		out.Changes = append(out.Changes, c.String())
	}
	slices.SortStableFunc(a.resources, func(x, y *resource) int { return cmp.Compare(y.utilisation(), x.utilisation()) })
	for _, r := range a.resources {
		out.Limits = append(out.Limits, a.reportLimit(r, out.LoadPerS))
	}
	a.addPeers()
	for i := range a.notJudged {
		if one := &a.notJudged[i]; len(a.resources) == 0 || one.atMost == 0 || one.atMost > a.resources[0].utilisation() {
			out.NotJudged = append(out.NotJudged, one.NotJudged)
		}
	}
	out.NotJudged = append(out.NotJudged, report.NotJudged{Reason: "locks and pools for which no request waited in this recording"})
	out.ClosedClients = a.closedClients()
	if len(out.Limits) > 0 && !in.Question.LimitsOnly {
		a.predictLatencies(out)
	}
	out.Text = Text(out)
	return out, nil
}

// utilisation returns the share of the servers that are in use on average, from 0 to 1.
func (r *resource) utilisation() float64 { return r.busy / r.servers }

// isCPU reports whether the resource is the process's CPUs or its CPU quota.
func (r *resource) isCPU() bool { return r.kind == report.LimitCPU || r.kind == report.LimitQuota }

// roundToThreeDigits rounds to three significant digits; a negative number to 0.
func roundToThreeDigits(x float64) float64 {
	if x <= 0 {
		return 0
	}
	step := math.Pow(10, math.Floor(math.Log10(x))-2)
	return math.Round(x/step) * step
}

// reportLimit converts a resource to a limit of the report. Its load at saturation is today's load divided by the utilisation.
func (a *analysis) reportLimit(r *resource, loadPerS float64) report.Limit {
	u, highError := max(r.utilisation(), 1e-9), r.error
	if r.isCPU() {
		highError = min(highError, 0.3) // the other part of the error: the kernel counts more
	}
	out := report.Limit{
		Kind: r.kind, Site: r.site, Servers: math.Round(100*r.servers) / 100, DemandNS: int64(r.busy / a.load), Utilisation: min(1, math.Round(1e4*u)/1e4),
		SaturatesPerS: roundToThreeDigits(loadPerS / u), SaturatesLow: roundToThreeDigits(loadPerS / u / (1 + r.error)), SaturatesHigh: roundToThreeDigits(loadPerS / u * (1 + highError)),
		Basis: r.basis, Groups: a.groupShares(r.groups),
	}
	if r.isCPU() {
		gc := &a.in.Stats.GC
		collectorNS := gc.DedicatedNS + gc.FractionalNS + gc.IdleNS + a.in.Facts.AssistNS
		out.CollectorShare = math.Round(1000*min(1, float64(collectorNS)/float64(max(a.in.Stats.BusyNS, 1)))) / 1000
	}
	return out
}

// groupShares returns each group's share of a resource's demand, the largest first, given the demand by group.
func (a *analysis) groupShares(weights map[path.GroupID]float64) []report.LimitShare {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	out := []report.LimitShare{}
	for id, w := range weights {
		if g := a.in.Groups[id]; g != nil && w > threshold.NoiseShare*sum {
			out = append(out, report.LimitShare{Group: g.ID, Name: g.Name, Share: math.Round(1000*w/sum) / 1000})
		}
	}
	slices.SortFunc(out, func(x, y report.LimitShare) int {
		return cmp.Or(cmp.Compare(y.Share, x.Share), cmp.Compare(x.Group, y.Group))
	})
	return out
}

const peerReason = "the peer that answers here: its limits are not in this recording"

// maxPeers bounds the lines that wait for peers in a report.
const maxPeers = 3

// addPeers adds the lines at which requests wait longest for peers (at most maxPeers) to the resources that are not judged: no
// trace of this process shows a peer's limits.
func (a *analysis) addPeers() {
	byLine, sites := map[tracefmt.Line]int64{}, map[tracefmt.Line]*report.Site{}
	for _, r := range a.requests {
		for _, l := range r.leaves {
			site, ns := a.siteOf(l.stack), l.end-l.start
			if !l.isNetwork || !r.outermost().isLoad || site == nil || stdlib.Contains(site.OwnLine().Func) {
				continue
			}
			if r.isAnswered(l) {
				ns = -ns
			}
			callLine := a.lineOf(l.stack)
			byLine[callLine], sites[callLine] = byLine[callLine]+ns, site
		}
	}
	maps.DeleteFunc(byLine, func(_ tracefmt.Line, ns int64) bool { return ns <= 0 }) // requests of this process answer most
	lines := slices.SortedFunc(maps.Keys(byLine), func(x, y tracefmt.Line) int {
		return cmp.Or(cmp.Compare(byLine[y], byLine[x]), cmp.Compare(x.Number, y.Number), x.Compare(y))
	})
	for _, callLine := range lines[:min(len(lines), maxPeers)] {
		a.addSkipped(skipped{NotJudged: report.NotJudged{Site: sites[callLine], Reason: peerReason}})
	}
}

// closedClients returns the mean number of requests in the process, if that number hardly varies: then a fixed number of
// clients send the next request when they have an answer. At random arrivals the variance of the number is about its mean. It
// returns 0 if the number varies.
func (a *analysis) closedClients() int {
	var sum, squares, total float64
	for slice := range entry.EqualRuns(a.requests, func(x, y *servedRequest) bool { return x.slice == y.slice }) {
		var present queues.Overlap
		for _, r := range slice {
			if r.isLoad {
				present.Add(r.start, r.end)
			}
		}
		starts, ends := present.Bounds()
		changes := slices.Sorted(slices.Values(slices.Concat(starts, ends)))
		// The requests at both ends of a slice are not all known.
		for k := len(changes)/10 + 1; k < len(changes)-len(changes)/10; k++ {
			ns, n := float64(changes[k]-changes[k-1]), float64(present.At(changes[k-1]))
			sum, squares, total = sum+ns*n, squares+ns*(n*n), total+ns
		}
	}
	if total == 0 {
		return 0
	}
	meanCount := sum / total
	if variance := squares/total - meanCount*meanCount; meanCount < 0.8 || variance > threshold.MajorShare*meanCount {
		return 0
	}
	return int(math.Round(meanCount))
}
