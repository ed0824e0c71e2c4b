package capacity

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/report"
)

// The latencies at another load come from a simulation of the recorded requests: each one is drawn from those of the recording,
// arrives at random, waits for the CPU and for each resource in a queue, and needs it for as long as recorded. All of its other
// time is a delay that load does not change.

// A plan is what one recorded request needs in the simulation: CPU time, services of resources in order, and a delay (ns).
type plan struct {
	cpu, delay float64
	services   []service
}

// A service is one use of a resource by a plan.
type service struct {
	resource *resource
	ns       float64
	isRead   bool // shared with other reads
}

// A simulation predicts latencies at other loads from the plans of recorded requests.
type simulation struct {
	plans    []plan
	cpu      *resource // nil if unknown
	procs    int
	otherCPU float64   // CPU time per request on goroutines that are not the request's
	load     float64   // of the recording, per ns
	measured []float64 // latencies, sorted

	// For points of the curve:
	perSecond         float64 // load of the recording
	error             float64 // of the first limit
	excess50, least99 float64 // measured less simulated p50 at today's load; least99 is today's measured p99
}

// newSimulation returns a simulation with a plan for each recorded request that counts as load. Time that no resource explains
// is the plan's delay.
func (a *analysis) newSimulation() *simulation {
	s := &simulation{procs: max(1, a.in.Stats.Procs), load: a.load}
	queued, uses := map[*servedRequest]float64{}, map[*servedRequest][]service{}
	for _, r := range a.resources {
		if r.isCPU() {
			s.cpu = r
			continue
		}
		for _, w := range r.waits {
			queued[w.request] += float64(w.end - w.start)
		}
		for _, span := range a.leafSpans(r.lines, r.gapNS) {
			uses[span.request] = append(uses[span.request], service{r, float64(span.end - span.start), false})
		}
		for _, span := range a.leafSpans(r.readLines, r.gapNS) {
			uses[span.request] = append(uses[span.request], service{r, float64(span.end - span.start), true})
		}
	}
	random, runNS := rand.New(rand.NewPCG(1, 2)), 0.0
	for _, r := range a.requests {
		if !r.isLoad {
			continue
		}
		p := plan{cpu: float64(r.runNS + r.syscallNS), services: uses[r]}
		accountedNS := queued[r] + float64(r.runNS+r.readyNS+r.syscallNS)
		for k := range p.services {
			use := &p.services[k]
			accountedNS += use.ns
			use.ns = (use.ns + use.resource.tail) * use.resource.factor
		}
		for _, res := range a.resources {
			if res == s.cpu || len(res.lines) > 0 || len(res.service) == 0 {
				continue
			}
			for visits := res.visits * a.groupFactor(res, r.group); visits > random.Float64(); visits-- {
				ns := res.service[random.IntN(len(res.service))] * res.factor
				if res.kind == report.LimitLock { // its holder runs
					p.cpu = max(0, p.cpu-ns)
				}
				p.services = append(p.services, service{res, ns, false})
			}
		}
		p.delay = max(0, float64(r.end-r.start)-accountedNS)
		runNS += p.cpu
		s.plans, s.measured = append(s.plans, p), append(s.measured, float64(r.end-r.start))
	}
	slices.Sort(s.measured)
	if s.cpu != nil && len(s.plans) > 0 {
		s.otherCPU = max(0, s.cpu.busy/a.load-runNS/float64(len(s.plans)))
	}
	return s
}

// groupFactor returns how often requests of a group use a resource, relative to all requests; 0 if no group in the report uses
// it.
func (a *analysis) groupFactor(r *resource, id path.GroupID) float64 {
	sum := 0.0
	for group, weight := range r.groups {
		if a.in.Groups[group] != nil {
			sum += weight
		}
	}
	if count := a.counts[id]; count > 0 && sum > 0 {
		return r.groups[id] / sum * a.requestCount / count
	}
	return 0
}

// An arrival is a simulated request at its next step.
type arrival struct {
	time float64
	job  int32
	step int32
}

type arrivals []arrival

