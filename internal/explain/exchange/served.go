package exchange

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/report"
)

// A Request is a request that a process served. Parts are empty if it was not walked, and nothing represents it.
type Request struct {
	G          uint64
	Start, End int64
	// Conn identifies the connection: by the goroutine that serves it, or of HTTP/2 by the one that reads it and creates G.
	Conn uint64
	// Birth is when G was created for the request. A connection of HTTP/2 creates goroutines in the order of its requests.
	Birth int64
	// IsStream says that requests of the connection may overlap: it is one of HTTP/2.
	IsStream bool
	// IsWoken says that the network woke G at Start. Otherwise Start is only the end of the request before: the message may have come
	// at any time after it.
	IsWoken bool
	// AnswerTime is not later than the answer's first bytes. It is Start if it is not known.
	AnswerTime int64
	life       lifetime // of the connection, as far as it is known with the request
	Group      string   // the report's id
	Parts      []critpath.RemotePart
}

// orderTime returns the time by which the requests of a connection are ordered: with HTTP/2 the creation of the goroutine, else
// the start.
func (r *Request) orderTime() int64 {
	if r.IsStream {
		return r.Birth
	}
	return r.Start
}

// A Server is the requests that a process served, by connection, in order of time.
type Server struct {
	Name        string
	From, To    int64
	Connections map[uint64][]Request
	lifetimes   map[uint64]lifetime // of connections
	// WayCause is the cause of the time on the way to this server and back.
	WayCause int32
	// woken and unwoken have all requests in order of their starts: those that begin when their message came, and those that begin at some
	// time before it. latestEnds has the latest end of each unwoken request and those before it.
	woken, unwoken []*Request
	latestEnds     []int64
}

// NewServer returns a Server without requests.
func NewServer(name string) *Server {
	return &Server{Name: name, Connections: make(map[uint64][]Request)}
}

// Add adds a request.
func (s *Server) Add(r Request) { s.Connections[r.Conn] = append(s.Connections[r.Conn], r) }

// Sort sorts the requests of each connection, and all requests by start. It must be called after the last Add and before a Joiner
// uses the server.
func (s *Server) Sort() {
	s.woken, s.unwoken, s.latestEnds, s.lifetimes = nil, nil, nil, make(map[uint64]lifetime)
	for conn, list := range s.Connections {
		slices.SortFunc(list, func(a, b Request) int {
			return cmp.Or(cmp.Compare(a.orderTime(), b.orderTime()), cmp.Compare(a.Start, b.Start))
		})
		var life lifetime
		for i := range list {
			if list[i].IsWoken || list[i].IsStream {
				s.woken = append(s.woken, &list[i])
			} else {
				s.unwoken = append(s.unwoken, &list[i])
			}
			life.merge(list[i].life)
		}
		s.lifetimes[conn] = life
	}
	for _, list := range [][]*Request{s.woken, s.unwoken} {
		slices.SortFunc(list, func(a, b *Request) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.G, b.G)) })
	}
	latest := int64(math.MinInt64)
	for _, r := range s.unwoken {
		latest = max(latest, r.End)
		s.latestEnds = append(s.latestEnds, latest)
	}
}

// eachBetween calls f with each request whose message may have come in [from, to].
func (s *Server) eachBetween(from, to int64, f func(*Request)) {
	begunBy := func(list []*Request, t int64) int {
		return sort.Search(len(list), func(i int) bool { return list[i].Start > t })
	}
	for _, r := range s.woken[begunBy(s.woken, from-1):begunBy(s.woken, to)] {
		f(r)
	}
	for i := begunBy(s.unwoken, to) - 1; i >= 0 && s.latestEnds[i] >= from; i-- {
		if r := s.unwoken[i]; r.End >= from {
			f(r)
		}
	}
}

// HasClient reports whether a client waits for a request. Middle pieces of long requests do not count.
func HasClient(r *request.Request) bool { return r.Kind.IsServed() && r.Piece != request.MiddlePiece }

// NewRequest returns a request with the identity of its connection, without its causes. answers finds when it was answered.
func NewRequest(r *request.Request, window *timeline.Window, answers *AnswerFinder) Request {
	out := Request{G: r.G, Conn: r.G, Birth: r.Start, Start: r.Start, End: r.End, IsWoken: r.WokenAt != 0 || r.ArrivedAt != 0}
	if r.Kind == request.HTTP2 || r.Kind == request.GRPC {
		if b, ok := window.BirthBefore(r.G, r.End); ok && b.Creator != 0 {
			out.Conn, out.Birth, out.IsStream = b.Creator, b.Time, true
		}
	}
	if r.Kind == request.HTTP1 {
		out.life = answers.lifetimeOf(r)
	}
	out.AnswerTime = answers.answerTime(r, out.IsStream)
	return out
}

