package server

import (
	"reflect"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/testing/check"
)

// TestChart: bars show the mean time of a request by cause, and marks show versions that begin within the period.
func TestChart(t *testing.T) {
	begin := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	sel := store.Selection{From: begin.Add(-time.Hour), To: begin.Add(time.Hour)}
	var points []store.Point
	for i := range 6 {
		start := begin.Add(time.Duration(i) * 10 * time.Minute)
		points = append(points, store.Point{Start: start, Requests: 10}, store.Point{Start: start, Cause: "cpu", NS: int64(1e7 * (1 + i))}, store.Point{Start: start, Cause: "lock", NS: 1e7})
	}
	versions := []store.Version{{Version: "v3", First: begin.Add(30 * time.Minute)}, {Version: "v2", First: begin}, {Version: "v1", First: begin.Add(-time.Minute)}}
	drawn := newChart(points, versions, sel, time.Minute)
	if want := []versionMark{{chartWidth / 2, "v3"}, {0, "v2"}}; !reflect.DeepEqual(drawn.VersionMarks, want) {
		t.Errorf("marks %+v, want %+v", drawn.VersionMarks, want)
	}
	if drawn.MaxNS != 7e6 || len(drawn.Bars) != 12 || len(drawn.Legend) != 2 || drawn.Legend[0].Cause != "cpu" || drawn.Legend[0].NS != 3.5e6 || drawn.Legend[1].NS != 1e6 {
		t.Errorf("%+v", drawn)
	}
	if b := drawn.Bars[0]; b.X != 0 || b.Tooltip != "2026-05-04 12:00: 1ms a request, cpu" {
		t.Errorf("%+v", b)
	}
	if drawn := newChart(nil, versions, sel, time.Minute); drawn != nil {
		t.Errorf("without points: %+v", drawn)
	}
}

// TestStepOf: a period has at most 150 intervals.
func TestStepOf(t *testing.T) {
	now := time.Now()
	for _, c := range []struct{ period, want time.Duration }{
		{time.Second, time.Minute}, {150 * time.Minute, time.Minute}, {150*time.Minute + 1, 5 * time.Minute}, {750 * time.Minute, 5 * time.Minute}, {750*time.Minute + 1, 15 * time.Minute},
		{2250 * time.Minute, 15 * time.Minute}, {2250*time.Minute + 1, time.Hour}, {150 * time.Hour, time.Hour}, {150*time.Hour + 1, 6 * time.Hour}, {900 * time.Hour, 6 * time.Hour}, {900*time.Hour + 1, 24 * time.Hour},
	} {
		check.Equal(t, stepOf(store.Selection{From: now.Add(-c.period), To: now}), c.want, "%v", c.period)
	}
}
