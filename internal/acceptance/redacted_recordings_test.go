package acceptance_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/exp/trace"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/service/redact"
)

// TestRedactedRecordings redacts the texts of recordings (service/redact). The reference reader must find the same events,
// with each text replaced consistently and no redacted text left. The report must be the same except for the names. The test
// fails if a text is missed, a table is damaged, a reason or function is redacted by mistake, or the engine depends on a
// user's text.
func TestRedactedRecordings(t *testing.T) {
	explained := []string{"marked", "tasks", "snapshot", "grpc", "stw", "cgo-calls"}
	names := explained[:3]
	if !testing.Short() {
		names = nil
		for _, p := range testprog.Programs() {
			names = append(names, p.Name)
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			data := testprog.Trace(t, name)
			for _, m := range []redact.Mode{redact.Hash, redact.Drop} {
				if m == redact.Hash && !slices.Contains(explained, name) || m == redact.Drop && testing.Short() && name != "tasks" {
					continue
				}
				fileMode := redact.Trim
				if m == redact.Drop {
					fileMode = m
				}
				redacted := redactTrace(t, data, redact.Options{Logs: m, Tasks: m, Routes: m, Parents: m, Files: fileMode, Main: "main", Key: []byte("key")})
				hidden := compareEvents(t, data, redacted)
				written := strings.Join(slices.Collect(maps.Values(hidden)), "\n")
				for old := range hidden {
					if len(old) > 3 && !strings.HasPrefix(old, "whylate.") && !strings.Contains(written, old) && bytes.Contains(redacted, []byte(old)) && !isInFunctionName(t, redacted, old) {
						t.Errorf("%q is not redacted", old)
					}
				}
				if m == redact.Hash {
					compareReports(t, data, redacted, hidden)
				}
			}
		})
	}
}

func redactTrace(t *testing.T, data []byte, o redact.Options) []byte {
	t.Helper()
	var b bytes.Buffer
	w := redact.NewWriter(&b, o)
	must.Have(w.Write(data))(t)
	if err := w.Close(); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	return b.Bytes()
}

// compareEvents reads both traces with the reference reader, requires the same events, and returns the replacement of each
// text.
func compareEvents(t *testing.T, before, after []byte) map[string]string {
	t.Helper()
	hidden := make(map[string]string)
	replace := func(n int, old, replacement string) {
		if old == replacement {
			return
		}
		if h, ok := hidden[old]; ok && h != replacement {
			t.Fatalf("event %d: %q is replaced by %q and by %q", n, old, h, replacement)
		}
		hidden[old] = replacement
	}
	stacks := newStackNumbers()
	compared := make(map[[2]trace.Stack]bool) // stacks whose files are compared
	a, errA := trace.NewReader(bytes.NewReader(before))
	b, errB := trace.NewReader(bytes.NewReader(after))
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	for n := 0; ; n++ {
		x, errA := a.ReadEvent()
		y, errB := b.ReadEvent()
		if errA != nil || errB != nil {
			must.Equal(t, errA == io.EOF, errB == io.EOF, "event %d: %v before, %v after", n, errA, errB)
			return hidden
		}
		if oldEvent, newEvent := unredacted(&x, stacks), unredacted(&y, stacks); oldEvent != newEvent {
			t.Fatalf("event %d was %+v and is %+v: %v, %v", n, oldEvent, newEvent, x, y)
		}
		oldTexts, newTexts := redactable(&x), redactable(&y)
		replace(n, oldTexts.name, newTexts.name)
		replace(n, oldTexts.message, newTexts.message)
		for i := range oldTexts.stacks {
			pair := [2]trace.Stack{oldTexts.stacks[i], newTexts.stacks[i]}
			if compared[pair] {
				continue
			}
			compared[pair] = true
			oldFiles, newFiles := files(pair[0]), files(pair[1])
			for k := range oldFiles {
				replace(n, oldFiles[k], newFiles[k])
			}
		}
	}
}

// stackNumbers numbers stacks by their functions and lines. Many events share a stack.
type stackNumbers struct {
	byStack map[trace.Stack]int
	byText  map[string]int
}

func newStackNumbers() *stackNumbers {
	return &stackNumbers{make(map[trace.Stack]int), make(map[string]int)}
}

func (m *stackNumbers) number(s trace.Stack) int {
	n, ok := m.byStack[s]
	if !ok {
		var text strings.Builder
		for f := range s.Frames() {
			fmt.Fprintf(&text, " %s:%d", f.Func, f.Line)
		}
		if n, ok = m.byText[text.String()]; !ok {
			n = len(m.byText)
			m.byText[text.String()] = n
		}
		m.byStack[s] = n
	}
	return n
}

// An unredactedEvent is the part of an event that redaction must not change.
type unredactedEvent struct {
	time                   trace.Time
	kind                   trace.EventKind
	goroutine              trace.GoID
	proc                   trace.ProcID
	thread                 trace.ThreadID
	stack, transitionStack int // their numbers
	resource               trace.ResourceID
	reasonOrName           string
	task, parent           trace.TaskID
}

