package flight

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"os"
	"runtime"
	"runtime/trace"
	"strconv"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/cputime"
	"github.com/whylate/whylate/service/internal/schedstat"
)

// The kernel's counters are written into the trace as user logs. The message is a line of
// host.jsonl (docs/bundle.md) without a time, because the event has one. internal/explain
// reads it.
const (
	hostStart  = "whylate.host/1 start"
	hostSample = "whylate.host/1 sample"

	sampleInterval  = 50 * time.Millisecond
	samplesPerStart = 20 // repeated, because the ring drops old events

	// samplingBudget is the share of the CPUs that samples may take by their thread's clock.
	// The total cost is about twice that, because waking up costs about as much as a sample.
	// A process with many threads is sampled less often. guessedSample is a sample's CPU time
	// if the thread's clock cannot be read.
	samplingBudget    = 0.0015
	maxSampleInterval = 2 * time.Second
	guessedSample     = 100 * time.Microsecond

	// A process that used or waited for less than idleShare of a CPU since the last sample is
	// sampled every idleSampleInterval, because waking up would cost more than its work.
	idleShare          = 0.01
	idleSampleInterval = 200 * time.Millisecond

	openThreads = 64 // number of threads whose files stay open
)

// A samplingPace decides when the next sample is taken.
type samplingPace struct{ meanCost time.Duration }

// nextInterval returns the time to the next sample, given the CPU time of the last one
// (cost), GOMAXPROCS, and whether the process is idle: sampling then uses at most
// samplingBudget of its CPUs.
func (p *samplingPace) nextInterval(cost time.Duration, procs int, idle bool) time.Duration {
	p.meanCost = cmp.Or(p.meanCost, cost)
	p.meanCost += (cost - p.meanCost) / 8
	interval := sampleInterval
	if idle {
		interval = idleSampleInterval
	}
	return min(max(interval, time.Duration(float64(p.meanCost)/(samplingBudget*float64(max(procs, 1))))), maxSampleInterval)
}

// cpuShare returns the share of the CPUs that samples take at this interval.
func (p *samplingPace) cpuShare(interval time.Duration, procs int) float64 {
	return p.meanCost.Seconds() / interval.Seconds() / float64(max(procs, 1))
}

// hostFacts are the machine, the limits of the process and its runtime settings, with the
// names of docs/bundle.md.
type hostFacts struct {
	PID         int     `json:"pid"`
	OS          string  `json:"os"`
	Arch        string  `json:"arch"`
	CPUs        int     `json:"cpus,omitempty"`
	Parallelism int     `json:"parallelism,omitempty"`
	QuotaCPUs   float64 `json:"quota_cpus,omitempty"`
	PeriodNS    int64   `json:"period_ns,omitempty"`
	QuotaFrom   string  `json:"quota_from,omitempty"`
	QuotaDepth  int     `json:"quota_depth,omitempty"`
	QuotaHidden bool    `json:"quota_hidden,omitempty"`
	MemoryBytes int64   `json:"memory_bytes,omitempty"`
	MemoryFrom  string  `json:"memory_from,omitempty"`
	Group       string  `json:"group,omitempty"`
	GOMAXPROCS  string  `json:"gomaxprocs,omitempty"`
	GOGC        string  `json:"gogc,omitempty"`
	GOMEMLIMIT  string  `json:"gomemlimit,omitempty"`
	Go          string  `json:"go,omitempty"`
}

// hideIdentity removes process ids and names of control groups, as package redact does for the same facts in a trace.
func (f *hostFacts) hideIdentity() { f.PID, f.QuotaFrom, f.MemoryFrom, f.Group = 0, "", "", "" }

