package export

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// PerfettoTrace writes a whole trace for Perfetto, generation by generation,
// in memory that does not grow with it:
//
//   - a track for each P, with what ran on it;
//   - a track for each goroutine, with its states and places, and flows from what
//     woke it;
//   - requests by group, their segments below each;
//   - GC mark phases, stops of the world, freezes, heap, goal, GOMAXPROCS, and
//     how many goroutines ran, were ready to run and were in system calls.
//
// In a large trace only the report's slow requests have segments, and only their
// goroutines have tracks, unless all are requested.
//
// If only a part of the time is written, slices are cut at its borders, because a
// viewer first shows all of a file: it must not show hours of one wait. Requests
// are those that end in the part, and they are not cut: their length matters.
type PerfettoTrace struct {
	p        *packets
	rep      *report.Report
	from, to int64 // the part that is written, from the trace's start

	syms  *tracefmt.Symbols
	sites *cause.Sites
	texts map[tracefmt.FrameID]string
	start int64 // of the trace, on its clock
	any   bool  // at least one generation was given

	tracked map[uint64]bool // goroutines with tracks; nil for all
	full    map[string]bool // requests with segments; nil for all

	win   timeline.Window        // the last generations
	names map[uint64]string      // start functions of the last generation's goroutines
	older map[uint64]string      // and of those of the one before
	open  map[uint64]bool        // by goroutine with a track: a slice is open
	shown map[uint64]*shownTrack // by goroutine
	spans []timeline.Span

	runs  timeline.Runs
	batch []timeline.Run
	procs map[uint32]*shownTrack
	lanes map[string]*lanes
	next  uint64 // track

	stops    timeline.Stops
	stopped  lanes
	phases   timeline.MarkPhases
	lastLoad [3]float64
	before   map[uint64]value // of counters, by track: the last one before from
}

// NewPerfettoTrace returns a Sink that writes to w. The report is that of the
// part of the time which is asked for.
func NewPerfettoTrace(w io.Writer, r *report.Report, o Options) *PerfettoTrace {
	t := &PerfettoTrace{
		p: newPackets(w), rep: r, from: o.FromNS, to: math.MaxInt64, texts: make(map[tracefmt.FrameID]string), names: make(map[uint64]string), open: make(map[uint64]bool),
		shown: make(map[uint64]*shownTrack), procs: make(map[uint32]*shownTrack), lanes: make(map[string]*lanes), next: firstOther, lastLoad: [3]float64{-1, -1, -1},
		before: make(map[uint64]value),
	}
	if o.ToNS > 0 {
		t.to = o.ToNS
	}
	if !o.All && t.events() > SmallTrace {
		t.choose()
	}
	return t
}

// slice writes an interval, cut to the part that is written.
func (t *PerfettoTrace) slice(from, length int64, track uint64, category, name string, notes ...note) {
	if from, to, ok := t.clip(from, from+length); ok {
		t.p.slice(from, to-from, track, category, name, notes...)
	}
}

// A shownTrack is the track of a P or a goroutine, which is written up to end.
type shownTrack struct {
	id  uint64 // 0: nothing of it is written yet
	end int64
}

func (t *PerfettoTrace) number() uint64 {
	t.next++
	return t.next - 1
}

func (t *PerfettoTrace) begin(base int64) {
	t.start, t.any = base, true
	p := t.p
	p.header(wallStart(t.rep))
	p.track(track{uuid: runtimeTrack, name: "runtime", order: explicitOrder})
	p.track(track{uuid: requestsTrack, name: "requests", order: explicitOrder, description: t.about()})
	p.track(track{uuid: procsTrack, name: "Ps", order: explicitOrder})
	p.track(track{uuid: goroutinesTrack, name: "goroutines", order: chronological, description: t.about()})
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
		p.track(c)
	}
	if s := t.rep.Runtime.Series; s != nil {
		var freezes [][2]int64
		for _, x := range s.Freezes {
			if from, to, ok := t.clip(x[0], x[0]+x[1]); ok {
				freezes = append(freezes, [2]int64{from, to - from})
			}
		}
		p.stretches(freezeTrack, "freezes", "held back by the kernel", freezes)
	}
}

