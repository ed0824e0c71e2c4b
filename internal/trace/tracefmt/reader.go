package tracefmt

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"unsafe"
)

// newestKnown is the newest header this package was written for: traces with
// a newer one are read by the same rules, with a warning.
const newestKnown = 26

// Options change how a Reader reads. The zero value is ready for use.
type Options struct {
	// MaxGeneration is the largest generation, in bytes with the list of its batches, that is kept in
	// memory; a larger one is read past and reported as Skipped. 0 means 256 MiB,
	// which is 20 to 50 times what a busy service writes; decoded it takes about
	// four times as much.
	MaxGeneration int
}

// A Reader reads generations from the bytes of a trace. It holds one
// generation at a time and never more memory than the bytes it was given
// (plus a factor of two while growing). Not safe for concurrent use.
type Reader struct {
	src      io.Reader
	counter  *countingReader
	max      int
	minor    int
	warnings []Warning

	buf   []byte // bytes from base on; [pos:len] not yet taken
	pos   int
	base  int64 // offset of buf[0] in the (unpacked) stream
	eof   error // io.EOF or the source's error, once seen
	after error // what the call after the last generation returns
	spent bool  // the stream has nothing more to give
	lent  bool  // buf is the last generation's, not ours to reuse

	unpacked atomic.Int64 // base+len(buf), for those who look on

	mu    sync.Mutex // guards spare and warnings: Release may come from elsewhere
	spare [][]byte
}

// A Warning is something a reader of the report should know about its input.
type Warning struct {
	Code string // stable, short: "newer-format", "skipped-generation", ...
	Text string
}

// A Batch is one batch of events of a thread.
type Batch struct {
	M    uint64 // thread; NoM for none
	Time uint64 // clock of the first delta, in units
	Off  int    // Data[Off:End] are its events
	End  int
}

// A Generation is one generation's bytes and what is needed to read them.
type Generation struct {
	Num     uint64
	Minor   int    // minor Go version of the trace's header
	Data    []byte // capacity is at least len+Pad
	Batches []Batch
	// Strings and stacks as batches, read by Tables.
	tables []Batch
	// Freq is in clock units a second.
	Freq uint64
	// MinTime is the smallest start time of any batch, in units.
	MinTime uint64
	hasTime bool
	// Snapshot ties the trace's clock to others; since Go 1.25.
	Snapshot    ClockSnapshot
	HasSnapshot bool
	// Skipped says that the generation was larger than allowed: it has no
	// batches, only Bytes.
	Skipped bool
	Bytes   int64
	// Offset is where the generation began in the (unpacked) stream.
	Offset int64
	// Unmarked says that nothing in the stream marks the end of this generation:
	// the last one of a trace from before Go 1.26. It is whole as far as can be
	// seen from its batches; [Tables.Missing] looks closer.
	Unmarked bool
	// Cut says that the stream was cut right behind this generation.
	Cut bool

	src *Reader
}

// A ClockSnapshot is one instant on three clocks.
type ClockSnapshot struct {
	Time     uint64 // the trace's clock, in units
	Mono     uint64 // monotonic clock, ns
	UnixSec  uint64
	UnixNsec uint64
}

type countingReader struct {
	r io.Reader
	n atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// NewReader reads the header of a trace and returns a Reader for the rest.
// Gzip is unpacked on the way. The error is an *Error if the bytes are not a
// trace that can be read.
func NewReader(r io.Reader, opts Options) (*Reader, error) {
	rd := &Reader{counter: &countingReader{r: r}, max: opts.MaxGeneration}
	if rd.max <= 0 {
		rd.max = 256 << 20
	}
	rd.src = rd.counter
	if err := rd.header(false); err != nil {
		return nil, err
	}
	return rd, nil
}

// Minor returns N of the header "go 1.N trace".
func (r *Reader) Minor() int { return r.minor }

// Consumed returns the bytes taken from the source so far, before unpacking.
// Like Unpacked and Warnings it may be called while another goroutine is in
// Next.
func (r *Reader) Consumed() int64 { return r.counter.n.Load() }

// Unpacked returns the bytes of the trace read so far, after unpacking.
func (r *Reader) Unpacked() int64 { return r.unpacked.Load() }

// Warnings returns what was noticed so far.
func (r *Reader) Warnings() []Warning {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.warnings)
}

