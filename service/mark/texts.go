package mark

import (
	"strings"
	"sync/atomic"

	"github.com/whylate/whylate/service/internal/markname"
)

// The form in the trace: the key of a user log has the version, the verb, and the
// request's kind, status and name, so that the tracer stores it once in each
// generation for all requests with the same key. internal/explain/request reads it.
const (
	version   = "whylate.mark/1"
	beginVerb = version + " begin "
	endVerb   = version + " end "
	spanText  = version + " span"
)

// Bounds of the texts that a service can make the tracer store.
const (
	maxTexts = 4096 // keys
	maxNames = 1000
)

const othersName = "(others)"

type textKey struct {
	kind   Kind
	name   string
	status string // "" of a begin
}

// A textTable has the keys that were written, at most maxTexts.
type textTable struct {
	byKey       growingMap[textKey, string]
	names       map[string]bool                 // guarded by known.mu
	closedNames atomic.Pointer[map[string]bool] // names, set when there are maxNames
}

var markTexts textTable

// beginText returns the log key that encodes the begin of a request of this kind and name.
func (t *textTable) beginText(kind Kind, name string) string {
	if name == "" && kind == HTTP {
		return beginVerb + string(HTTP) // written by a handler around a mux; needs no search
	}
	return t.text(textKey{kind, name, ""})
}

func (t *textTable) endText(kind Kind, name, status string) string {
	return t.text(textKey{kind, name, status})
}

// text returns the log key for k. A name beyond maxNames is replaced by othersName.
func (t *textTable) text(k textKey) string {
	if s := t.byKey.get(slotNumber(k.name)+uint(len(k.status)), k); s != nil {
		return *s
	}
	closedNames := t.closedNames.Load()
	if closedNames == nil {
		return t.add(k)
	}
	// A service with more than maxNames names may have many at the same time, so new
	// names take no lock.
	name := markname.Clean(k.name)
	switch {
	case name != "" && name != othersName && !(*closedNames)[name]:
		return t.text(textKey{k.kind, othersName, k.status})
	case t.byKey.closed.Load():
		return keyText(k.kind, name, k.status)
	}
	return t.add(k)
}

// add creates the log key for k, and stores it unless the table is full.
func (t *textTable) add(k textKey) string {
	t.byKey.mu.Lock()
	defer t.byKey.mu.Unlock()
	if s := t.byKey.getAdded(k); s != nil {
		return *s
	}
	// The caller's strings may be parts of large ones.
	name := strings.Clone(markname.Clean(k.name))
	if t.names == nil {
		t.names = make(map[string]bool)
	}
	if !t.names[name] && name != "" {
		if len(t.names) >= maxNames {
			name = othersName
		} else if t.names[name] = true; len(t.names) == maxNames {
			names := t.names
			t.closedNames.Store(&names)
		}
	}
	text := keyText(k.kind, name, k.status)
	if name == othersName && k.name != othersName {
		return text
	}
	t.byKey.add(textKey{Kind(strings.Clone(string(k.kind))), strings.Clone(k.name), strings.Clone(k.status)}, text, maxTexts)
	return text
}

// keyText returns the log key of a begin (no status) or an end.
func keyText(kind Kind, name, status string) string {
	if !isWord(string(kind)) {
		kind = Job
	}
	text := beginVerb + string(kind)
	if status != "" {
		if !isWord(status) {
			status = "unknown"
		}
		text = endVerb + string(kind) + " " + status
	}
	if name != "" {
		text += " " + name
	}
	return text
}

// isWord reports whether s is one short word.
func isWord(s string) bool {
	return s != "" && len(s) <= 40 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}
