package verdict

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

// onCPUShare returns for which part of its running time a band's requests really had a CPU, and whether that is what they had at
// most: a goroutine shows as running while its thread waits for a CPU that other processes have. The process's CPU time says
// how much of all running time had none, at least; CPU samples, where there are enough, how much of it this band met: a
// thread that waits is not sampled. It is 1 where nothing is known.
func onCPUShare(r *report.Report, b *report.Band) (share float64, atMost bool) {
	if share = 1 - r.WithoutCPU(); share >= scale.Most {
		return 1, false
	}
	runningNS, samples := int64(0), 0
	for i := range b.Causes {
		if c := &b.Causes[i]; c.Cause == report.CauseCPU {
			runningNS += c.TotalNS
			samples += c.Samples
		}
	}
	// Where some groups show a handler because a sample hit it and others show none, samples have chosen who is counted.
	chosenBySamples := slices.ContainsFunc(r.Groups, func(g report.Group) bool { return !g.Named && g.Count > 0 })
	if samples > 0 && runningNS >= scale.Running && !(chosenBySamples && r.Host != nil && r.Host.Lost.OffCPUNS != nil) {
		return min(1, float64(samples)*report.SampleNS/float64(runningNS)), false
	}
	return share, true
}

// splitOffCPU divides running time that had a CPU for a part of it only: the rest is no computing and no help to the
// collector, but waiting in the kernel's queue. How much of each place that is, is not known: all have the same part.
func splitOffCPU(causes []report.VerdictCause, r *report.Report, b *report.Band) []report.VerdictCause {
	offCPUShare := r.WithoutCPU()
	if 1-offCPUShare >= scale.Most {
		return causes
	}
	computingShare, atMost := onCPUShare(r, b)
	offCPU := report.VerdictCause{Cause: report.CauseSched, Kind: NoCPU, Sites: []report.VerdictSite{}, Words: "shown as running, but without a CPU"}
	for i := range causes {
		c := &causes[i]
		share := 1 - offCPUShare // CPU samples do not count help to the collector
		switch c.Cause {
		case report.CauseCPU:
			if computingShare >= scale.Most {
				continue
			}
			if share = computingShare; c.Queue == nil {
				c.Words = "computing"
			}
			if atMost {
				c.Words += " (at most)"
			}
		case report.CauseGCAssist:
			c.Words += " (at most)"
		default:
			continue
		}
		undivided := *c
		c.Share, c.TotalNS, c.EachNS = share*c.Share, int64(share*float64(c.TotalNS)), int64(share*float64(c.EachNS))
		c.Sites = slices.Clone(c.Sites)
		for k := range c.Sites {
			c.Sites[k].Share, c.Sites[k].TotalNS = share*c.Sites[k].Share, int64(share*float64(c.Sites[k].TotalNS))
		}
		offCPU.Share, offCPU.TotalNS, offCPU.EachNS = offCPU.Share+undivided.Share-c.Share, offCPU.TotalNS+undivided.TotalNS-c.TotalNS, offCPU.EachNS+undivided.EachNS-c.EachNS
	}
	if offCPU.TotalNS <= 0 {
		return causes
	}
	causes = append(causes, offCPU)
	slices.SortStableFunc(causes, compareCauses)
	return slices.DeleteFunc(causes, func(c report.VerdictCause) bool { return c.Share < scale.Speck || c.TotalNS <= 0 })
}
