package validate

import (
	"sync"

	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/report"
)

// Requests checks every request of a pass and compares the report with their sums. The zero value is ready for use, as
// a pass.Sum.
type Requests struct {
	Problems

	// Walked is how many requests and pieces of requests were checked.
	Walked int64

	mu    sync.Mutex
	parts []*requestPart
}

// A requestCount sums up the requests of one kind that ended in the trace.
type requestCount struct{ count, ns, open, cut int64 }

// countsByKind holds the counts by the name of the kind.
type countsByKind map[string]requestCount

func (ts countsByKind) add(kind string, t requestCount) {
	sum := ts[kind]
	ts[kind] = requestCount{sum.count + t.count, sum.ns + t.ns, sum.open + t.open, sum.cut + t.cut}
}

// NewAdder implements pass.Sum.
func (v *Requests) NewAdder(*path.Stage) path.Adder {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := &requestPart{kinds: make(countsByKind)}
	v.parts = append(v.parts, p)
	return p
}

// A requestPart is the adder of one worker.
type requestPart struct {
	Problems
	walked int64
	kinds  countsByKind
}

// Add implements path.Adder.
func (p *requestPart) Add(walked *path.WalkResult) {
	p.walked++
	request := walked.Req
	if walked.Weight < 1 || walked.CountedRequests() < 1 {
		p.add("weights", "goroutine %d: the request from %d on stands for %d requests", request.G, walked.Start, walked.Weight)
	}
	if walked.Form != path.CutAtStart && walked.Form != path.NotWalked {
		p.checkPath(walked)
	}
	if walked.Form == path.Piece || walked.Observer {
		return
	}
	var t requestCount
	switch {
	case walked.Form == path.CutAtStart:
		t.cut = walked.CountedRequests()
	case request.Open:
		t.open = walked.CountedRequests()
	default:
		t.count, t.ns = walked.CountedRequests(), walked.Latency()*walked.CountedRequests()
	}
	p.kinds.add(request.Kind.String(), t)
}

// checkPath checks that the parts of a request add up to it: each instant has one segment, and the sums by cause equal
// those of the segments.
func (p *requestPart) checkPath(walked *path.WalkResult) {
	request := walked.Req
	if walked.Start > walked.PathStart || walked.PathStart > request.End {
		p.add("bounds", "goroutine %d: a request begins at %d, its path at %d, and both end at %d", request.G, walked.Start, walked.PathStart, request.End)
		return
	}
	next := walked.PathStart
	if walked.Form == path.Joined {
		next = walked.Start
	}
	for i := range walked.Segments {
		s := &walked.Segments[i]
		if s.Start != next || s.End <= s.Start {
			p.add("segments", "goroutine %d: segment %d of the request from %d on lasts from %d to %d; the one before ended at %d", request.G, i, walked.Start, s.Start, s.End, next)
			return
		}
		next = s.End
	}
	if walked.Form != path.Joined && next != request.End {
		p.add("segments", "goroutine %d: the segments of the request from %d on end at %d, not at %d", request.G, walked.Start, next, request.End)
	}
	if walked.Observer {
		return // requests of observers have no sums
	}
	var sum int64
	for _, s := range walked.CauseTimes {
		if s.NS <= 0 {
			p.add("sums", "goroutine %d: the request from %d on spent %d ns on a cause", request.G, walked.Start, s.NS)
		}
		sum += s.NS
	}
	whole := request.End - walked.PathStart
	if walked.Form == path.Joined {
		whole = walked.Latency()
	}
	if sum != whole {
		p.add("sums", "goroutine %d: the causes of the request from %d on add up to %d of %d ns", request.G, walked.Start, sum, whole)
	}
	if walked.ReadyNS > whole {
		p.add("ready", "goroutine %d: the request from %d on was ready to run for %d ns, and took %d ns", request.G, walked.Start, walked.ReadyNS, whole)
	}
}

// merge returns the counts of all workers by kind, and moves their problems and numbers of requests into v.
func (v *Requests) merge() countsByKind {
	kinds := make(countsByKind)
	for _, p := range v.parts {
		v.Walked += p.walked
		v.join(&p.Problems)
		for k, t := range p.kinds {
			kinds.add(k, t)
		}
	}
	v.parts = nil
	return kinds
}

