package acceptance_test

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

const (
	promisesPage = "internal/acceptance/testdata/promises.md"
	promisesMark = "<!-- written by go test ./internal/acceptance -run TestPromises -update -->\n"
)

// A promise is the prediction of a finding, and what clients measured without the fault. Unknown latencies are 0.
type promise struct {
	recording, control, says, change string
	wasNS, predictedNS, measuredNS   [2]float64 // p50 and p99
}

// TestPromises compares what findings predict with what clients measured when the fault was gone. The page has all of it, and is
// computed from the recordings.
func TestPromises(t *testing.T) {
	promises := readPromises(t)
	for i := range promises {
		promises[i].predict(t)
	}
	page := must.Have(os.ReadFile(promisesPage))(t)
	head, before, _ := strings.Cut(string(page), promisesMark)
	if table := promiseTable(promises); *update {
		must.Do(t, os.WriteFile(promisesPage, []byte(head+promisesMark+table), 0o644))
	} else if table != before {
		oldLines, newLines := strings.Split(before, "\n"), strings.Split(table, "\n")
		for i := range max(len(oldLines), len(newLines)) {
			if was, is := lineAt(oldLines, i), lineAt(newLines, i); was != is {
				t.Errorf("%s is not what the recordings show: go test ./internal/acceptance -run TestPromises -update\nwas %s\nis  %s", promisesPage, was, is)
			}
		}
	}
	// Worse than this is a regression, whatever the page says.
	for q, least := range []struct{ near, small, correlation float64 }{{0.6, 0.9, 0.8}, {0.45, 0.6, 0.7}} {
		a := accuracyOf(promises, q)
		if float64(a.near) < least.near*float64(a.rows) || float64(a.small) < least.small*float64(a.rows) || a.correlation < least.correlation {
			t.Errorf("percentile %d: %+v", q, a)
		}
	}
}

// readPromises reads the measurements.
func readPromises(t *testing.T) (out []promise) {
	t.Helper()
	for line := range strings.Lines(string(must.Have(os.ReadFile("internal/acceptance/testdata/promises.txt"))(t))) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.SplitN(line, "  ", 4)
		must.Equal(t, len(fields), 4, "%q has no four columns", line)
		p := promise{recording: fields[0], control: fields[3]}
		for q := range p.measuredNS {
			if fields[1+q] != "-" {
				p.measuredNS[q] = must.Have(strconv.ParseFloat(fields[1+q], 64))(t) * 1e6
			}
		}
		out = append(out, p)
	}
	return out
}

// predict explains the recording, and takes the prediction of the first finding that has one.
func (p *promise) predict(t *testing.T) {
	t.Helper()
	var rep *report.Report
	if name, isService := strings.CutPrefix(p.recording, "truth/"); isService {
		rep = explainBytes(t, testprog.Service(t, name).Trace, whylate.Options{Name: name})
	} else {
		rep = explainFile(t, testprog.Recording(t, p.recording))
	}
	i := slices.IndexFunc(rep.Findings, func(f report.Finding) bool { return f.Severity != report.SeverityInfo && f.Predicted != nil })
	must.True(t, i >= 0, "%s: no finding has a prediction", p.recording)
	f := &rep.Findings[i]
	p.says, p.change = f.Predicted.ChangeText, f.Predicted.Change
	p.predictedNS = [2]float64{float64(f.Predicted.P50NS.Est), float64(f.Predicted.P99NS.Est)}
	for q, was := range []*int64{f.Predicted.WasP50NS, f.Predicted.WasP99NS} {
		if was != nil {
			p.wasNS[q] = float64(*was)
		}
	}
}

// An accuracy counts the predictions of one percentile.
type accuracy struct {
	rows, near, far int     // all, within 1.5 times the measurement, beyond three times
	small           int     // near, or not further from the measurement than a fiftieth of the latency before
	correlation     float64 // Spearman's rank correlation
}

