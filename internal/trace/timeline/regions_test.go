package timeline_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestRegions joins begins and ends of regions: over generations, nested, without a begin, and without an end.
func TestRegions(t *testing.T) {
	b := tracetext.New(26)
	m := b.Thread(1)
	m.RegionEnd(500, 0, "before")
	m.RegionBegin(1000, 7, "outer", "main.f:1")
	m.RegionBegin(1100, 7, "inner", "main.f:2")
	m.Log(1150, 7, "id", "4711", "main.f:3")
	m.RegionEnd(1200, 7, "inner")
	b.NextGeneration(1e9)
	m.RegionEnd(1e9+100, 7, "outer")
	m.RegionBegin(1e9+200, 0, "open", "main.f:4")
	var r timeline.Regions
	var got []string
	const base = 1e6 // of tracetext's clock
	end := func(x timeline.Region) {
		if x.Start == timeline.BeforeTrace {
			x.Start = base
		}
		got = append(got, fmt.Sprintf("%d %d to %d, depth %d", x.Task, x.Start-base, x.End-base, x.Depth))
	}
	timelinetest.ForEachGen(t, must.Have(b.Bytes())(t), 1, func(g *timeline.Gen) {
		r.Add(g, end, func(e *timeline.UserEvent) { got = append(got, fmt.Sprint("log at ", e.Time-base)) })
	})
	r.Close(2e9, end)
	want := []string{"0 0 to 500, depth -1", "log at 1150", "7 1100 to 1200, depth 1", "7 1000 to 1000000100, depth 0", "0 1000000200 to 1999000000, depth 0"}
	check.True(t, slices.Equal(got, want), "got  %q\nwant %q", got, want)
}
