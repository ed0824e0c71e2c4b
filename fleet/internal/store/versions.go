package store

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
)

// replacedAfter is the time without recordings after which a version counts as replaced, if a newer version has sent some since.
const replacedAfter = 5 * time.Minute

// A Version is a version of a service in an environment, with sums of its recordings. Quantiles are upper bounds of latency
// buckets.
type Version struct {
	Service     string    `json:"service"`
	Environment string    `json:"environment"`
	Version     string    `json:"version"`
	First       time.Time `json:"first"`
	Last        time.Time `json:"last"`
	Replaced    bool      `json:"replaced" doc:"a newer version sends, and this one has not for 5 minutes"`
	Pods        int64     `json:"pods" doc:"that sent recordings, on the day when most did"`
	Recordings  int64     `json:"recordings"`
	RecordedNS  int64     `json:"recorded_ns"`
	Requests    int64     `json:"requests"`
	P50NS       int64     `json:"p50_ns"`
	P99NS       int64     `json:"p99_ns"`
	Recording   string    `json:"recording" doc:"the newest"`
	Headroom    *Headroom `json:"headroom,omitempty" doc:"of versions that are not replaced"`
}

// Overview returns the findings and versions of a selection. Findings are ordered by WinPerSecond; those of replaced versions
// come last.
func (s *Store) Overview(ctx context.Context, sel Selection) (problems []Problem, versions []Version, err error) {
	recordings, err := s.problemSums(ctx, sel, "problem=''")
	if err != nil {
		return nil, nil, err
	}
	type key struct{ service, environment, version string }
	versionByKey := make(map[key]*Version)
	for _, r := range recordings {
		v := Version{Service: r.service, Environment: r.environment, Version: r.version, Pods: r.pods, Recordings: r.recordings, RecordedNS: r.ns}
		v.First, _ = parseStamp(r.oldest)
		v.Last, v.Recording = parseStamp(r.newest)
		versions = append(versions, v)
	}
	slices.SortFunc(versions, func(a, b Version) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Environment, b.Environment), b.First.Compare(a.First))
	})
	var newest *Version
	for i := range versions {
		v := &versions[i]
		versionByKey[key{v.Service, v.Environment, v.Version}] = v
		if newest != nil && newest.Service == v.Service && newest.Environment == v.Environment {
			v.Replaced = v.Last.Add(replacedAfter).Before(newest.Last)
		}
		if newest == nil || newest.Service != v.Service || newest.Environment != v.Environment || v.Last.After(newest.Last) {
			newest = v
		}
	}
	if err := s.addQuantiles(ctx, sel, func(service, environment, version string) *Version {
		return versionByKey[key{service, environment, version}]
	}); err != nil {
		return nil, nil, err
	}
	if err := s.addHeadrooms(ctx, sel, versions); err != nil {
		return nil, nil, err
	}
	candidates, err := s.candidates(ctx, sel, versions)
	if err != nil {
		return nil, nil, err
	}
	if problems, err = s.rankProblems(ctx, candidates, func(r *problemSum) *Version { return versionByKey[key{r.service, r.environment, r.version}] }); err != nil {
		return nil, nil, err
	}
	s.applyPolicy(problems)
	return problems, versions, nil
}

// addQuantiles sets requests and latency quantiles of the versions that version finds by their names; it may return nil.
func (s *Store) addQuantiles(ctx context.Context, sel Selection, version func(service, environment, version string) *Version) error {
	inSelection, args := s.selectionCondition("days", sel, day)
	type bucket struct{ upper, n int64 }
	bucketsOf := make(map[*Version][]bucket)
	err := eachRow(ctx, s.rowReader, func(scan func(...any) error) error {
		var service, environment, name string
		var b bucket
		if err := scan(&service, &environment, &name, &b.upper, &b.n); err != nil {
			return err
		}
		if v := version(service, environment, name); v != nil {
			bucketsOf[v] = append(bucketsOf[v], b)
			v.Requests = rows.AddClamped(v.Requests, b.n)
		}
		return nil
	}, `SELECT service, environment, version, bucket, `+s.sumExpr("n")+` FROM `+s.tableExpr("days")+` WHERE cause='' AND `+inSelection+` GROUP BY service, environment, version, bucket ORDER BY bucket`, args...)
	for v, buckets := range bucketsOf {
		cumulative := int64(0)
		for _, b := range buckets {
			cumulative = rows.AddClamped(cumulative, b.n)
			if v.P50NS == 0 && cumulative >= v.Requests-cumulative {
				v.P50NS = b.upper
			}
			if v.P99NS == 0 && float64(cumulative)*100 >= float64(v.Requests)*99 {
				v.P99NS = b.upper
			}
		}
	}
	return err
}