// Report checks a report and, if all is true, compares its groups with the counted requests. all says that the report
// shows all groups. Report is called once, after the pass.
func (v *Requests) Report(rep *report.Report, all bool) {
	kinds := v.merge()
	if err := rep.CheckValid(); err != nil {
		v.add("report", "%v", err)
	}
	v.checkBands(rep)
	if !all {
		return
	}
	leftOut := make(map[string]bool) // kinds of which some work is no group
	for i := range rep.Input.LeftOut {
		leftOut[string(rep.Input.LeftOut[i].Kind)] = true
	}
	shown := make(countsByKind)
	for i := range rep.Groups {
		g := &rep.Groups[i]
		shown.add(string(g.Kind), requestCount{int64(g.Count), g.TotalNS, int64(g.Open.Count), int64(g.CutAtStart)})
	}
	for k, t := range shown {
		want := kinds[k]
		// A group whose requests all began before the trace is not shown.
		if leftOut[k] && t.count <= want.count && t.ns <= want.ns && t.open <= want.open && t.cut <= want.cut {
			continue
		}
		if t.count != want.count || t.ns != want.ns || t.open != want.open || t.cut > want.cut {
			v.add("counts", "groups of kind %s have %d requests of %d ns, %d open and %d cut at the start; walked were %d of %d ns, %d open and %d cut",
				k, t.count, t.ns, t.open, t.cut, want.count, want.ns, want.open, want.cut)
		}
	}
}

// A rowKey distinguishes the rows of a band: running time by function, all other time by line.
type rowKey struct {
	cause  report.CauseName
	kind   string
	site   report.Site
	caller report.Caller
}

// rowOf returns the key of a cause's row: cause, kind, site and caller; for CPU time and throttling without lines.
func rowOf(cause *report.Cause) rowKey {
	k := rowKey{cause: cause.Cause, kind: cause.Kind}
	if cause.Site != nil {
		k.site = report.Site{Func: cause.Site.Func, File: cause.Site.File, Line: cause.Site.Line}
		if cause.Site.CalledFrom != nil {
			k.caller = *cause.Site.CalledFrom
		}
		if cause.Cause == report.CauseCPU || cause.Cause == report.CauseThrottle {
			k.site.File, k.site.Line, k.caller.File, k.caller.Line = "", 0, "", 0
		}
	}
	return k
}

// checkBands checks that no band of a group has more time of a cause than all its requests. A cause that the band of
// all requests does not list must fit into that band's row of small causes.
func (v *Requests) checkBands(rep *report.Report) {
	for i := range rep.Groups {
		g := &rep.Groups[i]
		whole := map[rowKey]int64{}
		slack := roundingSlack + g.TotalNS/1e6
		for k := range g.Bands {
			rows := map[rowKey]int64{}
			for j := range g.Bands[k].Causes {
				rows[rowOf(&g.Bands[k].Causes[j])] += g.Bands[k].Causes[j].TotalNS
			}
			if k == 0 {
				whole = rows
				continue
			}
			rest, small := whole[rowKey{cause: report.CauseOther}], int64(0)
			delete(rows, rowKey{cause: report.CauseOther})
			for key, ns := range rows {
				slack := slack
				if key.cause == report.CauseQueue {
					slack += whole[key] / 1000 // each band's own service time is estimated from its number of requests (package queued)
				}
				switch wholeNS, ok := whole[key]; {
				case !ok:
					small += ns
				case ns > wholeNS+slack:
					v.add("bands", "group %s: %s in %q has %d ns in %s, and %d ns in total", g.Name, key.cause, key.site.Func, ns, g.Bands[k].Band, wholeNS)
				}
			}
			if small > rest+slack {
				v.add("bands", "group %s: causes that all requests have as small ones only, of %d ns together, have %d ns in %s", g.Name, rest, small, g.Bands[k].Band)
			}
		}
	}
}

// roundingSlack is how much rounding may move from one row to another, in ns.
const roundingSlack = 1000
