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
type who struct {
	cause report.CauseName
	kind  string
	queue *report.Queue
}

// whoOf returns what time of a row that is not spent in line is added up by. Stops of the world are added up whoever stopped it.
func whoOf(c *report.Cause) who {
	if c.Cause == report.CauseSTW {
		return who{cause: c.Cause}
	}
	return who{cause: c.Cause, kind: KindOf(c)}
}

// queues are what findings say that requests of a group stand in line for, and first is that of the first finding about it, if that
// is one.
func queues(r *report.Report, g *report.Group) (list []*report.Queue, first *report.Queue) {
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

// inLine returns the first wait of a way that is one in line, and in which; nil if none is.
func inLine(list []*report.Queue, via []report.Via) (*report.Queue, *report.Via) {
	via, _ = Beyond(via)
	for i := range via {
		for _, q := range list {
			if q.Has(&via[i]) {
				return q, &via[i]
			}
		}
	}
	return nil, nil
}

// A piece is a part of a row, by who works.
type piece struct {
	who
	row    *report.Cause
	ns     int64
	share  float64
	routes []report.Route
}

// pieces divides the rows of a band by who works. What lies behind a wait in line is others' work, but for the request's own turn
// where that is a part of the wait: each of those that waited had one, as long as they are on average.
func pieces(b *report.Band, list []*report.Queue) []piece {
	type line struct{ ns, requests int64 }
	lines := map[*report.Queue]*line{}
	var out []piece
	for i := range b.Causes {
		row := &b.Causes[i]
		own := piece{who: whoOf(row), row: row}
		at := map[*report.Queue]int{}
		routes, all := row.AllRoutes(), int64(0)
		for _, r := range routes {
			all += r.TotalNS
		}
		first := len(out)
		for _, r := range routes {
			q, _ := inLine(list, r.Via)
			if q == nil {
				own.routes = append(own.routes, r)
				continue
			}
			k, ok := at[q]
			if !ok {
				k = len(out)
				at[q] = k
				out = append(out, piece{who: who{own.cause, own.kind, q}, row: row})
			}
			out[k].routes = append(out[k].routes, r)
			out[k].ns += r.TotalNS
		}
		own.ns, own.share = row.TotalNS, row.Share
		for k := first; k < len(out); k++ { // of all time of the row, as of that of its routes
			p := &out[k]
			part := float64(p.ns) / float64(max(all, 1))
			p.ns, p.share = int64(part*float64(row.TotalNS)), part*row.Share
			own.ns, own.share = own.ns-p.ns, own.share-p.share
			if lines[p.queue] == nil {
				lines[p.queue] = &line{}
			}
			lines[p.queue].ns += p.ns
			lines[p.queue].requests = max(lines[p.queue].requests, int64(row.Requests))
		}
		if own.ns > 0 {
			out = append(out, own)
		}
	}
	for i := range out {
		p := &out[i]
		if p.queue == nil || p.queue.OwnNS == 0 {
			continue
		}
		l := lines[p.queue]
		turn := *p
		part := min(1, float64(p.queue.OwnNS)*float64(l.requests)/float64(max(l.ns, 1)))
		turn.queue, turn.ns, turn.share = nil, int64(part*float64(p.ns)), part*p.share
		p.ns, p.share = p.ns-turn.ns, p.share-turn.share
		out = append(out, turn)
	}
	return out
}

// Beyond returns what of a chain of waits comes after those for answers of the process itself, and how many of these there are:
// what a path is in when it has gone on in the other half.
func Beyond(via []report.Via) (inner []report.Via, answers int) {
	inner = via
	for i := range via {
		if via[i].Wait == report.WaitPeer {
			inner, answers = via[i+1:], answers+1
		}
	}
	return inner, answers
}
