package export

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threadstate"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// PerfettoTrace writes a whole trace for Perfetto, generation by generation,
// in memory that does not grow with it:
//
//   - a track for each P, with the goroutines that ran on it;
//   - a track for each goroutine, with its states and places, and flows from what
//     woke it; with the kernel's events also the states of its threads and peers, and when bytes arrived;
//   - with the kernel's events, a track for each CPU, with the processes that had it;
//   - below a goroutine's track, its regions and log messages of runtime/trace;
//   - requests by group, their segments below each;
//   - GC mark phases, stops of the world, freezes, heap, goal, GOMAXPROCS, and
//     how many goroutines ran, were ready to run and were in system calls.
//
// In a large trace, only the report's slow requests have segments, and only their
// goroutines have tracks, unless all are requested.
//
// If only a part of the time is written, slices are cut at its borders, because a
// viewer first shows the whole file, which must not show hours of one wait. Requests
// that end in the part are written, and are not cut: their length matters.
type PerfettoTrace struct {
	p            *packets
	report       *report.Report
	fromNS, toNS int64 // the part that is written, from the trace's start

	syms  *tracefmt.Symbols
	sites *cause.Sites
	texts map[tracefmt.FrameID]string
	start int64 // of the trace, on its clock
	begun bool  // at least one generation was given

	trackedGoroutines map[uint64]bool // goroutines with tracks; nil for all
	fullRequests      map[string]bool // requests with segments; nil for all

	window          timeline.Window          // the last generations
	names           map[uint64]string        // start functions of the last generation's goroutines
	previousNames   map[uint64]string        // and of those of the one before
	openSlices      map[uint64]bool          // by goroutine with a track: a slice is open
	goroutineTracks map[uint64]*writtenTrack // by goroutine
	spans           []timeline.Span

	regions          timeline.Regions
	annotationTracks map[annotationTrack]uint64

	threads   *threadstate.Tracker // nil without the kernel's events
	cpuTracks map[int32]*writtenTrack

	runs        timeline.Runs
	pendingRuns []timeline.Run
	procTracks  map[uint32]*writtenTrack
	groupLanes  map[string]*laneSet
	nextTrack   uint64 // track

	stops       timeline.Stops
	stopLanes   laneSet
	phases      timeline.MarkPhases
	lastLoad    [3]float64
	valueBefore map[uint64]counterValue // of counters, by track: the last one before from
}

// NewPerfettoTrace returns a Sink that writes to w. r is the report of the part of the time in the options.
func NewPerfettoTrace(w io.Writer, r *report.Report, o Options) *PerfettoTrace {
	t := &PerfettoTrace{
		p: newPackets(w), report: r, fromNS: o.FromNS, toNS: math.MaxInt64, texts: make(map[tracefmt.FrameID]string), names: make(map[uint64]string), openSlices: make(map[uint64]bool),
		goroutineTracks: make(map[uint64]*writtenTrack), procTracks: make(map[uint32]*writtenTrack), groupLanes: make(map[string]*laneSet), nextTrack: firstOther, lastLoad: [3]float64{-1, -1, -1},
		valueBefore: make(map[uint64]counterValue), annotationTracks: make(map[annotationTrack]uint64),
	}
	if o.ToNS > 0 {
		t.toNS = o.ToNS
	}
	if !o.All && t.writtenEvents() > MaxFullEvents {
		t.selectSlowRequests()
	}
	return t
}

// writeSlice writes a slice of a track that begins at from (ns since the trace's start) and takes length, cut to the written
// part.
func (t *PerfettoTrace) writeSlice(from, length int64, track uint64, category, name string, notes ...note) {
	if from, to, ok := t.clip(from, from+length); ok {
		t.p.writeSlice(from, to-from, track, category, name, notes...)
	}
}

// A writtenTrack is the track of a P or a goroutine, which is written up to end.
type writtenTrack struct {
	id  uint64 // 0 until the track is written
	end int64
}

