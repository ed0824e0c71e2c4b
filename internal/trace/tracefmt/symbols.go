package tracefmt

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// StringID, FrameID and StackID name entries of a Symbols. 0 means none.
type (
	StringID uint32
	FrameID  uint32
	StackID  uint32
)

// A Frame is one function call of a stack.
type Frame struct {
	PC   uint64
	Func StringID
	File StringID
	Line uint32
	// Caller is 0 in stacks. It tells places apart that are the same line, called
	// from different ones: see Symbols.Called.
	Caller FrameID
}

// Symbols holds the strings, frames and stacks of all generations, each kept
// once by content, so that equal stacks have equal ids however often and in
// whichever generation they came. Ids are given in order of appearance in the
// file and so do not depend on how many workers decode.
//
// One goroutine may add to it while none reads.
type Symbols struct {
	// Looked counts, if not nil, the strings that are asked for: for tests of how costs grow.
	Looked *atomic.Int64

	strs    []string
	strIdx  map[string]StringID
	mu      *sync.RWMutex // guards strIdx, which snapshots share
	frames  []Frame
	frmIdx  []uint32 // open addressing over frames
	arena   []FrameID
	stacks  []span32 // arena[from:to] of each stack, innermost call first
	stkIdx  []uint32 // open addressing over stacks
	stkHash []uint32
	places  []FrameID // by stack
	opens   []bool    // by stack
	callees map[FrameID]StringID
	key     hashKey
	methods *methodIndex
}

type span32 struct{ from, to uint32 }

// NewSymbols returns a table that holds the empty string and the empty stack.
func NewSymbols() *Symbols {
	return &Symbols{
		strs:    []string{""},
		strIdx:  map[string]StringID{"": 0},
		mu:      new(sync.RWMutex),
		frames:  make([]Frame, 1),
		frmIdx:  make([]uint32, 1<<10),
		stacks:  make([]span32, 1),
		stkIdx:  make([]uint32, 1<<10),
		stkHash: make([]uint32, 1),
		key:     newHashKey(),
		methods: new(methodIndex),
		callees: make(map[FrameID]StringID),
	}
}

// String returns the text of an id.
func (s *Symbols) String(id StringID) string {
	if s.Looked != nil {
		s.Looked.Add(1)
	}
	return s.strs[id]
}

// Strings returns how many strings there are; ids are below it.
func (s *Symbols) Strings() int { return len(s.strs) }

// Frame returns a frame.
func (s *Symbols) Frame(id FrameID) Frame { return s.frames[id] }

// Frames returns how many frames there are; ids are below it.
func (s *Symbols) Frames() int { return len(s.frames) }

// Stack returns a stack's frames, innermost call first. The slice is shared.
func (s *Symbols) Stack(id StackID) []FrameID {
	sp := s.stacks[id]
	return s.arena[sp.from:sp.to]
}

// Stacks returns how many stacks there are; ids are below it.
func (s *Symbols) Stacks() int { return len(s.stacks) }

// Called returns the frame f as it is called from another one, near or far.
func (s *Symbols) Called(f, from FrameID) FrameID {
	fr := s.frames[f]
	fr.Caller = from
	return s.internFrame(fr)
}

// SetPlace has Place return f for a stack. It is called for a stack at most once, before anybody asks.
func (s *Symbols) SetPlace(id StackID, f FrameID) {
	for int(id) >= len(s.places) {
		s.places = append(s.places, 0)
	}
	s.places[id] = f
}

// Place returns what SetPlace said of a stack, or 0.
func (s *Symbols) Place(id StackID) FrameID {
	if int(id) < len(s.places) {
		return s.places[id]
	}
	return 0
}

// SetOpens has Opens report that a stack is in the opening of a connection. It is called before anybody asks.
func (s *Symbols) SetOpens(id StackID) {
	for int(id) >= len(s.opens) {
		s.opens = append(s.opens, false)
	}
	s.opens[id] = true
}

// Opens reports what SetOpens said of a stack.
func (s *Symbols) Opens(id StackID) bool { return int(id) < len(s.opens) && s.opens[id] }

// SetCallee has Callee return fn for a frame. Nobody may read the symbols, or a snapshot of them, meanwhile.
func (s *Symbols) SetCallee(f FrameID, fn StringID) { s.callees[f] = fn }

