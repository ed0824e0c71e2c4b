package redact

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/whylate/whylate/service/internal/tracebatch"
)

// Event types of the format (src/internal/trace/tracev2 in Go's sources).
const (
	evStacks          = 2
	evStack           = 3
	evStrings         = 4
	evString          = 5
	evCPUSamples      = 6
	evFrequency       = 8
	evGoStop          = 19
	evGoBlock         = 20
	evSTWBegin        = 26
	evGoLabel         = 39
	evUserTaskBegin   = 40
	evUserRegionBegin = 42
	evUserRegionEnd   = 43
	evUserLog         = 44
	evSync            = 50
)

// eventLengths has the number of values in each event of a thread, including the event's
// type; 0 is an unknown event. The order is the format's, from ProcsChange (9) to
// GoStatusStack (48).
var eventLengths = [256]uint8{
	9: 1 + 3, 1 + 3, 1 + 1, 1 + 4, 1 + 3,
	// Goroutines: GoCreate to GoStatus.
	14: 1 + 4, 1 + 2, 1 + 3, 1 + 1, 1 + 1, 1 + 3, 1 + 3, 1 + 4, 1 + 3, 1 + 1, 1 + 1, 1 + 4,
	// Stops of the world, garbage collection.
	26: 1 + 3, 1 + 1,
	28: 1 + 2, 1 + 3, 1 + 2, 1 + 2, 1 + 2, 1 + 3, 1 + 2, 1 + 2, 1 + 1, 1 + 2, 1 + 2,
	// Labels, tasks, regions, logs.
	39: 1 + 2, 1 + 5, 1 + 3, 1 + 4, 1 + 4, 1 + 5,
	// Since Go 1.23: coroutines, GoCreateBlocked, GoStatusStack.
	45: 1 + 3, 1 + 3, 1 + 4, 1 + 5,
	// GODEBUG=traceallocfree=1.
	128: 1 + 4, 1 + 4, 1 + 2, 1 + 3, 1 + 3, 1 + 2, 1 + 3, 1 + 3, 1 + 2,
}

// A role is the use of a text; a text may have several.
type role uint8

const (
	asFunc    role = 1 << iota // a function's name
	asReason                   // a reason of the runtime
	asFile                     // a file's name
	asTask                     // a task's or region's name
	asKey                      // a log's key
	asMessage                  // a log's message
)

type use struct {
	role role
	fn   uint64 // of a file: a function in it
	key  uint64 // of a message: the log's key
}

// generationTexts has the texts of one generation and their uses.
type generationTexts struct {
	opts *Options
	uses map[uint64]use
	byID map[uint64]string
}

func newTexts(o *Options) *generationTexts {
	return &generationTexts{opts: o, uses: make(map[uint64]use), byID: make(map[uint64]string)}
}

// maxText is the longest text that the format allows.
const maxText = 1 << 10

var errDamaged = errors.New("redact: the trace is damaged")

// A scanner reads numbers.
type scanner struct {
	b   []byte
	bad bool
}

// number reads a varint. If there is none, it returns 0, sets bad and skips the rest.
func (s *scanner) number() uint64 {
	v, n := binary.Uvarint(s.b)
	if n <= 0 {
		s.b, s.bad = nil, true
		return 0
	}
	s.b = s.b[n:]
	return v
}

// addUse adds to the uses of the text id a role r. with has the id of the function of a file, or of the key of a message, else 0.
func (t *generationTexts) addUse(id uint64, r role, with use) {
	u := t.uses[id]
	u.role |= r
	if with.fn != 0 && u.fn == 0 {
		u.fn = with.fn
	}
	if with.key != 0 {
		u.key = with.key
	}
	t.uses[id] = u
}

// readUses adds the texts of a batch of strings to byID, or the uses of texts in the events of another batch. It fails for a damaged one.
func (t *generationTexts) readUses(b *tracebatch.Batch) error {
	if b.Type != tracebatch.Events || len(b.Data) == 0 {
		return nil
	}
	s := scanner{b: b.Data[1:]}
	switch b.Data[0] {
	case evStrings:
		return t.forEachText(b.Data, func(id uint64, text []byte) error {
			t.byID[id] = string(text)
			return nil
		})
	case evStacks:
		for len(s.b) > 0 {
			if s.b[0] != evStack {
				return errDamaged
			}
			s.b = s.b[1:]
			s.number() // its id
			for frames := s.number(); frames > 0 && !s.bad; frames-- {
				s.number() // the program counter
				fn, file := s.number(), s.number()
				s.number() // the line
				t.addUse(fn, asFunc, use{})
				t.addUse(file, asFile, use{fn: fn})
			}
			if s.bad {
				return errDamaged
			}
		}
	case evCPUSamples, evFrequency, evSync:
	default:
		t.readEvents(b.Data)
	}
	return nil
}

