package explain

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/groups"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// reportBacklog describes a queue of messages for a report; nil if too few messages queue.
func reportBacklog(b *request.Backlog, durationNS int64, sp *spell.Speller) *report.Backlog {
	if b == nil || b.Queued < threshold.MedianSample || durationNS <= 0 {
		return nil
	}
	n := len(b.Messages)
	out := &report.Backlog{
		Site: sp.Site(b.Frame), From: sp.Syms.String(b.MessageName), Messages: n, Queued: b.Queued, Consumers: b.Goroutines,
		Load: float64(b.HandlingNS) * float64(n) / float64(durationNS), BusyShare: min(1, float64(b.WorkNS)/float64(durationNS)),
		HandlingNS: b.HandlingNS,
	}
	out.Sufficient = max(b.Goroutines+1, predict.SufficientSlots(out.Load))
	bySize := slices.Clone(b.Messages)
	slices.SortStableFunc(bySize, func(x, y request.QueuedMessage) int { return cmp.Compare(x.End-x.Arrival, y.End-y.Arrival) })
	waits, totals := make([]int64, n), make([]int64, n)
	for i, m := range bySize {
		waits[i], totals[i] = m.Start-m.Arrival, m.End-m.Arrival
	}
	from, to := 0, n
	switch out.Slow.Band = report.BandAll; {
	case n >= 100*report.TailRequests:
		out.Slow.Band, from = report.Band99, n*99/100
	case n >= 10*report.TailRequests:
		out.Slow.Band, from, to = report.Band9099, n*90/100, n*99/100
	}
	for _, m := range bySize[from:to] {
		out.Slow.WaitNS += m.Start - m.Arrival
		out.Slow.HandlingNS += m.End - m.Start
	}
	out.Slow.WaitNS /= int64(to - from)
	out.Slow.HandlingNS /= int64(to - from)
	out.Slow.FromNS, out.Slow.ToNS, out.Slow.Count = totals[from], totals[to-1], to-from
	slices.Sort(waits)
	out.WaitNS, out.TotalNS = groups.LatencyOf(waits), groups.LatencyOf(totals)
	return out
}

// reportSaturated describes consumers that always have a next message for a report.
func reportSaturated(s *request.SaturatedLoop, durationNS int64, sp *spell.Speller) *report.Saturated {
	out := &report.Saturated{
		Consumers: s.Goroutines, EachNS: s.EachNS, AskNS: s.FetchNS,
		PerSecond: float64(s.Goroutines) * 1e9 / float64(max(s.EachNS, 1)),
	}
	if s.Frame != 0 {
		out.Site = sp.Site(s.Frame)
	}
	if s.Feeder != 0 {
		out.From = sp.Syms.String(s.Feeder)
	}
	if s.FeederCount > 0 {
		out.BlockedShare = min(1, float64(s.BlockedNS)/float64(s.FeederCount)/float64(max(durationNS, 1)))
	}
	return out
}
