package compare

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestRowError: a row that every request has varies as its cause does, a row of a single request varies additionally by its own size,
// and a missing row does not vary.
func TestRowError(t *testing.T) {
	site := &report.Site{Func: "f", File: "f.go", Line: 1}
	band := &report.Band{Count: 240, Causes: []report.Cause{{Cause: report.CauseCPU, Site: site, Requests: 240}, {Cause: report.CauseSleep, Site: site, Requests: 1}}}
	var g report.Group
	for i := range 24 {
		g.Blocks = append(g.Blocks, report.Block{StartNS: int64(i) * 250e6, DurationNS: 250e6, Count: 10, TotalNS: 10_000, Histogram: [][2]int64{{1024, 10}},
			Causes: map[report.CauseName]int64{report.CauseCPU: 9000, report.CauseSleep: 1000 + 500*int64(i%2*2-1)}})
	}
	s := sideOf(&g)
	check.Equal(t, s.rowError(&Row{Cause: report.CauseCPU}, site, 1000, band), 0, "what all requests have, in equal blocks, varies by")
	if e := s.rowError(&Row{Cause: report.CauseSleep}, site, 1000, band); e < 990 || e > 1100 {
		t.Errorf("what one request of 240 has varies by %v of 1000", e)
	}
	check.Equal(t, s.rowError(&Row{Cause: report.CauseSleep}, site, 0, band), 0, "a row without time varies by")
	g.Blocks = g.Blocks[:minBlocks-1]
	check.True(t, sideOf(&g) == nil, "%d blocks are enough", minBlocks-1)
}

// TestMovedComputing: computing that only moved to another row is no evidence, as samples decide the rows. More computing is.
func TestMovedComputing(t *testing.T) {
	for _, c := range []struct {
		cause          report.CauseName
		parseNS, logNS int64 // of each request, afterwards
		want           bool
	}{{report.CauseCPU, 100e3, 400e3, false}, {report.CauseSleep, 100e3, 400e3, true}, {report.CauseCPU, 400e3, 400e3, true}} {
		recording := func(parseNS, logNS int64) *report.Report {
			return reportOf("x", load{"main.h", report.KindHTTP1, 10, 60, func(*rand.Rand, float64) []spent {
				return []spent{{"network", "main.h", 1, 5e6}, {c.cause, "main.parse", 2, parseNS}, {c.cause, "main.log", 3, logNS}}
			}}.group(1))
		}
		group := Reports(recording(400e3, 100e3), recording(c.parseNS, c.logNS)).Groups[0]
		check.Equal(t, slices.ContainsFunc(group.Causes, func(r Row) bool { return r.Evidence }), c.want, "%+v: %+v", c, group.Causes)
	}
}

// TestGaps: blocks without requests are part of the time, but a report does not have them.
func TestGaps(t *testing.T) {
	g := shop(0).group(1)
	all := sideOf(&g)
	g.Blocks = append(g.Blocks[:10:10], g.Blocks[15:]...)
	if s := sideOf(&g); len(s.blocks) != len(all.blocks) || s.blocks[12].count != 0 || s.blocks[15].count == 0 || s.n >= all.n {
		t.Errorf("%d blocks, with all %d", len(s.blocks), len(all.blocks))
	}
}
