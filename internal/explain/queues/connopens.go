package queues

import (
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// ConnOpens describes the connections that a group's requests open.
type ConnOpens struct {
	Site  *report.Site // where the request with the longest opening began to open its connection; nil if another goroutine did
	Wait  *report.Site // where that request waits for it
	NS    int64        // critical-path time of opening connections, on all goroutines; part of TotalNS, the requests' latencies
	Count int64        // number of requests that open a connection, of Requests

	TotalNS, Requests int64
}

// A groupOpenSum adds up the connections that requests of a group open. The fields are those of ConnOpens.
type groupOpenSum struct {
	ns, count, totalNS, requests, longestNS int64
	site, wait                              tracefmt.FrameID
}

// add adds a request's or a worker's sum, multiplied by a weight; longestNS and its sites are those of the longest opening.
func (o *groupOpenSum) add(addend *groupOpenSum, weight int64) {
	o.ns, o.count = o.ns+addend.ns*weight, o.count+addend.count*weight
	o.totalNS, o.requests = o.totalNS+addend.totalNS*weight, o.requests+addend.requests*weight
	if addend.longestNS > o.longestNS || addend.longestNS == o.longestNS && addend.site < o.site {
		o.longestNS, o.site, o.wait = addend.longestNS, addend.site, addend.wait
	}
}

// addConnOpens adds the time that a request spent on opening connections, and where. If another goroutine dials, the site is
// the line that started it.
func (p *workerSum) addConnOpens(w *path.WalkResult, waits []critpath.FollowedWait) {
	request := groupOpenSum{totalNS: w.Req.End - w.Req.Start, requests: 1}
	opener, longestStep := tracefmt.StackID(0), int64(0)
	for step := range entry.Each(w.Steps) {
		if k := step.Kind; k != critpath.CPU && k != critpath.Runnable && k != critpath.Syscall && k != critpath.Network {
			continue
		}
		if stack := p.openingStack(step, waits); stack != 0 {
			ns := step.End - step.Start
			if request.ns += ns; ns > longestStep {
				opener, longestStep = stack, ns
			}
		}
	}
	all := entry.GetOrAdd(p.connOpens, w.Group)
	if request.ns > 0 {
		request.count, request.longestNS = 1, request.ns
	}
	if request.ns > all.longestNS {
		request.wait = p.stage.Sites.SiteOf(opener)
		p.stage.Win.Children(w.Req.G, w.Req.Start, w.Req.End, func(child timeline.Birth) bool {
			opens := p.stage.Syms.OpensConnection(child.Stack)
			if opens {
				request.site = p.stage.Sites.SiteOf(child.Stack)
			}
			return !opens
		})
	}
	all.add(&request, w.Weight)
}

// openingStack returns the stack that shows that a step is part of opening a connection (dial, handshake, name resolution): its
// own or that of the outermost such wait in its chain; 0 if it is not.
func (p *workerSum) openingStack(step *critpath.Step, waits []critpath.FollowedWait) (opener tracefmt.StackID) {
	if step.OpensConnection(p.stage.Syms) {
		opener = step.Stack
	}
	for k := step.FollowedWait; k >= 0; k = waits[k].Parent {
		if p.stage.Syms.OpensConnection(waits[k].Stack) {
			opener = waits[k].Stack
		}
	}
	return opener
}

// ConnOpens returns the connections that a group's requests open, zero if none. Merge must have been called.
func (s *Sum) ConnOpens(sp *spell.Speller, group path.GroupID) (out ConnOpens) {
	if o := s.workers[0].connOpens[group]; o != nil {
		out = ConnOpens{Site: sp.Site(o.site), Wait: sp.Site(o.wait), NS: o.ns, Count: o.count, TotalNS: o.totalNS, Requests: o.requests}
	}
	return out
}
