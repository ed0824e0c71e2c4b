package store

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/whylate/whylate/fleet/internal/rows"
)

type problemSum struct {
	service, environment, version, problem, oldest, newest string
	recordings, requests, ns, pods                         int64
}

// problemSums returns sums of each problem by version, in no order, for the rows of a selection that meet a condition (SQL, with extraArgs).
func (s *Store) problemSums(ctx context.Context, sel Selection, condition string, extraArgs ...any) ([]problemSum, error) {
	inSelection, args := s.selectionCondition("seen", sel, day)
	// Over a week, pods replace each other. The factor is the number of pods on the day with most, not all pods of the week.
	return queryAll(ctx, s.rowReader, func(scan func(...any) error) (r problemSum, err error) {
		err = scan(&r.service, &r.environment, &r.version, &r.problem, &r.recordings, &r.requests, &r.ns, &r.oldest, &r.newest, &r.pods)
		return r, err
	}, `SELECT service, environment, version, problem, `+s.sumExpr("n")+`, `+s.sumExpr("requests")+`, `+s.sumExpr("ns")+`, min(oldest), max(newest), max(pods) FROM `+s.tableExpr("seen")+`
		WHERE `+inSelection+` AND `+condition+` GROUP BY service, environment, version, problem`, append(args, extraArgs...)...)
}

// candidates returns problems that include all those which rankProblems puts first. SQLite may have hundreds of thousands, so it
// orders them as rankProblems does, and only the first ones are read. ClickHouse keeps at most MaxProblems of a service, which
// are all read.
func (s *Store) candidates(ctx context.Context, sel Selection, versions []Version) ([]problemSum, error) {
	if s.clickhouse != nil {
		return s.problemSums(ctx, sel, "problem<>''")
	}
	factors := make([][]any, len(versions))
	for i, v := range versions {
		factor := 0.0
		if v.RecordedNS > 0 {
			factor = float64(v.Pods) / float64(v.RecordedNS)
		}
		factors[i] = []any{v.Service, v.Environment, v.Version, factor, boolToInt(v.Replaced)}
	}
	list, err := json.Marshal(factors)
	if err != nil {
		return nil, err
	}
	inSelection, args := s.selectionCondition("seen", sel, day)
	ids, err := queryAll(ctx, s.rowReader, func(scan func(...any) error) (id string, err error) {
		var replaced int
		var win float64
		var newest string
		err = scan(&id, &replaced, &win, &newest)
		return id, err
	}, `WITH factors AS MATERIALIZED (SELECT value->>0 AS of_service, value->>1 AS of_environment, value->>2 AS of_version, value->>3 AS factor, value->>4 AS replaced FROM json_each(?))
		SELECT problem, min(replaced) AS gone, iif(min(replaced), total(ns*factor), total(iif(replaced, 0.0, ns*factor))) AS win, max(newest) AS newest
		FROM seen JOIN factors ON of_service=service AND of_environment=environment AND of_version=version
		WHERE problem<>'' AND `+inSelection+` GROUP BY problem ORDER BY 2, 3 DESC, 4 DESC, 1 LIMIT ?`, append(append([]any{string(list)}, args...), maxListedProblems)...)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	condition, conditionArgs := inCondition("problem", ids)
	return s.problemSums(ctx, sel, condition, conditionArgs...)
}

// maxListedProblems bounds the findings that Overview returns.
const maxListedProblems = 200

// rankProblems adds up the sums of each problem over its versions and returns the first maxListedProblems in Overview's order. version returns the
// version of a sum, nil if the sum does not count. If a problem has current versions, replaced ones do not add to its win.
func (s *Store) rankProblems(ctx context.Context, sums []problemSum, version func(*problemSum) *Version) ([]Problem, error) {
	problems := make(map[string]*Problem)
	var oldestFirst []*problemSum
	for i := range sums {
		if sums[i].problem != "" && version(&sums[i]) != nil {
			oldestFirst = append(oldestFirst, &sums[i])
		}
	}
	slices.SortFunc(oldestFirst, func(a, b *problemSum) int { return strings.Compare(a.oldest, b.oldest) })
	type problemTotal struct {
		win, requests int64
		newest        string
	}
	totals := make(map[string]*problemTotal)
	for _, r := range oldestFirst {
		v := version(r)
		p, total := problems[r.problem], totals[r.problem]
		if p == nil {
			p, total = &Problem{Problem: r.problem, Service: r.service, Environment: r.environment, Replaced: true}, new(problemTotal)
			p.First, _ = parseStamp(r.oldest)
			problems[r.problem], totals[r.problem] = p, total
		}
		p.Versions = append(p.Versions, r.version)
		p.Recordings = rows.AddClamped(p.Recordings, r.recordings)
		if p.Replaced && !v.Replaced { // from here on only current versions count
			p.Replaced, p.Pods, p.WinPerSecond, p.RequestsPerSecond, *total = false, 0, 0, 0, problemTotal{newest: total.newest}
		}
		total.newest = max(total.newest, r.newest)
		if !p.Replaced && v.Replaced {
			continue
		}
		p.Pods = rows.AddClamped(p.Pods, r.pods)
		total.win = rows.AddClamped(total.win, r.ns)
		total.requests = rows.AddClamped(total.requests, r.requests)
		if v.RecordedNS > 0 {
			p.WinPerSecond += float64(r.ns) / float64(v.RecordedNS) * float64(v.Pods)
			p.RequestsPerSecond += 1e9 * float64(r.requests) / float64(v.RecordedNS) * float64(v.Pods)
		}
	}
	out := make([]Problem, 0, len(problems))
	for id, p := range problems {
		p.Last, p.Recording = parseStamp(totals[id].newest)
		p.GainNS = totals[id].win / max(1, totals[id].requests)
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b Problem) int {
		if a.Replaced != b.Replaced {
			return map[bool]int{true: 1, false: -1}[a.Replaced]
		}
		return cmp.Or(cmp.Compare(b.WinPerSecond, a.WinPerSecond), b.Last.Compare(a.Last), strings.Compare(a.Problem, b.Problem))
	})
	out = out[:min(len(out), maxListedProblems)]
	return out, s.addDescriptions(ctx, out)
}
