// Package capacity computes at which load each resource of a process saturates. Input: the requests of a recording, with what
// each of them waited for and who ended these waits, and the goroutines that serve them. Output: a report.Capacity.
//
// The operational laws need no distributions (Denning and Buzen 1978; Lazowska et al., Quantitative System Performance,
// chapters 3 and 5): if each request needs a resource with m servers for D ns, the resource is in use for the share X D/m of
// the time at X requests a second, and X stays below m/D. How a trace shows D depends on the resource:
//
//	sum.go          each request, and each goroutine that ends waits of requests
//	resources.go    which waits are for one resource; locks and pools from them
//	workerstages.go goroutines that work for requests, as resources
//	heldtime.go     for how long locks and slots are held
//	cpulimit.go     the CPU or its quota
//	capacity.go     all limits in order; resources that are not judged
//	simulate.go     latencies at other loads
//	growth.go       two recordings at two loads
//
// A lock or slot that is free leaves no event. So only those are judged for which requests waited; the report says so.
package capacity

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Sum records requests and the goroutines that serve them. It implements pass.Sum. Of a generation with very many requests it
// records those that end in the first part (a slice), so that all requests of that time are known.
type Sum struct {
	workers   []*worker
	from, to  int64 // of the slice of this generation
	isWhole   bool  // the slice of the generation before was all of it
	sliceNS   int64 // length of all slices
	slice     int32
	hasServer bool // some requests are of a server
	requests  []*servedRequest
	waits     []*wait
	servers   map[uint64]*server
}

// A servedRequest is a request of a slice, with the time that it needed and where it waited.
type servedRequest struct {
	start, end     int64
	g              uint64
	group          path.GroupID
	kind           request.Kind
	slice          int32
	worker         int32             // that numbered the group, until Merge
	runNS, readyNS int64             // on its own goroutines
	syscallNS      int64             // in short system calls
	leaves         []leaf            // waits that no goroutine ended, and system calls, in order of time
	isLoad         bool              // a client waits for it
	isServed       bool              // it answers a client
	answers        []critpath.Answer // requests of this process that answer its network calls
	outer          *servedRequest    // the request whose call this one answers; nil if none
}

// outermost returns the request whose client waits for r: r itself, unless r answers a call of another request.
func (r *servedRequest) outermost() *servedRequest {
	for r.outer != nil {
		r = r.outer
	}
	return r
}

// isAnswered reports whether a request of this process answers the call for which r waits in a leaf.
func (r *servedRequest) isAnswered(l leaf) bool {
	return slices.ContainsFunc(r.answers, func(a critpath.Answer) bool {
		return a.Start-threshold.LoopbackNS < l.end && a.End+threshold.LoopbackNS > l.start
	})
}

// A wait is a request's wait that another goroutine ended, on the request's goroutine or on one that it created.
type wait struct {
	request      *servedRequest
	kind         critpath.WaitKind
	stack        tracefmt.StackID
	releaseStack tracefmt.StackID // of the waker
	g            uint64
	waker        uint64
	wakerCreator uint64
	start, end   int64
	isRW         bool
	endsRead     bool // the waker held an RWMutex for reading
	isPool       bool // a library's pool
}

// A leaf is a wait or a system call of a request that no other goroutine ended.
type leaf struct {
	g          uint64
	stack      tracefmt.StackID
	isNetwork  bool
	start, end int64
}

// A server is a goroutine that ended waits of requests and serves no request itself.
type server struct {
	g uint64
	// length of the slices in which it was observed
	observedNS int64
	waits      []serverWait
}

// A serverWait is a wait of a server.
type serverWait struct {
	stack       tracefmt.StackID
	ns          int64 // in the slice
	end         int64
	waker       uint64
	isByRequest bool // the goroutine of a request ended it
}

// A worker records the requests and waits that one worker of the pass added, until EndGeneration.
type worker struct {
	sum      *Sum
	stage    *path.Stage
	number   int32
	requests []*servedRequest
	waits    []*wait
	spans    []timeline.Span
}

// New returns an empty Sum.
func New() *Sum { return &Sum{servers: make(map[uint64]*server)} }

// NewAdder implements pass.Sum: it returns an empty worker, whose requests stage walks.
func (s *Sum) NewAdder(stage *path.Stage) path.Adder {
	p := &worker{sum: s, stage: stage, number: int32(len(s.workers))}
	s.workers = append(s.workers, p)
	return p
}

// Bounds of the record, in requests of a generation and of all, and in servers.
const (
	maxSliceRequests = 4000
	maxRequests      = 40_000
	maxServers       = 256
)

// BeginGeneration sets the slice of a generation, in which all requests are recorded: about maxSliceRequests of them, and
// maxRequests in all. It implements pass.GenerationBeginner.
func (s *Sum) BeginGeneration(batch request.Batch) {
	since := int64(0)
	if s.isWhole {
		since = s.to
	}
	s.from, s.to, s.isWhole = batch.Slice(min(maxSliceRequests, max(0, maxRequests-len(s.requests))), since)
	s.sliceNS += max(0, s.to-s.from)
	s.slice++
}

// NeedsWalk implements pass.Chooser: all requests of the slice are walked.
func (s *Sum) NeedsWalk(r *request.Request) bool { return r.End <= s.to }

