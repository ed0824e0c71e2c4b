package verdict

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// MinReportedWithoutCPU is the least share of running time without a CPU that verdicts mention. Compared with the kernel's
// events, host samples give that share within 3 % where no quota takes time (docs/internals/accuracy.md).
const MinReportedWithoutCPU = threshold.NoticeableShare

// onCPUShare returns the share of a band's running time in which its requests had a CPU, and whether that share is only an upper
// bound. A goroutine shows as running while its thread waits for a CPU that other processes use. The process's CPU time bounds
// the share for all running time together; enough CPU samples give the share of this band, because a waiting thread is not
// sampled. The share is 1 if nothing is known.
func onCPUShare(r *report.Report, b *report.Band) (share float64, atMost bool) {
	if share = 1 - r.WithoutCPU(); share > 1-MinReportedWithoutCPU {
		return 1, false
	}
	if share > threshold.MostShare {
		return share, true // the samples of a band are too few for a small share
	}
	runningNS, samples := int64(0), 0
	for i := range b.Causes {
		if c := &b.Causes[i]; c.Cause == report.CauseCPU {
			runningNS += c.TotalNS
			samples += c.Samples
		}
	}
	// If only some groups have a handler, they have it because a sample hit it: such a group has more samples than its share.
	chosenBySamples := slices.ContainsFunc(r.Groups, func(g report.Group) bool { return !g.Named && g.Count > 0 })
	if samples > 0 && runningNS >= threshold.SampledRunNS && !(chosenBySamples && r.Host != nil && r.Host.Lost.OffCPUNS != nil) {
		return min(1, float64(samples)*report.SampleNS/float64(runningNS)), false
	}
	return share, true
}

// splitOffCPU moves the part of running time without a CPU (onCPUShare) from computing and GC assists to a separate cause, with
// the kind NoCPU. The distribution of that part over sites is not known: each site loses the same share.
func splitOffCPU(causes []report.VerdictCause, r *report.Report, b *report.Band) []report.VerdictCause {
	offCPUShare := r.WithoutCPU()
	if offCPUShare < MinReportedWithoutCPU {
		return causes
	}
	computingShare, atMost := onCPUShare(r, b)
	offCPU := report.VerdictCause{Cause: report.CauseSched, Kind: NoCPU, Sites: []report.VerdictSite{}, Words: "shown as running, but without a CPU"}
	if isMachineShared(r) {
		offCPU.Words += ", which other processes had"
	}
	for i := range causes {
		cause := &causes[i]
		share := 1 - offCPUShare // CPU samples do not count GC assists
		switch cause.Cause {
		case report.CauseCPU:
			if computingShare > 1-MinReportedWithoutCPU {
				continue
			}
			if share = computingShare; cause.Queue == nil {
				cause.Words = "computing"
			}
			if atMost {
				cause.Words += " (at most: some of it perhaps without a CPU)"
			}
		case report.CauseGCAssist:
			cause.Words += " (at most)"
		default:
			continue
		}
		undivided := *cause
		cause.Share, cause.TotalNS, cause.EachNS = share*cause.Share, int64(share*float64(cause.TotalNS)), int64(share*float64(cause.EachNS))
		cause.Sites = slices.Clone(cause.Sites)
		for k := range cause.Sites {
			cause.Sites[k].Share, cause.Sites[k].TotalNS = share*cause.Sites[k].Share, int64(share*float64(cause.Sites[k].TotalNS))
		}
		offCPU.Share, offCPU.TotalNS, offCPU.EachNS = offCPU.Share+undivided.Share-cause.Share, offCPU.TotalNS+undivided.TotalNS-cause.TotalNS, offCPU.EachNS+undivided.EachNS-cause.EachNS
	}
	if offCPU.TotalNS <= 0 {
		return causes
	}
	causes = append(causes, offCPU)
	slices.SortStableFunc(causes, compareCauses)
	return slices.DeleteFunc(causes, func(cause report.VerdictCause) bool { return cause.Share < threshold.NoiseShare || cause.TotalNS <= 0 })
}
