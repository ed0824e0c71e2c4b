package request

import (
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A carrier is a function of the standard library that starts goroutines, as net/rpc's server does. It carries requests
// if two conditions hold: a goroutine that reads from the network starts one such goroutine after another, and service
// code runs in them. If handlers of requests start such goroutines, they are parts of those requests.
type carrier struct {
	carriesRequests bool
	starters        map[uint64]bool // goroutines that started one in this generation
}

// carrierOf returns the carrier for goroutines with this start function of the standard library, created on first use; nil if they
// cannot run handlers of requests, as those of net/rpc's server do.
func (j *jobSource) carrierOf(c *collector, start tracefmt.StackID) *carrier {
	frames := c.syms.Stack(start)
	fn := c.syms.Frame(frames[0]).Func
	found, ok := j.carriers[fn]
	if !ok {
		if c.namer.function(fn).Has(knowledge.Stdlib) { // other sources find gRPC's requests
			found = &carrier{starters: make(map[uint64]bool)}
		}
		j.carriers[fn] = found
	}
	return found
}

// addCarriedJob records a goroutine with a carrier's start function (see carrierOf) as a job if it may be a request: the
// creator reads from the network and started such a goroutine before, and is in no task, region or mark.
func (j *jobSource) addCarriedJob(c *collector, g *timeline.Gen, number uint32, birth *timeline.Birth) {
	carrier := j.carriers[c.syms.Frame(c.syms.Stack(birth.Start)[0]).Func]
	hasStartedBefore := carrier.starters[birth.Creator]
	carrier.starters[birth.Creator] = true
	if c.isAnnotatedAt(birth.Creator, birth.Time) || !carrier.carriesRequests &&
		!(hasStartedBefore && isLastWaitForNetwork(c, g, birth.Creator, birth.Time)) {
		return
	}
	delete(j.jobs, birth.Creator) // a reader of requests is no job
	j.states[g.Number(birth.Creator)] = 0
	job := newJob(c, birth)
	job.carrier = carrier
	j.storeJob(number, birth.G, job)
}

// isLastWaitForNetwork reports whether the last wait of goroutine id that ended in generation g, at until or before, was for the
// network; false if none ended there.
func isLastWaitForNetwork(c *collector, g *timeline.Gen, id uint64, until int64) (isNetwork bool) {
	for _, s := range c.spans(id, g.Base, until) {
		if s.State == timeline.Waiting && s.End <= until {
			isNetwork = c.reasonOf(s.Reason) == reasonNetwork
		}
	}
	return isNetwork
}

// resolveCarriedJob decides, when a carried job (goroutine id) has ended at end, whether its carrier carries requests (service
// code ran in one of its goroutines), and sets the job's kind. serviceFrame is the frame of the service function that ran in it
// and names it; it is 0 if none was seen, and the library's function names the job. ok is false if the carrier is not known to
// carry requests.
func (j *jobSource) resolveCarriedJob(c *collector, job *job, id uint64, end int64) (serviceFrame tracefmt.FrameID, ok bool) {
	for _, s := range c.spans(id, job.start, end) {
		if s.Stack != 0 && s.Origin != timeline.OriginCreated {
			if serviceFrame = c.stackInfo(s.Stack).outerServiceFrame; serviceFrame != 0 {
				job.carrier.carriesRequests = true
				break
			}
		}
	}
	if !job.carrier.carriesRequests {
		return 0, false
	}
	fn := c.syms.Frame(c.syms.Stack(job.startStack)[0]).Func
	key := jobKey{startFunc: fn}
	job.kind = entry.GetOrMake(j.kinds, key, func() *jobKind { return &jobKind{originStats: j.work.originFor(Goroutine, fn, fn)} })
	name := fn
	if serviceFrame != 0 {
		name = c.syms.Frame(serviceFrame).Func
	}
	origin := j.work.originFor(Goroutine, name, fn)
	origin.hasServiceCode = true
	origin.inspected++
	origin.total++
	origin.emittedNS += end - job.start
	origin.addStarter(c, job.creatorID, job.creatorStack)
	return serviceFrame, true
}