// Generation implements Sink.
func (t *PerfettoTrace) Generation(g *timeline.Gen, syms *tracefmt.Symbols, joined bool) error {
	if !t.any {
		t.begin(g.Base)
	}
	if t.syms != syms {
		t.syms, t.sites = syms, cause.NewSites(syms)
	}
	if !joined {
		t.gap()
	}
	if len(t.win.Gens) == KeepGenerations {
		t.win.DropFirst()
	}
	t.win.Gens = append(t.win.Gens, g)
	t.nameAll(g)
	if n := len(t.win.Gens); n > 1 {
		t.states(t.win.Gens[n-2], g.Base)
		t.forget()
	}
	t.batch = t.batch[:0]
	t.runs.Add(g, func(r timeline.Run) { t.batch = append(t.batch, r) })
	t.writeRuns()
	t.runtime(g)
	return t.p.out.Flush()
}

// forget drops the tracks of goroutines that are in neither of the last two
// generations: they can no longer wake anything. A track whose state is still
// open stays, since a damaged trace may lack events of a live goroutine.
func (t *PerfettoTrace) forget() {
	maps.DeleteFunc(t.shown, func(id uint64, _ *shownTrack) bool {
		_, now := t.names[id]
		_, before := t.older[id]
		_, open := t.open[id]
		return !now && !before && !open
	})
}

// gap ends open slices before a part of the trace that is missing.
func (t *PerfettoTrace) gap() {
	n := len(t.win.Gens)
	if n == 0 {
		return
	}
	end := t.win.Gens[n-1].End
	t.states(t.win.Gens[n-1], end)
	t.loads(t.win.Gens[n-1], end)
	// A slice that is still open lacks the event that should have ended it here.
	end = min(end, t.last())
	for _, g := range slices.Sorted(maps.Keys(t.open)) {
		t.p.end(end-t.start, t.shown[g].id)
		t.shown[g].end = end - t.start
	}
	clear(t.open)
	t.batch = t.batch[:0]
	t.runs.Close(func(r timeline.Run) { t.batch = append(t.batch, r) })
	t.writeRuns()
	t.win = timeline.Window{}
}

// last is the end of the part that is written, on the trace's clock.
func (t *PerfettoTrace) last() int64 {
	if t.to == math.MaxInt64 {
		return t.to
	}
	return t.start + t.to
}

// Enough reports whether all generations of the requested part have been given.
// Its requests may be missing.
func (t *PerfettoTrace) Enough() bool {
	// A goroutine's states are written once the next generation is given, and a run
	// lasts until its thread's next event.
	n := len(t.win.Gens)
	return n > 0 && t.win.Gens[n-1].Base >= t.last() && !t.runs.HasOpenBefore(t.last())
}

// Close implements Sink.
func (t *PerfettoTrace) Close(end int64) error {
	t.gap()
	t.phases.Close(t.start+end, t.marking)
	for _, id := range slices.Sorted(maps.Keys(t.before)) {
		if t.from <= end {
			t.carried(id)
		}
	}
	for _, s := range t.stops.Unfinished() {
		t.stop(s.Start, t.start+end, s.Kind)
	}
	if err := t.p.out.Flush(); err != nil {
		return fmt.Errorf("writing a Perfetto trace: %w", err)
	}
	return nil
}

