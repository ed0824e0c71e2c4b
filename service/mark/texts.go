package mark

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// The form in the trace: the key of a user log is the version, the verb and
// what is said about the request, so that the tracer keeps it once in each
// generation however many requests there are. Readers: internal/explain/request.
const (
	version   = "whylate.mark/1"
	beginVerb = version + " begin "
	endVerb   = version + " end "
	spanText  = version + " span"
)

// Bounds of what a service can make the tracer keep.
const (
	maxTexts = 4096 // keys
	maxNames = 1000
	maxName  = 200 // bytes
)

const others = "(others)"

type textKey struct {
	kind   Kind
	name   string
	status string // "" of a begin
}

// A table holds the keys that were written: read without a lock, copied to
// be added to. Only so many come to be added.
type table struct {
	known atomic.Pointer[map[textKey]string]
	mu    sync.Mutex
	names map[string]bool
}

var texts table

func (t *table) begin(kind Kind, name string) string {
	if name == "" && kind == HTTP {
		return beginVerb + string(HTTP) // what a handler around a mux writes: no search
	}
	return t.of(textKey{kind, name, ""})
}

func (t *table) end(kind Kind, name, status string) string { return t.of(textKey{kind, name, status}) }

func (t *table) of(k textKey) string {
	if m := t.known.Load(); m != nil {
		if s, ok := (*m)[k]; ok {
			return s
		}
	}
	return t.add(k)
}

// add is also the way of names that are too many, each time.
func (t *table) add(k textKey) string {
	// The caller's strings may be parts of something large.
	name := strings.Clone(clean(k.name))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.names == nil {
		t.names = make(map[string]bool)
	}
	if !t.names[name] && name != "" {
		if len(t.names) >= maxNames {
			name = others
		} else {
			t.names[name] = true
		}
	}
	kind, status := k.kind, k.status
	if !word(string(kind)) {
		kind = Job
	}
	text := beginVerb + string(kind)
	if status != "" {
		if !word(status) {
			status = "unknown"
		}
		text = endVerb + string(kind) + " " + status
	}
	if name != "" {
		text += " " + name
	}
	old := t.known.Load()
	if old == nil {
		old = new(map[textKey]string)
	}
	if len(*old) >= maxTexts || name == others && k.name != others {
		return text
	}
	grown := make(map[textKey]string, len(*old)+1)
	maps.Copy(grown, *old)
	grown[textKey{Kind(strings.Clone(string(k.kind))), strings.Clone(k.name), strings.Clone(k.status)}] = text
	t.known.Store(&grown)
	return text
}

// clean bounds a name and leaves out what a line of text cannot hold.
func clean(s string) string {
	if len(s) > maxName {
		s = s[:maxName]
	}
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, s), "_")
}

// word reports whether s is one short word.
func word(s string) bool {
	return s != "" && len(s) <= 40 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