func (q arrivals) Len() int           { return len(q) }
func (q arrivals) Less(i, j int) bool { return q[i].time < q[j].time }
func (q arrivals) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *arrivals) Push(x any)        { *q = append(*q, x.(arrival)) }
func (q *arrivals) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// servers are the times at which the servers of a resource are free.
type servers []float64

// serve occupies the server that is free first, from time (or when it is free) for ns, and returns when the service ends. lead
// is added if the service had to wait.
func (s servers) serve(time, ns, lead float64) float64 {
	first := slices.Index(s, slices.Min(s))
	if s[first] > time {
		time, ns = s[first], ns+lead
	}
	s[first] = time + ns
	return s[first]
}

// A sharedLock is an RWMutex in the simulation.
type sharedLock struct {
	writeEnds []float64 // of writes in order, also of those that wait
	readEnd   float64   // of the last read
}

// hold returns when a use of the lock ends that is ready at time. A read waits for the write that holds the lock. Each write lets
// the reads go that wait for it, before the next write; the lead of the resource is the time of these. Other writes wait for all reads.
func (l *sharedLock) hold(time float64, use *service) float64 {
	current, _ := slices.BinarySearch(l.writeEnds, time)
	isHeld := current < len(l.writeEnds)
	if use.isRead {
		if isHeld {
			time = l.writeEnds[current]
		}
		l.readEnd = max(l.readEnd, time+use.ns)
		return time + use.ns
	}
	if isHeld {
		time = l.writeEnds[len(l.writeEnds)-1] + use.resource.lead
	}
	end := max(time, l.readEnd) + use.ns
	l.writeEnds = append(l.writeEnds, end)
	return end
}

// A quota is a CPU quota in the simulation: budget ns of CPU time in each period.
type quota struct {
	budget float64
	used   map[int]float64
}

const quotaPeriodNS = 100e6

// reserve reserves ns of CPU time and returns when a computation that is ready at time may start: in the first period whose
// budget is not used up.
func (q *quota) reserve(time, ns float64) float64 {
	period := int(time / quotaPeriodNS)
	for q.used[period] >= q.budget {
		period++
	}
	q.used[period] += ns
	for p := period; q.used[p] > q.budget; p++ {
		q.used[p+1] += q.used[p] - q.budget
		q.used[p] = q.budget
	}
	return max(time, float64(period)*quotaPeriodNS)
}

// Simulated requests for one load: those that count, and those before them.
const (
	maxSimulated = 6000
	warmUp       = 500
)

// simulateLatencies simulates maxSimulated requests, after warmUp others, with random arrivals at a load in requests per ns, and
// returns their sorted latencies in ns.
func (s *simulation) simulateLatencies(load float64) []float64 {
	random := rand.New(rand.NewPCG(3, 4))
	free := map[*resource]servers{}
	var limit *quota
	serversOf := func(r *resource) servers {
		if free[r] == nil {
			n := int(math.Ceil(r.servers))
			if r.kind == report.LimitQuota {
				n, limit = s.procs, &quota{r.servers * quotaPeriodNS, map[int]float64{}}
			}
			free[r] = make(servers, max(1, n))
		}
		return free[r]
	}
	serve := func(r *resource, time, ns float64) float64 {
		if r == nil || ns <= 0 {
			return time + ns
		}
		candidates := serversOf(r)
		if r == s.cpu && limit != nil {
			time = limit.reserve(time, ns)
		}
		if r.kind == report.LimitLock { // of several locks, each request needs a certain one
			i := random.IntN(len(candidates))
			candidates = candidates[i : i+1]
		}
		return candidates.serve(time, ns, r.lead)
	}
	locks := map[*resource][]sharedLock{}
	lockOf := func(r *resource) *sharedLock { // of several locks, each request needs a certain one
		if locks[r] == nil {
			locks[r] = make([]sharedLock, int(math.Ceil(r.servers)))
		}
		return &locks[r][random.IntN(len(locks[r]))]
	}
	var queue arrivals
	starts, plans := make([]float64, warmUp+maxSimulated), make([]int, warmUp+maxSimulated)
	time := 0.0
	for i := range starts {
		time += random.ExpFloat64() / load
		starts[i], plans[i] = time, random.IntN(len(s.plans))
		queue = append(queue, arrival{time, int32(i), 0})
	}
	out := make([]float64, 0, maxSimulated)
	for len(queue) > 0 {
		next := heap.Pop(&queue).(arrival)
		p := &s.plans[plans[next.job]]
		end := next.time
		switch step := int(next.step) - 1; {
		case step == -1:
			end = serve(s.cpu, end, p.cpu/2)
		case step < len(p.services):
			if use := &p.services[step]; use.resource.readLines != nil {
				end = lockOf(use.resource).hold(end, use)
			} else {
				end = serve(use.resource, end, use.ns)
			}
		case step == len(p.services):
			end += p.delay
		case step == len(p.services)+1:
			end = serve(s.cpu, end, p.cpu/2)
		default:
			if next.job >= warmUp {
				out = append(out, end-starts[next.job])
			}
			serve(s.cpu, end, s.otherCPU)
			continue
		}
		heap.Push(&queue, arrival{end, next.job, next.step + 1})
	}
	slices.Sort(out)
	return out
}