// nameAll finds the start functions of a generation's goroutines.
func (t *PerfettoTrace) nameAll(g *timeline.Gen) {
	t.older = t.names
	t.names = make(map[uint64]string, len(t.older))
	g.Goroutines(func(id uint64) {
		t.names[id] = ""
		if name := t.older[id]; name != "" {
			t.names[id] = name
			return
		}
		if b, ok := g.BirthOf(id); ok {
			if frames := t.syms.Stack(b.Start); len(frames) > 0 {
				t.names[id] = t.syms.String(t.syms.Frame(frames[0]).Func)
				return
			}
		}
		// It started before the trace: take the outermost function seen.
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

func (t *PerfettoTrace) name(g uint64) string {
	if name := t.names[g]; name != "" {
		return name
	}
	if name := t.older[g]; name != "" {
		return name
	}
	return "(start not seen)"
}

// writeRuns writes the runs of batch on the Ps' tracks. A P's runs come from
// several threads. If their clocks disagree, overlaps are cut.
func (t *PerfettoTrace) writeRuns() {
	slices.SortFunc(t.batch, func(a, b timeline.Run) int {
		return cmp.Or(cmp.Compare(a.P, b.P), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.M, b.M))
	})
	for i := range t.batch {
		r := &t.batch[i]
		if r.P == timeline.NoP {
			continue
		}
		p := t.procs[r.P]
		if p == nil {
			p = new(shownTrack)
			t.procs[r.P] = p
		}
		from := max(r.From-t.start, p.end)
		to := max(r.To-t.start, from)
		if next := i + 1; next < len(t.batch) && t.batch[next].P == r.P {
			to = max(min(to, t.batch[next].From-t.start), from)
		}
		p.end = to
		if _, _, ok := t.clip(from, to); !ok {
			continue
		}
		if p.id == 0 {
			p.id = t.number()
			t.p.track(track{uuid: p.id, parent: procsTrack, name: fmt.Sprintf("P%d", r.P), rank: int(min(r.P, math.MaxInt32))})
		}
		t.slice(from, to-from, p.id, "run", t.name(r.G), note{key: "goroutine", number: r.G})
	}
}

// states writes the states of the goroutines of g, the generation before the
// last, from its base to the last one's.
func (t *PerfettoTrace) states(g *timeline.Gen, until int64) {
	first, last := max(g.Base, t.start+t.from), t.last()
	if first >= last {
		return
	}
	g.Goroutines(func(id uint64) {
		if t.tracked != nil && !t.tracked[id] {
			return
		}
		end := until
		if _, ok := t.names[id]; !ok {
			end = max(end, g.End) // it died, but after the next one began
		}
		from := first
		if shown := t.shown[id]; shown != nil {
			from = max(from, t.start+shown.end)
		}
		if end = min(end, last); end == last && from >= end {
			return
		}
		t.spans = t.win.Spans(id, from, end, t.spans[:0])
		for i := range t.spans {
			t.state(id, from, end, i)
		}
	})
}

// state writes the part of a goroutine's span that lies in [from, until).
func (t *PerfettoTrace) state(id uint64, from, until int64, i int) {
	s := &t.spans[i]
	if s.State == timeline.NotAlive {
		return
	}
	goesOn := i+1 < len(t.spans) && t.spans[i+1].Origin == timeline.OriginCut
	if begun := s.Start < from || s.Origin == timeline.OriginCut; !begun || !t.open[id] {
		track := t.show(id)
		// If the clocks of two threads disagree, a goroutine's next state may begin
		// before its last one ends.
		at := max(max(s.Start, from)-t.start, track.end)
		if s.Start >= from {
			t.wakeOf(id, s)
		}
		e := event{at: at, typ: sliceBegin, track: track.id, category: "state", name: stateText(s.State.String(), t.syms.String(s.Reason))}
		if s.State != timeline.Running {
			e.notes = []note{{key: "site", text: t.site(s.Stack)}}
			if s.State == timeline.Runnable {
				e.name = s.State.String()
				e.notes = append(e.notes, note{key: "reason", text: t.syms.String(s.Reason)})
			}
		}
		t.p.event(&e)
		t.open[id] = true
		track.end = at
	}
	if !goesOn && (s.End <= until || until == t.last()) {
		track := t.shown[id]
		track.end = max(track.end, min(s.End, until)-t.start)
		t.p.end(track.end, track.id)
		delete(t.open, id)
	}
}

// show returns a goroutine's track.
func (t *PerfettoTrace) show(id uint64) *shownTrack {
	n := t.shown[id]
	if n == nil {
		n = &shownTrack{id: t.number()}
		t.shown[id] = n
		t.p.track(track{uuid: n.id, parent: goroutinesTrack, name: fmt.Sprintf("G%d %s", id, t.name(id))})
	}
	return n
}

// wakeOf writes the flow from what made a goroutine runnable.
func (t *PerfettoTrace) wakeOf(id uint64, s *timeline.Span) {
	by := s.Waker
	if s.Origin == timeline.OriginCreated {
		by = s.Peer
	}
	if s.State != timeline.Runnable || by == 0 || t.tracked != nil && !t.tracked[by] {
		return
	}
	t.p.wake(s.Start-t.start, t.show(by).id, t.show(id).id, by, id)
}

func (t *PerfettoTrace) site(id tracefmt.StackID) string {
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

// loadStep is the time over which numbers of goroutines are averaged.
const loadStep = 1e6

func (t *PerfettoTrace) runtime(g *timeline.Gen) {
	for _, h := range g.Heap {
		id := uint64(heapTrack)
		if h.Goal {
			id = goalTrack
		}
		t.count(id, value{at: h.Time - t.start, number: h.Bytes, whole: true})
	}
	for _, c := range g.Procs {
		t.count(gomaxprocsTrack, value{at: c.Time - t.start, number: uint64(c.N), whole: true})
	}
	t.phases.Add(g, t.marking)
	t.stops.Add(g, func(s timeline.STWRange) { t.stop(s.Start, s.End, s.Kind) })
	if n := len(t.win.Gens); n > 1 {
		t.loads(t.win.Gens[n-2], g.Base)
	}
}

// count writes a counter's value. If only a part of the time is written, the
// counter begins with the value from before.
func (t *PerfettoTrace) count(track uint64, v value) {
	switch {
	case v.at < t.from:
		if b, ok := t.before[track]; !ok || v.at >= b.at {
			t.before[track] = v
		}
		return
	case v.at >= t.to:
		return
	case v.at > t.from:
		t.carried(track)
	}
	delete(t.before, track)
	t.p.count(track, v)
}

// carried writes the value that a counter has at the beginning of the part that
// is written.
func (t *PerfettoTrace) carried(track uint64) {
	if v, ok := t.before[track]; ok {
		v.at = t.from
		t.p.count(track, v)
	}
}

// loads writes how many goroutines were in each state.
func (t *PerfettoTrace) loads(g *timeline.Gen, until int64) {
	if until-t.start <= t.from || g.Base >= t.last() {
		return
	}
	list, step := g.Loads(until, loadStep)
	from := g.Base
	for _, l := range list {
		to := min(from-from%step+step, until)
		for i, ns := range [3]int64{l.Running, l.Runnable, l.Syscall} {
			if v := math.Round(float64(ns)/float64(max(to-from, 1))*1000) / 1000; v != t.lastLoad[i] {
				t.lastLoad[i] = v
				t.count(runningTrack+uint64(i), value{at: from - t.start, double: v})
			}
		}
		from = to
	}
}

// marking writes a mark phase.
func (t *PerfettoTrace) marking(from, to int64) {
	t.slice(from-t.start, to-from, gcTrack, "runtime", "GC mark")
}

// stop writes a stop of the world. Several may be requested at the same time.
func (t *PerfettoTrace) stop(from, to int64, kind tracefmt.StringID) {
	if _, _, ok := t.clip(from-t.start, to-t.start); !ok {
		return
	}
	id := t.row(&t.stopped, from, to, func(k int) track {
		name := "stops of the world"
		if k > 0 {
			name += fmt.Sprintf(" (%d)", k+1)
		}
		return track{parent: runtimeTrack, name: name, rank: 100 + k}
	})
	t.slice(from-t.start, to-from, id, "runtime", "world stopped", note{key: "kind", text: t.syms.String(kind)})
}

// Request implements Sink.
func (t *PerfettoTrace) Request(q *Request) error {
	l := t.lanes[q.Group.ID]
	if l == nil {
		l = &lanes{id: t.number()}
		t.lanes[q.Group.ID] = l
		t.p.track(track{uuid: l.id, parent: requestsTrack, name: q.Group.Name, rank: len(t.lanes), order: explicitOrder})
	}
	id := t.row(l, q.StartNS, q.StartNS+q.LatencyNS, func(k int) track {
		return track{parent: l.id, name: fmt.Sprintf("%s (%d)", q.Group.Name, k+1), rank: k}
	})
	t.p.event(&event{at: q.StartNS, typ: sliceBegin, track: id, category: "request", name: q.Group.Name, notes: []note{
		{key: "id", text: q.ID}, {key: "goroutine", number: q.Goroutine}, {key: "group", text: q.Group.ID}, {key: "kind", text: string(q.Group.Kind)},
	}})
	if t.full == nil || t.full[q.ID] {
		full := q.Full()
		t.p.segments(&full, id)
	}
	t.p.end(q.StartNS+q.LatencyNS, id)
	return nil
}

// row returns the track of a row of lanes that is free in [from, to). A new row is described by its number.
func (t *PerfettoTrace) row(l *lanes, from, to int64, describe func(k int) track) uint64 {
	k := l.take(from, to)
	if k == len(l.tracks) {
		d := describe(k)
		d.uuid = t.number()
		l.tracks = append(l.tracks, d.uuid)
		t.p.track(d)
	}
	return l.tracks[k]
}
