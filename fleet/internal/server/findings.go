package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/report"
)

// findingLists are the findings of a page: those that current versions have, of low severity or worse, those that are muted, and those
// of replaced versions only.
type findingLists struct {
	Current, Low, Muted, Replaced []listedFinding
}

// IsEmpty reports whether no current version has a finding.
func (l *findingLists) IsEmpty() bool { return len(l.Current)+len(l.Low)+len(l.Muted) == 0 }

type listedFinding struct {
	store.Problem
	State string // what changed, by versions: "new in v2", "not in v3"; or ""
	Trend *trend // nil if all is of one day
}

// listFindings divides the findings of a selection into lists. problems and versions are those of Overview, in its order.
func (s *Server) listFindings(ctx context.Context, sel store.Selection, problems []store.Problem, versions []store.Version) (lists findingLists, err error) {
	ids := make([]string, len(problems))
	for i := range problems {
		ids[i] = problems[i].Problem
	}
	wins, err := s.Store.DailyWins(ctx, sel, ids)
	if err != nil {
		return lists, err
	}
	for i := range problems {
		p := &problems[i]
		listed := listedFinding{*p, stateOf(p, versions, sel.To), newTrend(wins[p.Problem])}
		list := &lists.Current
		switch {
		case p.Replaced:
			list = &lists.Replaced
		case p.Mute != nil:
			list = &lists.Muted
		case p.Severity == string(report.SeverityLow):
			list = &lists.Low
		}
		*list = append(*list, listed)
	}
	return lists, nil
}

// minAbsence is how many recordings of the newest version must be without a finding before it counts as not in it.
const minAbsence = 3

// stateOf returns what versions, which are ordered by service, environment and age with the newest first, show about a finding:
// that it is new, or not in the newest version; "" if neither. to is the end of the selection.
func stateOf(p *store.Problem, versions []store.Version, to time.Time) string {
	var newest, oldest *store.Version
	for i := range versions {
		if v := &versions[i]; v.Service == p.Service && v.Environment == p.Environment {
			if newest == nil {
				newest = v
			}
			oldest = v
		}
	}
	switch {
	case newest == nil || len(p.Versions) == 0:
		return ""
	case !slices.Contains(p.Versions, newest.Version):
		if newest.Recordings < minAbsence {
			return ""
		}
		return fmt.Sprintf("not in %s (%d recordings)", newest.Version, newest.Recordings)
	case newest != oldest && p.Versions[0] == newest.Version:
		return "new in " + newest.Version
	case to.Sub(p.First) < 24*time.Hour && p.First.Sub(oldest.First) > 24*time.Hour:
		return "new"
	}
	return ""
}

// A trend shows what a fix would have won on each day, as bars of 6 by 20 units.
type trend struct {
	Width int
	Label string
	Bars  []struct{ X, Y, Height float64 }
}

// newTrend returns the trend of the wins in each second of recorded time, in seconds, by day, the oldest first; nil if at most one day has a win.
func newTrend(wins []float64) *trend {
	var days []string
	for _, win := range wins {
		days = append(days, formatDuration(int64(win*1e9)))
	}
	highest := slices.Max(append(wins, 0))
	if highest == 0 || len(slices.DeleteFunc(slices.Clone(wins), func(win float64) bool { return win == 0 })) < 2 {
		return nil
	}
	drawn := &trend{Width: 8 * len(wins), Label: "by day, of each recorded second: " + strings.Join(days, ", ")}
	for i, win := range wins {
		height := 19*win/highest + 1
		drawn.Bars = append(drawn.Bars, struct{ X, Y, Height float64 }{float64(8 * i), 20 - height, height})
	}
	return drawn
}
