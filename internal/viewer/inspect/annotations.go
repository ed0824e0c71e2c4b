package inspect

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// maxAnnotations bounds the regions and log messages that an index keeps, with 56 bytes each.
const maxAnnotations = 1 << 19

// annotations are the regions and log messages of a trace.
type annotations struct {
	list    []annotation // by start, when the trace has been read
	regions timeline.Regions
	dropped int
}

// An annotation is a region, or a log message with its text.
type annotation struct {
	timeline.Region
	text tracefmt.StringID
}

// add adds an annotation; if there are maxAnnotations, it only counts it as dropped.
func (a *annotations) add(n annotation) {
	if len(a.list) == maxAnnotations {
		a.dropped++
		return
	}
	a.list = append(a.list, n)
}

// addGeneration adds the regions that end in a generation, and its log messages.
func (a *annotations) addGeneration(g *timeline.Gen) {
	a.regions.Add(g, a.addRegion, func(e *timeline.UserEvent) {
		a.add(annotation{timeline.Region{G: e.G, Task: e.Task, Name: e.Name, Start: e.Time, End: e.Time}, e.Value})
	})
}

func (a *annotations) addRegion(r timeline.Region) { a.add(annotation{Region: r}) }

// finish ends the open regions at the end of the trace (its clock, ns) and sorts all annotations by start, outer regions first.
func (a *annotations) finish(end int64) {
	a.regions.Close(end, a.addRegion)
	slices.SortStableFunc(a.list, func(x, y annotation) int {
		return cmp.Or(cmp.Compare(x.Start, y.Start), cmp.Compare(y.End, x.End))
	})
}

// An Annotation is a region of runtime/trace, or a log message, which has a text and takes no time.
type Annotation struct {
	Goroutine  uint64 `json:"goroutine"`
	Name       string `json:"name"` // of a region, or the category of a message
	Text       string `json:"text,omitempty"`
	Task       uint64 `json:"task,omitempty"`
	StartNS    int64  `json:"start_ns"` // 0 if it began before the trace
	DurationNS int64  `json:"duration_ns"`
	Depth      int    `json:"depth"` // number of regions around it
}

// AnnotationsIn returns at most limit annotations of the given goroutines that overlap [from, to), in order of their start: all log messages, and
// regions of at least minLength. Times are in ns from the trace's start. If all is false, there are more.
func (t *Trace) AnnotationsIn(from, to, minLength int64, goroutines []uint64, limit int) (out []Annotation, all bool) {
	wanted := make(map[uint64]bool, len(goroutines))
	for _, id := range goroutines {
		wanted[id] = true
	}
	out, all = []Annotation{}, t.index.annotations.dropped == 0
	for i := range t.index.annotations.list {
		a := &t.index.annotations.list[i]
		start, end := max(a.Start, t.start)-t.start, a.End-t.start
		if start >= to {
			break
		}
		if end < from || !wanted[a.G] || a.text == 0 && end-start < minLength {
			continue
		}
		if len(out) == limit {
			return out, false
		}
		out = append(out, Annotation{Goroutine: a.G, Name: t.String(a.Name), Text: t.String(a.text), Task: a.Task, StartNS: start, DurationNS: end - start, Depth: max(a.Depth, 0)})
	}
	return out, all
}
