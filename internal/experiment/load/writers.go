package load

import (
	"fmt"
	"io"
	"strings"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
)

// WriteText prints a result: percentiles in aligned columns, the spectrum of the latency, and the
// warnings.
func WriteText(w io.Writer, r *Result, target string) error {
	var b strings.Builder
	loop := fmt.Sprintf("open loop, %s arrivals", r.Arrivals)
	if r.Loop == "closed" {
		loop = fmt.Sprintf("closed loop, %d clients", r.Clients)
	}
	fmt.Fprintf(&b, "%s: %s, %s\n", termtext.Escape(target), loop, words.Duration(r.DurationNS))
	fmt.Fprintf(&b, "  %d requests, %d errors", r.Requests, r.Errors)
	if r.Dropped > 0 {
		fmt.Fprintf(&b, ", %d not sent", r.Dropped)
	}
	if r.RequestedPerS > 0 {
		fmt.Fprintf(&b, "; target %.5g/s", r.RequestedPerS)
	}
	fmt.Fprintf(&b, ", answered %.5g/s\n\n", r.AchievedPerS)
	rows := [][]string{{"", "p50", "p90", "p99", "p99.9", "max"}}
	add := func(name string, p Percentiles) {
		rows = append(rows, []string{termtext.Escape(name), words.Duration(p.P50), words.Duration(p.P90), words.Duration(p.P99), words.Duration(p.P999), words.Duration(p.Max)})
	}
	add("latency from the intended start", r.Intended)
	add("service time", r.Service)
	add("lateness of the generator", r.Lateness)
	for _, p := range r.Phases {
		name := fmt.Sprintf("at %.5g/s", p.FromPerS)
		if p.ToPerS != p.FromPerS {
			name = fmt.Sprintf("from %.5g to %.5g/s", p.FromPerS, p.ToPerS)
		}
		add(name, p.Intended)
	}
	for _, t := range r.Targets {
		add(fmt.Sprintf("%s (%d)", t.Name, t.Requests), t.Intended)
	}
	b.WriteString(termtext.Table("  ", rows, 1))
	r.writeSpectrum(&b)
	if len(r.Reasons) > 0 {
		b.WriteString("\nWhy requests failed:\n")
		for _, reason := range r.Reasons {
			fmt.Fprintf(&b, "  %6d  %s\n", reason.Count, termtext.Escape(reason.Text))
		}
	}
	if !r.Valid {
		b.WriteString("\nThis run is not valid.\n")
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(&b, "\n  %s: %s\n", warning.Code, termtext.Escape(warning.Text))
	}
	_, err := io.WriteString(w, b.String())
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// writeSpectrum prints the latency at percentiles, each of which halves the tail of the previous one,
// as long as the tail has ten requests.
func (r *Result) writeSpectrum(b *strings.Builder) {
	if r.answered < 20 {
		return
	}
	b.WriteString("\n  percentile     latency  requests beyond\n")
	n := r.intended.TotalCount()
	for tailShare := 0.5; ; tailShare /= 2 {
		requestsBeyond := float64(n) * tailShare
		if requestsBeyond < 10 {
			break
		}
		q := 100 * (1 - tailShare)
		fmt.Fprintf(b, "  %9.5g%%  %10s  %15.0f\n", q, words.Duration(quantile(r.intended, 1-tailShare)), requestsBeyond)
	}
}

// WriteHDR writes the latency as a histogram log of HdrHistogram, version 1.3, for other tools.
func WriteHDR(w io.Writer, r *Result) error {
	log := hdr.NewHistogramLogWriter(w)
	h := r.intended
	h.SetStartTimeMs(r.Start.UnixMilli())
	h.SetEndTimeMs(r.Start.UnixMilli() + r.DurationNS/1e6)
	for _, step := range []func() error{
		func() error { return log.OutputComment("[whylate load: latency from the intended start, in ns]") },
		log.OutputLogFormatVersion,
		func() error { return log.OutputStartTime(r.Start.UnixMilli()) },
		log.OutputLegend,
		func() error { return log.OutputIntervalHistogram(h) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("writing the histogram log: %w", err)
		}
	}
	return nil
}

// WriteBench writes the result as a line of the Go benchmark format
// (golang.org/design/14313-benchmark-format), for benchstat. Path names the target.
func WriteBench(w io.Writer, r *Result, path string) error {
	name := strings.Map(func(c rune) rune {
		if c <= ' ' || c == 0x7f {
			return '_'
		}
		return c
	}, path)
	rate := "max"
	if r.RequestedPerS > 0 {
		rate = fmt.Sprintf("%.4g", r.RequestedPerS)
	}
	p := r.Intended
	_, err := fmt.Fprintf(w, "BenchmarkLoad/path=%s/rate=%s %d %d p50-ns %d p90-ns %d p99-ns %d p999-ns %d max-ns %.6g req/s %d errors\n",
		name, rate, max(1, r.Requests), p.P50, p.P90, p.P99, p.P999, p.Max, r.AchievedPerS, r.Errors)
	if err != nil {
		return fmt.Errorf("writing the benchmark line: %w", err)
	}
	return nil
}
