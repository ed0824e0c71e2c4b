package capacity

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A Question asks for more than the limits.
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

// Judge returns the capacity, nil if no client waits for a request. Merge must have been called.
func (s *Sum) Judge(in *Input) (*report.Capacity, error) {
	a := &analysis{Sum: s, in: in}
	a.prepare()
	if a.load == 0 || in.Report.Input.DurationNS <= 0 {
		return nil, nil
	}
	out := &report.Capacity{LoadPerS: round(a.requestCount / float64(in.Report.Input.DurationNS) * 1e9), Limits: []report.Limit{}, Curve: []report.CurvePoint{}}
	a.addQueues()
	a.addCPU()
	load, err := a.applyChanges(in.Question.Changes, out.LoadPerS)
	if err != nil {
		return nil, err
	}
	for _, c := range in.Question.Changes {
		out.Changes = append(out.Changes, c.String())
	}
	slices.SortStableFunc(a.resources, func(x, y *resource) int { return cmp.Compare(y.utilisation(), x.utilisation()) })
	for _, r := range a.resources {
		out.Limits = append(out.Limits, a.limit(r, out.LoadPerS))
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
		a.predictLatencies(out, load)
	}
	out.Text = Text(out)
	return out, nil
}

func (r *resource) utilisation() float64 { return r.busy / r.servers }

func (r *resource) isCPU() bool { return r.kind == report.LimitCPU || r.kind == report.LimitQuota }

// round rounds to three digits.
func round(x float64) float64 {
	if x <= 0 {
		return 0
	}
	step := math.Pow(10, math.Floor(math.Log10(x))-2)
	return math.Round(x/step) * step
}

// limit returns a resource as the report has it.
func (a *analysis) limit(r *resource, loadPerS float64) report.Limit {
	u := max(r.utilisation(), 1e-9)
	out := report.Limit{
		Kind: r.kind, Site: r.site, Servers: math.Round(100*r.servers) / 100, DemandNS: int64(r.busy / a.load), Utilisation: min(1, math.Round(1e4*u)/1e4),
		SaturatesPerS: round(loadPerS / u), SaturatesLow: round(loadPerS / u / (1 + r.error)), SaturatesHigh: round(loadPerS / u * (1 + min(r.error, 0.3))),
		Basis: r.basis, Groups: a.shares(r.groups),
	}
	if r.isCPU() {
		gc := &a.in.Stats.GC
		collectorNS := gc.DedicatedNS + gc.FractionalNS + gc.IdleNS + a.in.Facts.AssistNS
		out.CollectorShare = math.Round(1000*min(1, float64(collectorNS)/float64(max(a.in.Stats.BusyNS, 1)))) / 1000
	}
	return out
}

// shares returns the groups by their share of a demand, the largest first.
func (a *analysis) shares(weights map[path.GroupID]float64) []report.LimitShare {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	out := []report.LimitShare{}
	for id, w := range weights {
		if g := a.in.Groups[id]; g != nil && w > 0 {
			out = append(out, report.LimitShare{Group: g.ID, Name: g.Name, Share: math.Round(1000*w/sum) / 1000})
		}
	}
	slices.SortFunc(out, func(x, y report.LimitShare) int {
		return cmp.Or(cmp.Compare(y.Share, x.Share), cmp.Compare(x.Group, y.Group))
	})
	return out
}

// addCPU adds the CPU time: that of all goroutines, those of the collector too, and the short system calls of requests, which
// mostly compute in the kernel. The kernel's count for the process is an upper bound. It contains the search for runnable
// goroutines, of which a busy process does less, and the recording itself.
func (a *analysis) addCPU() {
	stats, facts := a.in.Stats, a.in.Facts
	r := &resource{kind: report.LimitCPU, groups: map[path.GroupID]float64{}, visits: 1, factor: 1, basis: "the time in which goroutines ran"}
	syscallNS := 0.0
	for _, one := range a.requests {
		if one.isLoad {
			syscallNS += float64(one.syscallNS)
			r.groups[one.group] += float64(one.runNS + one.syscallNS)
		}
	}
	r.busy = float64(stats.BusyNS)/float64(max(stats.SpanNS, 1)) + syscallNS/float64(a.sliceNS)
	r.error = 0.2
	if host := a.in.Report.Host; host != nil && host.Lost.CPUNS != nil && host.ToNS > host.FromNS && *host.Lost.CPUNS > 0 {
		if off := host.Lost.OffCPUNS; off != nil { // a goroutine runs, but its thread does not
			r.busy -= float64(*off) / float64(host.ToNS-host.FromNS)
		}
		counted := float64(*host.Lost.CPUNS) / float64(host.ToNS-host.FromNS)
		if r.busy = min(r.busy, counted); r.busy == counted {
			r.basis = "the CPU time of the process, by the kernel"
		}
		r.error = max(0.1, counted/r.busy-1)
	}
	r.servers = float64(stats.Procs)
	if facts.CPUs > 0 {
		r.servers = min(r.servers, facts.CPUs)
	}
	if facts.QuotaCPUs > 0 && facts.QuotaCPUs < r.servers {
		r.kind, r.servers = report.LimitQuota, facts.QuotaCPUs
	}
	if r.busy <= 0 || r.servers <= 0 {
		return
	}
	r.error += 1 / math.Sqrt(max(a.requestCount, 1))
	a.resources = append(a.resources, r)
}

