package hostjoin

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/explain/stops"
	"github.com/whylate/whylate/report"
)

// AddStops adds to a report the intervals in which the whole process was stopped or frozen by something other than a quota. The
// first source that exists is used: complete kernel events (held), host samples of the process's state, whose intervals are
// narrowed by the trace's silences, or only the arrivals of requests, which suggest such intervals. requests is the number of
// requests.
func AddStops(samples *host.Samples, w Window, rep *report.Report, held []freeze.Interval, silences []stops.Silence, requests int) {
	isObserved := rep.Kernel.IsComplete()
	if !isObserved && (samples == nil || !samples.HasStates) {
		if !rep.Runtime.Throttle.Verdict.HeldBack() { // throttling by a quota looks the same
			setStops(rep, w, stops.Suspects(silences, requests, w.End-w.Start), requests, "")
		}
		return
	}
	var overlaps []stops.Silence
	if !isObserved {
		held = HeldIntervals(samples, w)
	}
	for _, h := range held {
		if h.End <= w.Start || h.Start >= w.End {
			continue
		}
		k, _ := slices.BinarySearchFunc(silences, h.Start, func(q stops.Silence, t int64) int { return cmp.Compare(q.End, t+1) })
		for ; k < len(silences) && silences[k].Start < h.End; k++ {
			q := silences[k]
			q.Start, q.End = max(q.Start, h.Start), min(q.End, h.End)
			overlaps = append(overlaps, q)
		}
	}
	reason := host.HaltReason("")
	if samples != nil {
		for i := range samples.Points {
			reason = cmp.Or(reason, samples.Points[i].HaltReason)
		}
	}
	if isObserved && reason == "" {
		reason = host.HaltedBySignal // the usual one; the events show none
	}
	setStops(rep, w, overlaps, requests, reason)
	if s := rep.Runtime.Stops; isObserved && s != nil {
		s.Text, s.Confidence = HowKernel, 1
	}
}

// HeldIntervals returns, on the trace's clock, the intervals between host samples in which the process was stopped or frozen at
// one of the samples.
func HeldIntervals(samples *host.Samples, w Window) (out []freeze.Interval) {
	if samples == nil {
		return nil
	}
	offset, _, ok := clockOffset(samples, w)
	if !ok {
		return nil
	}
	for i := 0; i < len(samples.Points); i++ {
		if samples.Points[i].HaltReason == "" {
			continue
		}
		from := samples.Points[max(i-1, 0)].MonoNS
		for i+1 < len(samples.Points) && samples.Points[i].HaltReason != "" {
			i++
		}
		out = append(out, freeze.Interval{Start: from + offset, End: samples.Points[i].MonoNS + offset})
	}
	return out
}

// setStops sets the report's stops from silences. An empty reason means that they are only suspected.
func setStops(rep *report.Report, w Window, silences []stops.Silence, requests int, reason host.HaltReason) {
	if len(silences) == 0 {
		return
	}
	out := &report.Stops{State: string(reason), Text: howSamples, Confidence: 0.95, Requests: requests, Count: len(silences), Intervals: [][2]int64{}}
	if reason == "" {
		out.Text, out.Confidence = "all arrivals stopped, and as many as were missing then arrived at once; a client that pauses and then catches up looks the same", 0.5
	}
	for _, q := range silences {
		out.TotalNS += q.End - q.Start
		out.During, out.After = out.During+q.RequestsDuring, out.After+q.RequestsAfter
		if len(out.Intervals) < maxSeries {
			out.Intervals = append(out.Intervals, [2]int64{q.Start - w.Start, q.End - q.Start})
		}
	}
	rep.Runtime.Stops = out
}
