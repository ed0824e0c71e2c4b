package acceptance_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// TestFixes compares services that have a known fault with the same services without it. The comparison must attribute the
// change to the fault, in the group that had it.
func TestFixes(t *testing.T) {
	for _, name := range []string{"pubsub", "exec-child", "slow-database"} {
		t.Run(name, func(t *testing.T) {
			if err := judgeFix(t, testprog.Service(t, name+"-long"), testprog.Service(t, name+"-fixed")); err != nil {
				t.Error(err)
			}
		})
	}
}

// judgeFix returns the errors of the comparison of two runs, one with the fault and one without.
func judgeFix(t *testing.T, recs ...*testprog.Recorded) error {
	t.Helper()
	out, fixed := outcomeOf(t, recs[0]), outcomeOf(t, recs[1])
	must.True(t, fixed.Fixed && !out.Fixed, "the runs have the fault: %v and %v, want only the first", !out.Fixed, !fixed.Fixed)
	name := out.Service.Name
	before, after := explainBytes(t, recs[0].Trace, whylate.Options{Name: name}), explainBytes(t, recs[1].Trace, whylate.Options{Name: name})
	if d := compare.Reports(before, before); !d.IsEmpty() {
		return errors.New("a report differs from itself")
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
		return fmt.Errorf("no group of both reports is %s %s", tr.Kind, tr.Group)
	}
	if len(g.Causes) == 0 {
		return errors.New("the change has no causes")
	}
	first := &g.Causes[0]
	isQueueFault := out.Service.Findings != nil && slices.Contains(out.Service.Findings.First, string(report.RulePoolTooSmall))
	sites := append([]truthSite{tr.Site}, tr.OrSites...)
	causes := append([]string{tr.Cause}, tr.OrCauses...)
	if isQueueFault && first.Cause == report.CauseQueue {
		// the sites of the truth are those of the work of those ahead
	} else if !slices.Contains(causes, string(first.Cause)) || first.Site() == nil ||
		!slices.ContainsFunc(sites, func(s truthSite) bool { return s.Func == first.Site().Func }) {
		return fmt.Errorf("the largest change is %+v at %+v, the fault was %s at %s", first, first.Site(), tr.Cause, tr.Site.Func)
	}
	var wrong []error
	if i := slices.IndexFunc(d.Groups, func(c compare.Group) bool { return c.ID == g.ID }); i != 0 {
		wrong = append(wrong, fmt.Errorf("the group with the fault is number %d of the changed groups", i+1))
	}
	if m := &g.Mean; !m.Evidence || *m.Delta >= 0 {
		wrong = append(wrong, fmt.Errorf("no evidence that the fix reduced the latency: mean %+v of %d and %d requests", *m, g.OldCount, g.NewCount))
	}
	if !first.Evidence {
		wrong = append(wrong, fmt.Errorf("no evidence that %s at %s shrank", first.Cause, first.Site().Func))
	}
	return errors.Join(wrong...)
}
