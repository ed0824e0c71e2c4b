package benchmark

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/output/difftext"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// Recordings of this benchmark, made by
//
//	go test -c -trimpath -o b.test . && ./b.test -test.bench Put -test.benchtime 1800ms -test.trace old.trace
//
// old and again have the lock only for the map; locked was made with LOCKED=1. iterations is what the runs said of themselves.
var iterations = map[string]int{"old": 939, "again": 973, "locked": 242}

func explain(t *testing.T, name string) *report.Report {
	t.Helper()
	packed := must.Have(os.ReadFile("testdata/" + name + ".trace" + testprog.Packed))(t)
	trace := must.Have(testprog.Unpack(packed))(t)
	return must.Have(whylate.Explain(context.Background(), bytes.NewReader(trace), whylate.Options{Name: name}))(t)
}

func TestDiff(t *testing.T) {
	reports := map[string]*report.Report{}
	for name, n := range iterations {
		r := explain(t, name)
		reports[name] = r
		found := 0
		for i := range r.Groups {
			if strings.HasSuffix(r.Groups[i].Name, ".BenchmarkPut") {
				found = r.Groups[i].Count
			}
		}
		// The first iteration has no beginning in the trace.
		check.True(t, found == n-1, "%s: %d iterations found, the benchmark ran %d", name, found, n)
	}

	if d := compare.Reports(reports["old"], reports["again"]); !d.IsEmpty() {
		t.Errorf("a benchmark that did not change has changed: %+v", d.Groups)
	}

	d := compare.Reports(reports["old"], reports["locked"])
	changed := 0
	for _, g := range d.Groups {
		if !g.Changed {
			continue
		}
		changed++
		row := g.Causes[0]
		if row.Cause != report.CauseSleep || row.Site() == nil || row.Site().Func != "github.com/whylate/whylate/lab/benchmark.write" || !row.Evidence {
			t.Errorf("%s became slower by %+v", g.Name, row)
		}
		if n := len(row.Via); n == 0 || row.Via[n-1].Wait != "lock" || row.Via[n-1].Site.Line != 25 {
			t.Errorf("%s: the way to the cause is %+v, not the lock", g.Name, row.Via)
		}
	}
	check.True(t, changed == 1 && len(d.Appeared)+len(d.Vanished) == 0,
		"%d groups changed, want the benchmark; appeared %v, vanished %v", changed, d.Appeared, d.Vanished)
	var text bytes.Buffer
	must.Do(t, difftext.Write(&text, d, difftext.Options{Width: 100}))
	check.True(t, strings.Contains(text.String(), "→ lock (*store).put store.go:25"), "the text does not name the lock:\n%s", &text)
}