func (r *Reader) header(zipped bool) error {
	const size = 16
	if err := r.need(size); err != nil && len(r.buf) < size {
		return r.badHeader(r.buf, zipped)
	}
	h := r.buf[:size]
	if !zipped && h[0] == 0x1f && h[1] == 0x8b {
		z, err := gzip.NewReader(io.MultiReader(bytes.NewReader(r.buf), r.src))
		if err != nil {
			return &Error{Kind: NotTrace, Text: "this begins like gzip but cannot be unpacked", Err: err}
		}
		r.src, r.buf, r.pos, r.eof = z, nil, 0, nil
		r.unpacked.Store(0)
		return r.header(true)
	}
	minor, ok := parseHeader(h)
	if !ok {
		const enough = 512 // to say what else it is, however much came at once
		_ = r.need(enough)
		return r.badHeader(r.buf[:min(len(r.buf), enough)], zipped)
	}
	if minor < 22 {
		return &Error{Kind: OldFormat, Text: fmt.Sprintf("this trace was written by Go 1.%d or so, in the old format (v1); whylate reads traces of Go 1.22 and later: rebuild the service with a newer Go and record again", minor)}
	}
	r.minor = minor
	if minor > newestKnown {
		r.warn("newer-format", fmt.Sprintf("the trace's header says go 1.%d; this build knows formats up to go 1.%d and reads what it can", minor, newestKnown))
	}
	r.pos = size
	return nil
}

// parseHeader returns NN of "go 1.NN trace" padded with NUL to 16 bytes.
func parseHeader(h []byte) (int, bool) {
	rest, ok := bytes.CutPrefix(h, []byte("go 1."))
	if !ok {
		return 0, false
	}
	num, rest, ok := bytes.Cut(rest, []byte(" trace"))
	if !ok || len(num) == 0 || len(bytes.Trim(rest, "\x00")) != 0 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(num), 10, 16)
	if err != nil {
		return 0, false
	}
	return int(n), true
}

func (r *Reader) badHeader(head []byte, zipped bool) error {
	switch {
	case r.eof != nil && !errors.Is(r.eof, io.EOF) && !errors.Is(r.eof, io.ErrUnexpectedEOF):
		return r.eof
	case len(head) == 0:
		return &Error{Kind: Empty, Text: "empty: there is nothing to read; was tracing started, and stopped before the file was copied?"}
	case len(head) < 16 && bytes.HasPrefix([]byte("go 1."), head[:min(5, len(head))]):
		return &Error{Kind: Truncated, Text: "cut within the header of a trace; nothing can be read"}
	}
	return &Error{Kind: NotTrace, Text: identify(head, zipped)}
}

func (r *Reader) warn(code, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warnings = append(r.warnings, Warning{code, text})
}

// need makes at least n bytes available at pos, reading only what it must
// wait for; the error says why there are fewer.
func (r *Reader) need(n int) error {
	for len(r.buf)-r.pos < n {
		if r.eof != nil {
			return r.eof
		}
		if err := r.fill(); err != nil {
			return err
		}
	}
	return nil
}

const (
	readChunk   = 1 << 20 // asked for at once, at most
	firstBuffer = 1 << 18 // grows until a generation fits:
	slower      = 1 << 22 // by as much again as it has, but by no more than this or a quarter
	untouched   = 1 << 25 // from here on to all that a generation may have: what is not written to takes no memory
)

func (r *Reader) fill() error {
	if cap(r.buf)-len(r.buf) < firstBuffer/4+Pad {
		n := max(cap(r.buf)+max(min(cap(r.buf), slower), cap(r.buf)/4), firstBuffer)
		if most := r.max + maxBatchSize + readChunk + firstBuffer; n >= untouched && n < most && most <= largest {
			n = most
		}
		grown := r.take(n)
		grown = grown[:len(r.buf)]
		copy(grown, r.buf)
		// The old one is not kept for reuse: it has proved too small.
		r.buf = grown
	}
	free := r.buf[len(r.buf) : cap(r.buf)-Pad]
	if len(free) > readChunk {
		free = free[:readChunk]
	}
	for tries := 0; ; tries++ {
		n, err := r.src.Read(free)
		r.buf = r.buf[:len(r.buf)+n]
		r.unpacked.Add(int64(n))
		if err != nil {
			r.eof = err
		}
		if n > 0 || err != nil {
			return nil
		}
		if tries == 100 {
			r.eof = io.ErrNoProgress
			return nil
		}
	}
}

const (
	// listed is what a batch takes in a list that grows: tiny ones take more there than their bytes.
	listed = 3 * int(unsafe.Sizeof(Batch{}))
	// largest is the most that is reserved: whoever allows any size has a trace that was read before.
	largest = 1 << 30
)

// take returns an empty buffer of at least n bytes, one given back if there is.
func (r *Reader) take(n int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, b := range r.spare {
		if cap(b) >= n {
			r.spare = append(r.spare[:i], r.spare[i+1:]...)
			return b[:0]
		}
	}
	r.spare = r.spare[:0] // all too small
	return make([]byte, 0, n)
}

func (r *Reader) give(b []byte) {
	if cap(b) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.spare) < 4 {
		r.spare = append(r.spare, b[:0])
	}
}

