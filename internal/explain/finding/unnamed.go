package finding

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkBiasedNames is WL5003, biased-names.
func checkBiasedNames(in *Input) []Verdict {
	none, all := in.Report.ShowNoHandler()
	if none == 0 {
		return nil
	}
	const biased = "those of named groups are too high: fast requests show no handler"
	evidence := []report.Evidence{measured("share of the requests that show no handler", float64(none)/float64(all), "share")}
	var whole []string
	for _, k := range report.Kinds() {
		if !k.IsCall() {
			continue
		}
		n, p50, p99, top := allOf(in.Report.Groups, k)
		if n < report.TailRequests {
			continue
		}
		high, ns := "p99", p99
		if n < 100 {
			high, ns = "max", top
		}
		all := fmt.Sprintf("all %d %s requests", n, k.Protocol())
		evidence = append(evidence, measured(all+": p50", p50, "ns"), measured(all+": "+high, ns, "ns"))
		whole = append(whole, fmt.Sprintf("%s have p50 %s, %s %s", all, words.Brief(p50), high, words.Brief(ns)))
	}
	title := "percentiles" + strings.TrimPrefix(biased, "those")
	if len(whole) > 0 {
		title = strings.Join(append(whole, biased), "; ")
	}
	return doubt(report.Finding{
		Title: title, Confidence: 1, Evidence: evidence,
		Fix: "for exact groups, open a task in each handler: ctx, task := trace.NewTask(r.Context(), \"checkout\"); defer task.End()",
	})
}

// allOf returns how many requests the groups of one kind have, and percentiles of
// all of them together: the upper bounds of the groups' buckets, 3 % wide at most,
// so they are rounded up. The count is 0 if no group of the kind is unnamed: then
// none is biased.
func allOf(groups []report.Group, kind report.Kind) (n, p50, p99, top int64) {
	var buckets [][2]int64
	unnamed := false
	for i := range groups {
		g := &groups[i]
		if g.Kind != kind {
			continue
		}
		unnamed = unnamed || !g.Named && g.Count > 0
		buckets = append(buckets, g.Histogram...)
		if g.LatencyNS.Max != nil {
			top = max(top, *g.LatencyNS.Max)
		}
	}
	if !unnamed {
		return 0, 0, 0, 0
	}
	slices.SortFunc(buckets, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	for _, b := range buckets {
		n += b[1]
	}
	at := func(q float64) int64 {
		rank, seen := int64(q*float64(n-1))+1, int64(0)
		for _, b := range buckets {
			if seen += b[1]; seen >= rank {
				return min(b[0], top)
			}
		}
		return top
	}
	return n, at(0.5), at(0.99), top
}
