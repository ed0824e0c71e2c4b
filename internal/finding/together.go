package finding

import (
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/predict"
	"github.com/whylate/whylate/report"
)

// leastPart is the part of a claim's heaviest place below which another of its places is not worth a word.
const leastPart = 0.1

// places returns the distinct places of a claim at which the same is waited for as at its heaviest part of a cause, that
// one first: where one line of the service's own waits at several of a dependency's, they are one fault.
func places(c *claim, top *part) []*report.Cause {
	list, ns := []*report.Cause{top.Cause}, []int64{0}
	for i := range c.parts {
		p := &c.parts[i]
		if p.Cause.Cause != top.Cause.Cause || p.Site == nil {
			continue
		}
		k := slices.IndexFunc(list, func(o *report.Cause) bool { return o.Site.Equal(p.Site) })
		if k < 0 {
			k, list, ns = len(list), append(list, p.Cause), append(ns, 0)
		}
		ns[k] += p.ns
	}
	out := list[:1]
	for k := 1; k < len(list) && len(out) < mostSites; k++ {
		if float64(ns[k]) >= leastPart*float64(ns[0]) {
			out = append(out, list[k])
		}
	}
	return out
}

// together says at which further places a claim's time is spent, and how much of it each request.
func together(c *claim, top *part) []report.Evidence {
	var out []report.Evidence
	for _, p := range places(c, top)[1:] {
		if p.Requests > 0 {
			out = append(out, report.Evidence{Text: "and, " + strings.TrimPrefix(doing(p, nil), "waits "), Value: float64(p.TotalNS) / float64(p.Requests), Unit: "ns"})
		}
	}
	return out
}

// halfOfAll is the change that a prediction assumes where a claim has several places: half at each, at once.
func halfOfAll(c *claim) []predict.Change {
	out := []predict.Change{}
	for _, p := range places(c, c.heaviest(report.CauseSleep)) {
		out = append(out, halfOf(p)...)
	}
	return out
}