// Callee returns what SetCallee said that a frame's line, or that of its Caller, calls; or 0.
func (s *Symbols) Callee(f FrameID) StringID { return s.callees[f] }

// Intern returns the id of a string.
func (s *Symbols) Intern(text string) StringID {
	s.mu.RLock()
	id, ok := s.strIdx[text]
	s.mu.RUnlock()
	if !ok {
		id = StringID(len(s.strs))
		s.strs = append(s.strs, text)
		s.mu.Lock()
		s.strIdx[text] = id
		s.mu.Unlock()
	}
	return id
}

func (s *Symbols) internBytes(b []byte) StringID {
	s.mu.RLock()
	id, ok := s.strIdx[string(b)]
	s.mu.RUnlock()
	if ok {
		return id
	}
	return s.Intern(string(b))
}

// Snapshot returns the symbols as they are now, to be read while others are
// added to s. What is known now does not change any more; what comes later, a
// snapshot does not have.
func (s *Symbols) Snapshot() Symbols {
	c := *s
	c.methods = new(methodIndex)
	return c
}

// A hashKey is drawn for each table of symbols: whoever writes a trace cannot know which frames or stacks would share a
// place, and so cannot make each search pass all others. Ids do not depend on it.
type hashKey struct{ add, mul uint64 }

func newHashKey() hashKey { return hashKey{rand.Uint64(), rand.Uint64() | 1} }

// mix folds the 128 bits of a product with the key (the step of wyhash).
func (k hashKey) mix(h, v uint64) uint64 {
	hi, lo := bits.Mul64(h^v^k.add, k.mul)
	return hi ^ lo
}

func (k hashKey) frame(f *Frame) uint64 {
	return k.mix(k.mix(f.PC, uint64(f.Func)<<32|uint64(f.File)), uint64(f.Line)|uint64(f.Caller)<<32)
}

func (s *Symbols) internFrame(f Frame) FrameID {
	h := s.key.frame(&f)
	mask := uint64(len(s.frmIdx) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		id := s.frmIdx[i]
		if id == 0 {
			id = uint32(len(s.frames))
			s.frames = append(s.frames, f)
			s.frmIdx[i] = id
			if 2*len(s.frames) > len(s.frmIdx) {
				s.growFrames()
			}
			return FrameID(id)
		}
		if s.frames[id] == f {
			return FrameID(id)
		}
	}
}

func (s *Symbols) growFrames() {
	idx := make([]uint32, 2*len(s.frmIdx))
	mask := uint64(len(idx) - 1)
	for id := 1; id < len(s.frames); id++ {
		i := s.key.frame(&s.frames[id]) & mask
		for idx[i] != 0 {
			i = (i + 1) & mask
		}
		idx[i] = uint32(id)
	}
	s.frmIdx = idx
}

func (s *Symbols) internStack(frames []FrameID) StackID {
	if len(frames) == 0 {
		return 0
	}
	h := uint64(len(frames))
	for _, f := range frames {
		h = s.key.mix(h, uint64(f))
	}
	hash := uint32(h >> 32)
	mask := uint32(len(s.stkIdx) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		id := s.stkIdx[i]
		if id == 0 {
			id = uint32(len(s.stacks))
			from := uint32(len(s.arena))
			s.arena = append(s.arena, frames...)
			s.stacks = append(s.stacks, span32{from, uint32(len(s.arena))})
			s.stkHash = append(s.stkHash, hash)
			s.stkIdx[i] = id
			if 2*len(s.stacks) > len(s.stkIdx) {
				s.growStacks()
			}
			return StackID(id)
		}
		if s.stkHash[id] == hash && slices.Equal(s.Stack(StackID(id)), frames) {
			return StackID(id)
		}
	}
}

func (s *Symbols) growStacks() {
	idx := make([]uint32, 2*len(s.stkIdx))
	mask := uint32(len(idx) - 1)
	for id := 1; id < len(s.stacks); id++ {
		i := s.stkHash[id] & mask
		for idx[i] != 0 {
			i = (i + 1) & mask
		}
		idx[i] = uint32(id)
	}
	s.stkIdx = idx
}

