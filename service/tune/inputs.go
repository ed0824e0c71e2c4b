package tune

import (
	"cmp"
	"fmt"
	"math"
	"runtime/metrics"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/cputime"
)

// inputs has all values that decisions depend on, read at one poll.
type inputs struct {
	readAt time.Time
	// bounds are the limits; bounded is false if none can be read.
	bounds  cgroup.Tightest
	bounded bool
	// limits is the slow reading with explanations, repeated when bounds change.
	limits *cgroup.Limits
	cpus   int // affinity, at least 1

	stat   cgroup.Stat
	statOK bool

	// memory is the memory charged to the process's group, and binding that of the group
	// with the tightest limit.
	memory, binding     cgroup.MemoryStat
	memoryOK, bindingOK bool
	memoryAt            time.Time
	// mappedAtBinding is the runtime's mapped memory when binding was read.
	mappedAtBinding int64
	// providedLimit is the limit of Options.MemoryLimit, and providedSource its source.
	providedLimit  int64
	providedSource string

	pressure   cgroup.Pressure
	pressureOK bool

	cpu   time.Duration
	cpuOK bool

	goStats goStats
}

// goStats has metrics of the runtime that can be read without stopping the world.
type goStats struct {
	gcSeconds, idleSeconds, totalSeconds float64
	cycles                               uint64
	live, stacks, globals, goal          int64
	gogc                                 int
	memoryLimit                          int64
	mapped                               int64 // by the runtime and not released
	// overhead is the part of mapped that is neither objects nor free heap: stacks and
	// the runtime's data structures.
	overhead  int64
	schedWait float64 // seconds that all goroutines have waited for a P
}

// neededMemory returns the GOMEMLIMIT below which the collector would run nearly all the
// time: a tenth more than the live heap. Some of that is garbage that became unreachable
// after the last collection had marked it.
func (s *goStats) neededMemory() int64 { return s.overhead + s.live + s.live/10 }

// Indexes of goStats' metrics. All exist since Go 1.21.
const (
	mGC = iota
	mIdle
	mTotal
	mCycles
	mLive
	mStacks
	mGlobals
	mGoal
	mGOGC
	mLimit
	mMapped
	mReleased
	mObjects
	mUnused
	mFree
	mLatencies // expensive; the last one, so that it can be left out
	mCount
)

// newSamples returns the samples of the runtime's metrics that the tuner reads, in the
// order of the constants m....
func newSamples() []metrics.Sample {
	names := [mCount]string{
		mGC:        "/cpu/classes/gc/total:cpu-seconds",
		mIdle:      "/cpu/classes/idle:cpu-seconds",
		mTotal:     "/cpu/classes/total:cpu-seconds",
		mCycles:    "/gc/cycles/total:gc-cycles",
		mLive:      "/gc/heap/live:bytes",
		mStacks:    "/gc/scan/stack:bytes",
		mGlobals:   "/gc/scan/globals:bytes",
		mGoal:      "/gc/heap/goal:bytes",
		mGOGC:      "/gc/gogc:percent",
		mLimit:     "/gc/gomemlimit:bytes",
		mMapped:    "/memory/classes/total:bytes",
		mReleased:  "/memory/classes/heap/released:bytes",
		mObjects:   "/memory/classes/heap/objects:bytes",
		mUnused:    "/memory/classes/heap/unused:bytes",
		mFree:      "/memory/classes/heap/free:bytes",
		mLatencies: "/sched/latencies:seconds",
	}
	s := make([]metrics.Sample, mCount)
	for i := range s {
		s[i].Name = names[i]
	}
	return s
}

// readGo reads the runtime's metrics into samples, in the order of newSamples, and returns them.
func readGo(samples []metrics.Sample) goStats {
	metrics.Read(samples)
	number := func(i int) int64 { return numberOf(&samples[i]) }
	seconds := func(i int) float64 {
		if samples[i].Value.Kind() != metrics.KindFloat64 {
			return 0
		}
		return samples[i].Value.Float64()
	}
	s := goStats{
		gcSeconds: seconds(mGC), idleSeconds: seconds(mIdle), totalSeconds: seconds(mTotal),
		cycles: uint64(number(mCycles)),
		live:   number(mLive), stacks: number(mStacks), globals: number(mGlobals), goal: number(mGoal),
		memoryLimit: number(mLimit),
		mapped:      number(mMapped) - number(mReleased),
		gogc:        -1,
	}
	s.overhead = max(0, s.mapped-number(mObjects)-number(mUnused)-number(mFree))
	// The metric shows GOGC=off, a negative number, as a huge one.
	if n := number(mGOGC); n <= math.MaxInt32 {
		s.gogc = int(n)
	}
	if len(samples) > mLatencies && samples[mLatencies].Value.Kind() == metrics.KindFloat64Histogram {
		s.schedWait = trackedOneIn * sumOf(samples[mLatencies].Value.Float64Histogram())
	}
	return s
}

