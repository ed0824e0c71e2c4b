package store

import (
	"context"
	"slices"
	"time"
)

// maxTrendDays bounds the days of DailyWins.
const maxTrendDays = 31

// DailyWins returns, for each problem of a selection, by how much a fix would have shortened the waits in each second of recorded time, in seconds,
// by day: the last maxTrendDays days, the oldest first. Problems without a win are missing.
func (s *Store) DailyWins(ctx context.Context, sel Selection, problems []string) (map[string][]float64, error) {
	if len(problems) == 0 {
		return nil, nil
	}
	end := sel.To.Add(day - 1).Truncate(day)
	if earliest := end.Add(-maxTrendDays * day); sel.From.Before(earliest) {
		sel.From = earliest
	}
	begin := sel.From.Truncate(day)
	type key struct {
		service, environment string
		day                  int64
	}
	type win struct {
		key
		problem string
		ns      int64
	}
	recorded := make(map[key]int64)
	inSelection, args := s.selectionCondition("seen", sel, day)
	condition, ids := inCondition("problem", append(slices.Clone(problems), ""))
	list, err := queryAll(ctx, s.rowReader, func(scan func(...any) error) (w win, err error) {
		if err = scan(&w.service, &w.environment, &w.problem, &w.day, &w.ns); w.problem == "" {
			recorded[w.key] = w.ns
		}
		return w, err
	}, `SELECT service, environment, problem, day, `+s.sumExpr("ns")+` FROM `+s.tableExpr("seen")+` WHERE `+inSelection+` AND `+condition+` GROUP BY service, environment, problem, day`, append(args, ids...)...)
	wins := make(map[string][]float64)
	for _, w := range list {
		i := int(time.Unix(w.day, 0).Sub(begin) / day)
		if w.problem == "" || i < 0 || !time.Unix(w.day, 0).Before(end) || recorded[w.key] == 0 {
			continue
		}
		if wins[w.problem] == nil {
			wins[w.problem] = make([]float64, end.Sub(begin)/day)
		}
		wins[w.problem][i] += float64(w.ns) / float64(recorded[w.key])
	}
	return wins, err
}
