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
	s := fmt.Sprintf("%-16s p50 %s -> %s (%s to %s), measured %s: %.2f", r.service, ms(r.was.p50), ms(r.p50.Est), ms(r.p50.Low), ms(r.p50.High), ms(r.then.p50), ratio(r.p50.Est, r.then.p50))
	if t := r.told(); t != "" {
		s += "; check: " + t
	}
	if r.void {
		s += fmt.Sprintf("  void: timers %v late, %.0f%% in the run queue", r.noise.late.Round(100*time.Microsecond), 100*r.noise.queue)
	}
	return s
}

// told is what the check said of the prediction of the median, and whether the measurement said so too.
func (r *row) told() string {
	if r.check == nil {
		return ""
	}
	said, right := "differs", "right"
	if r.check.Agrees {
		said = "agrees"
	}
	if r.check.Agrees != r.held() {
		right = "wrong"
	}
	return fmt.Sprintf("%s (%d took %s), %s", said, r.check.Requests, ms(r.check.P50NS), right)
}

// held reports whether the median was as predicted, as the report's checks take it: within the range, a tenth of the
// prediction or a fiftieth of what it wins aside.
func (r *row) held() bool {
	about := max(r.p50.Est/10, (r.was.p50-r.p50.Est)/50)
	return r.p50.Low-about <= r.then.p50 && r.then.p50 <= r.p50.High+about
}

func ratio(predicted, measured time.Duration) float64 {
	return float64(predicted) / float64(max(measured, 1))
}

// ms writes milliseconds with three digits.
func ms(d time.Duration) string {
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

// write writes the table and what follows from it.
func write(w io.Writer, rows []row, markdown bool) {
	cells := [][]string{{"service", "what it is", "change", "p50 was", "p50 predicted", "p50 measured", "ratio", "p99 predicted", "p99 measured", "ratio", "check of p50", ""}}
	for i := range rows {
		r := &rows[i]
		tail, measured, rel := "", "", ""
		if r.tailProven {
			tail, measured, rel = fmt.Sprintf("%s (%s to %s)", ms(r.p99.Est), ms(r.p99.Low), ms(r.p99.High)), ms(r.then.p99), fmt.Sprintf("%.2f", ratio(r.p99.Est, r.then.p99))
		}
		note := ""
		if r.void {
			note = "void"
		}
		cells = append(cells, []string{r.service, r.shape, strings.Join(r.changes, ", "), ms(r.was.p50), fmt.Sprintf("%s (%s to %s)", ms(r.p50.Est), ms(r.p50.Low), ms(r.p50.High)), ms(r.then.p50),
			fmt.Sprintf("%.2f", ratio(r.p50.Est, r.then.p50)), tail, measured, rel, r.told(), note})
	}
	widths := make([]int, len(cells[0]))
	for _, line := range cells {
		for i, c := range line {
			widths[i] = max(widths[i], len(c))
		}
	}
	fmt.Fprintf(w, "%s, %s, %s/%s, GOMAXPROCS %d%s\n\n", time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), model())
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
	quiet := slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.void })
	score(w, "p50", quiet, func(r *row) (estimate, time.Duration) { return r.p50, r.then.p50 })
	tails := slices.DeleteFunc(slices.Clone(quiet), func(r row) bool { return !r.tailProven })
	score(w, "p99", tails, func(r *row) (estimate, time.Duration) { return r.p99, r.then.p99 })
	checks(w, quiet)
	if len(quiet) == len(rows) {
		return
	}
	fmt.Fprintf(w, "\n%d of %d rows are void: the machine was not quiet. With them:\n", len(rows)-len(quiet), len(rows))
	score(w, "p50", rows, func(r *row) (estimate, time.Duration) { return r.p50, r.then.p50 })
	tails = slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !r.tailProven })
	score(w, "p99", tails, func(r *row) (estimate, time.Duration) { return r.p99, r.then.p99 })
	checks(w, rows)
}

// checks sums up what natural variation told.
func checks(w io.Writer, rows []row) {
	var agree, held, differ, failed int
	for i := range rows {
		r := &rows[i]
		switch {
		case r.check == nil:
		case r.check.Agrees:
			agree++
			if r.held() {
				held++
			}
		default:
			differ++
			if !r.held() {
				failed++
			}
		}
	}
	fmt.Fprintf(w, "checks of p50 within the trace: %d agree, %d of them rightly; %d differ, %d of them rightly; %d rows have none.\n", agree, held, differ, failed, len(rows)-agree-differ)
}

// score sums the errors up.
func score(w io.Writer, what string, rows []row, of func(*row) (estimate, time.Duration)) {
	if len(rows) < 3 {
		fmt.Fprintf(w, "%s: too few rows to sum up.\n", what)
		return
	}
	var errs, signed, predicted, measured []float64
	inside := 0
	for i := range rows {
		e, m := of(&rows[i])
		x := ratio(e.Est, m)
		errs, signed = append(errs, math.Abs(x-1)), append(signed, x-1)
		predicted, measured = append(predicted, float64(e.Est)), append(measured, float64(m))
		if m >= e.Low && m <= e.High {
			inside++
		}
	}
	fmt.Fprintf(w, "%s: %d rows; rank correlation (Spearman) %.2f; median error %.0f%%, median bias %+.0f%%; %d measured within low and high.\n",
		what, len(rows), spearman(predicted, measured), 100*median(errs), 100*median(signed), inside)
}

func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// spearman is the correlation of ranks; equal values share theirs.
func spearman(a, b []float64) float64 {
	ra, rb := ranks(a), ranks(b)
	mean := float64(len(a)+1) / 2
	var ab, aa, bb float64
	for i := range ra {
		ab += (ra[i] - mean) * (rb[i] - mean)
		aa += (ra[i] - mean) * (ra[i] - mean)
		bb += (rb[i] - mean) * (rb[i] - mean)
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

// model is the processor's name, where the kernel tells.
func model() string {
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
