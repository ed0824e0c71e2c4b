package tracetext

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Origin is the time on the trace's clock that a Builder calls 0, in ns.
const Origin = 1_000_000

// noProc is the P of a thread that holds none.
const noProc = -1

// A Builder creates a valid trace of a few goroutines. The calls must be in an order in which the events could
// happen (a goroutine blocks before it is woken), each with its time in ns from the start; the times of different
// threads need not follow that order. The builder assigns sequence numbers, and writes the status of each
// goroutine and P at the start of each generation.
//
// Frames are written "func", "func:line" or "func@file:line", innermost first. Without a file it is "/src/", the
// path of the function's package and ".go".
//
// If a call contradicts earlier calls, the builder stores an error, which [Builder.Bytes] returns. Use [New]: the
// zero value is not ready.
type Builder struct {
	minor      int
	err        error
	gen        uint64
	threads    []*Thread
	system     *Thread // thread that writes statuses; it has no P
	goroutines map[uint64]*goroutine
	procs      map[int]*proc
	gcSeq      uint64
	text       strings.Builder
	current    *generation
	start      int64
	pcs        map[frame]uint64
}

type generation struct {
	strings     map[string]uint64
	stringOrder []string
	stacks      map[string]uint64
	stackTexts  []string
	samples     []string
	lastTime    int64
}

type frame struct {
	fn, file string
	line     uint64
}

type goroutine struct {
	status uint64 // one of tracefmt.GoRunnable, ...
	seq    uint64
	thread *Thread
}

type proc struct {
	status uint64
	seq    uint64
}

// A Thread is an M. Its methods add events of the thread, or of the goroutine that it runs.
type Thread struct {
	b        *Builder
	id       uint64
	p        int
	g        uint64 // 0 for none
	lines    []line
	text     []byte // reused for each line
	lastTime int64
}

type line struct {
	t    int64
	text string
}

// New returns a builder of a trace of Go 1.minor (22, 23, 25 or 26) that begins at time 0.
func New(minor int) *Builder {
	b := &Builder{minor: minor, goroutines: make(map[uint64]*goroutine), procs: make(map[int]*proc), pcs: make(map[frame]uint64)}
	fmt.Fprintf(&b.text, "Trace Go1.%d\n", minor)
	b.system = &Thread{b: b, id: 999, p: noProc}
	b.beginGeneration(0)
	return b
}

// fail stores the first error.
func (b *Builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf(format, args...)
	}
}

// beginGeneration begins a generation at time t, without statuses.
func (b *Builder) beginGeneration(t int64) {
	b.gen++
	b.start = t
	b.current = &generation{strings: make(map[string]uint64), stacks: make(map[string]uint64), lastTime: t}
	b.system.lastTime = t
	for _, th := range b.threads {
		th.lastTime = t
	}
}

// NextGeneration ends the generation and begins the next one at time t, which must not be before any earlier
// event.
func (b *Builder) NextGeneration(t int64) {
	b.writeGeneration()
	b.beginGeneration(t)
	for p, st := range sorted(b.procs) {
		st.seq = 0
		if b.holder(p) == nil {
			b.system.addEvent(t, "ProcStatus", uint64(p), st.status)
		}
	}
	for id, g := range sorted(b.goroutines) {
		g.seq = 0
		if g.thread == nil {
			b.system.addEvent(t, "GoStatus", id, tracefmt.NoM, g.status)
		}
	}
	for _, th := range b.threads {
		if th.p != noProc {
			th.addEvent(t, "ProcStatus", uint64(th.p), b.procs[th.p].status)
		}
		if th.g != 0 {
			th.addEvent(t, "GoStatus", th.g, th.id, b.goroutines[th.g].status)
		}
	}
}

