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

// newestKnown is the newest minor version for which this package was written. It reads traces of newer versions by
// the same rules, with a warning.
const newestKnown = 26

// Options configure a Reader. The zero value is ready for use.
type Options struct {
	// MaxGeneration is the largest generation, in bytes including the list of its batches, that is kept in
	// memory. A larger one is read but dropped, and reported as Skipped. 0 means 256 MiB, 20 to 50 times as
	// much as a busy service writes; decoded, such a generation takes about four times as much.
	MaxGeneration int
}

// A Reader reads generations from the bytes of a trace, in chunks, so that a generation takes no more memory than its bytes and needs
// no growing buffer. It holds one generation at a time. It is not safe for concurrent use.
type Reader struct {
	src           io.Reader
	counter       *countingReader
	maxGeneration int
	minor         int
	warnings      []Warning

	chunk     []byte // bytes from base on; [pos:] are not parsed yet
	pos       int
	base      int64       // offset of chunk[0] in the unpacked stream
	gen       *Generation // the one that is read
	sourceErr error       // io.EOF or the source's error, once it has occurred
	finalErr  error       // error of the call after the last generation
	ended     bool        // the stream has no further generation

	unpacked atomic.Int64 // base+len(chunk), for concurrent readers

	mu          sync.Mutex // guards spareChunks and warnings: another goroutine may call Release
	spareChunks [][]byte
}

// A Warning reports an irregularity of the input.
type Warning struct {
	Code string // stable, short: "newer-format", "skipped-generation", ...
	Text string
}

// A Batch is one batch of a thread's events.
type Batch struct {
	M    uint64 // thread, or NoM
	Time uint64 // time to which the first delta is added, in clock units
	Data []byte // its events; the capacity is at least len+Pad
}

// A Generation holds the bytes of one generation and the data needed to decode them.
type Generation struct {
	Num     uint64
	Minor   int      // minor Go version of the trace's header
	Parts   [][]byte // its bytes in order, one part in each chunk
	Batches []Batch
	// batches of strings, stacks and CPU samples, read by Tables.
	tables []Batch
	// Freq is the clock's frequency in units a second.
	Freq uint64
	// MinTime is the earliest start of a batch, in clock units.
	MinTime uint64
	hasTime bool
	// Snapshot relates the trace's clock to others; since Go 1.25.
	Snapshot    ClockSnapshot
	HasSnapshot bool
	// Skipped reports that the generation was larger than allowed. It then has no batches, but Bytes.
	Skipped bool
	Bytes   int64
	// Offset is the position of the generation in the unpacked stream.
	Offset int64
	// Unmarked reports that the stream has no mark at the end of this generation: it is the last one of a
	// trace from before Go 1.26. Its batches give no sign of a cut; [Tables.CheckDefined] checks more.
	Unmarked bool

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

// Read reads and adds the number of bytes to n.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// NewReader reads the header of a trace and returns a Reader for the rest. It unpacks gzip. The error is an *Error
// if the bytes are no trace that can be read.
func NewReader(r io.Reader, opts Options) (*Reader, error) {
	rd := &Reader{counter: &countingReader{r: r}, maxGeneration: opts.MaxGeneration}
	if rd.maxGeneration <= 0 {
		rd.maxGeneration = 256 << 20
	}
	rd.src = rd.counter
	if err := rd.readTraceHeader(false); err != nil {
		return nil, err
	}
	return rd, nil
}

// Minor returns NN of the header "go 1.NN trace".
func (r *Reader) Minor() int { return r.minor }

// Consumed returns the number of bytes read from the source so far, before unpacking. Like Unpacked and Warnings
// it may be called while another goroutine is in Next.
func (r *Reader) Consumed() int64 { return r.counter.n.Load() }

// Unpacked returns the number of bytes of the trace read so far, after unpacking.
func (r *Reader) Unpacked() int64 { return r.unpacked.Load() }

// Warnings returns the warnings so far.
func (r *Reader) Warnings() []Warning {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.warnings)
}

