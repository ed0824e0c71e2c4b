package finding

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// isThrottle reports whether a cause is time in which a CPU quota or a stop froze the process.
func isThrottle(c *report.Cause) bool { return c.Cause == report.CauseThrottle }

// checkThrottled is WL4001, throttled: a CPU quota throttled the process (report.Throttle has the verdict), and requests were
// open during the freezes. If the quota is only suspected, or no request was affected, it is a fact.
func checkThrottled(in *Input) (out []Verdict) {
	rt := &in.Report.Runtime
	t := &rt.Throttle
	if t.Suspect > 0 && !t.Verdict.HeldBack() {
		return []Verdict{{Fact: true, Finding: report.Finding{
			Title: textOf("title throttled-perhaps", "n", t.Suspect), Fix: textOf("fix throttled-perhaps"), Cause: report.CauseThrottle, Confidence: 0.3,
			Evidence: []report.Evidence{{Text: t.Text}, evidenceOf("evidence gomaxprocs", in.Report.Input.GOMAXPROCS, "Ps")},
		}}}
	}
	if !t.Verdict.HeldBack() {
		return nil
	}
	v := Verdict{Finding: report.Finding{Cause: report.CauseThrottle, Confidence: t.Confidence, Fix: throttleFix(in)}}
	for g := range each(in.Report.Groups) {
		share, gain := gainWithout(g, isThrottle)
		if gain.TotalNS == 0 {
			continue
		}
		v.Title = textOf("title throttled", "owner", limitOwner(in.Report), "time", words.Brief(gain.Slow.NS))
		v.Gain, v.Group, v.Share, v.Evidence = gain, g.ID, share, throttleEvidence(in, g)
		v.Changes = []predict.Change{predict.Remove(report.CauseThrottle, "")}
		out = append(out, v)
	}
	if len(out) == 0 && t.LostCPUNS > 0 {
		// No request was affected, or samples show throttling that the trace does not.
		v.Title, v.Evidence, v.Fact = textOf("title throttled-without-requests", "owner", limitOwner(in.Report)), throttleEvidence(in, nil), true
		out = append(out, v)
	}
	return out
}

// limitOwner returns a phrase for whose limit throttles the process: that of an ancestor group, its own, or, where the host's quota is
// not known, one of both.
func limitOwner(r *report.Report) string {
	switch {
	case r.Runtime.Throttle.Verdict == "ancestor":
		return textOf("phrase limit-of-ancestor")
	case r.Host == nil || r.Host.Quota.Verdict != "own":
		return textOf("phrase own-limit-or-ancestor") // a trace alone cannot distinguish them
	}
	return textOf("phrase limit-of-process")
}

// bandShareKey returns the key of the evidence that says which requests a share of a band refers to.
func bandShareKey(b report.BandName) textKey {
	switch b {
	case report.BandAll:
		return "evidence throttled-all"
	case report.BandOutliers:
		return "evidence throttled-outliers"
	}
	return "evidence throttled-band"
}

// throttleEvidence lists the numbers of the throttling: for a group, the share of freezes in each band; then period, freezes,
// lost CPU time, limit and GOMAXPROCS. g may be nil.
func throttleEvidence(in *Input, g *report.Group) (out []report.Evidence) {
	t, length := &in.Report.Runtime.Throttle, in.Report.Input.DurationNS
	add := func(key textKey, v float64, unit string, params ...any) {
		out = append(out, evidenceOf(key, v, unit, params...))
	}
	if g != nil {
		for i := range g.Bands {
			band := &g.Bands[i]
			share, hit := 0.0, 0
			for k := range band.Causes {
				if isThrottle(&band.Causes[k]) {
					share += band.Causes[k].Share
					hit = max(hit, band.Causes[k].Requests)
				}
			}
			if band.Count > 0 {
				add(bandShareKey(band.Band), share, "share", "band", band.Band)
			}
			if i == 0 {
				add("evidence frozen-requests", float64(hit), "requests", "n", band.Count)
			}
		}
	}
	if t.PeriodNS > 0 {
		add("evidence quota-period", float64(t.PeriodNS), "ns")
	}
	if t.Freezes > 0 {
		add("evidence freezes", float64(t.Freezes), "freezes")
		add("evidence freeze-length", float64(t.LostWallNS)/float64(t.Freezes), "ns")
		if length > 0 {
			add("evidence freeze-share", float64(t.LostWallNS)/float64(length), "share")
		}
	}
	add("evidence lost-cpu-time", float64(t.LostCPUNS), "ns")
	if t.N > 0 {
		add("evidence silences", t.R, "", "n", t.N)
	}
	if l, source := cpuLimit(in.Report); l > 0 {
		add("evidence cpu-limit", l, "CPUs", "source", source)
	}
	add("evidence gomaxprocs", float64(in.Report.Input.GOMAXPROCS), "Ps")
	return out
}

