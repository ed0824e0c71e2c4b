package predict

import (
	"strings"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// compile returns changes as a trial for a group: it determines, for each target, the share of its time that each change
// affects, and computes the effect of settings and of other numbers of slots. A refused setting has no effect.
func (m *Model) compile(groupID string, changes []Change) *trial {
	t := &trial{model: m}
	for i := range changes {
		c := trialChange{Change: m.resolveCalls(groupID, changes[i])}
		if c.Setting.Name != "" {
			if c.effect, _, _ = m.PredictSetting(c.Setting); c.effect == nil {
				c.effect = new(effect) // refused: Validate returns the reason
			}
			c.weights = m.effectWeights(c.effect)
		} else if c.isFewerCollections() && m.facts != nil {
			c.effect = &effect{changesGC: true, cycles: variantValues{c.Scale, c.Scale, c.Scale}, assist: unchanged}
			c.weights = m.effectWeights(c.effect)
		} else {
			c.weights, c.matcher = m.targetWeights(&c.Change)
			if m.facts != nil {
				c.procs = float64(m.facts.Procs)
			}
			if c.Kind == report.ChangeSlots || c.affectsOnlyOthersWork() {
				c.waits = make(map[tracefmt.StackID]bool)
			}
		}
		t.changes = append(t.changes, c)
	}
	for i := range t.changes {
		if c := &t.changes[i]; c.Kind == report.ChangeSlots {
			c.slots = t.measureSlots(c.Count)
		}
	}
	return t
}

// targetWeights returns, by id of a target (a cause at a line), the share of the target's time that a change affects (0 to 1),
// and the parsed site, which is not nil. If no target matches a site with a caller, the caller is ignored: it may be on a path
// that no wait shows.
func (m *Model) targetWeights(c *Change) ([]float64, *siteMatcher) {
	matcher := m.parseSite(c.Site)
	out, isMet := make([]float64, len(m.targets)), false
	for i, p := range m.targets {
		if c.mayAffect(&p) {
			out[i] = m.matchedShare(matcher, p, c.Cause != "" || c.Kind == report.ChangeReuse || matcher.line != 0)
			isMet = isMet || out[i] > 0
		} else if c.WithWrites && matcher.caller != nil && p.cause == cause.Syscall && p.site != 0 {
			caller := m.syms.Frame(p.site).Caller
			out[i] = oneIf(caller != 0 && m.matchesFrame(matcher.caller, caller))
		}
	}
	if matcher.caller == nil || isMet {
		return out, matcher
	}
	// The line started the goroutine or is on a path that no wait shows. The work may be that of any line.
	anyLine := *c
	anyLine.Site, _, _ = strings.Cut(c.Site, callerSeparator)
	return m.targetWeights(&anyLine)
}
