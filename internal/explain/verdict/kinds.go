package verdict

import (
	"strings"

	"github.com/whylate/whylate/report"
)

// Kinds of a verdict's time, beside those of causes: each sends the reader to somebody else.
const (
	NoCPU    = "no-cpu"   // waiting for a CPU while goroutines showed as running
	Pipe     = "pipe"     // the network's poller waits for the other end of a pipe
	Deadline = "deadline" // a context's, or a time-out of net/http
	Timer    = "timer"    // a timer or a ticker, and no time.Sleep
	Limiter  = "limiter"  // a rate limiter lets one wait
)

// KindOf says who works, or what is waited for, in the time of a row: more than its cause, and as findings have it.
func KindOf(c *report.Cause) string {
	switch c.Cause {
	case report.CauseNetwork:
		if strings.HasPrefix(c.Call, "os.(*File).") {
			return Pipe
		}
	case report.CauseSleep:
		switch {
		case c.Site != nil && (strings.HasPrefix(c.Site.Func, "golang.org/x/time/rate.") || strings.HasPrefix(c.Site.Func, "go.uber.org/ratelimit.")):
			return Limiter
		case strings.HasPrefix(c.Call, "context."), strings.HasPrefix(c.Call, "net/http."), strings.HasPrefix(c.Call, "database/sql."):
			return Deadline
		case c.Call != "" && c.Call != "time.Sleep":
			return Timer
		}
	}
	return c.Kind
}

// A who is what time of a band is added up by: who works, and whether the request stands in line meanwhile.
type causeKey struct {
	cause report.CauseName
	kind  string
	queue *report.Queue
}

// causeKeyOf returns what time of a row that is not spent in line is added up by. Stops of the world are added up whoever stopped it.
func causeKeyOf(c *report.Cause) causeKey {
	if c.Cause == report.CauseSTW {
		return causeKey{cause: c.Cause}
	}
	return causeKey{cause: c.Cause, kind: KindOf(c)}
}

// groupQueues are what findings say that requests of a group stand in line for, and first is that of the first finding about it, if that
// is one.
func groupQueues(r *report.Report, g *report.Group) (list []*report.Queue, first *report.Queue) {
	for i, n := 0, 0; i < len(r.Findings); i++ {
		f := &r.Findings[i]
		if f.Group != g.ID {
			continue
		}
		if n++; n == 1 {
			first = f.Queue
		}
		if f.Queue != nil {
			list = append(list, f.Queue)
		}
	}
	return list, first
}

// queueWait returns the first wait of a way that is one in line, and in which; nil if none is.
func queueWait(queues []*report.Queue, via []report.Via) (*report.Queue, *report.Via) {
	via, _ = AfterLastAnswer(via)
	for i := range via {
		for _, q := range queues {
			if q.Has(&via[i]) {
				return q, &via[i]
			}
		}
	}
	return nil, nil
}

// A piece is a part of a row, by who works.
type rowPart struct {
	causeKey
	row    *report.Cause
	ns     int64
	share  float64
	routes []report.Route
}

// divideRows divides the rows of a band by who works. What lies behind a wait in line is others' work, but for the request's own turn
// where that is a part of the wait: each of those that waited had one, as long as they are on average.
func divideRows(b *report.Band, queues []*report.Queue) []rowPart {
	type queueTotal struct{ ns, requests int64 }
	totals := map[*report.Queue]*queueTotal{}
	var parts []rowPart
	for i := range b.Causes {
		row := &b.Causes[i]
		unqueued := rowPart{causeKey: causeKeyOf(row), row: row}
		indexByQueue := map[*report.Queue]int{}
		routes, allRoutesNS := row.AllRoutes(), int64(0)
		for _, r := range routes {
			allRoutesNS += r.TotalNS
		}
		first := len(parts)
		for _, r := range routes {
			q, _ := queueWait(queues, r.Via)
			if q == nil {
				unqueued.routes = append(unqueued.routes, r)
				continue
			}
			k, ok := indexByQueue[q]
			if !ok {
				k = len(parts)
				indexByQueue[q] = k
				parts = append(parts, rowPart{causeKey: causeKey{unqueued.cause, unqueued.kind, q}, row: row})
			}
			parts[k].routes = append(parts[k].routes, r)
			parts[k].ns += r.TotalNS
		}
		unqueued.ns, unqueued.share = row.TotalNS, row.Share
		for k := first; k < len(parts); k++ { // of all time of the row, as of that of its routes
			p := &parts[k]
			fraction := float64(p.ns) / float64(max(allRoutesNS, 1))
			p.ns, p.share = int64(fraction*float64(row.TotalNS)), fraction*row.Share
			unqueued.ns, unqueued.share = unqueued.ns-p.ns, unqueued.share-p.share
			if totals[p.queue] == nil {
				totals[p.queue] = &queueTotal{}
			}
			totals[p.queue].ns += p.ns
			totals[p.queue].requests = max(totals[p.queue].requests, int64(row.Requests))
		}
		if unqueued.ns > 0 {
			parts = append(parts, unqueued)
		}
	}
	for i := range parts {
		p := &parts[i]
		if p.queue == nil || p.queue.OwnNS == 0 {
			continue
		}
		total := totals[p.queue]
		ownTurn := *p
		fraction := min(1, float64(p.queue.OwnNS)*float64(total.requests)/float64(max(total.ns, 1)))
		ownTurn.queue, ownTurn.ns, ownTurn.share = nil, int64(fraction*float64(p.ns)), fraction*p.share
		p.ns, p.share = p.ns-ownTurn.ns, p.share-ownTurn.share
		parts = append(parts, ownTurn)
	}
	return parts
}

// AfterLastAnswer returns what of a chain of waits comes after those for answers of the process itself, and how many of these there are:
// what a path is in when it has gone on in the other half.
func AfterLastAnswer(via []report.Via) (inner []report.Via, answers int) {
	inner = via
	for i := range via {
		if via[i].Wait == report.WaitPeer {
			inner, answers = via[i+1:], answers+1
		}
	}
	return inner, answers
}
