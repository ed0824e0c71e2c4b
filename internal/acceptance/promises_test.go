package acceptance_test

import (
	"cmp"
	"encoding/json"
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
	recording, control, changeText, change string
	controlChange                          string             // of the control, if it is not exactly the finding's, as --what-if has it
	predicted                              [2]report.Estimate // p50 and p99
	wasNS, measuredNS                      [2]float64
	clientWasNS                            [2]float64 // wasNS by the client's clock
	isFewRequests                          bool       // the recording has no p99: that of the slowest request is used
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
	for q, least := range []struct{ near, kept, correlation float64 }{{0.6, 0.9, 0.85}, {0.45, 0.85, 0.75}} {
		a := accuracyOf(promises, q, 0)
		if float64(a.near) < least.near*float64(a.rows) || float64(a.keptCount) < least.kept*float64(a.rows) || a.correlation < least.correlation {
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
		fields := append(strings.SplitN(line, "  ", 5), "")
		must.True(t, len(fields) >= 5, "%q has no four columns", line)
		p := promise{recording: fields[0], control: fields[3], controlChange: fields[4]}
		for q := range p.measuredNS {
			if fields[1+q] != "-" {
				p.measuredNS[q] = must.Have(strconv.ParseFloat(fields[1+q], 64))(t) * 1e6
			}
		}
		out = append(out, p)
	}
	return out
}

// predict explains the recording, and takes the prediction of the first finding that has one. If the control made another change, or the
// finding promises nothing, as for a peer that takes its time, it takes the prediction for that change.
func (p *promise) predict(t *testing.T) {
	t.Helper()
	var rep *report.Report
	var truth outcome
	if name, isService := strings.CutPrefix(p.recording, "truth/"); isService {
		recorded, opts := testprog.Service(t, name), whylate.Options{Name: name}
		if p.controlChange != "" {
			opts.WhatIf = []whylate.Change{must.Have(whylate.ParseChange(p.controlChange))(t)}
		}
		rep = explainBytes(t, recorded.Trace, opts)
		must.Do(t, json.Unmarshal(recorded.Truth, &truth))
	} else if p.controlChange != "" {
		rep = explainFile(t, testprog.Recording(t, p.recording), "--what-if", p.controlChange)
	} else {
		rep = explainFile(t, testprog.Recording(t, p.recording))
	}
	i := slices.IndexFunc(rep.Findings, func(f report.Finding) bool {
		return f.Severity != report.SeverityInfo && (f.Predicted != nil || len(f.Changes) > 0)
	})
	must.True(t, i >= 0, "%s: no finding has a prediction", p.recording)
	f := &rep.Findings[i]
	if f.Predicted == nil && p.controlChange == "" {
		p.controlChange = f.Changes[0].Text
		p.predict(t)
		p.changeText, p.controlChange = "no gain is promised", ""
		return
	}
	if p.change = p.controlChange; f.Predicted != nil {
		p.changeText, p.change = f.Predicted.ChangeText, f.Predicted.Change
	}
	predicted := f.Predicted
	if p.controlChange != "" {
		k := slices.IndexFunc(rep.WhatIf, func(w report.WhatIf) bool { return w.Group == f.Group })
		must.True(t, k >= 0, "%s: no prediction for %s", p.recording, p.controlChange)
		predicted = &rep.WhatIf[k].Predicted
	}
	p.predicted = [2]report.Estimate{predicted.P50NS, predicted.P99NS}
	p.clientWasNS = [2]float64{float64(truth.Traced.P50NS), float64(truth.Traced.P99NS)}
	if p.isFewRequests = predicted.WasP99NS == nil; p.isFewRequests {
		p.clientWasNS[1] = float64(truth.Traced.MaxNS)
	}
	for q, was := range []*int64{predicted.WasP50NS, cmp.Or(predicted.WasP99NS, predicted.WasMaxNS)} {
		if was != nil {
			p.wasNS[q] = float64(*was)
		}
	}
}

// isComparable reports whether a percentile was measured, and the client measured the same as the recording shows before the change.
// Else the client's clock has other requests or other time: of all requests, of the way there, or from when a request was due.
func (p *promise) isComparable(q int) bool {
	return p.measuredNS[q] > 0 && (p.clientWasNS[q] == 0 || factor(p.clientWasNS[q], p.wasNS[q]) <= 1.5)
}

// isKept reports whether a measurement is within 1.5 times the number that is promised, or within the range, if that is promised.
func (p *promise) isKept(q int) bool {
	e, measured := p.predicted[q], p.measuredNS[q]
	if e.IsNumber() {
		return factor(float64(e.Est), measured) <= 1.5
	}
	return float64(e.Low) <= measured && measured <= float64(e.High)
}

// An accuracy counts the comparable predictions of one percentile.
type accuracy struct {
	rows, near, far int // all, estimates within 1.5 times the measurement, beyond three times
	numberCount     int // promised as a number
	keptCount       int
	width           float64 // the median of a range's upper end by the latency before
	correlation     float64 // Spearman's rank correlation
}

// accuracyOf returns how accurate the predictions of a percentile are, where at least leastNS of the latency remain.
func accuracyOf(promises []promise, q int, leastNS float64) (out accuracy) {
	var predicted, measured, widths []float64
	for i := range promises {
		p := &promises[i]
		if !p.isComparable(q) || p.measuredNS[q] < leastNS {
			continue
		}
		estimate := float64(p.predicted[q].Est)
		predicted, measured = append(predicted, estimate), append(measured, p.measuredNS[q])
		f := factor(estimate, p.measuredNS[q])
		if f <= 1.5 {
			out.near++
		}
		if f > 3 {
			out.far++
		}
		if p.isKept(q) {
			out.keptCount++
		}
		if p.predicted[q].IsNumber() {
			out.numberCount++
		} else if p.wasNS[q] > 0 {
			widths = append(widths, float64(p.predicted[q].High)/p.wasNS[q])
		}
	}
	out.rows, out.correlation = len(predicted), pearson(ranks(predicted), ranks(measured))
	if slices.Sort(widths); len(widths) > 0 {
		out.width = widths[len(widths)/2]
	}
	return out
}

// factor returns by how many times one latency is above or below the other.
func factor(a, b float64) float64 {
	a, b = max(a, 1), max(b, 1)
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
	b.WriteString("\n| | comparable rows | promises kept | promised as a number | ranges end at (median) | estimate within 1.5 times | beyond 3 times | rank correlation (Spearman) |\n|---|---|---|---|---|---|---|---|\n")
	for i, name := range []string{"p50", "p99", "p50, 1 ms or more remains", "p99, 1 ms or more remains"} {
		a := accuracyOf(promises, i%2, float64(i/2*1e6))
		percent := func(n int) string { return fmt.Sprintf("%d (%.0f %%)", n, 100*float64(n)/float64(a.rows)) }
		fmt.Fprintf(&b, "| %s | %d | %s | %d | %.0f %% of before | %s | %d | %.2f |\n", name, a.rows, percent(a.keptCount), a.numberCount, 100*a.width, percent(a.near), a.far, a.correlation)
	}
	b.WriteString("\n| recording | the finding's change | control | p50 | | p99 | |\n|---|---|---|---|---|---|---|\n")
	for i := range promises {
		p := &promises[i]
		control := p.control
		if p.controlChange != "" {
			control += ", predicted as `" + shortChange(p.controlChange) + "`"
		}
		fmt.Fprintf(&b, "| %s | %s: `%s` | %s | %s | %s | %s | %s |\n", p.recording, p.changeText, shortChange(p.change), control, p.latencies(0), p.factorText(0), p.latencies(1), p.factorText(1))
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
	e := p.predicted[q]
	promised := brief(float64(e.Est)) + " (" + words.Rough(e.Low) + " to " + words.Rough(e.High) + ")"
	if e.IsNumber() {
		promised = "**" + brief(float64(e.Est)) + "**"
	}
	was := brief(p.wasNS[q])
	if q == 1 && p.isFewRequests {
		was = "max " + was
	}
	return was + " → " + promised + ", measured " + brief(p.measuredNS[q])
}

func brief(ns float64) string {
	if ns == 0 {
		return "–"
	}
	return words.Brief(int64(ns))
}

// factorText returns the factor between estimate and measurement, with a mark if the promise is not kept.
func (p *promise) factorText(q int) string {
	switch f := factor(float64(p.predicted[q].Est), p.measuredNS[q]); {
	case p.measuredNS[q] == 0:
		return ""
	case !p.isComparable(q):
		return "client: " + brief(p.clientWasNS[q]) + " before"
	case !p.isKept(q):
		return fmt.Sprintf("**%.1f**", f)
	default:
		return fmt.Sprintf("%.1f", f)
	}
}
