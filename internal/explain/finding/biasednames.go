package finding

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkBiasedNames is WL5003, biased-names: some requests never waited, so no stack shows their handler, and the named groups
// hold only the slower ones. It reports the share of requests without a name, and for each protocol the percentiles of its
// requests with and without names together.
func checkBiasedNames(in *Input) []Verdict {
	unnamed, total := in.Report.CountWithoutHandler()
	if unnamed == 0 {
		return nil
	}
	evidence := []report.Evidence{evidenceOf("evidence unnamed-requests", float64(unnamed)/float64(total), "share")}
	var kindTexts []string
	for _, kind := range report.Kinds() {
		if !kind.IsCall() {
			continue
		}
		count, p50, p99, maxNS := kindPercentiles(in.Report.Groups, kind)
		if count < report.TailRequests {
			continue
		}
		percentile, ns := "p99", p99
		if count < 100 {
			percentile, ns = "max", maxNS
		}
		requests := textOf("phrase kind-requests", "n", count, "kind", kind.Protocol())
		evidence = append(evidence, evidenceOf("evidence kind-median", p50, "ns", "requests", requests), evidenceOf("evidence kind-percentile", ns, "ns", "requests", requests, "percentile", percentile))
		kindTexts = append(kindTexts, textOf("phrase kind-percentiles", "requests", requests, "median", words.Brief(p50), "percentile", percentile, "value", words.Brief(ns)))
	}
	title := textOf("title biased-names")
	if len(kindTexts) > 0 {
		title = textOf("title biased-names-of-kinds", "kinds", strings.Join(kindTexts, "; "))
	}
	return doubtVerdict(report.Finding{Title: title, Fix: textOf("fix biased-names"), Confidence: 1, Evidence: evidence})
}

// kindPercentiles returns the number of requests of all groups of one kind, and their latency percentiles in ns. A percentile is
// the upper bound of a histogram bucket, at most 3 % too large. The count is 0 if no group of that kind lacks a handler: then no
// percentile is biased.
func kindPercentiles(groups []report.Group, kind report.Kind) (count, p50, p99, maxNS int64) {
	var buckets [][2]int64
	hasUnnamed := false
	for g := range each(groups) {
		if g.Kind != kind {
			continue
		}
		hasUnnamed = hasUnnamed || !g.Named && g.Count > 0
		buckets = append(buckets, g.Histogram...)
		if g.LatencyNS.Max != nil {
			maxNS = max(maxNS, *g.LatencyNS.Max)
		}
	}
	if !hasUnnamed {
		return 0, 0, 0, 0
	}
	slices.SortFunc(buckets, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	for _, b := range buckets {
		count += b[1]
	}
	percentile := func(q float64) int64 {
		rank, cumulative := int64(q*float64(count-1))+1, int64(0)
		for _, b := range buckets {
			if cumulative += b[1]; cumulative >= rank {
				return min(b[0], maxNS)
			}
		}
		return maxNS
	}
	return count, percentile(0.5), percentile(0.99), maxNS
}
