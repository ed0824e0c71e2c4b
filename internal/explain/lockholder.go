package explain

import (
	"strings"

	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/report"
)

// lockHolder returns a function that searches for the goroutine that may hold a lock. lockFunc is the function that
// waits for the lock, and minNS the least duration. The candidate waits for something else at the end of the trace, for
// at least minNS, in a method of the same type or in the same function. Of several, the one with the shortest wait is
// returned: its site, the reason and duration of its wait.
func lockHolder(window *timeline.Window, sp *spell.Speller) func(lockFunc string, minNS int64) (*report.Site, string, int64) {
	return func(lockFunc string, minNS int64) (site *report.Site, reason string, waitNS int64) {
		if len(window.Gens) == 0 {
			return nil, "", 0
		}
		isOfLock := func(fn string) bool { return fn == lockFunc || strings.HasPrefix(fn, lockFunc+".") }
		if i := strings.LastIndex(lockFunc, ")."); i >= 0 {
			isOfLock = func(fn string) bool { return strings.HasPrefix(fn, lockFunc[:i+2]) }
		}
		last := window.Gens[len(window.Gens)-1]
		var spans []timeline.Span
		last.Goroutines(func(id uint64) {
			spans = window.Spans(id, last.End-1, last.End, spans[:0])
			if len(spans) == 0 {
				return
			}
			span := &spans[len(spans)-1]
			if ns := span.End - span.Start; span.State != timeline.Waiting || span.Woken || ns < minNS || site != nil && ns >= waitNS {
				return
			}
			isInside := false
			for _, fr := range sp.Syms.Stack(span.Stack) {
				if sp.Sites.RolesOf(fr).Has(knowledge.Mutex) {
					return // it waits for a lock itself
				}
				isInside = isInside || isOfLock(sp.Syms.String(sp.Syms.Frame(fr).Func))
			}
			if isInside {
				site, reason, waitNS = sp.Site(sp.Sites.SiteOf(span.Stack)), sp.Syms.String(span.Reason), span.End-span.Start
			}
		})
		return site, reason, waitNS
	}
}