const peerReason = "the peer that answers here: its limits are not in this recording"

// maxPeers bounds the lines that wait for peers in a report.
const maxPeers = 3

// addPeers adds the lines that wait for peers, whose own limits no trace of this process shows.
func (a *analysis) addPeers() {
	byLine, sites := map[tracefmt.Line]int64{}, map[tracefmt.Line]*report.Site{}
	for _, r := range a.requests {
		for _, l := range r.leaves {
			if site := a.siteOf(l.stack); l.isNetwork && r.isLoad && site != nil && !stdlib.Contains(site.OwnLine().Func) {
				callLine := a.lineOf(l.stack)
				byLine[callLine] += l.end - l.start
				sites[callLine] = site
			}
		}
	}
	lines := slices.SortedFunc(maps.Keys(byLine), func(x, y tracefmt.Line) int {
		return cmp.Or(cmp.Compare(byLine[y], byLine[x]), cmp.Compare(x.Number, y.Number), x.Compare(y))
	})
	for _, callLine := range lines[:min(len(lines), maxPeers)] {
		a.addSkipped(skipped{NotJudged: report.NotJudged{Site: sites[callLine], Reason: peerReason}})
	}
}

// closedClients returns how many requests are in the process at all times, if their number hardly varies: a client then sends the
// next request when it has an answer. At random arrivals the variance of the number is about its mean. 0 means that it varies.
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

// Text returns the capacity in a sentence.
func Text(c *report.Capacity) string {
	var b strings.Builder
	fmt.Fprintf(&b, "today %s/s", perSecond(c.LoadPerS))
	first := "limit"
	if slices.ContainsFunc(c.NotJudged, func(n report.NotJudged) bool { return n.Kind != "" }) {
		first = "limit of those that can be judged"
	}
	for i := range c.Limits[:min(len(c.Limits), 3)] {
		l := &c.Limits[i]
		if i == 0 {
			fmt.Fprintf(&b, "; first "+first+": %s at %s/s (%s to %s)", LimitName(l), perSecond(l.SaturatesPerS), perSecond(l.SaturatesLow), perSecond(l.SaturatesHigh))
		} else {
			fmt.Fprintf(&b, ", then %s at %s/s", LimitName(l), perSecond(l.SaturatesPerS))
		}
	}
	if len(c.Limits) == 0 {
		b.WriteString("; the recording shows no limit")
	}
	if places := NotJudged(c); places != "" {
		b.WriteString("; not judged: " + places)
	}
	return b.String()
}

// NotJudged returns the places of limits that the recording does not show well enough, "" if there are none.
func NotJudged(c *report.Capacity) string {
	var places []string
	hasPeers := false
	for i := range c.NotJudged {
		if n := &c.NotJudged[i]; n.Kind == "" && n.Reason == peerReason {
			hasPeers = true
		} else if n.Site != nil {
			places = append(places, strings.TrimSpace(string(n.Kind)+" "+siteName(n.Site)))
		}
	}
	if hasPeers {
		places = append(places, "peers")
	}
	return strings.Join(places, ", ")
}

// LimitName names a limit and its place.
func LimitName(l *report.Limit) string {
	name := string(l.Kind)
	switch {
	case l.Kind == report.LimitPool:
		name = fmt.Sprintf("pool of %.0f", l.Servers)
	case l.Kind == report.LimitCPU:
		name = "CPU of " + words.CPUs(l.Servers)
	case l.Kind == report.LimitQuota:
		name = "CPU quota of " + words.CPUs(l.Servers)
	case l.Servers > 1:
		name = fmt.Sprintf("%.0f %ss", l.Servers, name)
	}
	if l.Site != nil {
		name += " " + siteName(l.Site)
	}
	return name
}

// siteName returns a place for a sentence, in at most 60 columns.
func siteName(s *report.Site) string { return names.SiteText(s.OwnLine(), 60) }

func perSecond(x float64) string {
	if x < 10 {
		return fmt.Sprintf("%.2g", x)
	}
	return words.Number(int64(math.RoundToEven(x)))
}
