package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

func (r *row) line() string {
	s := fmt.Sprintf("%-16s p50 %s -> %s (%s to %s), measured %s: %.2f", r.service, milliseconds(r.before.p50), milliseconds(r.p50.Est), milliseconds(r.p50.Low), milliseconds(r.p50.High), milliseconds(r.after.p50), ratio(r.p50.Est, r.after.p50))
	if t := r.checkText(); t != "" {
		s += "; check: " + t
	}
	if r.isVoid {
		s += fmt.Sprintf("  void: timers %v late, %.0f%% in the run queue", r.noise.timerDelay.Round(100*time.Microsecond), 100*r.noise.runQueueShare)
	}
	return s
}

// checkText returns the result of the check of the median's prediction, and whether the measurement confirmed it.
func (r *row) checkText() string {
	if r.check == nil {
		return ""
	}
	answer, right := "differs", "right"
	if r.check.Agrees {
		answer = "agrees"
	}
	if r.check.Agrees != r.isAsPredicted() {
		right = "wrong"
	}
	return fmt.Sprintf("%s (%d took %s), %s", answer, r.check.Requests, milliseconds(r.check.P50NS), right)
}

// isAsPredicted reports whether the median is within the predicted range, with the tolerance of the report's checks: a tenth
// of the prediction or a fiftieth of its gain.
func (r *row) isAsPredicted() bool {
	tolerance := max(r.p50.Est/10, (r.before.p50-r.p50.Est)/50)
	return r.p50.Low-tolerance <= r.after.p50 && r.after.p50 <= r.p50.High+tolerance
}

func ratio(predicted, measured time.Duration) float64 {
	return float64(predicted) / float64(max(measured, 1))
}

// milliseconds formats a duration in milliseconds with three digits.
func milliseconds(d time.Duration) string {
	x := float64(d) / 1e6
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f ms", x)
	case x >= 10:
		return fmt.Sprintf("%.1f ms", x)
	case x >= 0.1:
		return fmt.Sprintf("%.2f ms", x)
	}
	return fmt.Sprintf("%.3f ms", x)
}

// writeTable writes the table and the sums.
func writeTable(w io.Writer, rows []row, markdown bool) {
	cells := [][]string{{"service", "what it is", "change", "p50 was", "p50 predicted", "p50 measured", "ratio", "p99 predicted", "p99 measured", "ratio", "check of p50", ""}}
	for i := range rows {
		r := &rows[i]
		tail, measured, rel := "", "", ""
		if r.tailProven {
			tail, measured, rel = fmt.Sprintf("%s (%s to %s)", milliseconds(r.p99.Est), milliseconds(r.p99.Low), milliseconds(r.p99.High)), milliseconds(r.after.p99), fmt.Sprintf("%.2f", ratio(r.p99.Est, r.after.p99))
		}
		note := ""
		if r.isVoid {
			note = "void"
		}
		cells = append(cells, []string{r.service, r.shape, strings.Join(r.changes, ", "), milliseconds(r.before.p50), fmt.Sprintf("%s (%s to %s)", milliseconds(r.p50.Est), milliseconds(r.p50.Low), milliseconds(r.p50.High)), milliseconds(r.after.p50),
			fmt.Sprintf("%.2f", ratio(r.p50.Est, r.after.p50)), tail, measured, rel, r.checkText(), note})
	}
	widths := make([]int, len(cells[0]))
	for _, line := range cells {
		for i, c := range line {
			widths[i] = max(widths[i], len(c))
		}
	}
	fmt.Fprintf(w, "%s, %s, %s/%s, GOMAXPROCS %d%s\n\n", time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), cpuModel())
	for k, line := range cells {
		if markdown {
			for i := range line {
				line[i] = strings.ReplaceAll(line[i], "|", "\\|")
			}
			fmt.Fprintln(w, "| "+strings.Join(line, " | ")+" |")
			if k == 0 {
				fmt.Fprintln(w, "|"+strings.Repeat("---|", len(line)))
			}
			continue
		}
		for i, c := range line {
			fmt.Fprintf(w, "%-*s  ", widths[i], c)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
	quiet := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.isVoid })
	writeScore(w, "p50", quiet, func(r *row) (estimate, time.Duration) { return r.p50, r.after.p50 })
	tails := slices.DeleteFunc(slices.Clone(quiet), func(r row) bool { return !r.tailProven })
	writeScore(w, "p99", tails, func(r *row) (estimate, time.Duration) { return r.p99, r.after.p99 })
	writeChecks(w, quiet)
	if len(quiet) == len(rows) {
		return
	}
	fmt.Fprintf(w, "\n%d of %d rows are void: the machine was not quiet. With them:\n", len(rows)-len(quiet), len(rows))
	writeScore(w, "p50", rows, func(r *row) (estimate, time.Duration) { return r.p50, r.after.p50 })
	tails = slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !r.tailProven })
	writeScore(w, "p99", tails, func(r *row) (estimate, time.Duration) { return r.p99, r.after.p99 })
	writeChecks(w, rows)
}

// writeChecks writes how often the checks within the trace were right.
func writeChecks(w io.Writer, rows []row) {
	var agree, held, differ, failed int
	for i := range rows {
		r := &rows[i]
		switch {
		case r.check == nil:
		case r.check.Agrees:
			agree++
			if r.isAsPredicted() {
				held++
			}
		default:
			differ++
			if !r.isAsPredicted() {
				failed++
			}
		}
	}
	fmt.Fprintf(w, "checks of p50 within the trace: %d agree, %d of them rightly; %d differ, %d of them rightly; %d rows have none.\n", agree, held, differ, failed, len(rows)-agree-differ)
}

// writeScore writes the errors of the predictions of a percentile.
func writeScore(w io.Writer, quantile string, rows []row, values func(*row) (estimate, time.Duration)) {
	if len(rows) < 3 {
		fmt.Fprintf(w, "%s: too few rows to sum up.\n", quantile)
		return
	}
	var errs, signed, predicted, measured []float64
	inside := 0
	for i := range rows {
		e, m := values(&rows[i])
		x := ratio(e.Est, m)
		errs, signed = append(errs, math.Abs(x-1)), append(signed, x-1)
		predicted, measured = append(predicted, float64(e.Est)), append(measured, float64(m))
		if m >= e.Low && m <= e.High {
			inside++
		}
	}
	fmt.Fprintf(w, "%s: %d rows; rank correlation (Spearman) %.2f; median error %.0f%%, median bias %+.0f%%; %d measured within low and high.\n",
		quantile, len(rows), spearman(predicted, measured), 100*median(errs), 100*median(signed), inside)
}

func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// spearman returns the rank correlation; equal values share their ranks.
func spearman(a, b []float64) float64 {
	ra, rb := ranks(a), ranks(b)
	meanRank := float64(len(a)+1) / 2
	var ab, aa, bb float64
	for i := range ra {
		ab += (ra[i] - meanRank) * (rb[i] - meanRank)
		aa += (ra[i] - meanRank) * (ra[i] - meanRank)
		bb += (rb[i] - meanRank) * (rb[i] - meanRank)
	}
	return ab / math.Sqrt(aa*bb)
}

func ranks(x []float64) []float64 {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(x[i], x[j]) })
	out := make([]float64, len(x))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && x[order[j]] == x[order[i]] {
			j++
		}
		for k := i; k < j; k++ {
			out[order[k]] = float64(i+j+1) / 2
		}
		i = j
	}
	return out
}

// cpuModel returns the processor's name, "" if the kernel does not name it.
func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return ", " + strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return ""
}