// accuracyOf returns how accurate the predictions of a percentile are.
func accuracyOf(promises []promise, q int) (out accuracy) {
	var predicted, measured []float64
	for i := range promises {
		if p := &promises[i]; p.measuredNS[q] > 0 {
			predicted, measured = append(predicted, p.predictedNS[q]), append(measured, p.measuredNS[q])
			isNear := p.factor(q) <= 1.5
			if isNear {
				out.near++
			}
			if p.factor(q) > 3 {
				out.far++
			}
			if isNear || math.Abs(p.predictedNS[q]-p.measuredNS[q]) <= 0.02*cmp.Or(p.wasNS[q], p.wasNS[0]) {
				out.small++
			}
		}
	}
	out.rows, out.correlation = len(predicted), pearson(ranks(predicted), ranks(measured))
	return out
}

// factor returns by how many times a prediction is above or below the measurement.
func (p *promise) factor(q int) float64 {
	a, b := max(p.predictedNS[q], 1), p.measuredNS[q]
	return max(a/b, b/a)
}

// ranks returns the rank of each value; equal values have their mean rank.
func ranks(values []float64) []float64 {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	out := make([]float64, len(values))
	for first := 0; first < len(order); {
		end := first
		for end < len(order) && values[order[end]] == values[order[first]] {
			end++
		}
		for _, i := range order[first:end] {
			out[i] = float64(first+end-1) / 2
		}
		first = end
	}
	return out
}

// pearson returns the correlation of two series of the same length.
func pearson(x, y []float64) float64 {
	mean := func(v []float64) (sum float64) {
		for _, f := range v {
			sum += f / float64(len(v))
		}
		return sum
	}
	meanX, meanY := mean(x), mean(y)
	var xx, yy, xy float64
	for i := range x {
		dx, dy := x[i]-meanX, y[i]-meanY
		xx, yy, xy = xx+dx*dx, yy+dy*dy, xy+dx*dy
	}
	return xy / math.Sqrt(xx*yy)
}

// promiseTable formats promises for the page.
func promiseTable(promises []promise) string {
	var b strings.Builder
	b.WriteString("\n| | rows | within 1.5 times | or off by at most 2 % of the latency before | beyond 3 times | rank correlation (Spearman) |\n|---|---|---|---|---|---|\n")
	for q, name := range []string{"p50", "p99"} {
		a := accuracyOf(promises, q)
		fmt.Fprintf(&b, "| %s | %d | %d (%.0f %%) | %d (%.0f %%) | %d | %.2f |\n", name, a.rows, a.near, 100*float64(a.near)/float64(a.rows), a.small, 100*float64(a.small)/float64(a.rows), a.far, a.correlation)
	}
	b.WriteString("\n| recording | the finding's change | control | p50 | | p99 | |\n|---|---|---|---|---|---|---|\n")
	for i := range promises {
		p := &promises[i]
		fmt.Fprintf(&b, "| %s | %s: `%s` | %s | %s | %s | %s | %s |\n", p.recording, p.says, shortChange(p.change), p.control, p.latencies(0), p.factorText(0), p.latencies(1), p.factorText(1))
	}
	return b.String()
}

// shortChange leaves out the paths of packages.
func shortChange(change string) string {
	parts := strings.Split(change, ", ")
	for i, part := range parts {
		kind, site, _ := strings.Cut(part, "@")
		parts[i] = kind + "@" + site[strings.LastIndexByte(site, '/')+1:]
		if site == "" {
			parts[i] = part[strings.LastIndexByte(part, '/')+1:]
		}
	}
	return strings.Join(parts[:min(len(parts), 2)], ", ")
}

// latencies says a percentile before, its prediction and its measurement.
func (p *promise) latencies(q int) string {
	return brief(p.wasNS[q]) + " → " + brief(p.predictedNS[q]) + ", measured " + brief(p.measuredNS[q])
}

func brief(ns float64) string {
	if ns == 0 {
		return "–"
	}
	return words.Brief(int64(ns))
}

func (p *promise) factorText(q int) string {
	if p.measuredNS[q] == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", p.factor(q))
}
