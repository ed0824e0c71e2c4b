package server

import (
	"reflect"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/store"
)

// TestChart: bars are the time of a request by cause, and marks are versions that begin within what is shown.
func TestChart(t *testing.T) {
	begin := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	in := store.Selection{From: begin.Add(-time.Hour), To: begin.Add(time.Hour)}
	var points []store.Point
	for i := range 6 {
		at := begin.Add(time.Duration(i) * 10 * time.Minute)
		points = append(points, store.Point{Start: at, Requests: 10}, store.Point{Start: at, Cause: "cpu", NS: int64(1e7 * (1 + i))}, store.Point{Start: at, Cause: "lock", NS: 1e7})
	}
	versions := []store.Version{{Version: "v3", First: begin.Add(30 * time.Minute)}, {Version: "v2", First: begin}, {Version: "v1", First: begin.Add(-time.Minute)}}
	c := draw(points, versions, in, time.Minute)
	if want := []mark{{chartWidth / 2, "v3"}, {0, "v2"}}; !reflect.DeepEqual(c.Marks, want) {
		t.Errorf("marks %+v, want %+v", c.Marks, want)
	}
	if c.Most != 7e6 || len(c.Bars) != 12 || len(c.Legend) != 2 || c.Legend[0].Cause != "cpu" || c.Legend[0].NS != 3.5e6 || c.Legend[1].NS != 1e6 {
		t.Errorf("%+v", c)
	}
	if b := c.Bars[0]; b.X != 0 || b.Says != "2026-05-04 12:00: 1ms a request, cpu" {
		t.Errorf("%+v", b)
	}
	if c := draw(nil, versions, in, time.Minute); c != nil {
		t.Errorf("of nothing, %+v", c)
	}
}
