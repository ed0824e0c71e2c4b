package explain

import (
	"strings"

	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/report"
)

// holder returns a function that finds the goroutine which perhaps holds the lock that a function waits for: at the end of the trace it has
// waited elsewhere, in a method of the same type or in the same function, for at least so long, and of all of these for the shortest time.
func (e *engine) holder(sp *spell.Speller) func(locks string, least int64) (*report.Site, string, int64) {
	return func(locks string, least int64) (at *report.Site, reason string, longest int64) {
		w := &e.pass.Window
		if len(w.Gens) == 0 {
			return nil, "", 0
		}
		same := func(fn string) bool { return fn == locks || strings.HasPrefix(fn, locks+".") }
		if i := strings.LastIndex(locks, ")."); i >= 0 {
			same = func(fn string) bool { return strings.HasPrefix(fn, locks[:i+2]) }
		}
		last := w.Gens[len(w.Gens)-1]
		var spans []timeline.Span
		last.Goroutines(func(id uint64) {
			spans = w.Spans(id, last.End-1, last.End, spans[:0])
			if len(spans) == 0 {
				return
			}
			s := &spans[len(spans)-1]
			if ns := s.End - s.Start; s.State != timeline.Waiting || s.Woken || ns < least || at != nil && ns >= longest {
				return
			}
			in := false
			for _, fr := range sp.Syms.Stack(s.Stack) {
				fn := sp.Syms.String(sp.Syms.Frame(fr).Func)
				if stdlib.IsMutex(fn) {
					return // it waits for a lock itself
				}
				in = in || same(fn)
			}
			if in {
				at, reason, longest = sp.Site(e.pass.Stages[0].Sites.SiteOf(s.Stack)), sp.Syms.String(s.Reason), s.End-s.Start
			}
		})
		return at, reason, longest
	}
}
