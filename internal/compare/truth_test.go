package compare_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/compare"
	"github.com/whylate/whylate/internal/testprog"
	"github.com/whylate/whylate/report"
)

// quiet is how late timers may be, at the 99th percentile, on a machine whose figures prove something.
const quiet = 3 * time.Millisecond

// TestFixes records services with a known fault and the same with the fault taken out. The comparison must blame the fault
// for what changed, in the group that had it.
func TestFixes(t *testing.T) {
	if testing.Short() {
		t.Skip("runs services for some seconds each")
	}
	for _, name := range []string{"pubsub", "exec-child", "slow-database"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait, they do not compute
			var late time.Duration
			var wrong, spoiled error
			for range 3 {
				before, out := run(t, name)
				after, fixed := run(t, name, "-fix")
				if !fixed.Fixed || out.Fixed {
					t.Fatalf("%s: the fault is there: %v and %v", name, !out.Fixed, !fixed.Fixed)
				}
				if wrong, spoiled = judge(before, after, &out); wrong == nil && spoiled == nil {
					return
				}
				late = max(late, time.Duration(max(out.Lateness.P99NS, fixed.Lateness.P99NS)))
			}
			if wrong == nil && late > quiet {
				t.Skipf("the machine was not quiet (timers %v late at the 99th percentile), so this proves nothing: %v", late, spoiled)
			}
			t.Error(errors.Join(wrong, spoiled))
		})
	}
}

func run(t *testing.T, name string, args ...string) (*report.Report, testprog.Outcome) {
	t.Helper()
	data, out, _ := testprog.Truth(t, name, append([]string{"-d", "4s", "-trace", "3"}, args...)...)
	rep, err := whylate.Explain(t.Context(), bytes.NewReader(data), whylate.Options{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return rep, out
}

// judge says what is wrong with the comparison, and what a busy machine may have spoiled.
func judge(before, after *report.Report, out *testprog.Outcome) (wrong, spoiled error) {
	if d := compare.Reports(before, before); !d.Empty() {
		return errors.New("a report differs from itself"), nil
	}
	tr := &out.Service.Truth
	d := compare.Reports(before, after)
	var g *compare.Group
	for i := range d.Groups {
		c := &d.Groups[i]
		entry := slices.IndexFunc(before.Groups, func(b report.Group) bool { return b.ID == c.ID })
		if entry < 0 {
			continue
		}
		if e := before.Groups[entry].Entry; string(c.Kind) == tr.Kind && e != nil && e.Func == tr.Group {
			g = c
		}
	}
	if g == nil {
		return fmt.Errorf("no group of both is %s %s", tr.Kind, tr.Group), nil
	}
	if len(g.Causes) == 0 {
		return errors.New("the change has no causes"), nil
	}
	first := &g.Causes[0]
	sites := append([]testprog.Site{tr.Site}, tr.OrSites...)
	causes := append([]string{tr.Cause}, tr.OrCauses...)
	if !slices.Contains(causes, string(first.Cause)) || first.Site() == nil ||
		!slices.ContainsFunc(sites, func(s testprog.Site) bool { return s.Func == first.Site().Func }) {
		return fmt.Errorf("the largest change is %+v at %+v, the fault was %s at %s", first, first.Site(), tr.Cause, tr.Site.Func), nil
	}
	if i := slices.IndexFunc(d.Groups, func(c compare.Group) bool { return c.ID == g.ID }); i != 0 {
		spoiled = errors.Join(spoiled, fmt.Errorf("the group with the fault is number %d of those that changed", i+1))
	}
	if m := &g.Mean; !m.Evidence || *m.Delta >= 0 {
		spoiled = errors.Join(spoiled, fmt.Errorf("no evidence that the fix made it faster: mean %+v of %d and %d requests", *m, g.OldCount, g.NewCount))
	}
	if !first.Evidence {
		spoiled = errors.Join(spoiled, fmt.Errorf("no evidence that %s at %s shrank", first.Cause, first.Site().Func))
	}
	return nil, spoiled
}