// A ServedRequests collects the requests that a process serves, with their paths. It implements pass.Sum.
type ServedRequests struct{ collectors []*collector }

// NewAdder implements pass.Sum: it returns the collector of one worker, whose requests stage walks.
func (s *ServedRequests) NewAdder(stage *path.Stage) path.Adder {
	c := &collector{stage: stage, answers: NewAnswerFinder(stage.Win, stage.Syms)}
	s.collectors = append(s.collectors, c)
	return c
}

// A collector is one worker's part of ServedRequests.
type collector struct {
	stage    *path.Stage
	answers  *AnswerFinder
	requests []walkedRequest
	parts    []critpath.RemotePart // of the current request
}

// A walkedRequest has no Group yet, and the causes of its Parts are the worker's. It has none if it was not walked.
type walkedRequest struct {
	Request
	group  path.GroupID
	isOpen bool // at the end of the trace; its answer may have begun
}

// Add implements path.Adder: it stores a request that a client waits for, with the causes of its segments if it was walked.
func (c *collector) Add(w *path.WalkResult) {
	if w.Form == path.Piece || w.Form == path.CutAtStart || w.Observer || !HasClient(w.Req) {
		return
	}
	r := walkedRequest{Request: NewRequest(w.Req, c.stage.Win, c.answers), group: w.Group, isOpen: w.Req.Open}
	if r.isOpen && !r.IsStream {
		return
	}
	r.Start = w.Start
	if w.Form == path.Whole && !r.isOpen {
		c.parts = c.parts[:0]
		for i := range w.Segments {
			segment := &w.Segments[i]
			p := critpath.RemotePart{End: segment.End, G: segment.G, Cause: int32(w.CauseIDs[i])}
			if segment.Remote != 0 {
				p.G = segment.RemoteG // of a service behind this one
			}
			if n := len(c.parts); n > 0 && c.parts[n-1].Cause == p.Cause && c.parts[n-1].G == p.G {
				c.parts[n-1].End = p.End
				continue
			}
			c.parts = append(c.parts, p)
		}
		r.Parts = slices.Clone(c.parts)
	}
	c.requests = append(c.requests, r)
}

// Server returns all collected requests of the service name, whose recording is from from to to, with their causes numbered in
// causes as a report words them. A request that was not walked gets the causes of a similar one. translations are those of the
// collectors' group and cause ids, in the same order. ids are the report's ids of the groups; groups that the report does not
// show have none. It may be called once.
func (s *ServedRequests) Server(name string, causes *Causes, from, to int64, translations []path.Translation, ids map[path.GroupID]string, sp *spell.Speller) *Server {
	out := &Server{Name: name, From: from, To: to, Connections: make(map[uint64][]Request), WayCause: causes.addWay(name)}
	table := causeTable{service: name, causes: causes, keys: make(map[causeTableKey]int32), sp: sp}
	similar := make(map[path.GroupID][]Request) // walked requests by group, ordered by latency
	var unwalked []walkedRequest
	for i, c := range s.collectors {
		indices := make(map[path.GroupID][]int32) // of the worker's causes; 0 if it is not known yet
		for _, r := range c.requests {
			r.group = translations[i].Groups[r.group]
			if len(r.Parts) == 0 {
				unwalked = append(unwalked, r)
				continue
			}
			r.Group = ids[r.group]
			list := entry.GetOrMake(indices, r.group, func() []int32 { return make([]int32, len(translations[i].Causes)) })
			for k := range r.Parts {
				cause := r.Parts[k].Cause
				if list[cause] == 0 {
					list[cause] = table.numberOf(r.Group, c.stage.IDs, path.CauseID(cause), translations[i].Causes[cause])
				}
				r.Parts[k].Cause = list[cause]
			}
			out.Add(r.Request)
			similar[r.group] = append(similar[r.group], r.Request)
		}
	}
	for _, list := range similar {
		slices.SortFunc(list, func(a, b Request) int {
			return cmp.Or(cmp.Compare(a.End-a.Start, b.End-b.Start), cmp.Compare(a.Start, b.Start))
		})
	}
	for _, r := range unwalked {
		if r.isOpen {
			out.Add(r.Request)
			continue
		}
		out.Add(r.withCausesOfSimilar(similar[r.group], ids[r.group]))
	}
	out.Sort()
	s.collectors = nil
	return out
}

