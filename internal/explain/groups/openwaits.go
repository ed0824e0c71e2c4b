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

// openWaits are the waits of requests that had not ended at the end of the trace, by cause.
type openWaits map[path.CauseID]*openWait

// An openWait adds up open requests whose last wait has the same cause.
type openWait struct {
	count       int64
	oldestStart int64   // start of the oldest request
	totalNS     int64   // how long all these requests had waited there
	stuckNS     []int64 // how long these requests had waited there, the longest first
	agesNS      []int64 // the ages of these requests, the oldest first
}

// maxOpenTimes bounds stuckNS and agesNS.
const maxOpenTimes = 20

// longest adds times to a list and returns the maxOpenTimes longest, the longest first.
func longest(list []int64, added ...int64) []int64 {
	list = append(list, added...)
	slices.SortFunc(list, func(a, b int64) int { return cmp.Compare(b, a) })
	return list[:min(len(list), maxOpenTimes)]
}

// add adds the requests of another openWait: their number, and the longest of their times.
func (w *openWait) add(addend *openWait) {
	if w.count == 0 || addend.oldestStart < w.oldestStart {
		w.oldestStart = addend.oldestStart
	}
	w.count += addend.count
	w.totalNS += addend.totalNS
	w.stuckNS, w.agesNS = longest(w.stuckNS, addend.stuckNS...), longest(w.agesNS, addend.agesNS...)
}

// add records the wait in which an open request is at the end of the trace, and since when. Adjacent segments of one wait,
// which a candidate freeze divided, count as one.
func (os openWaits) add(w *path.WalkResult) {
	n := len(w.Segments)
	if n == 0 || len(w.CauseIDs) != n {
		return
	}
	last := &w.Segments[n-1]
	stuckSince := last.Start
	for i := n - 2; i >= 0 && w.Segments[i].End == stuckSince; i-- {
		if s := &w.Segments[i]; s.Site != last.Site || s.G != last.G || s.Code.Cause() != last.Code.Cause() {
			break
		}
		stuckSince = w.Segments[i].Start
	}
	if stuckSince == w.PathStart {
		stuckSince = w.Start // the request began before the remaining part of the trace
	}
	stuckNS := w.Req.End - stuckSince
	entry.GetOrAdd(os, w.CauseIDs[n-1]).add(&openWait{w.Weight, w.Start, w.Weight * stuckNS, []int64{stuckNS}, []int64{w.Req.End - w.Start}})
}

// merge adds the waits of another table. causes translates its cause ids; nil: they are the same.
func (os openWaits) merge(from openWaits, causes []path.CauseID) {
	for id, o := range from {
		if causes != nil {
			id = causes[id]
		}
		entry.GetOrAdd(os, id).add(o)
	}
}

// openWaitRows returns where open requests wait, those with the longest total time first. starter is the line that started the
// group's goroutines.
func (w rowWriter) openWaitRows(os openWaits, starter tracefmt.FrameID) (out []report.OpenWait) {
	type waitKey struct {
		cause       cause.Cause
		inbound     bool
		site        tracefmt.FrameID
		serviceSite tracefmt.FrameID
		call        tracefmt.StringID
		kind        tracefmt.StringID
	}
	merged, ids := map[waitKey]*openWait{}, map[waitKey]path.CauseID{}
	for id, o := range os {
		k := w.stage.IDs.Cause(id).WithSettledCause(w.sp.Settlement)
		serviceSite := w.sp.ServiceFrame(k.Site, w.stage.IDs.Chain(k.Chain), starter)
		key := waitKey{k.Code.Cause(), k.Inbound, k.Site, serviceSite, k.Call, k.Kind}
		if key.cause == cause.Network {
			key.kind = 0 // it is the peer's state
		}
		entry.GetOrAdd(merged, key).add(o)
		if first, ok := ids[key]; !ok || id < first {
			ids[key] = id
		}
	}
	type row struct {
		report.OpenWait
		totalNS int64
	}
	var rows []row
	for key, o := range merged {
		wait := report.OpenWait{
			Cause: spell.Cause(key.cause), Call: w.sp.Syms.String(key.call), Via: []report.Via{},
			Kind:  w.sp.Kind(key.cause, key.kind, key.inbound),
			Count: int(o.count), OldestNS: w.sp.End - o.oldestStart, StuckNS: o.stuckNS, AgesNS: o.agesNS,
		}
		if via := w.sp.Vias(w.stage.IDs.Chain(w.stage.IDs.Cause(ids[key]).Chain)); len(via) > 0 {
			wait.Via = via
		}
		wait.Site = w.sp.SiteFor(key.site, key.serviceSite, wait.Via)
		rows = append(rows, row{wait, o.totalNS})
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.totalNS, a.totalNS), cmp.Compare(a.Cause, b.Cause), a.Site.Compare(b.Site),
			cmp.Compare(a.Call, b.Call), cmp.Compare(a.Kind, b.Kind))
	})
	for i := range rows {
		out = append(out, rows[i].OpenWait)
	}
	return out
}