// cpuLimit returns the CPU limit in CPUs and its source in words: the kernel's file, or an estimate from the running time between
// freezes. It returns 0 if neither is known.
func cpuLimit(r *report.Report) (cpus float64, source string) {
	if r.Host != nil && r.Host.Facts.QuotaCPUs > 0 {
		return r.Host.Facts.QuotaCPUs, cmp.Or(strings.TrimPrefix(r.Host.Facts.QuotaFrom, "/sys/fs/cgroup/"), textOf("phrase hidden-file"))
	}
	t := &r.Runtime.Throttle
	if t.Freezes == 0 || t.PeriodNS == 0 || t.CPUs == 0 {
		return 0, ""
	}
	usedCPUs := (1 - float64(t.LostWallNS)/float64(t.Freezes)/float64(t.PeriodNS)) * float64(t.CPUs)
	if ranCPUs := cpusBeforeFreezes(&r.Runtime); ranCPUs > 0 {
		usedCPUs = min(usedCPUs, ranCPUs)
	}
	if usedCPUs <= 0 {
		return 0, ""
	}
	return math.Round(usedCPUs*100) / 100, textOf("phrase limit-estimated")
}

// cpusBeforeFreezes estimates the quota in CPUs: the median, over all freezes, of the goroutines' running time from the refill of
// the quota until the freeze, divided by the period. It is too high if running goroutines waited for a CPU. It returns 0 if the
// series of running time is too coarse.
func cpusBeforeFreezes(rt *report.Runtime) float64 {
	series, period := rt.Series, rt.Throttle.PeriodNS
	if series == nil || series.StepNS <= 0 || 4*series.StepNS > period {
		return 0
	}
	var cpusPerPeriod []float64
	for _, f := range series.Freezes {
		from, ranNS := f[0]+f[1]-period, 0.0
		if from < 0 {
			continue
		}
		first, _ := slices.BinarySearchFunc(series.Running, from-series.StepNS, func(p [2]int64, t int64) int { return cmp.Compare(p[0], t) })
		for _, p := range series.Running[first:] {
			if p[0] >= f[0] {
				break
			}
			ranNS += float64(p[1]) / 1000 * float64(max(0, min(p[0]+series.StepNS, f[0])-max(p[0], from)))
		}
		cpusPerPeriod = append(cpusPerPeriod, ranNS/float64(period))
	}
	return sample.Median(cpusPerPeriod)
}

// procsForLimit returns the GOMAXPROCS that matches a limit.
func procsForLimit(limit float64) int { return max(1, int(math.Ceil(limit))) }

// usesWholeLimit reports whether the process uses nearly all CPU time that its limit (in CPUs) allows. Then fewer Ps do not
// help, because CPU time is missing.
func usesWholeLimit(r *report.Report, limit float64) bool {
	if h := r.Host; h != nil && h.Facts.QuotaCPUs > 0 {
		return h.Lost.CPUNS != nil && float64(*h.Lost.CPUNS) >= threshold.NearlyAllShare*limit*float64(h.ToNS-h.FromNS)
	}
	t := &r.Runtime.Throttle
	return t.PeriodNS > 0 && float64(t.Freezes)*float64(t.PeriodNS) >= threshold.NearlyAllShare*float64(r.Input.DurationNS)
}

// throttleFix returns the fix of throttling: a smaller GOMAXPROCS if it exceeds the limit and the load does not use the whole
// limit, else a higher limit or less CPU time.
func throttleFix(in *Input) string {
	procs := in.Report.Input.GOMAXPROCS
	limit, _ := cpuLimit(in.Report)
	isMeasured := in.Report.Host != nil && in.Report.Host.Facts.QuotaCPUs > 0
	raise := textOf("phrase raise-cpu-limit")
	if needed := neededCPUs(in.Report); needed > limit {
		raise = textOf("phrase raise-cpu-limit-to", "limit", words.CPUs(limit), "needed", words.CPUs(needed))
	}
	switch {
	case usesWholeLimit(in.Report, limit):
		return textOf("fix throttled-whole-limit", "raise", raise)
	case limit > 0 && procs > procsForLimit(limit) && isMeasured:
		return textOf("fix throttled-gomaxprocs", "now", procs, "ps", procsForLimit(limit), "cpus", words.CPUs(limit))
	case limit > 0 && procs > procsForLimit(limit):
		return textOf("fix throttled-gomaxprocs-about", "now", procs, "ps", procsForLimit(limit))
	}
	return textOf("fix throttled", "raise", raise)
}

// neededCPUs returns the limit in CPUs that would hardly throttle the process: the rate at which it used up its quota in nine of
// ten periods, at most GOMAXPROCS and the machine's CPUs, rounded up to a tenth. It returns 0 if the kernel does not show the
// limit or too few freezes were seen.
func neededCPUs(r *report.Report) float64 {
	h, series, period := r.Host, r.Runtime.Series, r.Runtime.Throttle.PeriodNS
	if h == nil || h.Quota.Verdict != "own" || h.Facts.QuotaCPUs <= 0 || series == nil || period <= 0 {
		return 0
	}
	most := float64(r.Input.GOMAXPROCS)
	if h.Facts.CPUs > 0 {
		most = min(most, float64(h.Facts.CPUs))
	}
	var used []float64
	for _, f := range series.Freezes {
		if ranNS := period - f[1]; ranNS > 0 {
			used = append(used, min(most, h.Facts.QuotaCPUs*float64(period)/float64(ranNS)))
		}
	}
	if len(used) < threshold.SmallSample {
		return 0
	}
	slices.Sort(used)
	return math.Ceil(used[len(used)*9/10]*10) / 10
}
