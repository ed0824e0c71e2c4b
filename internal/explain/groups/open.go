package groups

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// opens are requests that had not ended, by the cause and place at which they stood.
type opens map[path.CauseID]*openAt

type openAt struct {
	count  int64
	oldest int64   // start of the oldest
	stuck  []int64 // for how long they had stood there, the longest first
	ages   []int64 // and how old they were, the oldest first
}

// maxStuck bounds the requests of a place of which it is told for how long they stood there, and how old they were.
const maxStuck = 20

func longest(list []int64, more ...int64) []int64 {
	list = append(list, more...)
	slices.SortFunc(list, func(a, b int64) int { return cmp.Compare(b, a) })
	return list[:min(len(list), maxStuck)]
}

func (o *openAt) add(from *openAt) {
	if o.count == 0 || from.oldest < o.oldest {
		o.oldest = from.oldest
	}
	o.count += from.count
	o.stuck, o.ages = longest(o.stuck, from.stuck...), longest(o.ages, from.ages...)
}

// add takes note of where an open request stood, and since when: a wait that was cut, because something may have frozen
// the process, is one.
func (os opens) add(w *path.WalkResult) {
	n := len(w.Segments)
	if n == 0 || len(w.CauseIDs) != n {
		return
	}
	last := &w.Segments[n-1]
	since := last.Start
	for i := n - 2; i >= 0 && w.Segments[i].End == since; i-- {
		if s := &w.Segments[i]; s.Site != last.Site || s.G != last.G || s.Code.Cause() != last.Code.Cause() {
			break
		}
		since = w.Segments[i].Start
	}
	if since == w.PathStart {
		since = w.Start // of one that began before what is left of the trace
	}
	entry.In(os, w.CauseIDs[n-1]).add(&openAt{w.Weight, w.Start, []int64{w.Req.End - since}, []int64{w.Req.End - w.Start}})
}

func (os opens) merge(from opens, causes []path.CauseID) {
	for id, o := range from {
		if causes != nil {
			id = causes[id]
		}
		entry.In(os, id).add(o)
	}
}

// openWaits spells out where open requests stood, those that stood for the longest, all together, first.
func (w writer) openWaits(os opens, by tracefmt.FrameID) []report.OpenWait {
	type key struct {
		cause   cause.Cause
		inbound bool
		site    tracefmt.FrameID
		own     tracefmt.FrameID
		call    tracefmt.StringID
		kind    tracefmt.StringID
	}
	merged, ids := map[key]*openAt{}, map[key]path.CauseID{}
	for id, o := range os {
		k := w.stage.IDs.Cause(id).WithSettledCause(w.sp.Settled)
		at := key{k.Code.Cause(), k.Inbound, k.Site, w.sp.Own(k.Site, w.stage.IDs.Chain(k.Chain), by), k.Call, k.Kind}
		entry.In(merged, at).add(o)
		if first, ok := ids[at]; !ok || id < first {
			ids[at] = id
		}
	}
	var out []report.OpenWait
	for at, o := range merged {
		wait := report.OpenWait{
			Cause: spell.Cause(at.cause), Call: w.sp.Syms.String(at.call), Via: []report.Via{}, Kind: w.sp.Kind(at.cause, at.kind, at.inbound),
			Count: int(o.count), OldestNS: w.sp.End - o.oldest, StuckNS: o.stuck, AgesNS: o.ages,
		}
		if via := w.sp.Vias(w.stage.IDs.Chain(w.stage.IDs.Cause(ids[at]).Chain)); len(via) > 0 {
			wait.Via = via
		}
		wait.Site = w.sp.SiteFor(at.site, at.own, wait.Via)
		out = append(out, wait)
	}
	slices.SortFunc(out, func(a, b report.OpenWait) int {
		return cmp.Or(cmp.Compare(b.TotalNS(), a.TotalNS()), cmp.Compare(a.Cause, b.Cause), a.Site.Compare(b.Site), cmp.Compare(a.Call, b.Call), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}
