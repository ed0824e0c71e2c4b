package server

import (
	"fmt"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestLongestWait: a finding leads to its longest segment, in its group; without one, to the longest segment of the group.
func TestLongestWait(t *testing.T) {
	site := func(name string) *report.Site { return &report.Site{Func: name} }
	segment := func(ns int64, cause report.CauseName, name string) report.Segment {
		return report.Segment{DurationNS: ns, Cause: cause, Site: site(name)}
	}
	viaLock, ahead := segment(7, "cpu", "other"), segment(8, "lock", "queue")
	viaLock.Via, ahead.AheadWork = []report.Via{{Site: site("lock")}}, &report.Work{Site: site("slow"), Cause: "disk"}
	rep := &report.Report{Groups: []report.Group{
		{ID: "a", Slowest: []report.Request{{ID: "1", Segments: []report.Segment{segment(5, "cpu", "f"), viaLock, segment(4, "cpu", "f")}}, {ID: "2", Segments: []report.Segment{segment(6, "cpu", "f"), ahead, segment(3, "lock", "f")}}}},
		{ID: "b", Slowest: []report.Request{{ID: "3", Segments: []report.Segment{segment(99, "cpu", "f")}}}}, {ID: "c"},
	}}
	for _, c := range []struct {
		group, site string
		cause       report.CauseName
		want        string // request and duration
	}{
		{"a", "f", "cpu", "2 6"}, {"a", "f", "lock", "2 3"}, {"a", "lock", "cpu", "1 7"}, {"a", "slow", "disk", "2 8"}, {"a", "slow", "lock", "2 8"}, {"a", "slow", "cpu", "2 8"}, {"a", "none", "cpu", "2 8"}, {"", "f", "cpu", "3 99"}, {"b", "none", "lock", "3 99"},
	} {
		request, longest := longestWait(rep, &report.Finding{Group: c.group, Site: site(c.site), Cause: c.cause})
		must.True(t, request != nil && longest != nil, "%+v", c)
		check.Equal(t, fmt.Sprint(request.ID, " ", longest.DurationNS), c.want, "%+v", c)
	}
	request, _ := longestWait(rep, &report.Finding{Group: "c"})
	check.True(t, request == nil, "a group without requests")
}