// sorted yields the entries of a map in order of their keys.
func sorted[K cmp.Ordered, V any](m map[K]V) func(func(K, V) bool) {
	return func(yield func(K, V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}

// holder returns the thread that holds a P, nil if none does.
func (b *Builder) holder(p int) *Thread {
	for _, th := range b.threads {
		if th.p == p {
			return th
		}
	}
	return nil
}

// Thread adds a thread that has held P number len(threads) since before the trace and, if a goroutine is given,
// has run it: see HasRun. It must be called before the second generation.
func (b *Builder) Thread(running ...uint64) *Thread {
	p := len(b.procs)
	th := b.ThreadWithoutP()
	th.p = p
	b.procs[p] = &proc{status: tracefmt.ProcRunning}
	th.addEvent(b.start, "ProcStatus", uint64(p), tracefmt.ProcRunning)
	for _, g := range running {
		th.HasRun(g)
	}
	return th
}

// ThreadWithoutP adds a thread without a P. Its wakes have no waker, like those of the runtime's monitor. It may
// take a P with ProcStart.
func (b *Builder) ThreadWithoutP() *Thread {
	th := &Thread{b: b, id: uint64(1000 + len(b.threads)), p: noProc, lastTime: b.start}
	b.threads = append(b.threads, th)
	return th
}

// IdleProc adds a P that has been idle since before the trace and returns its number. It must be called before the
// second generation.
func (b *Builder) IdleProc() int {
	p := len(b.procs)
	b.procs[p] = &proc{status: tracefmt.ProcIdle}
	b.system.addEvent(b.start, "ProcStatus", uint64(p), tracefmt.ProcIdle)
	return p
}

// Waiting adds a goroutine that has waited since before the trace. Like Runnable it must be called in the first
// generation.
func (b *Builder) Waiting(g uint64) { b.addExisting(g, tracefmt.GoWaiting) }

// Runnable adds a goroutine that has been runnable since before the trace.
func (b *Builder) Runnable(g uint64) { b.addExisting(g, tracefmt.GoRunnable) }

// addExisting adds a goroutine that existed before the trace.
func (b *Builder) addExisting(g, status uint64) {
	if b.goroutines[g] != nil || b.gen != 1 {
		b.fail("goroutine %d cannot have existed before the trace", g)
		return
	}
	b.goroutines[g] = &goroutine{status: status}
	b.system.addEvent(b.start, "GoStatus", g, tracefmt.NoM, status)
}

// Sample adds a CPU profile sample of goroutine g on a thread at t.
func (b *Builder) Sample(t int64, th *Thread, g uint64, frames ...string) {
	p := uint64(1<<64 - 1)
	if th.p != noProc {
		p = uint64(th.p)
	}
	b.current.samples = append(b.current.samples, fmt.Sprintf("CPUSample time=%d m=%d p=%d g=%d stack=%d", Origin+t, th.id, p, g, b.stackID(frames)))
}

// stringID returns the id of a string in the generation, 0 for the empty string.
func (b *Builder) stringID(s string) uint64 {
	if s == "" {
		return 0
	}
	id, ok := b.current.strings[s]
	if !ok {
		b.current.stringOrder = append(b.current.stringOrder, s)
		id = uint64(len(b.current.stringOrder))
		b.current.strings[s] = id
	}
	return id
}

// stackID returns the id of a stack in the generation, 0 without frames.
func (b *Builder) stackID(frames []string) uint64 {
	if len(frames) == 0 {
		return 0
	}
	key := strings.Join(frames, "\n")
	id, ok := b.current.stacks[key]
	if ok {
		return id
	}
	id = uint64(len(b.current.stackTexts) + 1)
	b.current.stacks[key] = id
	var text strings.Builder
	fmt.Fprintf(&text, "Stack id=%d nframes=%d\n", id, len(frames))
	for _, f := range frames {
		fr := parseFrame(f)
		pc := b.pcs[fr]
		if pc == 0 {
			pc = 0x400000 + 16*uint64(len(b.pcs))
			b.pcs[fr] = pc
		}
		fmt.Fprintf(&text, "\tpc=%d func=%d file=%d line=%d\n", pc, b.stringID(fr.fn), b.stringID(fr.file), fr.line)
	}
	b.current.stackTexts = append(b.current.stackTexts, text.String())
	return id
}

// parseFrame parses "func", "func:line" or "func@file:line". The line defaults to 1, the file to /src/PACKAGE.go.
func parseFrame(s string) frame {
	f := frame{line: 1}
	if index := strings.LastIndexByte(s, ':'); index >= 0 {
		if n, err := strconv.ParseUint(s[index+1:], 10, 32); err == nil {
			s, f.line = s[:index], n
		}
	}
	var hasFile bool
	f.fn, f.file, hasFile = strings.Cut(s, "@")
	if !hasFile {
		dir, last := "", f.fn
		if index := strings.LastIndexByte(last, '/'); index >= 0 {
			dir, last = last[:index+1], last[index+1:]
		}
		pkg, _, _ := strings.Cut(last, ".")
		f.file = "/src/" + dir + pkg + ".go"
	}
	return f
}

// addEvent writes a timed event with the arguments after dt.
func (th *Thread) addEvent(t int64, name string, args ...uint64) {
	b := th.b
	if t < th.lastTime {
		b.fail("%s of thread %d at %d comes before its last event at %d", name, th.id, t, th.lastTime)
		return
	}
	spec := tracefmt.SpecOf(eventTypes[name])
	if len(args) != len(spec.Args)-1 {
		b.fail("%s takes %v, not %v", name, spec.Args[1:], args)
		return
	}
	if spec.SinceMinor > b.minor {
		b.fail("%s does not exist before go 1.%d", name, spec.SinceMinor)
	}
	text := strconv.AppendInt(append(th.text[:0], name+" dt="...), t-th.lastTime, 10)
	for i, v := range args {
		text = strconv.AppendUint(append(text, " "+spec.Args[i+1]+"="...), v, 10)
	}
	th.text = text
	th.lines = append(th.lines, line{t, string(text)})
	th.lastTime = t
	b.current.lastTime = max(b.current.lastTime, t)
}

// writeBatchHeader begins a batch of thread m whose size the assembler computes.
func (b *Builder) writeBatchHeader(m uint64, t int64) {
	fmt.Fprintf(&b.text, "EventBatch gen=%d m=%d time=%d size=auto\n", b.gen, m, Origin+t)
}

// writeGeneration writes all batches of the generation.
func (b *Builder) writeGeneration() {
	const freq = 1_000_000_000
	sync := func() {
		b.writeBatchHeader(tracefmt.NoM, b.start)
		if b.minor < 25 {
			fmt.Fprintf(&b.text, "Frequency freq=%d\n", freq)
			return
		}
		// Time 0 is 2026-01-01 00:00:01 UTC.
		const wall = 1767225601
		fmt.Fprintf(&b.text, "Sync\nFrequency freq=%d\nClockSnapshot dt=0 mono=%d sec=%d nsec=%d\n",
			freq, 5*freq+b.start, wall+b.start/freq, b.start%freq)
	}
	if b.minor >= 25 {
		sync()
	}
	const perBatch = 2000 // events; a batch of that many is below the size limit
	for _, th := range append([]*Thread{b.system}, b.threads...) {
		last := b.start
		for part := range slices.Chunk(th.lines, perBatch) {
			b.writeBatchHeader(th.id, last)
			for _, l := range part {
				b.text.WriteString(l.text)
				b.text.WriteByte('\n')
			}
			last = part[len(part)-1].t
		}
		th.lines = nil
	}
	if b.minor < 25 {
		sync()
	}
	for part := range b.stackBatches() {
		b.writeBatchHeader(tracefmt.NoM, b.start)
		b.text.WriteString("Stacks\n" + strings.Join(part, ""))
	}
	next := 1
	for part := range slices.Chunk(b.current.stringOrder, 50) {
		b.writeBatchHeader(tracefmt.NoM, b.start)
		b.text.WriteString("Strings\n")
		for _, s := range part {
			fmt.Fprintf(&b.text, "String id=%d\n\tdata=%q\n", next, s)
			next++
		}
	}
	for part := range slices.Chunk(b.current.samples, 500) {
		b.writeBatchHeader(tracefmt.NoM, b.start)
		b.text.WriteString("CPUSamples\n" + strings.Join(part, "\n") + "\n")
	}
	if b.minor >= 26 {
		b.text.WriteString("EndOfGeneration\n")
	}
}

// stackBatches divides the generation's stacks into batches below the size limit.
func (b *Builder) stackBatches() func(func([]string) bool) {
	const maxStacks, maxFrames = 300, 2000
	return func(yield func([]string) bool) {
		from, n := 0, 0
		for i, s := range b.current.stackTexts {
			if k := strings.Count(s, "\n"); i-from == maxStacks || i > from && n+k > maxFrames {
				if !yield(b.current.stackTexts[from:i]) {
					return
				}
				from, n = i, k
			} else {
				n += k
			}
		}
		if from < len(b.current.stackTexts) {
			yield(b.current.stackTexts[from:])
		}
	}
}

// Text ends the trace and returns its text form. The builder must not be used afterwards.
func (b *Builder) Text() (string, error) {
	if b.err != nil {
		return "", fmt.Errorf("building a trace: %w", b.err)
	}
	b.writeGeneration()
	b.err = fmt.Errorf("the trace was ended before")
	return b.text.String(), nil
}

// Bytes ends the trace and returns its bytes. The builder must not be used
// afterwards.
func (b *Builder) Bytes() ([]byte, error) {
	text, err := b.Text()
	if err != nil {
		return nil, err
	}
	return Assemble([]byte(text))
}