// batchHeader is what stands before a batch's data.
type batchHeader struct {
	typ        EventType
	exp        byte
	gen, m, ts uint64
	size       int
	data       int // index of the data in buf
}

// readHeader reads the next batch's header and makes sure of its data,
// without moving pos. The error is io.EOF if there are no more batches.
func (r *Reader) readHeader() (h batchHeader, err error) {
	if err := r.need(1); err != nil {
		if !errors.Is(err, io.EOF) {
			return h, r.cutInBatch()
		}
		return h, io.EOF
	}
	h.typ = EventType(r.buf[r.pos])
	i := r.pos + 1
	switch h.typ {
	case EvEndOfGeneration:
		if r.minor < 26 {
			return h, r.damaged("an end-of-generation mark in a trace whose version has none")
		}
		h.data = i
		return h, nil
	case EvEventBatch:
	case EvExperimentalBatch:
		if r.need(2) != nil {
			return h, r.cutInBatch()
		}
		h.exp = r.buf[i]
		i++
	default:
		return h, r.damaged(fmt.Sprintf("a batch was expected, but there is a byte %d", h.typ))
	}
	var size uint64
	for _, p := range []*uint64{&h.gen, &h.m, &h.ts, &size} {
		// Ask for no byte more than the number has: in a live trace the next may
		// be a second away.
		v, next := uvarint(r.buf, i)
		for n := 1; next == 0 && n <= 10 && r.need(i-r.pos+n) == nil; n++ {
			v, next = uvarint(r.buf, i)
		}
		if next == 0 {
			if len(r.buf)-i < 10 {
				return h, r.cutInBatch()
			}
			return h, r.damaged("a number in a batch's header is too long")
		}
		*p, i = v, next
	}
	if size > maxBatchSize {
		return h, r.damaged(fmt.Sprintf("a batch claims %d bytes, more than the format allows (%d)", size, maxBatchSize))
	}
	if h.gen == 0 {
		return h, r.damaged("a batch of generation 0")
	}
	off := i - r.pos
	if r.need(off+int(size)) != nil {
		return h, r.cutInBatch()
	}
	h.size, h.data = int(size), r.pos+off
	return h, nil
}

func (r *Reader) damaged(text string) error {
	return &Error{Kind: Damaged, Offset: r.base + int64(r.pos), Text: "damaged trace: " + text}
}

func (r *Reader) cutInBatch() error {
	return &Error{Kind: Truncated, Offset: r.base + int64(r.pos), Text: "the trace is cut in the middle of a batch", Err: r.sourceError()}
}

// Next returns the next generation. The error is io.EOF at a clean end; an
// *Error where the bytes are cut or damaged, which ends the reading: all
// whole generations before have been delivered by then. The generation's
// memory may be handed back with Release.
func (r *Reader) Next() (*Generation, error) {
	if r.spent {
		if err := r.after; err != nil {
			r.after = nil
			return nil, err
		}
		return nil, io.EOF
	}
	g := &Generation{Minor: r.minor, src: r}
	// What was taken belongs to the generation before: move the rest to a
	// buffer of its own.
	rest := r.buf[r.pos:]
	// Generations of one trace are about as long as each other; of what lies behind its end up to a readChunk is read with one.
	fresh := r.take(max(r.pos+r.pos/16+readChunk+firstBuffer, len(rest)+firstBuffer))
	fresh = append(fresh, rest...)
	r.base += int64(r.pos)
	if !r.lent {
		r.give(r.buf)
	}
	r.buf, r.pos, r.lent = fresh, 0, false
	g.Offset = r.base

	clean, fail := r.collect(g)
	r.spent = !clean
	g.Data = r.buf[:r.pos]
	if g.Num == 0 {
		fail = cmp.Or(fail, io.EOF)
		return nil, fail
	}
	whole := g.Skipped || g.Freq != 0 && (r.minor < 25 || g.HasSnapshot)
	switch {
	case clean && whole:
		r.lent = true
		return g, nil
	case clean:
		r.spent = true
		return nil, &Error{Kind: Damaged, Offset: g.Offset, Text: fmt.Sprintf("damaged trace: generation %d has no clock data", g.Num)}
	case r.minor >= 26 || fail != nil && KindOf(fail) == Truncated && !r.cutInNext(g) || !whole:
		// The last generation is not whole. Before Go 1.26 nothing marks its
		// end: it is taken as whole if nothing says otherwise.
		if fail == nil {
			fail = &Error{Kind: Truncated, Offset: r.base + int64(len(r.buf)), Text: "the trace is cut: its last generation has no end", Err: r.sourceError()}
		}
		return nil, fail
	}
	g.Unmarked, g.Cut = true, fail != nil
	r.after = fail
	r.lent = true
	return g, nil
}