// readTraceHeader reads and checks the header of the trace. If the source is gzip, it first starts to unpack it, and calls
// itself with zipped set.
func (r *Reader) readTraceHeader(zipped bool) error {
	const size = 16
	if err := r.ensureAvailable(size); err != nil && len(r.chunk) < size {
		return r.badHeader(r.chunk, zipped)
	}
	h := r.chunk[:size]
	if !zipped && h[0] == 0x1f && h[1] == 0x8b {
		z, err := gzip.NewReader(io.MultiReader(bytes.NewReader(r.chunk), r.src))
		if err != nil {
			return &Error{Kind: NotTrace, Text: "this begins like gzip but cannot be unpacked", Err: err}
		}
		r.src, r.chunk, r.pos, r.sourceErr = z, nil, 0, nil
		r.unpacked.Store(0)
		return r.readTraceHeader(true)
	}
	minor, ok := parseHeader(h)
	if !ok {
		const enough = 512 // enough to identify another format, however few bytes the first read returned
		_ = r.ensureAvailable(enough)
		return r.badHeader(r.chunk[:min(len(r.chunk), enough)], zipped)
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

// parseHeader returns NN of the header "go 1.NN trace", padded with NUL to 16 bytes; false if the bytes are no header.
func parseHeader(h []byte) (minor int, ok bool) {
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

// badHeader returns the error for bytes that do not begin with a trace header: empty, cut, or something else. zipped: they were
// packed by gzip.
func (r *Reader) badHeader(head []byte, zipped bool) error {
	switch {
	case r.sourceErr != nil && !errors.Is(r.sourceErr, io.EOF) && !errors.Is(r.sourceErr, io.ErrUnexpectedEOF):
		return r.sourceErr
	case len(head) == 0:
		return &Error{Kind: Empty, Text: "empty: there is nothing to read; was tracing started, and stopped before the file was copied?"}
	case len(head) < 16 && bytes.HasPrefix([]byte("go 1."), head[:min(5, len(head))]):
		return &Error{Kind: Truncated, Text: "cut within the header of a trace; nothing can be read"}
	}
	return &Error{Kind: NotTrace, Text: identifyOtherFormat(head, zipped)}
}

// warn adds a warning with a code for programs and a text for people.
func (r *Reader) warn(code, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warnings = append(r.warnings, Warning{code, text})
}

// ensureAvailable reads until at least n bytes are available at pos, and waits for no more bytes than that. It may change chunk and pos. n
// is at most maxBatchSize and a header. The error is the reason why there are fewer bytes.
func (r *Reader) ensureAvailable(n int) error {
	for len(r.chunk)-r.pos < n {
		if r.sourceErr != nil {
			return r.sourceErr
		}
		r.readMore()
	}
	return nil
}

// chunkSize is the memory of a chunk: of each, less than a batch remains unused, which the next chunk begins with.
const chunkSize = 1 << 20

// readMore reads the next bytes of the source into the chunk, or into another one if it is full. It stores the source's error, also
// io.EOF, in sourceErr.
func (r *Reader) readMore() {
	if len(r.chunk) >= cap(r.chunk)-Pad {
		if parsed := r.changeChunk(); r.gen == nil || r.gen.Skipped {
			r.returnChunks(parsed)
		} else {
			r.gen.Parts = append(r.gen.Parts, parsed)
		}
	}
	free := r.chunk[len(r.chunk) : cap(r.chunk)-Pad]
	for tries := 0; ; tries++ {
		n, err := r.src.Read(free)
		r.chunk = r.chunk[:len(r.chunk)+n]
		r.unpacked.Add(int64(n))
		if err != nil {
			r.sourceErr = err
		}
		if n > 0 || err != nil {
			return
		}
		if tries == 100 {
			r.sourceErr = io.ErrNoProgress
			return
		}
	}
}

// changeChunk moves the bytes that are not parsed to another chunk, and returns those that are.
func (r *Reader) changeChunk() (parsed []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var chunk []byte
	if n := len(r.spareChunks); n > 0 {
		chunk, r.spareChunks = r.spareChunks[n-1], r.spareChunks[:n-1]
	} else {
		chunk = make([]byte, 0, chunkSize)
	}
	parsed = r.chunk[:r.pos]
	r.chunk = append(chunk, r.chunk[r.pos:]...)
	r.base += int64(r.pos)
	r.pos = 0
	return parsed
}

// returnChunks keeps chunks for reuse.
func (r *Reader) returnChunks(chunks ...[]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range chunks {
		if cap(c) == chunkSize {
			r.spareChunks = append(r.spareChunks, c[:0])
		}
	}
}

// batchListCost is the memory of a batch in a growing list, which for tiny batches exceeds their bytes.
const batchListCost = 3 * int(unsafe.Sizeof(Batch{}))

// A batchHeader is the part of a batch before its data.
type batchHeader struct {
	typ        EventType
	gen, m, ts uint64
	size       int
	data       int // index of the data in chunk
}

// readBatchHeader reads the next batch's header, or the mark of a generation's end, and makes the batch's data available,
// without moving pos. The error is io.EOF if there are no more batches.
func (r *Reader) readBatchHeader() (h batchHeader, err error) {
	if err := r.ensureAvailable(1); err != nil {
		if !errors.Is(err, io.EOF) {
			return h, r.cutError()
		}
		return h, io.EOF
	}
	h.typ = EventType(r.chunk[r.pos])
	i := 1 // bytes of the header that were read
	switch h.typ {
	case EvEndOfGeneration:
		if r.minor < 26 {
			return h, r.damagedError("an end-of-generation mark in a trace whose version has none")
		}
		h.data = r.pos + i
		return h, nil
	case EvEventBatch:
	case EvExperimentalBatch:
		if r.ensureAvailable(2) != nil {
			return h, r.cutError()
		}
		i++ // the kind of experiment
	default:
		return h, r.damagedError(fmt.Sprintf("a batch was expected, but there is a byte %d", h.typ))
	}
	var size uint64
	for _, p := range []*uint64{&h.gen, &h.m, &h.ts, &size} {
		// Wait for no byte more than the number has: in a live trace the next one may arrive a second
		// later.
		v, next := uvarint(r.chunk[r.pos:], i)
		for n := 1; next == 0 && n <= 10 && r.ensureAvailable(i+n) == nil; n++ {
			v, next = uvarint(r.chunk[r.pos:], i)
		}
		if next == 0 {
			if len(r.chunk)-r.pos-i < 10 {
				return h, r.cutError()
			}
			return h, r.damagedError("a number in a batch's header is too long")
		}
		*p, i = v, next
	}
	if size > maxBatchSize {
		return h, r.damagedError(fmt.Sprintf("a batch claims %d bytes, more than the format allows (%d)", size, maxBatchSize))
	}
	if h.gen == 0 {
		return h, r.damagedError("a batch of generation 0")
	}
	if r.ensureAvailable(i+int(size)) != nil {
		return h, r.cutError()
	}
	h.size, h.data = int(size), r.pos+i
	return h, nil
}

// damagedError returns an Error of kind Damaged at the current position.
func (r *Reader) damagedError(text string) error {
	return &Error{Kind: Damaged, Offset: r.base + int64(r.pos), Text: "damaged trace: " + text}
}

// cutError returns an Error of kind Truncated for a trace that ends inside of a batch.
func (r *Reader) cutError() error {
	return &Error{Kind: Truncated, Offset: r.base + int64(r.pos), Text: "the trace is cut in the middle of a batch", Err: r.sourceError()}
}

// Next returns the next generation. The error is io.EOF at a clean end. It is an *Error if the bytes are cut or
// damaged; then reading ends, and all whole generations before have been returned. Release returns the
// generation's memory.
func (r *Reader) Next() (*Generation, error) {
	if r.ended {
		err := cmp.Or(r.finalErr, io.EOF)
		r.finalErr = nil
		return nil, r.end(err)
	}
	// The parsed bytes belong to the generation before: move the others to another chunk.
	parsed := r.changeChunk()
	if r.gen == nil {
		r.returnChunks(parsed)
	}
	g := &Generation{Minor: r.minor, Offset: r.base, src: r}
	r.gen = g
	clean, fail := r.readBatches(g)
	r.ended = !clean
	g.Parts = append(g.Parts, r.chunk[:r.pos])
	r.dropSpareChunks() // the next generation has those of this one
	if g.Num == 0 {
		return nil, r.end(cmp.Or(fail, io.EOF))
	}
	whole := g.Skipped || g.Freq != 0 && (r.minor < 25 || g.HasSnapshot)
	switch {
	case clean && whole:
		return g, nil
	case clean:
		r.ended = true
		return nil, &Error{Kind: Damaged, Offset: g.Offset, Text: fmt.Sprintf("damaged trace: generation %d has no clock data", g.Num)}
	case r.minor >= 26 || fail != nil && KindOf(fail) == Truncated && !r.isCutInNext(g) || !whole:
		// The last generation is not whole. Before Go 1.26 no mark ends it: it counts as whole unless
		// there is evidence to the contrary.
		if fail == nil {
			fail = &Error{Kind: Truncated, Offset: r.base + int64(len(r.chunk)), Text: "the trace is cut: its last generation has no end", Err: r.sourceError()}
		}
		return nil, fail
	}
	g.Unmarked = true
	r.finalErr = fail
	return g, nil
}

// end drops the chunks, which may have much memory, after the last generation, and returns the error that Next returns.
func (r *Reader) end(err error) error {
	r.dropSpareChunks()
	r.chunk, r.pos, r.gen, r.ended = nil, 0, nil, true
	return err
}

// dropSpareChunks releases the memory of chunks that are not in use.
func (r *Reader) dropSpareChunks() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spareChunks = nil
}

// readBatches reads the batches of one generation into g. clean reports a proper end of the generation; otherwise err describes
// the error in the bytes, if it is known. If it leaves g.Num 0, g is unusable.
func (r *Reader) readBatches(g *Generation) (clean bool, err error) {
	for {
		h, err := r.readBatchHeader()
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
				return false, r.damagedError("a generation ends that has not begun")
			}
			continue // a trace that was joined from parts may begin with it
		}
		g.Num = cmp.Or(g.Num, h.gen)
		if h.gen != g.Num {
			if r.minor < 26 && h.gen == g.Num+1 {
				return true, nil
			}
			fail := r.damagedError(fmt.Sprintf("a batch of generation %d stands inside generation %d", h.gen, g.Num))
			if r.minor < 26 {
				g.Num = 0 // generations are mixed
			}
			return false, fail
		}
		r.pos = h.data + h.size
		g.Bytes = r.base + int64(r.pos) - g.Offset
		if g.Skipped {
			continue
		}
		if err := g.addBatch(h, r.chunk); err != nil {
			g.Num = 0
			return false, &Error{Kind: Damaged, Offset: r.base + int64(h.data), Text: "damaged trace: " + err.Error()}
		}
		if int(g.Bytes)+batchListCost*(len(g.Batches)+len(g.tables)) > r.maxGeneration {
			g.Skipped = true
			r.returnChunks(g.Parts...)
			g.Batches, g.tables, g.Parts = nil, nil, nil
			r.warn("skipped-generation", fmt.Sprintf("generation %d is larger than the memory allowed (%d MB) and was skipped", g.Num, r.maxGeneration>>20))
		}
	}
}