// withCausesOfSimilar returns a request that was not walked, with the causes of the walked request of its group whose latency is
// nearest, scaled to its own latency. If the nearest differs by more than half of the latency, it returns the request without
// causes. walked is sorted by latency.
func (r *walkedRequest) withCausesOfSimilar(walked []Request, group string) Request {
	out := r.Request
	out.Group = group
	latency := r.End - r.Start
	i, _ := slices.BinarySearchFunc(walked, latency, func(w Request, ns int64) int { return cmp.Compare(w.End-w.Start, ns) })
	best, distance := -1, int64(math.MaxInt64)
	for k := max(i-1, 0); k < min(i+1, len(walked)); k++ {
		if d := walked[k].End - walked[k].Start - latency; max(d, -d) < distance {
			best, distance = k, max(d, -d)
		}
	}
	if best < 0 || float64(distance) > threshold.HalfShare*float64(latency) {
		return out
	}
	model := &walked[best]
	scale := float64(latency) / float64(max(model.End-model.Start, 1))
	for _, p := range model.Parts {
		part := critpath.RemotePart{End: r.Start + int64(float64(p.End-model.Start)*scale), Cause: p.Cause}
		if p.G == model.G {
			part.G = r.G
		}
		out.Parts = append(out.Parts, part)
	}
	return out
}

// Causes are the causes of all services, as their reports spell them.
type Causes struct {
	list []spell.RemoteCause
	rows map[rowKey]int32
}

// NewCauses returns empty Causes. Their numbers begin with 1.
func NewCauses() *Causes {
	return &Causes{list: make([]spell.RemoteCause, 1), rows: make(map[rowKey]int32)}
}

// List returns the causes by number.
func (c *Causes) List() []spell.RemoteCause { return c.list }

// addWay adds the cause of time on the way to a service and back, and returns its number.
func (c *Causes) addWay(service string) int32 {
	n := int32(len(c.list))
	c.list = append(c.list, spell.RemoteCause{Service: service, Code: cause.Network, IsWay: true, Row: n})
	return n
}

// add stores a cause and returns its number. It sets Row of the cause to the number of the first one that a report shows in the
// same row.
func (c *Causes) add(r *spell.RemoteCause) int32 {
	n := int32(len(c.list))
	key := rowKey{r.Service, r.Segment.Cause, r.Kind, r.Call, r.Site.Key()}
	if r.Code == cause.CPU {
		key.site.Line, key.call = 0, "" // running time belongs to the function
	}
	if _, ok := c.rows[key]; !ok {
		c.rows[key] = n
	}
	r.Row = c.rows[key]
	c.list = append(c.list, *r)
	return n
}

// A causeTable numbers the causes of one service.
type causeTable struct {
	service string
	causes  *Causes
	sp      *spell.Speller
	keys    map[causeTableKey]int32
}

// A causeTableKey identifies a cause of a group: queues are queues of groups.
type causeTableKey struct {
	group string
	cause path.CauseID
}

// A rowKey identifies a row of a report's table of causes.
type rowKey struct {
	service    string
	cause      report.CauseName
	kind, call string
	site       report.SiteKey
}

// numberOf returns the number of a cause of a group, which it adds on first use. id is the cause's number of one worker, in ids;
// mergedID is its number for all workers.
func (t *causeTable) numberOf(group string, ids *path.IDs, id, mergedID path.CauseID) int32 {
	k := causeTableKey{group, mergedID}
	if n, ok := t.keys[k]; ok {
		return n
	}
	key := ids.Cause(id).WithSettledCause(t.sp.Settlement)
	chain := t.sp.WithTimedWait(group, ids.Chain(key.Chain), key.Code, key.Site, key.Call)
	out := spell.RemoteCause{Service: t.service, Callee: t.service, Code: key.Code.Cause(), SiteFrom: key.SiteSource.String(), Call: t.sp.Syms.String(key.Call)}
	out.Segment = t.sp.Segment(&cause.Segment{Code: key.Code, Site: key.Site, Kind: key.Kind, Inbound: key.Inbound, Call: key.Call, Remote: key.Remote}, chain, 0)
	if inner := t.sp.Remote(key.Remote); inner != nil && !inner.IsWay { // a service behind this one
		out.Service, out.Code, out.SiteFrom, out.Call = inner.Service, inner.Code, inner.SiteFrom, inner.Call
	} else if q, wait := t.sp.QueueWait(group, chain); q != nil {
		spell.Requeue(&out.Segment, q, wait, out.Call)
		out.Code, out.SiteFrom, out.Call = cause.Queue, "", t.sp.Syms.String(chain[wait].Call)
	}
	out.Site = withService(out.Site, out.Service)
	if out.AheadWork != nil {
		out.AheadWork.Site = withService(out.AheadWork.Site, out.Service)
	}
	t.keys[k] = t.causes.add(&out)
	return t.keys[k]
}

// withService returns a copy of a site with the name of the service that it is in, nil for nil.
func withService(s *report.Site, service string) *report.Site {
	if s == nil {
		return nil
	}
	out := *s
	out.Service = service
	return &out
}
