package tracefmt

import (
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
	// Lookups counts, if not nil, the strings that are asked for: for tests of how costs grow.
	Lookups *atomic.Int64

	strings         []string
	stringIDs       map[string]StringID
	mu              *sync.RWMutex // guards stringIDs, which snapshots share
	frames          []Frame
	frameIDs        map[Frame]FrameID
	arena           []FrameID
	stacks          []span32           // arena[from:to] of each stack, innermost call first
	stackIDs        map[uint64]StackID // by hash, or the next free place
	places          []FrameID          // by stack
	opensConnection []bool             // by stack
	callees         map[FrameID]StringID
	key             hashKey
	methods         *methodIndex
}

type span32 struct{ from, to uint32 }

// NewSymbols returns a table that holds the empty string and the empty stack.
func NewSymbols() *Symbols {
	return &Symbols{
		strings:   []string{""},
		stringIDs: map[string]StringID{"": 0},
		mu:        new(sync.RWMutex),
		frames:    make([]Frame, 1),
		frameIDs:  make(map[Frame]FrameID),
		stacks:    make([]span32, 1),
		stackIDs:  make(map[uint64]StackID),
		key:       newHashKey(),
		methods:   new(methodIndex),
		callees:   make(map[FrameID]StringID),
	}
}

// String returns the text of an id.
func (s *Symbols) String(id StringID) string {
	if s.Lookups != nil {
		s.Lookups.Add(1)
	}
	return s.strings[id]
}

// Strings returns how many strings there are; ids are below it.
func (s *Symbols) Strings() int { return len(s.strings) }

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

// SetOpensConnection has Opens report that a stack is in the opening of a connection. It is called before anybody asks.
func (s *Symbols) SetOpensConnection(id StackID) {
	for int(id) >= len(s.opensConnection) {
		s.opensConnection = append(s.opensConnection, false)
	}
	s.opensConnection[id] = true
}

// OpensConnection reports what SetOpensConnection said of a stack.
func (s *Symbols) OpensConnection(id StackID) bool {
	return int(id) < len(s.opensConnection) && s.opensConnection[id]
}

// SetCallee has Callee return fn for a frame. Nobody may read the symbols, or a snapshot of them, meanwhile.
func (s *Symbols) SetCallee(f FrameID, fn StringID) { s.callees[f] = fn }

// Callee returns what SetCallee said that a frame's line, or that of its Caller, calls; or 0.
func (s *Symbols) Callee(f FrameID) StringID { return s.callees[f] }

// Intern returns the id of a string.
func (s *Symbols) Intern(text string) StringID {
	s.mu.RLock()
	id, ok := s.stringIDs[text]
	s.mu.RUnlock()
	if !ok {
		id = StringID(len(s.strings))
		s.strings = append(s.strings, text)
		s.mu.Lock()
		s.stringIDs[text] = id
		s.mu.Unlock()
	}
	return id
}

// Lookup returns the id of a string if it is known, 0 if not.
func (s *Symbols) Lookup(text string) StringID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if id := s.stringIDs[text]; int(id) < len(s.strings) {
		return id
	}
	return 0
}

func (s *Symbols) internBytes(b []byte) StringID {
	s.mu.RLock()
	id, ok := s.stringIDs[string(b)]
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

// FrameCalledFrom returns the frame f as it is called from another one, near or far.
func (s *Symbols) FrameCalledFrom(f, caller FrameID) FrameID {
	fr := s.frames[f]
	fr.Caller = caller
	return s.internFrame(fr)
}

func (s *Symbols) internFrame(f Frame) FrameID {
	id, ok := s.frameIDs[f]
	if !ok {
		id = FrameID(len(s.frames))
		s.frames = append(s.frames, f)
		s.frameIDs[f] = id
	}
	return id
}

func (s *Symbols) internStack(frames []FrameID) StackID {
	if len(frames) == 0 {
		return 0
	}
	for h := s.key.hashStack(frames); ; h++ { // other frames may have had the place
		id, ok := s.stackIDs[h]
		if !ok {
			id = StackID(len(s.stacks))
			from := uint32(len(s.arena))
			s.arena = append(s.arena, frames...)
			s.stacks = append(s.stacks, span32{from, uint32(len(s.arena))})
			s.stackIDs[h] = id
		} else if !slices.Equal(s.Stack(id), frames) {
			continue
		}
		return id
	}
}

// A hashKey is drawn for each table of symbols: whoever writes a trace cannot know which stacks would share a
// place, and so cannot make each search pass all others. Ids do not depend on it.
type hashKey struct{ add, mul uint64 }

func newHashKey() hashKey { return hashKey{rand.Uint64(), rand.Uint64() | 1} }

// mix folds the 128 bits of a product with the key (the step of wyhash).
func (k hashKey) mix(h, v uint64) uint64 {
	hi, lo := bits.Mul64(h^v^k.add, k.mul)
	return hi ^ lo
}

func (k hashKey) hashStack(frames []FrameID) uint64 {
	h := uint64(len(frames))
	for _, f := range frames {
		h = k.mix(h, uint64(f))
	}
	return h
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

// MethodOfWrapper returns a frame; for the wrapper that the compiler makes of a method value (T.method-fm, at
// "<autogenerated>:1"), the first line of the method itself that a stack has shown, if one has.
// What is added after the first call is not seen by later ones: it is for tables that do not change any more.
func (s *Symbols) MethodOfWrapper(id FrameID) Frame {
	f := s.Frame(id)
	name, ok := strings.CutSuffix(s.String(f.Func), "-fm")
	if !ok {
		return f
	}
	method := s.Lookup(name)
	if method == 0 {
		return f
	}
	first := s.methods.firstLine(s, method)
	if first.Func == 0 {
		return f
	}
	first.Caller = f.Caller
	return first
}

// A methodIndex knows the first line of each function that a table of symbols has shown, from its first use on. A snapshot
// has its own, because it does not change any more.
type methodIndex struct {
	buildOnce sync.Once
	lines     map[StringID]Frame
}

func (m *methodIndex) firstLine(s *Symbols, fn StringID) Frame {
	m.buildOnce.Do(func() {
		m.lines = make(map[StringID]Frame)
		for _, f := range s.frames[1:] {
			if l, ok := m.lines[f.Func]; !ok || f.Line < l.Line {
				m.lines[f.Func] = f
			}
		}
	})
	return m.lines[fn]
}