// numberOf returns 0 for a metric that this runtime does not have.
func numberOf(s *metrics.Sample) int64 {
	if s.Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return int64(min(s.Value.Uint64(), math.MaxInt64))
}

// The runtime records one of trackedOneIn waits in /sched/latencies (gTrackingPeriod in
// runtime/runtime2.go).
const trackedOneIn = 8

// readMapped returns a function that reads how many bytes of memory the runtime has mapped and not released.
func readMapped() func() int64 {
	all := newSamples()
	s := []metrics.Sample{all[mMapped], all[mReleased]}
	return func() int64 {
		metrics.Read(s)
		return numberOf(&s[0]) - numberOf(&s[1])
	}
}

// sumOf estimates the sum, in seconds, of a histogram's values from the middles of its buckets, which are narrow.
func sumOf(h *metrics.Float64Histogram) float64 {
	sum := 0.0
	for i, n := range h.Counts {
		if n == 0 {
			continue
		}
		low, high := h.Buckets[i], h.Buckets[i+1]
		if math.IsInf(low, -1) {
			low = 0
		}
		if math.IsInf(high, 1) {
			high = low
		}
		sum += float64(n) * (low + high) / 2
	}
	return sum
}

// A reader reads inputs.
type reader struct {
	options cgroup.Options
	sampler *cgroup.Sampler
	samples []metrics.Sample
	// mapped returns the runtime's mapped memory.
	mapped     func() int64
	lastBounds cgroup.Tightest
	// lastGood are the last limits of which no file was missing; valid if hasLastGood.
	lastGood    cgroup.Tightest
	hasLastGood bool
	limits      *cgroup.Limits
	// lastBinding are the last counters of the group with the tightest limit, and
	// lastBindingMapped is the runtime's mapped memory then; valid if hasLastBinding.
	lastBinding       cgroup.MemoryStat
	lastBindingMapped int64
	hasLastBinding    bool
	nextFullRead      time.Time
}

// fullReadInterval is the interval of the reading with explanations if no limit changes. It
// also detects a changed affinity mask and a move to another cgroup.
const fullReadInterval = 30 * time.Second

// newReader returns a reader of the tuner's inputs. mapped returns the bytes that the
// runtime has mapped and not released.
func newReader(o cgroup.Options, mapped func() int64) *reader {
	r := &reader{options: o, samples: newSamples(), mapped: mapped}
	r.open()
	return r
}

func (r *reader) open() {
	if s, err := cgroup.NewSampler(r.options); err == nil {
		r.sampler = s
	}
}

// close closes the files of the limits' counters; a later read opens them again.
func (r *reader) close() {
	if r.sampler != nil {
		r.sampler.Close()
		r.sampler = nil
	}
}

// read overwrites in with all inputs of a poll. numCPU is the number of CPUs where the limits do not have it. The whole limits are read again only
// every fullReadInterval or if a bound has changed.
func (r *reader) read(in *inputs, numCPU int) {
	*in = inputs{readAt: time.Now()}
	full := r.limits == nil || !in.readAt.Before(r.nextFullRead)
	if full && (r.sampler == nil || r.sampler.Moved()) {
		r.close()
		r.open()
	}
	stale := r.readBounds(in)
	if r.sampler != nil {
		in.statOK = r.sampler.Sample(&in.stat) == nil
		in.pressureOK = r.sampler.SamplePressure(&in.pressure) == nil
	}
	r.readMemory(in)
	if full || in.bounds != r.lastBounds {
		r.lastBounds = in.bounds
		r.nextFullRead = in.readAt.Add(fullReadInterval)
		if l, err := cgroup.Read(r.options); stale && r.limits != nil {
			if err == nil && l.CPU.Parallelism > 0 {
				updated := *r.limits
				updated.CPU.Parallelism = l.CPU.Parallelism
				r.limits = &updated
			}
		} else if err == nil {
			r.limits = l
		} else {
			r.limits = noLimits(err.Error())
		}
	}
	in.limits = r.limits
	in.cpus = r.limits.CPU.Parallelism
	in.cpus = cmp.Or(in.cpus, numCPU)
	in.cpu, in.cpuOK = cputime.Process()
	in.goStats = readGo(r.samples)
}

