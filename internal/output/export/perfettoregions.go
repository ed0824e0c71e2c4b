package export

import (
	"github.com/whylate/whylate/internal/trace/timeline"
)

// An annotationTrack is the track of a goroutine's regions of one depth, or of its log messages.
type annotationTrack struct {
	g     uint64
	depth int
}

// logDepth is the depth of the track of log messages.
const logDepth = -2

// writeAnnotations writes the regions that end in a generation, and its log messages, on tracks below that of their goroutine.
func (t *PerfettoTrace) writeAnnotations(g *timeline.Gen) {
	t.regions.Add(g, t.writeRegion, func(e *timeline.UserEvent) {
		time := e.Time - t.start
		if _, _, ok := t.clip(time, time); !ok || t.trackedGoroutines != nil && !t.trackedGoroutines[e.G] {
			return
		}
		name := t.syms.String(e.Value)
		t.p.writeEvent(&event{time: time, eventType: instant, track: t.annotationTrackOf(e.G, logDepth, "log"), category: "log", name: name, notes: []note{
			{key: "category", text: t.syms.String(e.Name)}, {key: "task", number: e.Task},
		}})
	})
}

// writeRegion writes a user's region as a slice of its goroutine's track, if it is in the written part and its goroutine is
// written.
func (t *PerfettoTrace) writeRegion(r timeline.Region) {
	from := max(r.Start, t.start) - t.start
	if _, _, ok := t.clip(from, r.End-t.start); !ok || t.trackedGoroutines != nil && !t.trackedGoroutines[r.G] {
		return
	}
	t.writeSlice(from, r.End-t.start-from, t.annotationTrackOf(r.G, r.Depth, "regions"), "region", t.syms.String(r.Name), note{key: "task", number: r.Task})
}

// annotationTrackOf returns a track of annotations, which it writes the first time. Regions of one depth do not overlap.
func (t *PerfettoTrace) annotationTrackOf(g uint64, depth int, name string) uint64 {
	key := annotationTrack{g, depth}
	if t.annotationTracks[key] == 0 {
		parent := t.trackOf(g).id
		t.annotationTracks[key] = t.newTrackID()
		t.p.writeTrack(track{uuid: t.annotationTracks[key], parent: parent, name: name, rank: depth - logDepth})
	}
	return t.annotationTracks[key]
}