// loadShares are the points of a curve, as shares of the first limit.
var loadShares = []float64{0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95}

// curvePoint returns the median and 99th percentile at a load in requests a second, with a range that includes the error of the
// first limit.
func (s *simulation) curvePoint(perSecond float64) report.CurvePoint {
	estimate := func(perSecond float64) (p50, p99 float64) {
		list := s.simulateLatencies(perSecond / s.perSecond * s.load)
		p50, p99 = max(0, sample.Quantile(list, 0.5)+s.excess50), sample.Quantile(list, 0.99)
		if perSecond >= s.perSecond {
			p99 = max(p99, s.least99)
		}
		return p50, max(p50, p99)
	}
	p50, p99 := estimate(perSecond)
	low50, low99 := estimate(perSecond / (1 + s.error))
	high50, high99 := estimate(perSecond * (1 + s.error))
	interval := func(est, low, high float64) report.Estimate {
		return report.Estimate{Est: int64(roundToThreeDigits(est)), Low: int64(roundToThreeDigits(low)), High: int64(roundToThreeDigits(high))}
	}
	out := report.CurvePoint{
		LoadPerS: roundToThreeDigits(perSecond), P50: interval(p50, min(p50, low50)*0.9, max(p50, high50)*1.1), P99: interval(p99, min(p99, low99)*0.75, max(p99, high99)*1.5),
	}
	out.P50NS, out.P99NS = out.P50.Est, out.P99.Est
	return out
}

// predictLatencies sets the curve of latencies over load, with the load of the question, and, for each goal, the highest load that
// keeps it.
func (a *analysis) predictLatencies(out *report.Capacity) {
	s := a.newSimulation()
	if len(s.plans) == 0 {
		return
	}
	limit := out.Limits[0].SaturatesPerS
	s.perSecond, s.error = out.LoadPerS, a.resources[0].error
	if len(out.Changes) == 0 {
		s.excess50 = sample.Quantile(s.measured, 0.5) - sample.Quantile(s.simulateLatencies(s.load), 0.5)
		s.least99 = sample.Quantile(s.measured, 0.99)
	}
	loads := []float64{out.LoadPerS}
	for _, share := range loadShares {
		loads = append(loads, share*limit)
	}
	if out.AskedLoadPerS > 0 && out.AskedLoadPerS < limit {
		loads = append(loads, out.AskedLoadPerS)
	}
	slices.Sort(loads)
	for _, perSecond := range slices.Compact(loads) {
		out.Curve = append(out.Curve, s.curvePoint(perSecond))
	}
	for _, goal := range a.in.Question.Goals {
		low, high := 0.0, 0.98*limit
		for range 10 {
			middle := (low + high) / 2
			point := s.curvePoint(middle)
			ns := point.P99NS
			if goal.Percentile == "p50" {
				ns = point.P50NS
			}
			if ns <= goal.MostNS {
				low = middle
			} else {
				high = middle
			}
		}
		goal.LoadPerS = roundToThreeDigits(low)
		out.Goals = append(out.Goals, goal)
	}
}