// AddStack interns a stack given as frames with text; for tests and tools
// that build stacks themselves.
func (s *Symbols) AddStack(frames ...FrameText) StackID {
	ids := make([]FrameID, len(frames))
	for i, f := range frames {
		ids[i] = s.internFrame(Frame{PC: f.PC, Func: s.Intern(f.Func), File: s.Intern(f.File), Line: f.Line})
	}
	return s.internStack(ids)
}

// FrameText is a frame with its strings spelt out.
type FrameText struct {
	PC         uint64
	Func, File string
	Line       uint32
}

// A Local maps the ids of one generation to those of a Symbols. Ids that the
// generation never defined map to 0.
type Local struct {
	dense  []uint32
	sparse map[uint64]uint32
	empty  map[uint64]bool // ids defined as the empty string or stack
}

// Get returns what id stands for.
func (l *Local) Get(id uint64) uint32 {
	if id < uint64(len(l.dense)) {
		return l.dense[id]
	}
	return l.sparse[id]
}

// Defines reports whether the generation defined id. 0, which means none, is
// always defined.
func (l *Local) Defines(id uint64) bool { return id == 0 || l.Get(id) != 0 || l.empty[id] }

// Len returns an upper bound of the ids that are looked up without a map.
func (l *Local) Len() int { return len(l.dense) }

// set defines id. The runtime gives ids densely from 1; ids far beyond what
// has been seen go to a map, so that a hostile file cannot make us allocate.
func (l *Local) set(id uint64, v uint32, seen int) {
	if v == 0 {
		if l.empty == nil {
			l.empty = make(map[uint64]bool)
		}
		l.empty[id] = true
	}
	if id < uint64(len(l.dense)) {
		l.dense[id] = v
		return
	}
	if id < 4*uint64(seen)+1024 {
		for uint64(len(l.dense)) <= id {
			l.dense = append(l.dense, l.sparse[uint64(len(l.dense))])
		}
		l.dense[id] = v
		return
	}
	if l.sparse == nil {
		l.sparse = make(map[uint64]uint32)
	}
	l.sparse[id] = v
}

func (l *Local) reset() {
	l.dense = l.dense[:0]
	clear(l.sparse)
	clear(l.empty)
}

// A Sample is one CPU profile sample. Its time is in clock units.
type Sample struct {
	Time    uint64
	M, P, G uint64
	Stack   StackID
}

// Tables are one generation's own tables, by its own ids.
type Tables struct {
	Strings Local // to StringID
	Stacks  Local // to StackID
	Samples []Sample

	frames []FrameID // scratch
	// remembered frames of this generation: pc and local ids to FrameID
	cache []frameCache
}

type frameCache struct {
	pc             uint64
	fn, file, line uint64
	id             FrameID
}

// Read reads the string, stack and CPU sample batches of g, interning into
// syms. t may be reused from one generation to the next.
func (t *Tables) Read(g *Generation, syms *Symbols) error {
	t.Strings.reset()
	t.Stacks.reset()
	t.Samples = t.Samples[:0]
	if t.cache == nil {
		t.cache = make([]frameCache, 1<<12)
	}
	clear(t.cache)
	// Strings first: stacks refer to them.
	n := 0
	for _, b := range g.tables {
		if EventType(g.Data[b.Off]) == EvStrings {
			if err := t.readStrings(g.Data[:b.End], b.Off+1, syms, &n); err != nil {
				return fmt.Errorf("generation %d: strings: %w", g.Num, err)
			}
		}
	}
	n = 0
	for _, b := range g.tables {
		if EventType(g.Data[b.Off]) == EvStacks {
			if err := t.readStacks(g.Data[:b.End], b.Off+1, syms, &n); err != nil {
				return fmt.Errorf("generation %d: stacks: %w", g.Num, err)
			}
		}
	}
	for _, b := range g.tables {
		if EventType(g.Data[b.Off]) == EvCPUSamples {
			if err := t.readSamples(g.Data[:b.End], b.Off+1); err != nil {
				return fmt.Errorf("generation %d: CPU samples: %w", g.Num, err)
			}
		}
	}
	return nil
}

var errCutTable = errors.New("a table's batch ends in the middle of an entry")