// Add records a complete request of the slice: its running and ready time, its leaves (waits that no goroutine ended, system
// calls), and its waits for other goroutines. It implements path.Adder.
func (p *worker) Add(w *path.WalkResult) {
	r := w.Req
	if w.Form != path.Whole || w.Observer || r.Open || r.End > p.sum.to || r.Kind == request.Run {
		return
	}
	record := &servedRequest{start: r.Start, end: r.End, g: r.G, group: w.Group, kind: r.Kind, slice: p.sum.slice, worker: p.number, isServed: r.IsServed(), answers: p.stage.AnswersTo(r)}
	for step := range entry.Each(w.Steps) {
		if !p.stage.IsOnBehalf(r, step.G, step.End) {
			continue
		}
		switch step.Kind {
		case critpath.CPU:
			record.runNS += step.End - step.Start
		case critpath.Runnable:
			record.readyNS += step.End - step.Start
		case critpath.Network, critpath.Sleep, critpath.Syscall:
			if step.Kind == critpath.Syscall && step.End-step.Start <= threshold.LoopbackNS {
				record.syscallNS += step.End - step.Start
			} else if !step.Inbound {
				record.leaves = append(record.leaves, leaf{step.G, step.Stack, step.Kind == critpath.Network, step.Start, step.End})
			}
		}
	}
	p.addWaits(w, record)
	p.requests = append(p.requests, record)
}

// addWaits records the waits of a request that another goroutine ended and that may be for a lock, a slot, or a goroutine that
// also serves others. A wait for a library's call to a peer is recorded as a leaf.
func (p *worker) addWaits(w *path.WalkResult, record *servedRequest) {
	for _, followed := range w.FollowedWaits() {
		switch followed.Kind {
		case critpath.WaitLock, critpath.WaitChan, critpath.WaitSend, critpath.WaitSelect, critpath.WaitCond:
		default:
			continue
		}
		if !p.stage.IsOnBehalf(w.Req, followed.G, followed.End) {
			continue
		}
		isConnection := p.stage.Sites.HasRole(followed.Stack, knowledge.ConnectionWait)
		if p.stage.Sites.HasRole(followed.Stack, knowledge.PeerCall) && !isConnection {
			record.leaves = append(record.leaves, leaf{followed.G, followed.Stack, true, followed.Start, followed.End})
			continue
		}
		birth, _ := p.stage.Win.BirthBefore(followed.Waker, followed.End)
		if birth.Creator == followed.G {
			continue // it works for this waiter alone
		}
		one := &wait{request: record, kind: followed.Kind, stack: followed.Stack, g: followed.G, waker: followed.Waker, wakerCreator: birth.Creator,
			start: followed.Start, end: followed.End, isRW: p.stage.Sites.HasRole(followed.Stack, knowledge.RWMutex),
			isPool: isConnection || p.stage.Sites.HasRole(followed.Stack, knowledge.PoolWait)}
		p.spans = p.stage.Win.SpansCoarse(followed.G, followed.End-1, followed.End, p.spans[:0])
		for i := range p.spans {
			if p.spans[i].State == timeline.Waiting {
				one.releaseStack = p.spans[i].WakerStack
			}
		}
		one.endsRead = p.stage.Sites.HasRole(one.releaseStack, knowledge.ReadUnlock)
		p.waits = append(p.waits, one)
	}
}

// EndGeneration implements pass.GenerationEnder. It collects the records of all workers, and observes the goroutines that ended
// waits of this generation's requests (servers).
func (s *Sum) EndGeneration() {
	requestCount, waitCount := len(s.requests), len(s.waits)
	for _, p := range s.workers {
		s.requests, s.waits = append(s.requests, p.requests...), append(s.waits, p.waits...)
		p.requests, p.waits = p.requests[:0], p.waits[:0]
	}
	isServing, wakers := map[uint64]bool{}, map[uint64]bool{}
	for _, r := range s.requests[requestCount:] {
		s.hasServer = s.hasServer || r.kind.IsServed()
		if r.kind.IsServed() || !s.hasServer && r.kind != request.Loop {
			isServing[r.g] = true
		}
	}
	for _, w := range s.waits[waitCount:] {
		if w.kind != critpath.WaitLock && !isServing[w.waker] {
			wakers[w.waker] = true
		}
	}
	for g := range wakers {
		if len(s.servers) < maxServers || s.servers[g] != nil {
			s.observeServer(entry.GetOrAdd(s.servers, g), g, isServing)
		}
	}
}

// observeServer adds the waits of goroutine g in this generation's slice to its server record. isServing has the goroutines
// that serve requests.
func (s *Sum) observeServer(out *server, g uint64, isServing map[uint64]bool) {
	p := s.workers[0]
	out.g, p.spans = g, p.stage.Win.SpansCoarse(g, s.from, s.to, p.spans[:0])
	for span := range entry.Each(p.spans) {
		ns := max(0, min(span.End, s.to)-max(span.Start, s.from))
		out.observedNS += ns
		if span.State == timeline.Waiting && ns > 0 {
			out.waits = append(out.waits, serverWait{span.Stack, ns, span.End, span.Waker, span.Waker != 0 && isServing[span.Waker]})
		}
	}
}

// Merge translates the group ids of all workers to those of the report, and sorts all records, so that the result does not
// depend on which worker recorded them.
func (s *Sum) Merge(ts []path.Translation) {
	for _, r := range s.requests {
		r.group = ts[r.worker].Groups[r.group]
		slices.SortFunc(r.leaves, func(x, y leaf) int { return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(x.end, y.end)) })
	}
	slices.SortFunc(s.requests, (*servedRequest).compare)
	slices.SortFunc(s.waits, func(x, y *wait) int {
		return cmp.Or(cmp.Compare(x.end, y.end), cmp.Compare(x.g, y.g), cmp.Compare(x.start, y.start), x.request.compare(y.request))
	})
}

// compare orders requests by slice and end, then by all that distinguishes two.
func (r *servedRequest) compare(o *servedRequest) int {
	return cmp.Or(cmp.Compare(r.slice, o.slice), cmp.Compare(r.end, o.end), cmp.Compare(r.start, o.start), cmp.Compare(r.g, o.g), cmp.Compare(r.kind, o.kind))
}
