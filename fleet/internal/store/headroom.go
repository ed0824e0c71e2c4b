package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/whylate/whylate/fleet/internal/rows"
)

// A Headroom is by how many times the load of a version's pods can grow until their first limit saturates. It is that of the
// median of its newest recordings: one recording more or less, or one pod with an unusual second, does not change it much.
type Headroom struct {
	Times      float64 `json:"times" doc:"load at the first limit, relative to the load when recorded; 0 if it is not known"`
	Low        float64 `json:"low" doc:"Times is between low and high"`
	High       float64 `json:"high"`
	Lowest     float64 `json:"lowest" doc:"of these recordings"`
	Limit      string  `json:"limit" doc:"what saturates first: kind, function and line"`
	NotJudged  string  `json:"not_judged" doc:"limits that the recording does not show: each may be lower"`
	Reason     string  `json:"reason" doc:"why times is 0"`
	Judged     int     `json:"judged" doc:"recordings that show it"`
	Recordings int     `json:"recordings" doc:"the newest of the version, at most 20"`
	Recording  string  `json:"recording" doc:"the one with the median"`
}

// headroomSample is the number of recordings whose median is the headroom of a version.
const headroomSample = 20

type recordingHeadroom struct {
	id string
	rows.Headroom
}

// addHeadrooms sets the headroom of the versions that are not replaced.
func (s *Store) addHeadrooms(ctx context.Context, sel Selection, versions []Version) error {
	type key struct{ service, version, environment string }
	lists := make(map[key][]recordingHeadroom)
	read := func(condition string, args ...any) error {
		return eachRow(ctx, s.rowReader, func(scan func(...any) error) error {
			var k key
			var h recordingHeadroom
			if err := scan(&k.service, &k.version, &k.environment, &h.id, &h.Times, &h.Low, &h.High, &h.Limit, &h.NotJudged, &h.Reason); err != nil {
				return err
			}
			lists[k] = append(lists[k], h)
			return nil
		}, `SELECT service, version, environment, recording, times, low, high, resource, unjudged, reason FROM `+s.tableExpr("headrooms")+` WHERE moment>=? AND moment<? AND `+condition,
			append([]any{sel.From.Truncate(day).UnixNano(), sel.To.UnixNano()}, args...)...)
	}
	if s.clickhouse != nil { // one query for all: each takes longer than in SQLite, and reads more
		if err := read(fmt.Sprintf("(?='' OR service=?) ORDER BY moment DESC, recording LIMIT %d BY service, version, environment", headroomSample), sel.Service, sel.Service); err != nil {
			return err
		}
	}
	for i := range versions {
		v := &versions[i]
		if v.Replaced {
			continue
		}
		if s.clickhouse == nil {
			if err := read("service=? AND version=? AND environment=? ORDER BY moment DESC, recording LIMIT ?", v.Service, v.Version, v.Environment, headroomSample); err != nil {
				return err
			}
		}
		v.Headroom = medianHeadroom(lists[key{v.Service, v.Version, v.Environment}])
	}
	return nil
}

// medianHeadroom returns the headroom of the recording with the median, of those that show one; if none does, only the reason. Of an even number it
// is the lower one of both in the middle. The list has the newest recording first.
func medianHeadroom(list []recordingHeadroom) *Headroom {
	if len(list) == 0 {
		return &Headroom{Reason: "explained by an earlier version of whylate-fleet; whylate-fleet backfill explains again"}
	}
	out := &Headroom{Recordings: len(list), Reason: list[0].Reason, NotJudged: list[0].NotJudged, Recording: list[0].id}
	judged := slices.DeleteFunc(slices.Clone(list), func(h recordingHeadroom) bool { return !(h.Times > 0) })
	if len(judged) == 0 {
		return out
	}
	slices.SortStableFunc(judged, func(a, b recordingHeadroom) int { return cmp.Compare(a.Times, b.Times) })
	median := &judged[(len(judged)-1)/2]
	out.Times, out.Low, out.High, out.Lowest = median.Times, median.Low, median.High, judged[0].Times
	out.Limit, out.NotJudged, out.Reason, out.Judged, out.Recording = median.Limit, median.NotJudged, "", len(judged), median.id
	return out
}

// CompareHeadroom orders versions for a list of services: first by headroom, the least first, then those whose headroom is not known, then replaced
// ones. It returns a number below, equal to or above 0.
func CompareHeadroom(a, b Version) int {
	rank := func(v *Version) (class int, times float64) {
		switch {
		case v.Replaced:
			return 2, 0
		case v.Headroom == nil || v.Headroom.Times == 0:
			return 1, 0
		}
		return 0, v.Headroom.Times
	}
	classOfA, timesOfA := rank(&a)
	classOfB, timesOfB := rank(&b)
	return cmp.Or(cmp.Compare(classOfA, classOfB), cmp.Compare(timesOfA, timesOfB))
}
