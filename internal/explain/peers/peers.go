// Package peers decides whether requests wait over the network for the process itself: a gateway that calls its own
// gRPC server over loopback, or a handler that calls its own service. No event of a trace names the socket that a
// goroutine waits for.
//
// A Sum collects the waits and the requests of all workers with their times. For each group that waits it looks for a
// group whose requests are inside nearly all of its waits, and inside few of them if the waits are shifted in time.
// This alone is a hint (Peer.Proven is false): a client that loads a page sends two requests at once. It becomes a
// proof if the events of each exchange have the right order (proof.go). If host samples show all sockets of the
// process and none is connected to the process itself, no peer is in the process (Sum.RefuteBySockets).
//
// Sum.PeerIn does the same by time alone with the requests of another process's recording.
package peers

import (
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/explain/answers"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

const (
	// maxSpans bounds the number of waits, and of requests. If there are more than twice as many, the earliest
	// maxSpans remain.
	maxSpans = 1 << 12
	// hintConfidence is the maximum confidence in a peer whose times fit but whose order of events proves nothing.
	hintConfidence = 0.6
)

// A Sum collects waits and requests with their times. It implements pass.Sum.
type Sum struct {
	collectors []*collector
	waits      map[path.GroupID][]answers.Span
	requests   map[path.GroupID][]answers.Span
	keptUntil  int64 // spans that begin later were dropped

	isRefuted    bool
	participants map[uint64]bool       // see isParticipant
	peerByGroup  map[path.GroupID]Peer // see PeerOf
}

// A groupSpan is a wait or request with its worker's number of its group.
type groupSpan struct {
	answers.Span
	groupID path.GroupID
}

// New returns an empty Sum.
func New() *Sum { return new(Sum) }

// NewAdder implements pass.Sum.
func (s *Sum) NewAdder(stage *path.Stage) path.Adder {
	p := &collector{stage: stage, keptUntil: math.MaxInt64, isSendStack: make(map[tracefmt.StackID]bool)}
	s.collectors = append(s.collectors, p)
	return p
}

// EndGeneration implements pass.GenerationEnder. If there are more than twice maxSpans waits or requests, it drops those that
// begin late. The limit is a time that is common to all workers, so the result does not depend on which worker has which spans.
// Then it collects the evidence for provenShare.
func (s *Sum) EndGeneration() {
	keptUntil := s.keptByAll()
	for _, list := range []func(*collector) []groupSpan{waitsOf, requestsOf} {
		var starts []int64
		for _, p := range s.collectors {
			for _, g := range list(p) {
				if g.Start < keptUntil {
					starts = append(starts, g.Start)
				}
			}
		}
		if len(starts) > 2*maxSpans {
			slices.Sort(starts)
			keptUntil = starts[maxSpans]
		}
	}
	isLate := func(g groupSpan) bool { return g.Start >= keptUntil }
	for _, p := range s.collectors {
		p.keptUntil, p.waits, p.requests = keptUntil, slices.DeleteFunc(p.waits, isLate), slices.DeleteFunc(p.requests, isLate)
	}
	s.collectEvidence()
}

// keptByAll returns the time from which on some worker dropped spans (MaxInt64 if none did): only spans that begin before it are
// complete.
func (s *Sum) keptByAll() int64 {
	keptUntil := int64(math.MaxInt64)
	for _, p := range s.collectors {
		keptUntil = min(keptUntil, p.keptUntil)
	}
	return keptUntil
}

// A collector collects the spans of one worker. It implements path.Adder.
type collector struct {
	stage           *path.Stage
	waits, requests []groupSpan
	keptUntil       int64 // spans that begin later are dropped
	partsBuffer     []answers.WaitPart
	isSendStack     map[tracefmt.StackID]bool
}

// waitsOf and requestsOf select a list of a collector, for functions that treat both in the same way.
func waitsOf(p *collector) []groupSpan    { return p.waits }
func requestsOf(p *collector) []groupSpan { return p.requests }

// Add implements path.Adder: it collects the waits of a walked request, and the request itself as a possible answer.
func (p *collector) Add(w *path.WalkResult) {
	if w.Form == path.NotWalked || w.Weight != 1 && w.Form != path.Piece {
		p.keptUntil = min(p.keptUntil, w.Start) // from here on only some requests are walked
		for i := range w.Units {
			p.keptUntil = min(p.keptUntil, w.Units[i].Start)
		}
		return
	}
	if !answers.IsWhole(w) {
		return
	}
	if r, ok := answers.AnswerSpan(w); ok {
		p.requests = p.appendSpan(p.requests, groupSpan{r, w.Group})
	}
	answers.EachWait(w, p.partsBuffer, func(x answers.Span) {
		p.partsBuffer = x.Parts
		p.waits = p.appendSpan(p.waits, groupSpan{x, w.Group})
	})
}

// appendSpan appends a copy of a span to a list, unless it begins at or after keptUntil.
func (p *collector) appendSpan(list []groupSpan, span groupSpan) []groupSpan {
	if span.Start >= p.keptUntil {
		return list
	}
	span.Parts = slices.Clone(span.Parts)
	return append(list, span)
}

// HasProvenPeer reports whether the spans so far prove that requests wait for other requests of the process. Later spans may
// disprove it. No worker may be adding spans during the call.
func (s *Sum) HasProvenPeer() bool {
	ids := make(map[path.GroupKey]path.GroupID) // each worker has its own group numbers
	groupNumber := func(worker int, group path.GroupID) path.GroupID {
		return entry.GetOrMake(ids, s.collectors[worker].stage.IDs.Group(group), func() path.GroupID { return path.GroupID(len(ids)) })
	}
	snapshot := Sum{isRefuted: s.isRefuted, waits: s.spansByGroup(waitsOf, groupNumber)}
	if len(snapshot.waits) == 0 {
		return false
	}
	snapshot.requests = s.spansByGroup(requestsOf, groupNumber)
	return slices.ContainsFunc(snapshot.WaitingGroups(), func(id path.GroupID) bool {
		p, ok := snapshot.PeerOf(id)
		return ok && p.Proven
	})
}

// Merge combines the spans of all workers under the group numbers of the report.
func (s *Sum) Merge(ts []path.Translation) {
	groupNumber := func(worker int, group path.GroupID) path.GroupID { return ts[worker].Groups[group] }
	var requests sync.WaitGroup
	requests.Go(func() { s.requests = s.spansByGroup(requestsOf, groupNumber) })
	s.waits, s.keptUntil = s.spansByGroup(waitsOf, groupNumber), s.keptByAll()
	requests.Wait()
	s.collectors = nil
}

// spansByGroup returns the spans of all workers, sorted by time, by the group number that groupNumber returns for a worker's
// group. list selects waits or requests.
func (s *Sum) spansByGroup(list func(*collector) []groupSpan, groupNumber func(worker int, group path.GroupID) path.GroupID) map[path.GroupID][]answers.Span {
	all, keptUntil := make(map[path.GroupID][]answers.Span), s.keptByAll()
	for i, p := range s.collectors {
		for _, g := range list(p) {
			if g.Start < keptUntil {
				id := groupNumber(i, g.groupID)
				all[id] = append(all[id], g.Span)
			}
		}
	}
	for _, spans := range all {
		answers.Sort(spans)
	}
	return all
}

// WaitingGroups returns the groups with waits, in ascending order.
func (s *Sum) WaitingGroups() []path.GroupID { return slices.Sorted(maps.Keys(s.waits)) }

// maxFurtherGroups bounds the groups that serve one group's waits in addition to the first.
const maxFurtherGroups = 4