// readEvents records the uses of texts in a thread's events. Events after an unknown one
// cannot be read; their texts count as the program's.
func (t *generationTexts) readEvents(data []byte) {
	s := scanner{b: data}
	var v [6]uint64
	for len(s.b) > 0 {
		typ := s.b[0]
		n := int(eventLengths[typ])
		if n == 0 {
			return
		}
		s.b = s.b[1:]
		for i := range n - 1 {
			v[i] = s.number()
		}
		if s.bad {
			return
		}
		switch typ { // v[0] is the time
		case evGoStop, evGoBlock, evSTWBegin, evGoLabel:
			t.addUse(v[1], asReason, use{})
		case evUserTaskBegin:
			t.addUse(v[3], asTask, use{})
		case evUserRegionBegin, evUserRegionEnd:
			t.addUse(v[2], asTask, use{})
		case evUserLog:
			t.addUse(v[2], asKey, use{})
			t.addUse(v[3], asMessage, use{key: v[2]})
		}
	}
}

// forEachText calls f for each text of a batch of strings, until f fails. text aliases data.
func (t *generationTexts) forEachText(data []byte, f func(id uint64, text []byte) error) error {
	s := scanner{b: data[1:]}
	for len(s.b) > 0 {
		if s.b[0] != evString {
			return errDamaged
		}
		s.b = s.b[1:]
		id, n := s.number(), s.number()
		if s.bad || n > uint64(len(s.b)) {
			return errDamaged
		}
		if err := f(id, s.b[:n]); err != nil {
			return err
		}
		s.b = s.b[n:]
	}
	return nil
}

// rewrite returns a batch of strings with its texts hidden, with head and length: one batch, or several in succession if it has become too large.
func (t *generationTexts) rewrite(b *tracebatch.Batch) (out []byte, err error) {
	data := []byte{evStrings}
	emit := func() {
		out = append(out, b.Head...)
		out = binary.AppendUvarint(out, uint64(len(data)))
		out = append(out, data...)
		data = data[:1]
	}
	err = t.forEachText(b.Data, func(id uint64, text []byte) error {
		hidden := t.redacted(id, string(text))
		hidden = hidden[:min(len(hidden), maxText)]
		const maxOverhead = 1 + 2*binary.MaxVarintLen64
		if len(data)+maxOverhead+len(hidden) > tracebatch.MaxData {
			emit()
		}
		data = binary.AppendUvarint(append(data, evString), id)
		data = binary.AppendUvarint(data, uint64(len(hidden)))
		data = append(data, hidden...)
		return nil
	})
	emit()
	return out, err
}

// redacted returns the text to write instead of the text id, hidden as the options say for its uses: of several or unknown uses the strictest mode
// applies. All uses of the generation must have been read.
func (t *generationTexts) redacted(id uint64, text string) string {
	o := t.opts
	u := t.uses[id]
	if u.role&(asFunc|asReason) != 0 {
		return text
	}
	const owner = asTask | asKey | asMessage
	if u.role&owner == 0 && u.role&asFile != 0 {
		return o.File(text, t.byID[u.fn])
	}
	// For a text with several uses, or an unknown use, the strictest mode applies.
	mode := Keep
	if u.role&asTask != 0 {
		mode = o.Tasks
	}
	notTask := u.role&asTask == 0
	if u.role&asKey != 0 {
		switch {
		case notTask && (text == hostStart || text == hostSample || text == markSpan):
			return text
		case notTask:
			if s, ok := o.redactMarkKey(text); ok {
				return s
			}
		}
		mode = max(mode, o.Logs)
	}
	if u.role&asMessage != 0 {
		key := t.byID[u.key]
		switch {
		case key == hostStart || key == hostSample:
			if s, ok := o.redactHostLine(text); ok {
				return s
			}
		case strings.HasPrefix(key, markBegin) || strings.HasPrefix(key, markSpan):
			if s, ok := o.redactTraceparent(text); ok {
				return s
			}
		}
		mode = max(mode, o.Logs)
	}
	switch {
	case u.role&asFile != 0:
		mode = max(mode, o.Files)
	case u.role&owner == 0:
		mode = o.strictest()
	}
	dropped := leftOutText
	if u.role&(asTask|asKey) == 0 {
		dropped = ""
	}
	return o.redactText(mode, text, dropped)
}
