package explain

import (
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/allocs"
	"github.com/whylate/whylate/internal/explain/moments"
	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/report"
)

// byGroup returns, by group id, what of returns for the groups of a table.
func byGroup[T any](table *groupTable, of func(path.GroupID) T) map[string]T {
	out := map[string]T{}
	for i, id := range table.pathIDs {
		out[table.groups[i].ID] = of(id)
	}
	return out
}

// outlierIntervals returns, by group id, in how many separate intervals the group's outliers were open: outliers at the same time
// have one reason.
func outlierIntervals(table *groupTable, sum *moments.Sum) map[string]int {
	out := map[string]int{}
	for i, id := range table.pathIDs {
		if b := table.groups[i].Band(report.BandOutliers); b != nil {
			out[table.groups[i].ID] = sum.CountOpenIntervals(id, b.FromNS)
		}
	}
	return out
}

// herdOverlap returns the function for finding.Input.HerdOverlap: the share of a group's waits for a P that fall within the herds
// of a start function, and the share of the trace that these herds cover.
func herdOverlap(table *groupTable, sum *moments.Sum, stats *process.Stats, p *pass.Pass) func(group, start string) (waited, time float64) {
	return func(group, start string) (waited, time float64) {
		i := slices.IndexFunc(table.groups, func(g report.Group) bool { return g.ID == group })
		if i < 0 {
			return 0, 0
		}
		var ranges [][2]int64
		for _, f := range stats.HerdWakeups {
			if f.Start == start {
				ranges = append(ranges, [2]int64{p.Start + f.FromNS, p.Start + f.ToNS})
			}
		}
		return sum.WaitShare(table.pathIDs[i], ranges, p.End-p.Start)
	}
}

// readAllocs reads the allocation profile. It is nil if there is none or it has too few samples; other errors become warnings.
func readAllocs(source io.Reader, sp *spell.Speller) (*allocs.Profile, []report.Warning) {
	if source == nil {
		return nil, nil
	}
	profile, err := allocs.Read(source, func(s report.Site) report.Site {
		s.File = sp.File(s.File)
		return s
	})
	if errors.Is(err, allocs.ErrEmpty) || errors.Is(err, allocs.ErrFewSamples) {
		return nil, nil
	}
	if err != nil {
		return nil, []report.Warning{{Code: "allocs-profile", Text: err.Error()}}
	}
	return profile, nil
}

// lockHolderFinder returns a function that guesses which goroutine holds a lock when the trace ends. lockFunc is the function
// that waits for the lock, minNS the least duration of the holder's own wait. The holder waits for something else, not for a
// lock, in a method of the same type or in the same function. Of several, it returns the one with the shortest wait: its site,
// and the reason and duration of that wait.
func lockHolderFinder(window *timeline.Window, sp *spell.Speller) func(lockFunc string, minNS int64) (site *report.Site, reason string, waitNS int64) {
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