func (t *Tables) readStrings(b []byte, i int, syms *Symbols, n *int) error {
	for i < len(b) {
		if EventType(b[i]) != EvString {
			return fmt.Errorf("a string was expected, but there is an event of type %d", b[i])
		}
		id, next := uvarint(b, i+1)
		if next == 0 {
			return errCutTable
		}
		size, next := uvarint(b, next)
		if next == 0 || size > uint64(len(b)-next) {
			return errCutTable
		}
		if size > maxStringLength {
			return fmt.Errorf("a string claims %d bytes, more than the format allows (%d)", size, maxStringLength)
		}
		*n++
		t.Strings.set(id, uint32(syms.internBytes(b[next:next+int(size)])), *n)
		i = next + int(size)
	}
	return nil
}

func (t *Tables) readStacks(b []byte, i int, syms *Symbols, n *int) error {
	for i < len(b) {
		if EventType(b[i]) != EvStack {
			return fmt.Errorf("a stack was expected, but there is an event of type %d", b[i])
		}
		id, next := uvarint(b, i+1)
		if next == 0 {
			return errCutTable
		}
		count, next := uvarint(b, next)
		if next == 0 {
			return errCutTable
		}
		if count > maxFramesPerStack {
			return fmt.Errorf("a stack claims %d frames, more than the format allows (%d)", count, maxFramesPerStack)
		}
		i = next
		t.frames = t.frames[:0]
		for range count {
			var v [4]uint64
			for k := range v {
				if v[k], next = uvarint(b, i); next == 0 {
					return errCutTable
				}
				i = next
			}
			c := &t.cache[syms.key.mix(v[0], v[3])&uint64(len(t.cache)-1)]
			if c.id == 0 || c.pc != v[0] || c.fn != v[1] || c.file != v[2] || c.line != v[3] {
				*c = frameCache{v[0], v[1], v[2], v[3], syms.internFrame(Frame{
					PC:   v[0],
					Func: StringID(t.Strings.Get(v[1])),
					File: StringID(t.Strings.Get(v[2])),
					Line: uint32(min(v[3], 1<<32-1)),
				})}
			}
			t.frames = append(t.frames, c.id)
		}
		*n++
		t.Stacks.set(id, uint32(syms.internStack(t.frames)), *n)
	}
	return nil
}

func (t *Tables) readSamples(b []byte, i int) error {
	for i < len(b) {
		if EventType(b[i]) != EvCPUSample {
			return fmt.Errorf("a CPU sample was expected, but there is an event of type %d", b[i])
		}
		i++
		var v [5]uint64
		for k := range v {
			var next int
			if v[k], next = uvarint(b, i); next == 0 {
				return errCutTable
			}
			i = next
		}
		t.Samples = append(t.Samples, Sample{Time: v[0], M: v[1], P: v[2], G: v[3], Stack: StackID(t.Stacks.Get(v[4]))})
	}
	return nil
}

// Sparse calls f for every id that is looked up through the map.
func (l *Local) Sparse(f func(id uint64, v uint32)) {
	for id, v := range l.sparse {
		f(id, v)
	}
}

// Unwrapped returns a frame; for the wrapper that the compiler makes of a method value (T.method-fm, at
// "<autogenerated>:1"), the first line of the method itself that a stack has shown, if one has.
// What is added after the first call is not seen by later ones: it is for tables that do not change any more.
func (s *Symbols) Unwrapped(id FrameID) Frame {
	f := s.Frame(id)
	name, ok := strings.CutSuffix(s.String(f.Func), "-fm")
	if !ok {
		return f
	}
	method := s.Lookup(name)
	if method == 0 {
		return f
	}
	first := s.methods.first(s, method)
	if first.Func == 0 {
		return f
	}
	first.Caller = f.Caller
	return first
}

// A methodIndex knows the first line of each function that a table of symbols has shown, from its first use on. A snapshot
// has its own, because it does not change any more.
type methodIndex struct {
	once  sync.Once
	lines map[StringID]Frame
}

func (m *methodIndex) first(s *Symbols, fn StringID) Frame {
	m.once.Do(func() {
		m.lines = make(map[StringID]Frame)
		for _, f := range s.frames[1:] {
			if l, ok := m.lines[f.Func]; !ok || f.Line < l.Line {
				m.lines[f.Func] = f
			}
		}
	})
	return m.lines[fn]
}

// Lookup returns the id of a string if it is known, 0 if not.
func (s *Symbols) Lookup(text string) StringID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if id := s.strIdx[text]; int(id) < len(s.strs) {
		return id
	}
	return 0
}