func (t *PerfettoTrace) newTrackID() uint64 {
	t.nextTrack++
	return t.nextTrack - 1
}

// writeBeginning writes the header, the tracks that do not depend on goroutines, and the report's freezes. base is the start of
// the trace, on its own clock, in ns.
func (t *PerfettoTrace) writeBeginning(base int64) {
	t.start, t.begun = base, true
	p := t.p
	p.writeHeader(wallStart(t.report))
	p.writeTrack(track{uuid: runtimeTrack, name: "runtime", order: explicitOrder})
	p.writeTrack(track{uuid: requestsTrack, name: "requests", order: explicitOrder, description: t.description()})
	p.writeTrack(track{uuid: procsTrack, name: "Ps", order: explicitOrder})
	if t.threads != nil {
		p.writeTrack(track{uuid: cpusTrack, name: "CPUs", order: explicitOrder, description: "Other processes are known only while a thread of the service waits for the CPU."})
	}
	p.writeTrack(track{uuid: goroutinesTrack, name: "goroutines", order: chronological, description: t.description()})
	for i, c := range []track{
		{uuid: gomaxprocsTrack, name: "GOMAXPROCS", counter: unitCount},
		{uuid: runningTrack, name: "goroutines running", counter: unitCount},
		{uuid: runnableTrack, name: "goroutines ready to run", counter: unitCount},
		{uuid: syscallTrack, name: "goroutines in system calls", counter: unitCount},
		{uuid: heapTrack, name: "heap in use", counter: unitBytes},
		{uuid: goalTrack, name: "heap goal", counter: unitBytes},
		{uuid: gcTrack, name: "GC mark phases"},
	} {
		c.parent, c.rank = runtimeTrack, i
		p.writeTrack(c)
	}
	if s := t.report.Runtime.Series; s != nil {
		var freezes [][2]int64
		for _, x := range s.Freezes {
			if from, to, ok := t.clip(x[0], x[0]+x[1]); ok {
				freezes = append(freezes, [2]int64{from, to - from})
			}
		}
		p.writeIntervals(0, freezeTrack, "freezes", "held back by the kernel", freezes)
	}
}

// Generation implements Sink. It writes the states of the generation before, and what g has in addition to states. joined is false after a missing
// part of the trace.
func (t *PerfettoTrace) Generation(g *timeline.Gen, syms *tracefmt.Symbols, joined bool) error {
	if !t.begun {
		t.writeBeginning(g.Base)
	}
	if t.syms != syms {
		t.syms, t.sites = syms, cause.NewSites(syms)
	}
	if !joined {
		t.finishWindow()
	}
	if len(t.window.Gens) == KeepGenerations {
		t.window.DropFirst()
	}
	t.window.Gens = append(t.window.Gens, g)
	t.findNames(g)
	if n := len(t.window.Gens); n > 1 {
		t.writeStates(t.window.Gens[n-2], g.Base)
		t.writeCPUs(t.window.Gens[n-2], g.Base)
		t.dropTracks()
	}
	t.pendingRuns = t.pendingRuns[:0]
	t.runs.Add(g, func(r timeline.Run) { t.pendingRuns = append(t.pendingRuns, r) })
	t.writeRuns()
	t.writeRuntime(g)
	t.writeAnnotations(g)
	return t.p.flush()
}

// dropTracks drops the tracks of goroutines that are in neither of the last two generations: they can no longer wake another
// goroutine. It keeps a track whose state is still open, since a damaged trace may lack events of a live goroutine.
func (t *PerfettoTrace) dropTracks() {
	isGone := func(id uint64) bool {
		_, inLast := t.names[id]
		_, inPrevious := t.previousNames[id]
		_, open := t.openSlices[id]
		return !inLast && !inPrevious && !open
	}
	maps.DeleteFunc(t.goroutineTracks, func(id uint64, _ *writtenTrack) bool { return isGone(id) })
	maps.DeleteFunc(t.annotationTracks, func(key annotationTrack, _ uint64) bool { return isGone(key.g) })
}