// collect reads g's batches. It reports whether it saw a proper end of the
// generation, else what is wrong with the bytes, if that is known. Without a
// number nothing of g can be trusted.
func (r *Reader) collect(g *Generation) (clean bool, err error) {
	for {
		h, err := r.readHeader()
		switch {
		case err == io.EOF:
			return false, nil
		case err != nil:
			return false, err
		case h.typ == EvEndOfGeneration:
			r.pos = h.data
			switch {
			case g.Num != 0:
				return true, nil
			case r.pos > 1:
				return false, r.damaged("a generation ends that has not begun")
			}
			continue // what a trace that was joined from parts may begin with
		}
		g.Num = cmp.Or(g.Num, h.gen)
		if h.gen != g.Num {
			if r.minor < 26 && h.gen == g.Num+1 {
				return true, nil
			}
			fail := r.damaged(fmt.Sprintf("a batch of generation %d stands inside generation %d", h.gen, g.Num))
			if r.minor < 26 {
				g.Num = 0 // mixed up
			}
			return false, fail
		}
		r.pos = h.data + h.size
		g.Bytes = r.base + int64(r.pos) - g.Offset
		if g.Skipped {
			r.forget()
			continue
		}
		if err := g.add(h, r.buf); err != nil {
			g.Num = 0
			return false, &Error{Kind: Damaged, Offset: r.base + int64(h.data), Text: "damaged trace: " + err.Error()}
		}
		if r.pos+listed*(len(g.Batches)+len(g.tables)) > r.max {
			g.Skipped = true
			g.Batches, g.tables = nil, nil
			r.warn("skipped-generation", fmt.Sprintf("generation %d is larger than the memory allowed (%d MB) and was skipped", g.Num, r.max>>20))
			r.forget()
		}
	}
}

// cutInNext reports whether the batch in which the stream ended visibly
// belonged to the next generation.
func (r *Reader) cutInNext(g *Generation) bool {
	v, next := uvarint(r.buf, r.pos+1)
	return next != 0 && len(r.buf) > r.pos && EventType(r.buf[r.pos]) == EvEventBatch && v == g.Num+1
}

func (r *Reader) sourceError() error {
	if r.eof == nil || errors.Is(r.eof, io.EOF) || errors.Is(r.eof, io.ErrUnexpectedEOF) {
		return nil
	}
	return r.eof
}

// forget drops the bytes already taken, once they are most of what is there: else the rest would be moved for each tiny batch.
func (r *Reader) forget() {
	if r.pos < len(r.buf)-r.pos {
		return
	}
	n := copy(r.buf, r.buf[r.pos:])
	r.buf = r.buf[:n]
	r.base += int64(r.pos)
	r.pos = 0
}

// Release hands the generation's bytes back for reuse by a later Next; the
// generation must not be used afterwards. It may be called while another
// goroutine is in Next.
func (g *Generation) Release() {
	g.src.give(g.Data)
	g.Data, g.Batches = nil, nil
}

func (g *Generation) add(h batchHeader, buf []byte) error {
	b := Batch{M: h.m, Time: h.ts, Off: h.data, End: h.data + h.size}
	if !g.hasTime || h.ts < g.MinTime {
		g.MinTime, g.hasTime = h.ts, true
	}
	if h.typ == EvExperimentalBatch || h.size == 0 {
		return nil
	}
	switch t := EventType(buf[b.Off]); {
	case t == EvStrings, t == EvStacks, t == EvCPUSamples:
		g.tables = append(g.tables, b)
	case t == EvFrequency && g.Minor < 25:
		return g.addSync(b, buf, b.Off)
	case t == EvSync && g.Minor >= 25:
		return g.addSync(b, buf, b.Off+1)
	default:
		g.Batches = append(g.Batches, b)
	}
	return nil
}

// addSync takes the clock data of a batch from byte i on.
func (g *Generation) addSync(b Batch, buf []byte, i int) error {
	ts := b.Time
	for c := (cursor{b: buf[:b.End], i: i}); c.more(); {
		switch t := c.next(); {
		case t == EvFrequency:
			freq := c.uint()
			switch {
			case c.cut:
				return errCutSync
			case g.Freq != 0 || freq == 0:
				return errors.New("a generation with two clock frequencies, or one of zero")
			}
			g.Freq = freq
		case t == EvClockSnapshot && g.Minor >= 25:
			ts += c.uint()
			s := ClockSnapshot{ts, c.uint(), c.uint(), c.uint()}
			switch {
			case c.cut:
				return errCutSync
			case g.HasSnapshot:
				return errors.New("a generation with two clock snapshots")
			}
			g.Snapshot, g.HasSnapshot = s, true
		default:
			return fmt.Errorf("a sync batch holds an event of type %d", t)
		}
	}
	return nil
}

var errCutSync = errors.New("a sync batch is cut")