// noLimits returns limits without any value, but with the reason why they could not be read.
func noLimits(reason string) *cgroup.Limits {
	return &cgroup.Limits{
		CPU:    cgroup.CPU{QuotaLevel: -1, Sight: cgroup.SightAbsent, SightText: "no CPU quota is visible: " + reason},
		Memory: cgroup.Memory{MaxLevel: -1, Sight: cgroup.SightAbsent, SightText: "no memory limit is visible: " + reason},
	}
}

// readBounds reads the tightest limits. If files that had limits cannot be read any more, it uses the last complete limits and stale is true: a
// hidden group or a temporary read error is no reason to let the heap grow.
func (r *reader) readBounds(in *inputs) (stale bool) {
	if r.sampler != nil {
		in.bounded = r.sampler.SampleLimits(&in.bounds) == nil
	}
	if in.bounded && in.bounds.Unread == 0 {
		r.lastGood, r.hasLastGood = in.bounds, true
		return false
	}
	if r.hasLastGood {
		in.bounds, in.bounded = r.lastGood, true
	}
	return r.hasLastGood
}

// readMemory sets, in in, the memory charged to the process's group and to the group with the tightest limit; if that cannot be read, the last values
// stay. It is not cheap, because the kernel adds up counters for it.
//
// The runtime's mapped memory is read before and after, and the larger value is used: a
// heap under a limit may release tens of MiB at once, which would otherwise look like
// memory outside of Go.
func (r *reader) readMemory(in *inputs) {
	in.memoryAt = in.readAt
	defer func() {
		if in.bindingOK {
			r.lastBinding, r.lastBindingMapped, r.hasLastBinding = in.binding, in.mappedAtBinding, true
		} else if r.hasLastBinding {
			// Other memory that cannot be read is still there, as with limits.
			in.binding, in.mappedAtBinding, in.bindingOK = r.lastBinding, r.lastBindingMapped, true
		}
	}()
	in.memoryOK, in.bindingOK = false, false
	if r.sampler == nil {
		return
	}
	before := r.mapped()
	in.memoryOK = r.sampler.SampleMemory(&in.memory) == nil
	in.binding, in.bindingOK = in.memory, in.memoryOK
	if d := in.bounds.MemoryDepth; d > 0 {
		in.bindingOK = r.sampler.SampleMemoryAt(d, &in.binding) == nil
	}
	in.mappedAtBinding = max(before, r.mapped())
}

// memoryReadInterval is the shortest time between two readings of memory counters after
// collections.
const memoryReadInterval = 100 * time.Millisecond

// readAfterCollection updates those of the inputs that the memory policies need; limits and CPU counters stay as they were at the last poll.
func (r *reader) readAfterCollection(in *inputs) {
	in.readAt = time.Now()
	schedWait := in.goStats.schedWait
	in.goStats = readGo(r.samples[:mLatencies])
	in.goStats.schedWait = schedWait
	in.cpu, in.cpuOK = cputime.Process()
	if in.readAt.Sub(in.memoryAt) >= memoryReadInterval {
		r.readMemory(in)
	}
}

// canRuntimeSeeQuota reports whether the runtime could follow a quota that is set later: if
// this package can read no files, the runtime cannot either.
func (in *inputs) canRuntimeSeeQuota() bool {
	switch in.limits.CPU.Sight {
	case cgroup.SightFound, cgroup.SightNone, cgroup.SightHidden:
		return true
	}
	return false
}

// cpuSource returns the source of the tightest CPU bound as text; "runtime.NumCPU" if no bound is known.
func (in *inputs) cpuSource() string {
	for _, b := range in.limits.CPU.Bounds {
		if b.Won {
			return sourceText(b.File, b.Text, b.Depth)
		}
	}
	return "runtime.NumCPU"
}

// memorySource returns the source of the memory limit as text; "" without a limit.
func (in *inputs) memorySource() string {
	if in.providedSource != "" {
		return in.providedSource
	}
	for _, b := range in.limits.Memory.Bounds {
		if b.Won && b.Kind != cgroup.BoundTotal {
			return sourceText(b.File, b.Text, b.Depth)
		}
	}
	return ""
}

// sourceText returns a limit's source for a reason: the file's name, its content (text),
// and the number of levels above the process's group (depth).
func sourceText(file, text string, depth int) string {
	s := file
	if text != "" {
		s += fmt.Sprintf(" (%q)", text)
	}
	switch {
	case depth == 1:
		s += ", of the parent group"
	case depth > 1:
		s += fmt.Sprintf(", of the group %d levels up", depth)
	}
	return s
}