// finishWindow writes the rest of the window, ends the open slices, and empties the window: at the trace's end, and before a
// missing part.
func (t *PerfettoTrace) finishWindow() {
	n := len(t.window.Gens)
	if n == 0 {
		return
	}
	end := t.window.Gens[n-1].End
	t.writeStates(t.window.Gens[n-1], end)
	t.writeCPUs(t.window.Gens[n-1], end)
	t.writeLoads(t.window.Gens[n-1], end)
	// A slice that is still open lacks the event that should have ended it here.
	end = min(end, t.endTime())
	for _, g := range slices.Sorted(maps.Keys(t.openSlices)) {
		t.p.endSlice(end-t.start, t.goroutineTracks[g].id)
		t.goroutineTracks[g].end = end - t.start
	}
	clear(t.openSlices)
	t.pendingRuns = t.pendingRuns[:0]
	t.runs.Close(func(r timeline.Run) { t.pendingRuns = append(t.pendingRuns, r) })
	t.writeRuns()
	t.window = timeline.Window{}
}

// endTime returns the end of the written part, in ns on the trace's clock.
func (t *PerfettoTrace) endTime() int64 {
	if t.toNS == math.MaxInt64 {
		return t.toNS
	}
	return t.start + t.toNS
}

// IsComplete implements BoundedSink: it reports whether later generations have nothing for the written part. Requests of that part may still be
// missing.
func (t *PerfettoTrace) IsComplete() bool {
	// A goroutine's states are written with the next generation, and a run
	// lasts until its thread's next event.
	n := len(t.window.Gens)
	return n > 0 && t.window.Gens[n-1].Base >= t.endTime() && !t.runs.HasOpenBefore(t.endTime())
}

// Close implements Sink.
func (t *PerfettoTrace) Close(end int64) error {
	t.finishWindow()
	t.phases.Close(t.start+end, t.writeMarkPhase)
	t.regions.Close(t.start+end, t.writeRegion)
	for _, id := range slices.Sorted(maps.Keys(t.valueBefore)) {
		if t.fromNS <= end {
			t.writeInitialValue(id)
		}
	}
	for _, s := range t.stops.Unfinished() {
		t.writeStop(s.Start, t.start+end, s.Kind)
	}
	if err := t.p.flush(); err != nil {
		return fmt.Errorf("writing a Perfetto trace: %w", err)
	}
	return nil
}

// findNames sets t.names to the start functions of the generation's goroutines, else the outermost functions of their first
// stacks, else "". The names before become t.previousNames.
func (t *PerfettoTrace) findNames(g *timeline.Gen) {
	t.previousNames = t.names
	t.names = make(map[uint64]string, len(t.previousNames))
	g.Goroutines(func(id uint64) {
		t.names[id] = ""
		if name := t.previousNames[id]; name != "" {
			t.names[id] = name
			return
		}
		if b, ok := g.BirthOf(id); ok {
			if frames := t.syms.Stack(b.Start); len(frames) > 0 {
				t.names[id] = t.syms.String(t.syms.Frame(frames[0]).Func)
				return
			}
		}
		// It started before the trace: use the outermost function seen.
		win := timeline.Window{Gens: []*timeline.Gen{g}}
		t.spans = win.Spans(id, g.Base, g.End, t.spans[:0])
		for i := range t.spans {
			if frames := t.syms.Stack(t.spans[i].Stack); len(frames) > 0 && t.spans[i].Origin != timeline.OriginCreated {
				t.names[id] = t.syms.String(t.syms.Frame(frames[len(frames)-1]).Func)
				return
			}
		}
	})
}

// nameOf returns the name of goroutine g in this or the previous generation; a text that its start was not seen if it has none.
func (t *PerfettoTrace) nameOf(g uint64) string {
	if name := t.names[g]; name != "" {
		return name
	}
	if name := t.previousNames[g]; name != "" {
		return name
	}
	return "(start not seen)"
}

