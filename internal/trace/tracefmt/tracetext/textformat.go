package tracetext

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Assemble converts the text form of a trace to its bytes. After a first line "Trace Go1.NN", each line is one
// event, "Name arg=value ...". The frames of a Stack and the data of a String are on the following lines; # begins
// a comment. The names and the order of the arguments are those of tracefmt's event table.
//
// The size of a batch may be "auto": then it is the size of the lines up to the next batch. Assemble does not
// check the text otherwise, so that tests can write broken traces.
func Assemble(text []byte) ([]byte, error) {
	a := assembler{rest: string(text)}
	if err := a.assemble(); err != nil {
		return nil, fmt.Errorf("assembling a trace: line %d: %w", a.line, err)
	}
	return a.out, nil
}

// An assembler converts the text of one trace.
type assembler struct {
	rest string // remaining text
	line int
	out  []byte
	args []uint64 // arguments of the last line

	openHeader []byte // header of a batch whose size is not known yet
	body       []byte // events of that batch
}

// nextLine returns the next line that is neither empty nor a comment; false at the end of the text.
func (a *assembler) nextLine() (string, bool) {
	for a.rest != "" {
		var text string
		text, a.rest, _ = strings.Cut(a.rest, "\n")
		a.line++
		text = strings.TrimSpace(text)
		// A # inside a string's data belongs to the data.
		if !strings.HasPrefix(text, "data=") {
			text, _, _ = strings.Cut(text, "#")
			text = strings.TrimSpace(text)
		}
		if text != "" {
			return text, true
		}
	}
	return "", false
}

// assemble converts the whole text.
func (a *assembler) assemble() error {
	head, ok := a.nextLine()
	num, isTrace := strings.CutPrefix(head, "Trace Go1.")
	minor, err := strconv.ParseUint(num, 10, 16)
	if !ok || !isTrace || err != nil {
		return fmt.Errorf("the first line must be %q, not %q", "Trace Go1.NN", head)
	}
	a.out = Header(int(minor))
	for {
		text, ok := a.nextLine()
		if !ok {
			a.flush()
			return nil
		}
		if err := a.assembleEvent(text); err != nil {
			return err
		}
	}
}

// Header returns the 16 bytes at the start of a trace of Go 1.minor.
func Header(minor int) []byte {
	h := make([]byte, 16)
	copy(h, fmt.Sprintf("go 1.%d trace", minor))
	return h
}

// flush writes the batch whose size was not known.
func (a *assembler) flush() {
	if a.openHeader == nil {
		return
	}
	a.out = append(a.out, a.openHeader...)
	a.out = binary.AppendUvarint(a.out, uint64(len(a.body)))
	a.out = append(a.out, a.body...)
	a.openHeader, a.body = nil, nil
}

// eventTypes maps names in the text form to event types.
var eventTypes = func() map[string]tracefmt.EventType {
	m := make(map[string]tracefmt.EventType)
	for t := range 256 {
		if name := tracefmt.SpecOf(tracefmt.EventType(t)).Name; name != "" {
			m[name] = tracefmt.EventType(t)
		}
	}
	return m
}()

// assembleEvent converts one event and the lines that belong to it.
func (a *assembler) assembleEvent(text string) error {
	name, rest, _ := strings.Cut(text, " ")
	typ, ok := eventTypes[name]
	if !ok {
		return fmt.Errorf("no event is called %q", name)
	}
	names := tracefmt.SpecOf(typ).Args
	auto := false
	switch typ {
	case tracefmt.EvEventBatch:
		a.flush()
		if rest, auto = strings.CutSuffix(rest, "size=auto"); auto {
			names = names[:len(names)-1]
		}
	case tracefmt.EvExperimentalBatch, tracefmt.EvEndOfGeneration:
		a.flush()
	}
	b, err := a.appendArguments([]byte{byte(typ)}, rest, names)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	switch typ {
	case tracefmt.EvStack:
		for range a.args[1] {
			line, _ := a.nextLine()
			if b, err = a.appendArguments(b, line, frameArgs); err != nil {
				return fmt.Errorf("a frame of a stack: %w", err)
			}
		}
	case tracefmt.EvString, tracefmt.EvExperimentalBatch:
		line, _ := a.nextLine()
		quoted, ok := strings.CutPrefix(line, "data=")
		data, err := strconv.Unquote(quoted)
		if !ok || err != nil {
			return fmt.Errorf("%s: want data=\"...\" on the next line, not %q", name, line)
		}
		b = binary.AppendUvarint(b, uint64(len(data)))
		b = append(b, data...)
	}
	switch {
	case auto:
		a.openHeader = b
	case a.openHeader != nil:
		a.body = append(a.body, b...)
	default:
		a.out = append(a.out, b...)
	}
	return nil
}

var frameArgs = []string{"pc", "func", "file", "line"}

// appendArguments parses "name=value" for each of names, in order, and appends the values to b.
func (a *assembler) appendArguments(b []byte, text string, names []string) ([]byte, error) {
	a.args = a.args[:0]
	n := 0
	for f := range strings.FieldsSeq(text) {
		if n++; n > len(names) {
			break
		}
		name, value, _ := strings.Cut(f, "=")
		if name != names[n-1] {
			return nil, fmt.Errorf("want the argument %s=..., not %q", names[n-1], f)
		}
		v, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the argument %q is no number", f)
		}
		a.args = append(a.args, v)
		b = binary.AppendUvarint(b, v)
	}
	if n != len(names) {
		return nil, fmt.Errorf("want the arguments %v, not %q", names, text)
	}
	return b, nil
}