// isCutInNext reports whether the incomplete batch at the end of the stream visibly belongs to the next
// generation.
func (r *Reader) isCutInNext(g *Generation) bool {
	v, next := uvarint(r.chunk, r.pos+1)
	return next != 0 && len(r.chunk) > r.pos && EventType(r.chunk[r.pos]) == EvEventBatch && v == g.Num+1
}

// sourceError returns the source's error, nil if the source just ended.
func (r *Reader) sourceError() error {
	if r.sourceErr == nil || errors.Is(r.sourceErr, io.EOF) || errors.Is(r.sourceErr, io.ErrUnexpectedEOF) {
		return nil
	}
	return r.sourceErr
}

// Release returns the generation's bytes for reuse by a later Next; the caller must not use the generation
// afterwards. It may be called while another goroutine is in Next.
func (g *Generation) Release() {
	g.src.returnChunks(g.Parts...)
	g.Parts, g.Batches, g.tables = nil, nil, nil
}

// addBatch adds a batch to g: events and tables to the lists of their kind, clock data are read at once. It returns an error if
// the clock data are wrong.
func (g *Generation) addBatch(h batchHeader, chunk []byte) error {
	b := Batch{M: h.m, Time: h.ts, Data: chunk[h.data : h.data+h.size]}
	if !g.hasTime || h.ts < g.MinTime {
		g.MinTime, g.hasTime = h.ts, true
	}
	if h.typ == EvExperimentalBatch || h.size == 0 {
		return nil
	}
	switch t := EventType(b.Data[0]); {
	case t == EvStrings, t == EvStacks, t == EvCPUSamples:
		g.tables = append(g.tables, b)
	case t == EvFrequency && g.Minor < 25:
		return g.addSync(b, 0)
	case t == EvSync && g.Minor >= 25:
		return g.addSync(b, 1)
	default:
		g.Batches = append(g.Batches, b)
	}
	return nil
}

// addSync reads the clock data (frequency, snapshot) of a sync batch from byte i of its data on. It returns an error if they are cut,
// or if g has them already.
func (g *Generation) addSync(b Batch, i int) error {
	ts := b.Time
	for c := (cursor{data: b.Data, pos: i}); c.hasMore(); {
		switch t := c.nextType(); {
		case t == EvFrequency:
			freq := c.nextUint()
			switch {
			case c.failed:
				return errCutSync
			case g.Freq != 0 || freq == 0:
				return errors.New("a generation with two clock frequencies, or one of zero")
			}
			g.Freq = freq
		case t == EvClockSnapshot && g.Minor >= 25:
			ts += c.nextUint()
			s := ClockSnapshot{ts, c.nextUint(), c.nextUint(), c.nextUint()}
			switch {
			case c.failed:
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
