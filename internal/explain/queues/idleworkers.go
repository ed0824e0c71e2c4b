package queues

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Workers that take from one channel are all at work while requests queue: an idle one would take the next message. If some are idle
// nevertheless, each has its own channel, and the work is divided unevenly, unless each gets every message.

// An idleSample is an instant at which a request waits for a worker, with the worker's siblings: goroutines in the same function.
type idleSample struct {
	key     serviceKey
	worker  uint64
	time    int64
	idle    int  // siblings that wait for a message in that function, at another line than the worker's
	workers int  // the worker and all siblings, in that function if some are idle
	toAll   bool // the request hands over to several of them: each gets every message
}

// A goroutineState is what a goroutine does at a sampled instant.
type goroutineState struct {
	g      uint64
	state  timeline.State
	frames []tracefmt.FrameID // innermost first
}

// A goroutineSample is what the goroutines do at a sampled instant, by the function that each one started in, or that was given to a starter
// of any function.
type goroutineSample struct {
	startOf map[uint64]tracefmt.StringID
	byStart map[tracefmt.StringID][]goroutineState
}

// maxWorkers bounds the goroutines of one start function that are compared.
const maxWorkers = 1024

// sampleIdleWorkers records the siblings of a service's server, if a sampled instant is within the service. w is the request's path.
func (p *workerSum) sampleIdleWorkers(w *path.WalkResult, svc *service) {
	sample := idleSample{key: svc.key, worker: svc.server, time: (svc.end - 1) / sampleEveryNS * sampleEveryNS}
	if sample.time <= svc.start {
		return
	}
	goroutines := p.goroutinesAt(sample.time)
	start, ok := goroutines.startOf[svc.server]
	siblings := goroutines.byStart[start]
	if !ok || len(siblings) > maxWorkers {
		return
	}
	i := slices.IndexFunc(siblings, func(s goroutineState) bool { return s.g == svc.server })
	atWork, depth := siblings[i].frames, 0 // depth is that of the function that idle siblings wait in
	for k := range siblings {
		frames, isReceive := siblings[k].frames, false
		for len(frames) > 0 && p.stage.Sites.RolesOf(frames[0]).Has(knowledge.Runtime) {
			roles := p.stage.Sites.RolesOf(frames[0])
			frames, isReceive = frames[1:], isReceive || roles.Has(knowledge.ReceiveWait) || roles.Has(knowledge.SelectWait)
		}
		n := len(frames)
		if siblings[k].state == timeline.Waiting && isReceive && n > 0 && p.isInFunctionOf(atWork, frames, n) && p.stage.Syms.Line(frames[0]) != p.stage.Syms.Line(atWork[len(atWork)-n]) {
			sample.idle, depth = sample.idle+1, n
		}
	}
	if sample.workers = len(siblings); sample.idle == 0 {
		p.idleSamples = append(p.idleSamples, sample)
		return
	}
	sample.workers = 0
	for k := range siblings {
		if p.isInFunctionOf(atWork, siblings[k].frames, depth) {
			sample.workers++
		}
	}
	isOther := func(g uint64, _ tracefmt.StackID) bool { return g != svc.server && goroutines.startOf[g] == start }
	sample.toAll, _ = p.stage.Win.HasWoken(w.Req.G, w.Req.Start, w.Req.End, isOther)
	p.idleSamples = append(p.idleSamples, sample)
}

// goroutinesAt returns what the goroutines do at a sampled instant; nothing if there are more than maxSampled.
func (p *workerSum) goroutinesAt(time int64) goroutineSample {
	sample, ok := p.goroutineSamples[time]
	if ok {
		return sample
	}
	sample = goroutineSample{make(map[uint64]tracefmt.StringID), make(map[tracefmt.StringID][]goroutineState)}
	if gen := p.stage.Win.Gens[p.stage.Win.GenIndex(time)]; gen.GoroutineCount() <= maxSampled {
		gen.Goroutines(func(g uint64) {
			p.spans = p.stage.Win.SpansCoarse(g, time, time+1, p.spans[:0])
			if len(p.spans) == 0 || p.spans[0].State == timeline.NotAlive {
				return
			}
			if frames := p.stage.Syms.Stack(p.spans[0].Stack); len(frames) > 0 {
				outermost := len(frames) - 1
				if roles := p.stage.Sites.RolesOf(frames[outermost]); outermost > 0 && (roles.Has(knowledge.GenericStarter) || roles.Has(knowledge.Errgroup)) {
					outermost--
				}
				start := p.stage.Syms.Frame(frames[outermost]).Func
				sample.startOf[g], sample.byStart[start] = start, append(sample.byStart[start], goroutineState{g, p.spans[0].State, frames})
			}
		})
	}
	p.goroutineSamples[time] = sample
	return sample
}

// isInFunctionOf reports whether two stacks have the same functions in their outermost n frames.
func (p *workerSum) isInFunctionOf(first, second []tracefmt.FrameID, n int) bool {
	return len(first) >= n && len(second) >= n && slices.EqualFunc(first[len(first)-n:], second[len(second)-n:], func(a, b tracefmt.FrameID) bool {
		return p.stage.Syms.Frame(a).Func == p.stage.Syms.Frame(b).Func
	})
}

// addIdleSamples adds the samples of a generation in which several requests wait for one worker. While none is idle, all
// count as servers, also those that serve no request: they work on other tasks of the same queue.
func (s *Sum) addIdleSamples() {
	var list []idleSample
	for _, p := range s.workers {
		list = append(list, p.idleSamples...)
	}
	slices.SortFunc(list, func(a, b idleSample) int {
		return cmp.Or(cmp.Compare(a.worker, b.worker), cmp.Compare(a.time, b.time), cmp.Compare(a.key.kind, b.key.kind),
			cmp.Compare(a.key.cause, b.key.cause), cmp.Compare(a.key.site, b.key.site), cmp.Compare(a.idle, b.idle))
	})
	for atOnce := range entry.EqualRuns(list, func(a, b idleSample) bool { return a.worker == b.worker && a.time == b.time && a.key == b.key }) {
		sum := s.services[atOnce[0].key]
		if sum == nil {
			continue
		}
		if sum.maxServers > 1 && atOnce[0].idle == 0 {
			sum.maxServers = max(sum.maxServers, atOnce[0].workers)
		}
		if len(atOnce) > 1 && atOnce[0].idle > 0 && !slices.ContainsFunc(atOnce, func(a idleSample) bool { return a.toAll }) {
			sum.idleSamples, sum.idleWorkers, sum.workers = sum.idleSamples+1, sum.idleWorkers+atOnce[0].idle, sum.workers+atOnce[0].workers
		}
	}
}
