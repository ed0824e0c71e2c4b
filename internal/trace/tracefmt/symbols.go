package tracefmt

import (
	"cmp"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// StringID, FrameID and StackID identify entries of a Symbols. 0 means none.
type (
	StringID uint32
	FrameID  uint32
	StackID  uint32
)

// A Frame is one function call on a stack.
type Frame struct {
	PC   uint64
	Func StringID
	File StringID
	Line uint32
	// Caller is 0 in stacks. It distinguishes places on the same line that have different callers: see
	// Symbols.FrameCalledFrom.
	Caller FrameID
}

// Symbols holds the strings, frames and stacks of all generations, each once. So equal stacks have equal ids, in
// whichever generations they occur. Ids are assigned in the order of appearance in the file, and so do not depend
// on the number of decoding workers.
//
// One goroutine may add entries while no other reads.
type Symbols struct {
	// Lookups, if not nil, counts the calls of String. Tests check with it how costs grow.
	Lookups *atomic.Int64

	strings         []string
	stringIDs       map[string]StringID
	mu              *sync.RWMutex // guards stringIDs, which snapshots share
	frames          []Frame
	frameIDs        map[Frame]FrameID
	arena           []FrameID
	stacks          []span32           // arena[from:to] for each stack, innermost call first
	stackIDs        map[uint64]StackID // by hash, or by the next free number after it
	callerSites     []FrameID          // for each stack, see SetCallerSite
	opensConnection []bool             // for each stack, see SetOpensConnection
	callees         map[FrameID]StringID
	key             hashKey
	methods         *methodIndex
}

type span32 struct{ from, to uint32 }

// NewSymbols returns Symbols that hold only the empty string and the empty stack.
func NewSymbols() *Symbols {
	return &Symbols{
		strings:   []string{""},
		stringIDs: map[string]StringID{"": 0},
		mu:        new(sync.RWMutex),
		frames:    make([]Frame, 1),
		frameIDs:  make(map[Frame]FrameID),
		stacks:    make([]span32, 1),
		stackIDs:  make(map[uint64]StackID),
		key:       hashKey{rand.Uint64(), rand.Uint64() | 1},
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

// Strings returns the number of strings; all ids are below it.
func (s *Symbols) Strings() int { return len(s.strings) }

// Frame returns a frame.
func (s *Symbols) Frame(id FrameID) Frame { return s.frames[id] }

// A Line is a source line without its callers.
type Line struct {
	Func, File StringID
	Number     uint32
}

// Compare orders lines by function, file and number.
func (l Line) Compare(o Line) int {
	return cmp.Or(cmp.Compare(l.Func, o.Func), cmp.Compare(l.File, o.File), cmp.Compare(l.Number, o.Number))
}

// Line returns the line of a frame.
func (s *Symbols) Line(id FrameID) Line {
	f := &s.frames[id]
	return Line{f.Func, f.File, f.Line}
}

// Frames returns the number of frames; all ids are below it.
func (s *Symbols) Frames() int { return len(s.frames) }

// Stack returns a stack's frames, innermost call first. The slice is shared; callers must not change it.
func (s *Symbols) Stack(id StackID) []FrameID {
	sp := s.stacks[id]
	return s.arena[sp.from:sp.to]
}

// Stacks returns the number of stacks; all ids are below it.
func (s *Symbols) Stacks() int { return len(s.stacks) }

// SetCallerSite sets the frame that CallerSite returns for a stack. It must be called at most once for a stack, before the
// first call of CallerSite.
func (s *Symbols) SetCallerSite(id StackID, f FrameID) {
	for int(id) >= len(s.callerSites) {
		s.callerSites = append(s.callerSites, 0)
	}
	s.callerSites[id] = f
}

// CallerSite returns the frame that SetCallerSite set for a stack, or 0.
func (s *Symbols) CallerSite(id StackID) FrameID {
	if int(id) < len(s.callerSites) {
		return s.callerSites[id]
	}
	return 0
}

// SetOpensConnection makes OpensConnection return true for a stack. It must be called before the first call of
// OpensConnection.
func (s *Symbols) SetOpensConnection(id StackID) {
	for int(id) >= len(s.opensConnection) {
		s.opensConnection = append(s.opensConnection, false)
	}
	s.opensConnection[id] = true
}

// OpensConnection reports whether SetOpensConnection was called for a stack: the stack is part of opening a
// connection.
func (s *Symbols) OpensConnection(id StackID) bool {
	return int(id) < len(s.opensConnection) && s.opensConnection[id]
}

// SetCallee sets the function that Callee returns for a frame. No goroutine may read the symbols, or a snapshot of
// them, concurrently.
func (s *Symbols) SetCallee(f FrameID, fn StringID) { s.callees[f] = fn }

// Callee returns the function that SetCallee set for a frame: the function that its line, or the line of its
// Caller, calls; or 0.
func (s *Symbols) Callee(f FrameID) StringID { return s.callees[f] }

// Intern returns the id of a string, adding it if it is not in the table.
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

// Lookup returns the id of a string; 0 if it is not in the table.
func (s *Symbols) Lookup(text string) StringID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if id := s.stringIDs[text]; int(id) < len(s.strings) {
		return id
	}
	return 0
}

// HasPrefix reports whether a text of the trace, such as the name of a function, begins with prefix.
func (s *Symbols) HasPrefix(prefix string) bool {
	return slices.ContainsFunc(s.strings, func(text string) bool { return strings.HasPrefix(text, prefix) })
}

// internBytes is Intern for bytes; it allocates no string if the table has it.
func (s *Symbols) internBytes(b []byte) StringID {
	s.mu.RLock()
	id, ok := s.stringIDs[string(b)]
	s.mu.RUnlock()
	if ok {
		return id
	}
	return s.Intern(string(b))
}

// Snapshot returns the current symbols, which can be read while another goroutine adds entries to s. A snapshot
// never changes and never includes later entries.
func (s *Symbols) Snapshot() Symbols {
	c := *s
	c.methods = new(methodIndex)
	return c
}

// FrameCalledFrom returns the frame that is f with another Caller. The caller need not be f's direct caller.
func (s *Symbols) FrameCalledFrom(f, caller FrameID) FrameID {
	fr := s.frames[f]
	fr.Caller = caller
	return s.internFrame(fr)
}

// internFrame returns the id of a frame, adding it if it is not in the table.
func (s *Symbols) internFrame(f Frame) FrameID {
	id, ok := s.frameIDs[f]
	if !ok {
		id = FrameID(len(s.frames))
		s.frames = append(s.frames, f)
		s.frameIDs[f] = id
	}
	return id
}

// internStack returns the id of a stack, adding it if it is not in the table. Stacks with equal hashes take successive numbers.
func (s *Symbols) internStack(frames []FrameID) StackID {
	if len(frames) == 0 {
		return 0
	}
	for h := s.key.hashStack(frames); ; h++ { // another stack may use the number
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

// A hashKey is a random key for each table, so that the writer of a trace cannot know which stacks have equal
// hashes, and cannot make each search pass all others. Ids do not depend on it.
type hashKey struct{ add, mul uint64 }

// mix folds the 128 bits of a product with the key (the step of wyhash).
func (k hashKey) mix(h, v uint64) uint64 {
	hi, lo := bits.Mul64(h^v^k.add, k.mul)
	return hi ^ lo
}

// hashStack returns the hash of a stack's frames under the key.
func (k hashKey) hashStack(frames []FrameID) uint64 {
	h := uint64(len(frames))
	for _, f := range frames {
		h = k.mix(h, uint64(f))
	}
	return h
}

// AddStack returns the id of a stack given by texts, adding it if it is not in the table. Tests and tools that build stacks use
// it.
func (s *Symbols) AddStack(frames ...FrameText) StackID {
	ids := make([]FrameID, len(frames))
	for i, f := range frames {
		ids[i] = s.internFrame(Frame{PC: f.PC, Func: s.Intern(f.Func), File: s.Intern(f.File), Line: f.Line})
	}
	return s.internStack(ids)
}

// A FrameText is a frame with texts instead of string ids.
type FrameText struct {
	PC         uint64
	Func, File string
	Line       uint32
}

// MethodOfWrapper returns the frame that a person knows: for the compiler's wrapper of a method value (T.method-fm, at
// "<autogenerated>:1") the lowest line of the method in any stack, if there is one; any other frame as it is. It ignores
// entries that were added after its first call, so it is for tables that no longer change.
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

// A methodIndex holds the lowest line of each function in the stacks of a table. It is built on the first use. A
// snapshot has another one, because a snapshot no longer changes.
type methodIndex struct {
	buildOnce sync.Once
	lines     map[StringID]Frame
}

// firstLine returns the frame with the lowest line of a function in any stack; the zero Frame if there is none.
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
