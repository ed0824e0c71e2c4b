package tracefmt

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Kind classifies the errors in the bytes of a trace.
type Kind uint8

const (
	// Empty: there are no bytes.
	Empty Kind = iota + 1
	// NotTrace: the bytes are something other than an execution trace.
	NotTrace
	// OldFormat: an execution trace from before Go 1.22.
	OldFormat
	// Truncated: the bytes end in the middle of a generation.
	Truncated
	// Damaged: the bytes contradict the format.
	Damaged
)

// An Error describes an error in the bytes of a trace, and its position.
type Error struct {
	Kind   Kind
	Offset int64  // bytes (after decompression) from the start
	Text   string // the problem, and its remedy
	Err    error  // the underlying error, if any
}

// Error returns the problem, with the position in the trace if the bytes are cut or damaged.
func (e *Error) Error() string {
	s := e.Text
	if e.Kind == Truncated || e.Kind == Damaged {
		s = fmt.Sprintf("%s (at byte %d)", e.Text, e.Offset)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the first *Error in err's chain, or 0.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return 0
}

// identifyOtherFormat returns a message about bytes that do not begin like an execution trace: their format, and how to get a
// trace. zipped reports that they were unpacked from gzip.
func identifyOtherFormat(head []byte, zipped bool) string {
	const want = "; an execution trace comes from /debug/pprof/trace?seconds=5, runtime/trace.Start or go test -trace"
	text := bytes.TrimLeft(head, " \t\r\n\ufeff")
	low := bytes.ToLower(text)
	switch {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return "this is a zip file, not an execution trace; unpack it first" + want
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return "this is zstd-compressed data; unpack it first (gzip is read as it is)"
	case bytes.HasPrefix(head, []byte("\x7fELF")), bytes.HasPrefix(head, []byte("MZ")), bytes.HasPrefix(head, []byte{0xcf, 0xfa, 0xed, 0xfe}):
		return "this is an executable program, not an execution trace" + want
	case bytes.HasPrefix(low, []byte("<!doctype")), bytes.HasPrefix(low, []byte("<html")), bytes.HasPrefix(low, []byte("<?xml")), bytes.HasPrefix(low, []byte("<head")):
		return "this is an HTML page, perhaps an error or login page, not an execution trace" + want
	case bytes.HasPrefix(head, []byte("heap profile:")), bytes.HasPrefix(head, []byte("goroutine profile:")), bytes.HasPrefix(head, []byte("goroutine ")), bytes.HasPrefix(head, []byte("--- contention")):
		return "this is a profile in text form, not an execution trace" + want
	case looksLikePprof(head):
		return "this is a pprof profile, not an execution trace" + want
	case bytes.HasPrefix(text, []byte("{")), bytes.HasPrefix(text, []byte("[")):
		return "this is JSON, not an execution trace" + want
	case isPrintable(text):
		line, _, _ := strings.Cut(string(text), "\n")
		if len(line) > 80 {
			line = line[:80] + "..."
		}
		return fmt.Sprintf("this is text, not an execution trace (it begins %q)%s", line, want)
	case zipped:
		return "the gzip data does not hold an execution trace" + want
	}
	return "this is not a Go execution trace" + want
}

// looksLikePprof reports whether head may be the start of a profile.proto message: field 1 (sample_type) or, as
// the runtime writes it, field 11 (period_type), with a short ValueType message of two varints.
func looksLikePprof(head []byte) bool {
	return len(head) >= 6 && (head[0] == 0x0a || head[0] == 0x5a) && head[1] <= 8 && head[2] == 0x08 && head[3] < 0x80
}

// isPrintable reports whether b is text: not empty, without control characters except white space.
func isPrintable(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\t' && c != '\r' || c == 0x7f {
			return false
		}
	}
	return true
}