// writeRuns writes the pending runs on the Ps' tracks. A P's runs come from several threads. If their clocks disagree,
// overlaps are cut.
func (t *PerfettoTrace) writeRuns() {
	slices.SortFunc(t.pendingRuns, func(a, b timeline.Run) int {
		return cmp.Or(cmp.Compare(a.P, b.P), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.M, b.M))
	})
	for i := range t.pendingRuns {
		r := &t.pendingRuns[i]
		if r.P == timeline.NoP {
			continue
		}
		p := entry.GetOrAdd(t.procTracks, r.P)
		from := max(r.From-t.start, p.end)
		to := max(r.To-t.start, from)
		if next := i + 1; next < len(t.pendingRuns) && t.pendingRuns[next].P == r.P {
			to = max(min(to, t.pendingRuns[next].From-t.start), from)
		}
		p.end = to
		if _, _, ok := t.clip(from, to); !ok {
			continue
		}
		if p.id == 0 {
			p.id = t.newTrackID()
			t.p.writeTrack(track{uuid: p.id, parent: procsTrack, name: fmt.Sprintf("P%d", r.P), rank: int(min(r.P, math.MaxInt32))})
		}
		t.writeSlice(from, to-from, p.id, "run", t.nameOf(r.G), note{key: "goroutine", number: r.G})
	}
}

// writeStates writes the states and arrivals of the tracked goroutines of g, the generation before the last, from its base to end,
// the base of the last one (of goroutines that ended, to g.End). It leaves out the part that is written already.
func (t *PerfettoTrace) writeStates(g *timeline.Gen, end int64) {
	first, last := max(g.Base, t.start+t.fromNS), t.endTime()
	if first >= last {
		return
	}
	g.Goroutines(func(id uint64) {
		if t.trackedGoroutines != nil && !t.trackedGoroutines[id] {
			return
		}
		end := end
		if _, ok := t.names[id]; !ok {
			end = max(end, g.End) // the goroutine ended after the next generation began
		}
		from := first
		if shown := t.goroutineTracks[id]; shown != nil {
			from = max(from, t.start+shown.end)
		}
		if end = min(end, last); end == last && from >= end {
			return
		}
		t.spans = t.window.Spans(id, from, end, t.spans[:0])
		for i := range t.spans {
			t.writeState(id, from, end, i)
		}
		t.writeArrivals(id, from, end)
	})
}

// writeState writes the part of t.spans[i], of goroutine id, in [from, limit). The slice stays open if the state may continue
// after limit.
func (t *PerfettoTrace) writeState(id uint64, from, limit int64, i int) {
	s := &t.spans[i]
	if s.State == timeline.NotAlive {
		return
	}
	continues := i+1 < len(t.spans) && t.spans[i+1].Origin == timeline.OriginCut
	if isBegun := s.Start < from || s.Origin == timeline.OriginCut; !isBegun || !t.openSlices[id] {
		track := t.trackOf(id)
		// If the clocks of two threads disagree, a goroutine's next state may begin
		// before its last one ends.
		start := max(max(s.Start, from)-t.start, track.end)
		if s.Start >= from {
			t.writeWake(id, s)
		}
		e := event{time: start, eventType: sliceBegin, track: track.id, category: "state", name: stateText(s.State.String(), t.syms.String(s.Reason))}
		if s.State != timeline.Running {
			e.notes = []note{{key: "site", text: t.siteTextOf(s.Stack)}}
			if s.State == timeline.Runnable {
				e.name = s.State.String()
				e.notes = append(e.notes, note{key: "reason", text: t.syms.String(s.Reason)})
			}
		}
		t.p.writeEvent(&e)
		t.openSlices[id] = true
		track.end = start
	}
	if s.State == timeline.Running || s.State == timeline.Syscall {
		t.writeThreadStates(id, max(s.Start, from), min(s.End, limit), t.goroutineTracks[id])
	} else if t.threads != nil {
		track := t.goroutineTracks[id]
		t.threads.EachPeerStateIn(id, s, max(s.Start, from), min(s.End, limit), func(start, end int64, state tracefmt.StringID) {
			t.p.writeSlice(start-t.start, end-start, track.id, "peer", spell.PeerText(t.syms.String(state)))
			track.end = end - t.start
		})
	}
	if !continues && (s.End <= limit || limit == t.endTime()) {
		track := t.goroutineTracks[id]
		track.end = max(track.end, min(s.End, limit)-t.start)
		t.p.endSlice(track.end, track.id)
		delete(t.openSlices, id)
	}
}

