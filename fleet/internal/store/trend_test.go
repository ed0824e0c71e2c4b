package store

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestDailyWins: a day's win is that of each recorded second, also of recordings without the finding.
func TestDailyWins(t *testing.T) {
	s := openTestStore(t)
	end := time.Now().Truncate(day).Add(day)
	add := func(id, service string, daysAgo int, wins map[string]int64) {
		r := &rows.Rows{Start: end.Add(-time.Duration(daysAgo)*day + time.Second), DurationNS: 2e9, Requests: 10}
		for problem, ns := range wins {
			r.Findings = append(r.Findings, rows.Finding{Problem: problem, Requests: 10, WinNS: ns})
		}
		addExplained(t, s, id, rows.Labels{Service: service, Version: "v1"}, r)
	}
	add("1", "shop", 3, map[string]int64{"p": 1e9})
	add("2", "shop", 1, map[string]int64{"p": 2e9, "q": 4e9})
	add("3", "shop", 1, nil)
	add("4", "bank", 1, nil)
	for i := range 3 {
		add(fmt.Sprint("old", i), "shop", 40+i, map[string]int64{"p": 1e9})
	}
	sel := Selection{From: end.Add(-3 * day), To: end}
	wins := must.Have(s.DailyWins(t.Context(), sel, []string{"p", "q", "unknown"}))(t)
	check.True(t, reflect.DeepEqual(wins, map[string][]float64{"p": {0.5, 0, 0.5}, "q": {0, 0, 1}}), "%v", wins)
	sel.From = end.Add(-90 * day)
	wins = must.Have(s.DailyWins(t.Context(), sel, []string{"p"}))(t)
	check.True(t, len(wins["p"]) == maxTrendDays && wins["p"][maxTrendDays-3] == 0.5 && wins["p"][0] == 0, "of 90 days: %v", wins)
	services, environments, err := s.Names(t.Context(), sel)
	check.True(t, err == nil && reflect.DeepEqual(services, []string{"bank", "shop"}) && len(environments) == 0, "%q %q %v", services, environments, err)
}