func unredacted(e *trace.Event, stacks *stackNumbers) unredactedEvent {
	u := unredactedEvent{time: e.Time(), kind: e.Kind(), goroutine: e.Goroutine(), proc: e.Proc(), thread: e.Thread(), stack: stacks.number(e.Stack())}
	switch u.kind {
	case trace.EventStateTransition:
		s := e.StateTransition()
		u.resource, u.reasonOrName, u.transitionStack = s.Resource, s.Reason, stacks.number(s.Stack)
	case trace.EventRangeBegin, trace.EventRangeEnd, trace.EventRangeActive:
		u.reasonOrName = e.Range().Name
	case trace.EventLabel:
		u.reasonOrName = e.Label().Label
	case trace.EventTaskBegin, trace.EventTaskEnd:
		u.task, u.parent = e.Task().ID, e.Task().Parent
	case trace.EventRegionBegin, trace.EventRegionEnd:
		u.task = e.Region().Task
	case trace.EventLog:
		u.task = e.Log().Task
	}
	return u
}

// redactableTexts are the texts of an event that redaction may change, and the stacks whose files it may change.
type redactableTexts struct {
	name, message string
	stacks        [2]trace.Stack
}

func redactable(e *trace.Event) (out redactableTexts) {
	out.stacks[0] = e.Stack()
	switch e.Kind() {
	case trace.EventStateTransition:
		out.stacks[1] = e.StateTransition().Stack
	case trace.EventTaskBegin, trace.EventTaskEnd:
		out.name = e.Task().Type
	case trace.EventRegionBegin, trace.EventRegionEnd:
		out.name = e.Region().Type
	case trace.EventLog:
		out.name, out.message = e.Log().Category, e.Log().Message
	}
	return out
}

func files(s trace.Stack) (out []string) {
	for f := range s.Frames() {
		out = append(out, f.File)
	}
	return out
}

// isInFunctionName reports whether a text occurs in a redacted trace in the name of a function, a region of the runtime or a
// reason.
func isInFunctionName(t *testing.T, data []byte, text string) bool {
	t.Helper()
	r := must.Have(trace.NewReader(bytes.NewReader(data)))(t)
	stacks := newStackNumbers()
	for {
		e, err := r.ReadEvent()
		if err != nil {
			break
		}
		if strings.Contains(unredacted(&e, stacks).reasonOrName, text) {
			return true
		}
	}
	for stack := range stacks.byText {
		if strings.Contains(stack, text) {
			return true
		}
	}
	return false
}

// compareReports requires that the reports of both traces are equal except for the names.
func compareReports(t *testing.T, before, after []byte, hidden map[string]string) {
	t.Helper()
	a, b := explainBytes(t, before, whylate.Options{}), explainBytes(t, after, whylate.Options{})
	// The names in a report are those of requests: for a mark, the last words of its key.
	for old, replacement := range maps.Clone(hidden) {
		for words := range 3 {
			o, n := strings.SplitN(old, " ", words+3), strings.SplitN(replacement, " ", words+3)
			if strings.HasPrefix(old, "whylate.mark/") && len(o) == words+3 && len(n) == words+3 {
				hidden[o[words+2]] = n[words+2]
				hidden[path.Base(o[words+2])] = n[words+2] // as titles shorten it
			}
		}
	}
	for old, replacement := range maps.Clone(hidden) {
		if len(old) == 55 && len(replacement) == 55 { // a traceparent
			hidden[old[3:35]], hidden[old[36:52]] = replacement[3:35], replacement[36:52]
		}
	}
	oldLines, newLines := reportLines(t, a, hidden), reportLines(t, b, nil)
	for i := range min(len(oldLines), len(newLines)) {
		must.True(t, oldLines[i] == newLines[i], "the reports differ: %s instead of %s", newLines[i], oldLines[i])
	}
	must.True(t, len(oldLines) == len(newLines), "the reports have %d and %d lines", len(oldLines), len(newLines))
}

// reportLines returns a report as sorted lines, with names replaced and files without directories. They are sorted because
// elements that are equal except for their names may change places.
func reportLines(t *testing.T, r *report.Report, names map[string]string) []string {
	t.Helper()
	r.Input = report.Input{}
	data := must.Have(json.MarshalIndent(r, "", " "))(t)
	longestFirst := slices.SortedFunc(maps.Keys(names), func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	var alternatives []string
	for _, old := range longestFirst {
		if len(old) > 3 {
			alternatives = append(alternatives, regexp.QuoteMeta(old))
		}
	}
	// A function may have a task's name.
	name := regexp.MustCompile(`(^|[\s"'(/])(` + strings.Join(alternatives, "|") + `)($|[\s"'),:=;])`)
	replace := func(line string) string {
		if len(alternatives) == 0 {
			return line
		}
		return name.ReplaceAllStringFunc(line, func(s string) string {
			m := name.FindStringSubmatch(s)
			return m[1] + names[m[2]] + m[3]
		})
	}
	ids := regexp.MustCompile(`(^|[^#0-9a-f])[0-9a-f]{12}($|[^0-9a-f])`) // of groups and findings, made of their names
	var out []string
	for _, line := range strings.Split(string(data), "\n") {
		if before, file, ok := strings.Cut(line, `"file": "`); ok {
			line = before + path.Base(file)
		}
		if strings.HasSuffix(strings.TrimSuffix(line, ","), `"`) { // a text; of numbers there are thousands
			line = ids.ReplaceAllString(replace(line), "${1}ID$2")
		}
		out = append(out, strings.Join(strings.Fields(line), " "))
	}
	slices.Sort(out)
	return out
}