// trackOf returns a goroutine's track, and writes its description at the first call.
func (t *PerfettoTrace) trackOf(id uint64) *writtenTrack {
	n := t.goroutineTracks[id]
	if n == nil {
		n = &writtenTrack{id: t.newTrackID()}
		t.goroutineTracks[id] = n
		t.p.writeTrack(track{uuid: n.id, parent: goroutinesTrack, name: fmt.Sprintf("G%d %s", id, t.nameOf(id))})
	}
	return n
}

// writeWake writes, at the start of a runnable span s of goroutine woken, the flow from the goroutine that made it runnable or
// created it. It writes nothing for other spans, or if that goroutine is unknown or has no track.
func (t *PerfettoTrace) writeWake(woken uint64, s *timeline.Span) {
	waker := s.Waker
	if s.Origin == timeline.OriginCreated {
		waker = s.Peer
	}
	if s.State != timeline.Runnable || waker == 0 || t.trackedGoroutines != nil && !t.trackedGoroutines[waker] {
		return
	}
	t.p.writeWake(s.Start-t.start, t.trackOf(waker).id, t.trackOf(woken).id, waker, woken)
}

// siteTextOf returns the function and line of a stack's site, "" if it has none.
func (t *PerfettoTrace) siteTextOf(id tracefmt.StackID) string {
	f := t.sites.SiteOf(id)
	if f == 0 {
		return ""
	}
	text, ok := t.texts[f]
	if !ok {
		fr := t.syms.Frame(f)
		text = siteText(&report.Site{Func: t.syms.String(fr.Func), File: t.syms.String(fr.File), Line: int(fr.Line)})
		t.texts[f] = text
	}
	return text
}

// loadStep is the interval over which numbers of goroutines are averaged, in ns.
const loadStep = 1e6

// writeRuntime writes a generation's heap sizes, GOMAXPROCS, mark phases and stops of the world, and the numbers of goroutines
// by state up to its start.
func (t *PerfettoTrace) writeRuntime(g *timeline.Gen) {
	for _, h := range g.Heap {
		id := uint64(heapTrack)
		if h.Goal {
			id = goalTrack
		}
		t.writeCounter(id, counterValue{time: h.Time - t.start, integer: h.Bytes, isInteger: true})
	}
	for _, c := range g.Procs {
		t.writeCounter(gomaxprocsTrack, counterValue{time: c.Time - t.start, integer: uint64(c.N), isInteger: true})
	}
	t.phases.Add(g, t.writeMarkPhase)
	t.stops.Add(g, func(s timeline.STWRange) { t.writeStop(s.Start, s.End, s.Kind) })
	if n := len(t.window.Gens); n > 1 {
		t.writeLoads(t.window.Gens[n-2], g.Base)
	}
}

// writeCounter writes a counter's value. If only a part of the time is written, the counter begins with its last value before
// the part.
func (t *PerfettoTrace) writeCounter(track uint64, v counterValue) {
	switch {
	case v.time < t.fromNS:
		if b, ok := t.valueBefore[track]; !ok || v.time >= b.time {
			t.valueBefore[track] = v
		}
		return
	case v.time >= t.toNS:
		return
	case v.time > t.fromNS:
		t.writeInitialValue(track)
	}
	delete(t.valueBefore, track)
	t.p.writeCounter(track, v)
}

