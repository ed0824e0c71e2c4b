package request

import (
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A carrier holds what is known of a function of the standard library with which goroutines are started: whether it carries requests
// to the service's own code, as net/rpc's does. It does if a goroutine that reads from the network, or accepts connections, starts
// one after another, each for what it has read, and the service's own code runs in them. Where handlers of requests start such
// goroutines, these are part of the requests.
type carrier struct {
	carriesRequests bool
	starters        map[uint64]bool // who has started some in this generation, by goroutine
}

// addCarrier reports whether goroutines that a function of the standard library was started in are to be looked at.
func (j *jobFinder) addCarrier(f *Finder, start tracefmt.StackID) bool {
	frames := f.syms.Stack(start)
	fn := f.syms.Frame(frames[0]).Func
	known, ok := j.carriers[fn]
	if !ok {
		if f.namer.function(fn).hasAny(standardLibrary) { // gRPC's machinery carries what is found otherwise
			known = &carrier{starters: make(map[uint64]bool)}
		}
		j.carriers[fn] = known
	}
	return known != nil
}

// addCarriedJob takes note of a goroutine that was started with a function of the standard library, by none that serves what a protocol shows, if
// it may be a request's.
func (j *jobFinder) addCarriedJob(f *Finder, g *timeline.Gen, birth *timeline.Birth) {
	carrier := j.carriers[f.syms.Frame(f.syms.Stack(birth.Start)[0]).Func]
	hasStartedBefore := carrier.starters[birth.By]
	carrier.starters[birth.By] = true
	if f.isAnnotatedAt(birth.By, birth.Time) || !carrier.carriesRequests && !(hasStartedBefore && f.isLastWaitForNetwork(g, birth.By, birth.Time)) {
		return
	}
	delete(j.jobs, birth.By) // who reads requests is none
	j.jobs[birth.G] = &job{openRequest: openRequest{start: birth.Time, pieceStart: birth.Time}, startStack: birth.Start, creatorID: birth.By, creatorStack: birth.Stack, carrier: carrier}
}

// isServing reports whether a goroutine with this stack handles a request that a protocol shows.
func (f *Finder) isServing(id uint64, stack tracefmt.StackID) bool {
	return f.stackInfo(stack).role == roleServer || f.connections[id] != nil || f.streams[id] != nil || f.grpcWorkers[id] != nil || f.messages.readers[id] != nil
}

// isLastWaitForNetwork reports whether the last wait of a goroutine before an instant was for the network.
func (f *Finder) isLastWaitForNetwork(g *timeline.Gen, id uint64, before int64) bool {
	isNetwork := false
	f.spanBuffer = f.window.Spans(id, g.Base, before, f.spanBuffer[:0])
	for i := range f.spanBuffer {
		if s := &f.spanBuffer[i]; s.State == timeline.Waiting && s.End <= before {
			isNetwork = f.reasonOf(s.Reason) == reasonNetwork
		}
	}
	return isNetwork
}

// resolveCarriedJob gives a life that is carried its kind, when it has ended or is asked about: each is called by what of the service's own code ran in
// it, which depends on what was read, and where nothing shows that, by the library's function. It returns 0 for that, and false if
// the function carries nothing, as far as is known.
func (j *jobFinder) resolveCarriedJob(f *Finder, job *job, id uint64, end int64) (ownedFrame tracefmt.FrameID, ok bool) {
	f.spanBuffer = f.window.Spans(id, job.start, end, f.spanBuffer[:0])
	for i := range f.spanBuffer {
		if s := &f.spanBuffer[i]; s.Stack != 0 && s.How != timeline.HowCreated {
			if ownedFrame = f.stackInfo(s.Stack).outerOwned; ownedFrame != 0 {
				job.carrier.carriesRequests = true
				break
			}
		}
	}
	if !job.carrier.carriesRequests {
		return 0, false
	}
	fn := f.syms.Frame(f.syms.Stack(job.startStack)[0]).Func
	key := jobKey{startFunc: fn}
	if j.kinds[key] == nil {
		j.kinds[key] = &jobKind{originStats: f.originFor(Goroutine, fn, fn)}
	}
	job.kind = j.kinds[key]
	name := fn
	if ownedFrame != 0 {
		name = f.syms.Frame(ownedFrame).Func
	}
	origin := f.originFor(Goroutine, name, fn)
	origin.isOwned = true
	origin.inspected++
	origin.total++
	origin.emittedNS += end - job.start
	origin.addStarter(f, job.creatorID, job.creatorStack)
	return ownedFrame, true
}