// readHostFacts returns the facts of this process and machine, and the limits of its
// control group as far as they can be read.
func readHostFacts() *hostFacts {
	f := &hostFacts{
		PID: os.Getpid(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version(),
		GOMAXPROCS: os.Getenv("GOMAXPROCS"), GOGC: os.Getenv("GOGC"), GOMEMLIMIT: os.Getenv("GOMEMLIMIT"),
	}
	l, err := cgroup.Read(cgroup.Options{})
	if err != nil {
		return f
	}
	f.Parallelism = l.CPU.Parallelism
	if l.CPU.Online > 0 {
		f.CPUs = l.CPU.Online
	}
	if i := l.CPU.QuotaLevel; l.CPU.Quota > 0 && i >= 0 && i < len(l.CPU.Levels) {
		lv := &l.CPU.Levels[i]
		f.QuotaCPUs, f.PeriodNS, f.QuotaFrom, f.QuotaDepth = l.CPU.Quota, int64(lv.Period), lv.File, lv.Depth
	}
	if l.Memory.Max > 0 {
		f.MemoryBytes = l.Memory.Max
		if i := l.Memory.MaxLevel; i >= 0 && i < len(l.Memory.Levels) {
			f.MemoryFrom = l.Memory.Levels[i].File
		}
	}
	return f
}

// hostLine is a "start" line of host.jsonl.
type hostLine struct {
	Kind       string     `json:"kind"`
	Schema     string     `json:"schema,omitempty"`
	PID        int        `json:"pid,omitempty"`
	IntervalNS int64      `json:"interval_ns,omitempty"`
	Facts      *hostFacts `json:"facts,omitempty"`
}

// runHostLog runs logCounters. A panic ends the logging only.
func (r *Recorder) runHostLog() {
	defer r.goroutines.Done()
	r.noteError(r.guard.Do("flight: logging the kernel's counters", r.logCounters))
}

// logCounters writes the kernel's counters into the trace until Stop.
func (r *Recorder) logCounters() {
	logger := newHostLogger(r.hostFacts)
	if logger == nil {
		return
	}
	defer logger.close()
	var pace samplingPace
	for wait := sampleInterval; sleep(r.ctx, wait); {
		// cputime.Thread reads the clock of the calling thread.
		runtime.LockOSThread()
		before, clockRead := cputime.Thread()
		logger.logSample()
		after, _ := cputime.Thread()
		runtime.UnlockOSThread()
		if !clockRead {
			before, after = 0, guessedSample
		}
		procs := runtime.GOMAXPROCS(0)
		wait = pace.nextInterval(after-before, procs, logger.idle)
		r.ownCost.Store(math.Float64bits(pace.cpuShare(wait, procs)))
	}
}

// A hostLogger writes samples of the kernel's counters into the trace. It reuses its buffer.
type hostLogger struct {
	cpu          *cgroup.Sampler
	threads      *schedstat.Reader
	startLine    string
	buffer       []byte
	samples      int
	lastSample   time.Time     // time of the last sample
	runnableTime time.Duration // for which threads had run or waited to run by then
	idle         bool
}

func newHostLogger(f *hostFacts) *hostLogger {
	cpu, _ := cgroup.NewSampler(cgroup.Options{}) // nil if no cgroup can be read
	return newHostLoggerFrom(f, cpu, schedstat.New(openThreads))
}

// newHostLoggerFrom returns a logger of the counters that cpu and threads read, either of which may be nil. If both are nil, it returns nil.
func newHostLoggerFrom(f *hostFacts, cpu *cgroup.Sampler, threads *schedstat.Reader) *hostLogger {
	h := &hostLogger{cpu: cpu, threads: threads}
	if h.cpu == nil && h.threads == nil {
		return nil
	}
	line := hostLine{Kind: "start", Schema: "whylate.host/v1", PID: f.PID, IntervalNS: int64(sampleInterval), Facts: f}
	text, err := json.Marshal(line)
	if len(text) > 1000 { // the runtime cuts a log message at 1024 bytes
		line.Facts = &hostFacts{PID: f.PID, OS: f.OS, Arch: f.Arch, CPUs: f.CPUs, Parallelism: f.Parallelism, QuotaCPUs: f.QuotaCPUs, PeriodNS: f.PeriodNS}
		text, err = json.Marshal(line)
	}
	if err != nil {
		return nil
	}
	h.startLine = string(text)
	return h
}

// close closes the files of the samples. A nil logger has none.
func (h *hostLogger) close() {
	if h == nil {
		return
	}
	if h.cpu != nil {
		_ = h.cpu.Close()
	}
	h.threads.Close()
}

// logSample writes the kernel's counters into the trace, if one is recorded, and sets h.idle.
func (h *hostLogger) logSample() {
	if !trace.IsEnabled() {
		return
	}
	if h.samples%samplesPerStart == 0 {
		trace.Log(context.Background(), hostStart, h.startLine)
	}
	h.samples++
	line := append(h.buffer[:0], `{"kind":"sample"`...)
	field := func(name string, v int64) {
		line = append(append(append(line, ',', '"'), name...), '"', ':')
		line = strconv.AppendInt(line, v, 10)
	}
	var stat cgroup.Stat
	if h.cpu != nil && h.cpu.Sample(&stat) == nil {
		if stat.Has&cgroup.HasUsage != 0 {
			field("usage_ns", int64(stat.Usage))
		}
		if stat.Has&cgroup.HasBandwidth != 0 {
			field("periods", stat.Periods)
			field("throttled_periods", stat.ThrottledPeriods)
			field("throttled_ns", int64(stat.Throttled))
		}
		if stat.Has&cgroup.HasLocal != 0 {
			field("local_ns", int64(stat.Local))
		}
		if stat.Has&cgroup.HasAncestors != 0 {
			field("ancestor_throttled_periods", stat.AncestorThrottledPeriods)
			field("ancestor_throttled_ns", int64(stat.AncestorThrottled))
			line = append(line, `,"ancestors_complete":true`...)
		}
	}
	h.idle = false
	if run, delay, n, ok := h.threads.Read(); ok {
		now := time.Now()
		h.idle = h.runnableTime > 0 && float64(run+delay-h.runnableTime) < idleShare*float64(now.Sub(h.lastSample))
		h.runnableTime, h.lastSample = run+delay, now
		field("run_ns", int64(run))
		field("run_delay_ns", int64(delay))
		field("threads", int64(n))
	}
	h.buffer = append(line, '}')
	trace.Log(context.Background(), hostSample, string(h.buffer))
}