// writeInitialValue writes the last value that a counter had before the written part, if it had one, at that part's beginning.
func (t *PerfettoTrace) writeInitialValue(track uint64) {
	if v, ok := t.valueBefore[track]; ok {
		v.time = t.fromNS
		t.p.writeCounter(track, v)
	}
}

// writeLoads writes how many goroutines were in each state during the generation until end (the trace's clock, ns), as means
// over loadStep.
func (t *PerfettoTrace) writeLoads(g *timeline.Gen, end int64) {
	if end-t.start <= t.fromNS || g.Base >= t.endTime() {
		return
	}
	list, step := g.Loads(end, loadStep)
	from := g.Base
	for _, l := range list {
		to := min(from-from%step+step, end)
		for i, ns := range [3]int64{l.Running, l.Runnable, l.Syscall} {
			if v := math.Round(float64(ns)/float64(max(to-from, 1))*1000) / 1000; v != t.lastLoad[i] {
				t.lastLoad[i] = v
				t.writeCounter(runningTrack+uint64(i), counterValue{time: from - t.start, double: v})
			}
		}
		from = to
	}
}

// writeMarkPhase writes a mark phase from from to to, on the trace's clock.
func (t *PerfettoTrace) writeMarkPhase(from, to int64) {
	t.writeSlice(from-t.start, to-from, gcTrack, "runtime", "GC mark")
}

// writeStop writes a stop of the world from from to to, ns on the trace's clock; kind is the id of its reason. Several may be requested at the same
// time.
func (t *PerfettoTrace) writeStop(from, to int64, kind tracefmt.StringID) {
	if _, _, ok := t.clip(from-t.start, to-t.start); !ok {
		return
	}
	id := t.rowTrack(&t.stopLanes, from, to, func(k int) track {
		name := "stops of the world"
		if k > 0 {
			name += fmt.Sprintf(" (%d)", k+1)
		}
		return track{parent: runtimeTrack, name: name, rank: 100 + k}
	})
	t.writeSlice(from-t.start, to-from, id, "runtime", "world stopped", note{key: "kind", text: t.syms.String(kind)})
}

// Request implements Sink.
func (t *PerfettoTrace) Request(q *Request) error {
	l := t.groupLanes[q.Group.ID]
	if l == nil {
		l = &laneSet{id: t.newTrackID()}
		t.groupLanes[q.Group.ID] = l
		t.p.writeTrack(track{uuid: l.id, parent: requestsTrack, name: q.Group.Name, rank: len(t.groupLanes), order: explicitOrder})
	}
	id := t.rowTrack(l, q.StartNS, q.StartNS+q.LatencyNS, func(k int) track {
		return track{parent: l.id, name: fmt.Sprintf("%s (%d)", q.Group.Name, k+1), rank: k}
	})
	t.p.writeEvent(&event{time: q.StartNS, eventType: sliceBegin, track: id, category: "request", name: q.Group.Name, notes: []note{
		{key: "id", text: q.ID}, {key: "goroutine", number: q.Goroutine}, {key: "group", text: q.Group.ID}, {key: "kind", text: string(q.Group.Kind)},
	}})
	if t.fullRequests == nil || t.fullRequests[q.ID] {
		full := q.Full()
		t.p.writeSegments(&full, id)
	}
	t.p.endSlice(q.StartNS+q.LatencyNS, id)
	return nil
}

// rowTrack reserves [from, to) on a lane that is free then, and returns its track. describe returns the track of a new lane from
// its number.
func (t *PerfettoTrace) rowTrack(l *laneSet, from, to int64, describe func(k int) track) uint64 {
	k := l.reserve(from, to)
	if k == len(l.tracks) {
		d := describe(k)
		d.uuid = t.newTrackID()
		l.tracks = append(l.tracks, d.uuid)
		t.p.writeTrack(d)
	}
	return l.tracks[k]
}
