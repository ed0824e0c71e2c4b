package inspect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// An AreaSum is the time of one state, and for waits of one reason, on the lanes of an area.
type AreaSum struct {
	State     string    `json:"state"`
	Reason    string    `json:"reason,omitempty"`
	NS        int64     `json:"ns"`
	Count     int       `json:"count"`      // number of intervals, cut at the area's limits
	LongestNS int64     `json:"longest_ns"` // longest of them
	Sites     []SiteSum `json:"sites"`      // by decreasing time
}

// A SiteSum is the time at one site.
type SiteSum struct {
	Site *report.Site `json:"site"`
	NS   int64        `json:"ns"`
}

// maxSites bounds the sites of one state of an area.
const maxSites = 5

// eachAreaPiece calls f for each piece of up to MaxLanes goroutines in [from, to), ns from the trace's start, one call at a time. More goroutines are
// an error. Only waits keep their reason.
func (t *Trace) eachAreaPiece(ctx context.Context, from, to int64, goroutines []uint64, sites bool, f func(id uint64, p Piece, stack tracefmt.StackID)) error {
	if len(goroutines) > MaxLanes { // so few have one worker
		return fmt.Errorf("at most %d lanes at a time", MaxLanes)
	}
	ids := append([]uint64{}, goroutines...) // not nil, because nil means all
	slices.Sort(ids)
	return t.eachPiece(ctx, max(from, 0), min(to, t.index.speller.End-t.start+1), slices.Compact(ids), func() func(id uint64, p Piece, stack tracefmt.StackID) {
		return func(id uint64, p Piece, stack tracefmt.StackID) {
			if p.State != timeline.Waiting {
				p.Reason = 0
			}
			f(id, p, stack)
		}
	}, sites)
}

// Area sums up up to MaxLanes goroutines in [from, to), ns from the trace's start, by state, reason and site, ordered by
// decreasing time.
func (t *Trace) Area(ctx context.Context, from, to int64, goroutines []uint64) ([]AreaSum, error) {
	type kind struct {
		state  timeline.State
		reason tracefmt.StringID
	}
	type sum struct {
		AreaSum
		sites map[tracefmt.FrameID]int64
		last  map[uint64]Piece
	}
	sums := map[kind]*sum{}
	err := t.eachAreaPiece(ctx, from, to, goroutines, true, func(id uint64, p Piece, _ tracefmt.StackID) {
		s := entry.GetOrMake(sums, kind{p.State, p.Reason}, func() *sum {
			return &sum{AreaSum: AreaSum{State: p.State.String(), Reason: t.String(p.Reason)}, sites: map[tracefmt.FrameID]int64{}, last: map[uint64]Piece{}}
		})
		s.NS += p.To - p.From
		s.sites[p.Site] += p.To - p.From
		// Events divide runs, and the borders of generations divide all pieces.
		if l, ok := s.last[id]; ok && l.To == p.From && (p.State == timeline.Running || l.Site == p.Site) {
			p.From = l.From
		} else {
			s.Count++
		}
		s.last[id] = p
		s.LongestNS = max(s.LongestNS, p.To-p.From)
	})
	if err != nil {
		return nil, err
	}
	out := make([]AreaSum, 0, len(sums))
	for _, s := range sums {
		ids := slices.SortedFunc(maps.Keys(s.sites), func(a, b tracefmt.FrameID) int { return cmp.Or(cmp.Compare(s.sites[b], s.sites[a]), cmp.Compare(a, b)) })
		s.Sites = []SiteSum{}
		for _, id := range ids[:min(len(ids), maxSites)] {
			s.Sites = append(s.Sites, SiteSum{t.Site(id), s.sites[id]})
		}
		out = append(out, s.AreaSum)
	}
	slices.SortFunc(out, func(a, b AreaSum) int {
		return cmp.Or(cmp.Compare(b.NS, a.NS), cmp.Compare(a.State, b.State), cmp.Compare(a.Reason, b.Reason))
	})
	return out, nil
}
