package predict

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/explain/cause"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/output/words"
)

// A Setting is a value that the runtime or the kernel is given, instead of the
// one that it has.
type Setting struct {
	Name  string // one of those below; "" for none
	Value float64
}

// The settings that can be asked about.
const (
	GOGC       = "GOGC"       // percent; +Inf for off
	GOMEMLIMIT = "GOMEMLIMIT" // bytes
	GOMAXPROCS = "GOMAXPROCS" // Ps
	Quota      = "quota"      // CPUs
)

// String writes a setting as it is asked about.
func (s Setting) String() string {
	switch {
	case s.Name == GOGC && math.IsInf(s.Value, 1):
		return "GOGC=off"
	case s.Name == GOMEMLIMIT:
		for _, u := range units {
			if s.Value >= u.bytes && math.Mod(s.Value, u.bytes) == 0 {
				return s.Name + "=" + strconv.FormatFloat(s.Value/u.bytes, 'f', -1, 64) + u.name
			}
		}
	}
	return s.Name + "=" + strconv.FormatFloat(s.Value, 'f', -1, 64)
}

// units of memory, the largest first, as GOMEMLIMIT has them.
var units = []struct {
	name  string
	bytes float64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// parseSetting reads a setting; ok is false for anything else.
func parseSetting(name, value string) (s Setting, ok bool, err error) {
	for _, known := range []string{GOGC, GOMEMLIMIT, GOMAXPROCS, Quota} {
		if strings.EqualFold(name, known) {
			s.Name = known
		}
	}
	if s.Name == "" {
		return s, false, nil
	}
	wrong := func(want string) (Setting, bool, error) {
		return s, true, fmt.Errorf("what-if %s=%s: %q is not a %s", name, value, value, want)
	}
	number, bytes := value, 1.0
	if s.Name == GOMEMLIMIT {
		for _, u := range units {
			if n, ok := strings.CutSuffix(value, u.name); ok {
				number, bytes = n, u.bytes
				break
			}
		}
	}
	if s.Name == GOGC && value == "off" {
		s.Value = math.Inf(1)
		return s, true, nil
	}
	n, err := strconv.ParseFloat(number, 64)
	whole := n == math.Trunc(n)
	switch {
	case err != nil || !(n > 0) || n > 1e15:
		n = 0
	case s.Name == GOGC && whole || s.Name == GOMAXPROCS && whole || s.Name == GOMEMLIMIT || s.Name == Quota:
		s.Value = n * bytes
		return s, true, nil
	}
	switch s.Name {
	case GOGC:
		return wrong("percentage such as 400, or off")
	case GOMEMLIMIT:
		return wrong("size such as 900MiB")
	case GOMAXPROCS:
		return wrong("number of Ps such as 2")
	}
	return wrong("number of CPUs such as 1.5")
}

// Facts describe the process that a trace is of, beside its
// requests. Times are the trace's own.
type Facts struct {
	SpanNS int64
	// Procs is GOMAXPROCS, BusyNS the time in which Ps ran goroutines, over all
	// Ps. Running holds how many did on average, by stretches of StepNS, in
	// thousandths, and MeanReady how many goroutines were ready to run beside them.
	Procs     int
	BusyNS    int64
	Running   [][2]int64
	StepNS    int64
	MeanReady float64
	// Collections: those that code forced are no matter of settings. LiveBytes
	// and GoalBytes are means over Measured of them.
	Cycles, Forced, Measured int
	LiveBytes, GoalBytes     int64
	// Marks are mark phases, [start, length], by their start, all of them or the longest.
	Marks    [][2]int64
	AllMarks bool
	MarkNS   int64
	// CollectorNS is the CPU time of mark workers but the idle ones, IdleMarkNS
	// that of these, and AssistNS what requests helped. StopsGC is the part of all
	// stopped time that was the collector's.
	CollectorNS, IdleMarkNS, AssistNS int64
	StopsGC                           float64
	// GCShare is the part of all requests' time that the collector took.
	GCShare float64
	// Held says that freezes of a quota were found, which have LostNS of the
	// time; Uncertain that they cannot be excluded. HeldCPUs is how many CPUs a
	// freeze held at most.
	Held, Uncertain bool
	LostNS          int64
	HeldCPUs        int
	// CPUs is how many CPUs the process may run on, QuotaCPUs its limit; 0 where
	// they are not known.
	CPUs, QuotaCPUs float64
}

// A Refusal is why a question about a setting is not answered.
type Refusal struct {
	Setting Setting
	Why     string
}

// Error implements error.
func (r *Refusal) Error() string {
	return fmt.Sprintf("what-if %s is not answered: %s", r.Setting, r.Why)
}

// An effect is what a setting does to requests.
type effect struct {
	// cycles is how many collections there are for each of today's.
	cycles times
	gc     bool
	// assist is how much of a mark phase is left to those that allocate, against today.
	assist times
	// throttle is how long a freeze lasts then, against today, and held how many
	// requests meet one for each that does.
	throttle, held times
	frozen         bool
	// sched is by what waits for a P are multiplied; waits is how much longer a
	// request waits for one, for each ns that it runs.
	sched, waits times
	procs        bool
	// Of the current group: what a mark phase costs a request that meets one, and
	// by what waits for a P beside one are multiplied without it.
	cost, beside times
	// Of the current graph.
	kept, met, extra times
}

// Know tells the model of the process, which questions about settings need.
func (m *Model) Know(f *Facts) { m.facts = f }

// Resolve says what a setting would do, and on what that rests. It returns a
// Refusal where the trace does not tell.
func (m *Model) Resolve(s Setting) (e *effect, note string, err error) {
	f := m.facts
	refuse := func(format string, args ...any) (*effect, string, error) {
		return nil, "", &Refusal{s, fmt.Sprintf(format, args...)}
	}
	if f == nil || f.SpanNS <= 0 {
		return refuse("nothing is known of the process")
	}
	switch s.Name {
	case GOGC:
		return f.gogc(s, refuse)
	case GOMEMLIMIT:
		return f.memory(s, refuse)
	case GOMAXPROCS:
		return f.procs(s, refuse)
	}
	return f.quota(s, refuse)
}

type refuser func(format string, args ...any) (*effect, string, error)

// minHeap is the runtime's smallest goal with GOGC=100.
const minHeap = 4 << 20

// gogc: a cycle marks what lives, whatever the room between that and the goal,
// so it costs as much and is run as often as the room is used up. By "A Guide to
// the Go Garbage Collector" the goal is live + (live + stacks + globals) *
// GOGC/100, at least 4 MiB * GOGC/100.
func (f *Facts) gogc(s Setting, refuse refuser) (*effect, string, error) {
	// What took next to nothing cannot be made to take much less, whatever GOGC is now.
	if f.Cycles > 0 && f.Cycles-f.Forced < scale.Several && s.Value >= 100 && f.GCShare < scale.Speck {
		return &effect{}, fmt.Sprintf("little would change: garbage was collected %s, and it cost requests at most %.1f%% of their time", often(f.Cycles), 100*f.GCShare), nil
	}
	if e, note, err := f.collects(refuse); e == nil {
		return e, note, err
	}
	room := float64(f.GoalBytes - f.LiveBytes)
	now := 100 * room / float64(f.LiveBytes)
	then := max(float64(f.LiveBytes)*s.Value/100, minHeap*s.Value/100-float64(f.LiveBytes))
	ratio := times{est: room / then, low: room / then, high: room / then}
	// What lives is known by the lowest point of the heap, which is a little more.
	// An effective GOGC near 100 is the usual one, exactly.
	if usual := max(float64(f.LiveBytes), minHeap-float64(f.LiveBytes)); usual/2 < room && room < 1.3*usual {
		exact := usual / then
		ratio = times{est: (room/then + exact) / 2, low: min(room/then, exact), high: max(room/then, exact)}
	}
	if math.IsInf(s.Value, 1) {
		ratio = times{}
	}
	return f.cyclesTo(ratio, fmt.Sprintf("GOGC is about %.0f, from live heap and goal; a memory limit is assumed not to bind", now), then+float64(f.LiveBytes), refuse)
}

func often(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// collects refuses, with a nil effect, where the trace shows too few
// collections to say what they cost.
func (f *Facts) collects(refuse refuser) (*effect, string, error) {
	switch free := f.Cycles - f.Forced; {
	case f.Cycles == 0:
		return refuse("no garbage was collected in this trace: record longer")
	case free < scale.Several || f.Measured < scale.Several || f.LiveBytes <= 0 || f.GoalBytes <= f.LiveBytes:
		forced := ""
		if f.Forced > 0 {
			forced = fmt.Sprintf(", %s by order of the code", often(f.Forced))
		}
		return refuse("garbage was collected %s%s: too few to estimate the live heap and the allocation rate; record longer", often(f.Cycles), forced)
	}
	return new(effect), "", nil
}

// cyclesTo is the effect of so many collections for each of today's.
func (f *Facts) cyclesTo(ratio times, how string, heap float64, refuse refuser) (*effect, string, error) {
	free := float64(f.Cycles - f.Forced)
	part := free / float64(f.Cycles)
	for v := range ratio {
		ratio[v] = 1 - part*(1-ratio[v])
	}
	// Counts of cycles are no finer than what was seen.
	ratio[low], ratio[high] = ratio[low]*0.9, ratio[high]*1.1
	if ratio[est] > 1 && float64(f.MarkNS)/float64(f.SpanNS)*ratio[high] > scale.Half {
		return refuse("garbage would be collected %.1f times as often, and marking already takes %s of the time: the trace does not show how far requests would have to help", ratio[est], words.PercentOr0(float64(f.MarkNS)/float64(f.SpanNS)))
	}
	e := &effect{gc: true, cycles: ratio, assist: f.assists(ratio)}
	perSecond := float64(f.Cycles) / float64(f.SpanNS) * 1e9
	note := fmt.Sprintf("%s collections a second become %s", words.Figure(perSecond), words.Figure(perSecond*ratio[est]))
	if heap > 0 && !math.IsInf(heap, 1) {
		note += fmt.Sprintf(", the heap's goal %s becomes %s", words.Binary(f.GoalBytes), words.Binary(int64(heap)))
	}
	note += ", at the same rate of allocation; " + how
	// Less CPU for the collector leaves more of the quota to requests.
	if f.Held && f.BusyNS > 0 {
		var demand times
		for v := range demand {
			demand[v] = max(0.05, 1-float64(f.CollectorNS)/float64(f.BusyNS)*(1-ratio[v]))
		}
		e.freezes(f, times{est: 1 / demand[est], low: 1 / demand[low], high: 1 / demand[high]})
		note += "; requests get the CPU quota that marking takes now"
	}
	return e, note, nil
}

// workersPart is the part of the Ps that mark workers take while they mark.
const workersPart = 0.25

// assists is how much of each mark phase is left to those that allocate, with so
// many cycles for each of today's.
//
// A phase must be over when a part of the room was used up (runtime/mgcpacer.go
// starts it when 70 % are, at the earliest). Let x be the part of the marking
// that is not done by workers, and u that of the Ps which these take. While they
// do 1-x of the work, who allocates has 1-u of the Ps, less what assists take:
// as much as 1 - x/(1-u) of a phase without. That is used up in proportion to
// the room: 1 - x'/(1-u) = (1 - x/(1-u)) * room'/room.
func (f *Facts) assists(ratio times) times {
	out := unchanged
	all := f.AssistNS + f.CollectorNS + f.IdleMarkNS
	if f.AssistNS <= 0 || all <= 0 {
		return out
	}
	x := min(float64(f.AssistNS)/float64(all), 1-workersPart)
	for v, s := range ratio {
		if s >= 1 {
			continue
		}
		then := 0.0
		if s > 0 {
			then = max(0, (1-workersPart)*(1-(1-x/(1-workersPart))/s))
		}
		out[v] = min(1, then/x)
	}
	out[low] *= out[low]
	out[high] = math.Sqrt(out[high])
	return out
}

// memory: a limit that the goal does not reach does nothing; how near to the
// limit a goal can come depends on what else the process uses.
func (f *Facts) memory(s Setting, refuse refuser) (*effect, string, error) {
	if e, note, err := f.collects(refuse); e == nil {
		return e, note, err
	}
	// Stacks, globals, spans, what is free and not given back: between a hundredth
	// of the heap and a third of it, and some MiB, in any process.
	most, least := s.Value*0.98-2<<20, s.Value*0.75-8<<20
	goal, live := float64(f.GoalBytes), float64(f.LiveBytes)
	switch {
	case least >= goal && goal > 1.6*live:
		return &effect{}, fmt.Sprintf("nothing would change: the heap's goal is %s, by GOGC, and stays below that limit", words.Binary(int64(goal))), nil
	case least >= goal:
		return refuse("the heap's goal is only %.0f%% above the live heap; the trace does not show whether a lower limit or a small GOGC holds it there. Ask about GOGC", 100*(goal/live-1))
	case least <= live*1.1:
		return refuse("the live heap is %s, so the collector would run nearly all of the time, or limit itself to half of the CPU", words.Binary(int64(live)))
	}
	room := goal - live
	ratio := times{est: room / max(1, (most+least)/2-live), low: room / max(1, most-live), high: room / max(1, least-live)}
	for v := range ratio {
		ratio[v] = max(1, ratio[v])
	}
	return f.cyclesTo(ratio, fmt.Sprintf("the limit leaves between %s and %s for the heap, depending on what else the process uses", words.Binary(int64(least)), words.Binary(int64(most))), min(goal, (most+least)/2), refuse)
}

// Of goroutines that wait for a P, so many times as many as of work that comes at random, and no fewer than someReady on
// average, come in bursts.
const (
	someReady = 0.5
)

// procs: waits for a P are those of a queue with so many servers. With arrivals
// at random it is that of Erlang's formula; where the Ps are nearly always busy,
// goroutines that come back for each other's answers are a fixed number, of
// which as many wait as have no P.
func (f *Facts) procs(s Setting, refuse refuser) (*effect, string, error) {
	n, c := s.Value, float64(f.Procs)
	busy := float64(f.BusyNS) / float64(f.SpanNS)
	switch {
	case c <= 0 || f.BusyNS <= 0:
		return refuse("the trace does not show the number of Ps")
	case n == c:
		return &effect{}, fmt.Sprintf("nothing would change: GOMAXPROCS is %d", f.Procs), nil
	case n > c && f.Held:
		return refuse("a CPU quota throttles the process; more Ps use it up sooner. Ask about quota")
	case n > c && f.CPUs > 0 && n > f.CPUs:
		return refuse("the process may run on %s; more Ps than that wait for each other in the kernel", words.CPUs(f.CPUs))
	}
	if n < c {
		if busy > scale.NearlyAll*n {
			return refuse("%.2f Ps are in use on average: with %.0f, work would queue without end, or until clients ask for less; whylate sweep measures it", busy, n)
		}
		if random := busy * erlang(c, busy); f.MeanReady > scale.Far*random && f.MeanReady > someReady {
			return refuse("%.2g goroutines wait for a P on average, many more than if work arrived at random: it arrives in bursts, which fewer Ps make longer; the trace does not show by how much: whylate sweep measures it", f.MeanReady)
		}
		more := erlang(n, busy) - erlang(c, busy)
		return &effect{procs: true, sched: unchanged, waits: times{est: more, low: 0, high: 3 * more}},
			fmt.Sprintf("%.2f of %d Ps are in use on average; requests wait for a P as if work arrived at random", busy, f.Procs), nil
	}
	open, closed := 1.0, 1.0
	if was := erlang(c, min(busy, 0.999*c)); was > 0 {
		open = erlang(n, busy) / was
	}
	if jobs := busy + f.MeanReady; jobs > c {
		closed = max(0, jobs-n) / n / ((jobs - c) / c)
	}
	e := &effect{procs: true, sched: times{est: (open + closed) / 2, low: min(open, closed), high: max(open, closed)}}
	note := fmt.Sprintf("%.2f of %d Ps are in use on average, with %.2f goroutines waiting for one", busy, f.Procs, f.MeanReady)
	if f.CPUs == 0 {
		e.sched[high] = 1
		note += "; the trace does not show whether the machine has CPUs for more"
	}
	return e, note, nil
}

// erlang is how long work waits for one of n servers, against how long it
// takes, if a of them are busy on average and work comes at random (Erlang C).
func erlang(n, a float64) float64 {
	if a <= 0 || a >= n {
		return 0
	}
	b := 1.0 // Erlang B by its recursion
	for k := 1.0; k <= n; k++ {
		b = a * b / (k + a*b)
	}
	c := n * b / (n - a*(1-b))
	return c / (n - a)
}

// quotaStep is the period of nearly every quota.
const quotaStep = 100e6

func (f *Facts) quota(s Setting, refuse refuser) (*effect, string, error) {
	if !f.Held {
		switch most := f.mostUsed(); {
		case s.Value >= float64(f.Procs) && f.Procs > 0:
			return &effect{}, fmt.Sprintf("nothing would change: the process runs on %d CPUs at most", f.Procs), nil
		case f.Uncertain:
			return refuse("a quota may already throttle the process: run whylate record on the same host")
		case most > 0 && most <= 0.9*s.Value:
			return &effect{}, fmt.Sprintf("nothing would change: in no 100 ms did the process use more than %.2f CPUs", most), nil
		case most == 0:
			return refuse("the trace does not show how many CPUs were used in each 100 ms")
		default:
			return refuse("in some 100 ms the process used %.2f CPUs, so it would be throttled at times; for how long depends on what arrives then: whylate sweep measures it", most)
		}
	}
	// While the process is held back nothing runs, whatever is shown to: so it has
	// used as much as the quota in the time that was left.
	now, how := times{est: f.QuotaCPUs, low: f.QuotaCPUs, high: f.QuotaCPUs}, fmt.Sprintf("the quota is %s", words.CPUs(f.QuotaCPUs))
	if f.QuotaCPUs <= 0 {
		ran := 1 - f.lost()
		now = times{est: math.Sqrt(f.unheld()) * ran, low: ran, high: f.unheld() * ran}
		how = fmt.Sprintf("the quota is between %.2g and %.2g CPUs, from what ran while the process was not throttled", now[low], now[high])
	}
	if s.Value < now[low] {
		return refuse("%s, and already throttles the process; with less it would fall behind, or clients would ask for less: whylate sweep measures it", how)
	}
	e := new(effect)
	var more times
	for v := range more {
		more[v] = max(1, s.Value/now[v])
		if f.QuotaCPUs <= 0 && s.Value >= f.unheld() {
			more[v] = max(more[v], 1/(1-f.lost()))
		}
	}
	e.freezes(f, more)
	return e, fmt.Sprintf("%s, and freezes take %s of the time", how, words.PercentOr0(f.lost())), nil
}

// lost is the part of the time that freezes have.
func (f *Facts) lost() float64 {
	return min(max(float64(f.LostNS)/float64(f.SpanNS), 0.001), 0.999)
}

// unheld is how many CPUs may be in use while nothing holds the process back: as
// many as Ps are, because those that run then mostly go on to, but no more than a
// freeze was seen to hold. Goroutines that show as running on more Ps than there
// are CPUs are not all that run.
func (f *Facts) unheld() float64 {
	r := float64(f.BusyNS) / float64(f.SpanNS)
	if f.CPUs > 0 {
		r = min(r, f.CPUs)
	}
	if f.HeldCPUs > 0 {
		r = min(r, float64(f.HeldCPUs))
	}
	return max(r, 1)
}

// mostUsed returns the most CPUs that were used in a period of a quota; 0 if
// that is not known.
func (f *Facts) mostUsed() float64 {
	if f.StepNS <= 0 || f.StepNS > quotaStep {
		return 0
	}
	most, n := 0.0, int(quotaStep/f.StepNS)
	for i := range f.Running {
		total := 0.0
		for _, p := range f.Running[i:min(i+n, len(f.Running))] {
			total += float64(p[1]) / 1000
		}
		most = max(most, total/float64(n))
	}
	return most
}

// freezes is the effect of a quota that is some times as large as today's, or
// of as much less demand. If as much is asked for as ever while the process may
// run, it uses r CPUs then, and is held back for what of a period is left when
// the quota is used up: 1 - quota/r of it. As many requests meet the end of each
// quota, and more are served before it.
func (e *effect) freezes(f *Facts, more times) {
	lost := f.lost()
	e.frozen = true
	for v := range more {
		then := max(0, 1-more[v]*(1-lost))
		e.throttle[v] = min(1, then/lost)
		e.held[v] = min(1, (1-lost)/(1-then))
		if then == 0 {
			e.held[v] = 0
		}
	}
}

// touched returns, by place, which part of its time an effect is about.
func (m *Model) touched(e *effect) []float64 {
	out := make([]float64, len(m.places))
	for i, p := range m.places {
		switch p.cause {
		case cause.GCAssist, cause.GCWait:
			out[i] = one(e.gc)
		case cause.STW:
			if e.gc {
				out[i] = m.facts.StopsGC
			}
		case cause.Sched, cause.SchedPoll:
			out[i] = one(e.gc || e.procs)
		case cause.Throttle:
			out[i] = one(e.frozen)
		}
	}
	return out
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// changesNothing reports whether all changes are settings that have no effect.
func (t *trial) changesNothing() bool {
	for i := range t.changes {
		if e := t.changes[i].effect; e == nil || e.gc || e.frozen || e.procs {
			return false
		}
	}
	return len(t.changes) > 0
}

func (t *trial) hasSettings() bool {
	return slices.ContainsFunc(t.changes, func(c trialChange) bool { return c.effect != nil })
}

// mark notes of each part of a graph how much of it lies in mark phases.
func (f *Facts) mark(g *Graph) {
	if f.within(g.Start, g.Start+g.Latency) == 0 {
		return
	}
	for i := range g.nodes {
		n := &g.nodes[i]
		if n.before < 0 {
			continue
		}
		at := g.Start + g.nodes[n.before].time
		for k := n.firstPart; k < n.lastPart; k++ {
			p := &g.parts[k]
			if p.ns > 0 {
				p.marked = float32(float64(f.within(at, at+p.ns)) / float64(p.ns))
			}
			at += p.ns
		}
	}
}

// first returns the index of the first mark phase that ends after t. Phases do
// not overlap.
func (f *Facts) first(t int64) int {
	return sort.Search(len(f.Marks), func(i int) bool { return f.Marks[i][0]+f.Marks[i][1] > t })
}

// within returns how much of [from, to) lies in mark phases.
func (f *Facts) within(from, to int64) (ns int64) {
	for _, m := range f.Marks[f.first(from):] {
		if m[0] >= to {
			break
		}
		ns += min(m[0]+m[1], to) - max(m[0], from)
	}
	return ns
}

// phases returns how many mark phases a request met.
func (f *Facts) phases(g *Graph) float64 {
	n := 0.0
	for _, m := range f.Marks[f.first(g.Start):] {
		if m[0] >= g.Start+g.Latency {
			break
		}
		n++
	}
	if !f.AllMarks && f.SpanNS > 0 {
		n = max(n, math.Round(float64(g.Latency)*float64(f.Cycles)/float64(f.SpanNS)))
	}
	return n
}

// collects reports whether a part is time that the collector takes.
func (p *part) collects() bool {
	return p.cause == cause.GCAssist || p.cause == cause.GCWait || p.cause == cause.STW
}

// survey looks what mark phases cost the requests of a group, and how much
// longer they wait for a P in one than beside it: mark workers have a part of
// the Ps, and what they leave is shared by all.
func (e *effect) survey(g *group, f *Facts) {
	if !e.gc {
		return
	}
	var cost, met, in, waitIn, out, waitOut float64
	for i := range g.graphs {
		gr := &g.graphs[i]
		met += gr.weight * f.phases(gr.Graph)
		for k := range gr.parts {
			p := &gr.parts[k]
			if p.others {
				continue
			}
			ns, marked := gr.weight*float64(p.ns), float64(p.marked)
			in, out = in+ns*marked, out+ns*(1-marked)
			switch {
			case p.collects():
				cost += ns
			case p.cause == cause.Sched || p.cause == cause.SchedPoll:
				waitIn, waitOut = waitIn+ns*marked, waitOut+ns*(1-marked)
			}
		}
	}
	e.beside = unchanged
	if waitIn > 0 && out > 0.02*in {
		r := min(1, waitOut/out/(waitIn/in))
		e.beside = times{est: r, low: r * r, high: math.Sqrt(r)}
	} else if waitIn > 0 {
		e.beside = times{est: 0.5, low: 0, high: 1} // nothing is seen without marking
	}
	if met > 0 {
		cost /= met
		for v := range e.cost {
			e.cost[v] = cost + waitIn*(1-e.beside[v])/met
		}
	}
}

// look notes what an effect does to a graph.
//
// Each of the mark phases that a request meets is as likely to be left as any
// other: where that leaves fewer than one, it is whether one is met at all that
// changes, and not how long the request takes if it meets one.
func (e *effect) look(g *Graph, f *Facts) {
	e.kept, e.met, e.extra = unchanged, unchanged, times{}
	if e.gc {
		n := f.phases(g)
		for v, s := range e.cycles {
			switch {
			case s > 1:
				more := (s - 1) * (float64(g.Latency)*float64(f.Cycles) + float64(f.MarkNS)) / float64(f.SpanNS)
				e.met[v], e.extra[v] = min(1, more), e.cost[v]*max(1, more)
			case n > 0:
				e.kept[v], e.met[v] = max(s, 1/n), min(1, s*n)
			}
		}
	}
	if e.frozen && slices.ContainsFunc(g.parts, func(p part) bool { return p.cause == cause.Throttle }) {
		for v := range e.met {
			e.met[v] = min(e.met[v], e.held[v])
		}
	}
	if e.procs {
		ran := 0.0
		for i := range g.parts {
			if p := &g.parts[i]; p.cause == cause.CPU && !p.others {
				ran += float64(p.ns)
			}
		}
		for v := range e.extra {
			e.extra[v] += e.waits[v] * ran
		}
	}
}

// factor is by what an effect multiplies the time of a part; of a request that
// meets none of what is met by chance, if unmet.
func (e *effect) factor(p *part, unmet bool) times {
	f := unchanged
	for v := range f {
		kept, frozen := e.kept[v], e.throttle[v]
		if unmet {
			if frozen = 0; e.cycles[v] <= 1 {
				kept = 0
			}
		}
		switch {
		case p.cause == cause.Throttle && e.frozen:
			f[v] = frozen
		case p.cause == cause.GCAssist && e.gc:
			f[v] = kept * e.assist[v]
		case p.collects() && e.gc:
			f[v] = kept
		case p.cause == cause.Sched || p.cause == cause.SchedPoll:
			if e.gc {
				f[v] = 1 - float64(p.marked)*(1-kept)*(1-e.beside[v])
			}
			if e.procs {
				f[v] *= e.sched[v]
			}
		}
	}
	return f
}
