package spell

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// QueueWait returns the first wait of a chain that is in one of the queues of a group (by its id): the queue, and the index of
// the wait in the chain; nil if none is. If the chain leads into another request of this process, over the network, only the
// waits of that request count.
func (s *Speller) QueueWait(group string, chain []path.ChainWait) (queue *report.Queue, waitIndex int) {
	queues := s.Queues[group]
	if len(queues) == 0 {
		return nil, 0
	}
	first := 0
	for i := range chain {
		if chain[i].Kind == critpath.WaitPeer {
			first = i + 1
		}
	}
	for i := first; i < len(chain); i++ {
		for _, q := range queues {
			for k := range q.Waits {
				if s.isWait(&chain[i], &q.Waits[k]) {
					return q, i
				}
			}
		}
	}
	return nil, 0
}

// WithTimedWait returns a chain of waits to a cause. If the cause is a timer that ended a wait in a queue of the group, the chain ends
// with that wait, see verdict.WithTimedWait.
func (s *Speller) WithTimedWait(group string, chain []path.ChainWait, code cause.Code, site tracefmt.FrameID, call tracefmt.StringID) []path.ChainWait {
	timed := []path.ChainWait{{Kind: critpath.WaitSelect, Site: site, Call: call}}
	if code.Cause() != cause.Sleep || len(chain) > 0 && chain[len(chain)-1] == timed[0] {
		return chain
	}
	if q, _ := s.QueueWait(group, timed); q == nil {
		return chain
	}
	return slices.Concat(chain, timed)
}

// isWait reports whether a wait of a chain and a wait of the report have the same kind, call and line.
func (s *Speller) isWait(wait *path.ChainWait, shown *report.Via) bool {
	if shown.Wait != report.WaitKind(wait.Kind.String()) || shown.Call != s.Syms.String(wait.Call) || shown.Site == nil || wait.Site == 0 {
		return false
	}
	f := s.Syms.MethodOfWrapper(wait.Site)
	return int(f.Line) == shown.Site.Line && s.Syms.String(f.Func) == shown.Site.Func && s.File(s.Syms.String(f.File)) == shown.Site.File
}

// Requeue changes a segment's cause to queue: its present cause becomes the work of the requests ahead. wait is the index in
// seg.Via of the wait for queue q.
func Requeue(seg *report.Segment, q *report.Queue, wait int, call string) {
	seg.AheadWork = &report.Work{Cause: seg.Cause, Kind: seg.Kind, Site: seg.Site, Call: call}
	seg.Cause, seg.Kind, seg.Site = Cause(cause.Queue), q.For, seg.Via[wait].Site
}

// OwnPart returns which part of ns, a time in a queue, is the requests' own service: each of requests has ownNS of it on average,
// and all time in the queue is queueNS. It is 0 if one of the two is not known.
func OwnPart(ns, ownNS, requests, queueNS int64) int64 {
	if ownNS == 0 || queueNS == 0 {
		return 0
	}
	return int64(min(1, float64(ownNS)*float64(requests)/float64(queueNS)) * float64(ns))
}
