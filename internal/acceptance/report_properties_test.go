package acceptance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"testing"

	"github.com/whylate/whylate"
	engine "github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/schematest"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/testing/validate"
	"github.com/whylate/whylate/internal/trace/tracefmt/refdata"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// varied are programs with all kinds of data in their reports, none of them long: a server, CPU samples, timers, a short trace of the
// flight recorder and cgo calls.
var varied = []string{"http1-close", "cpusamples", "timers", "flight", "cgo-calls"}

func TestProperties(t *testing.T) {
	for _, p := range testprog.Programs() {
		isVaried := slices.Contains(varied, p.Name)
		if testing.Short() && !isVaried {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			checkProperties(t, testprog.Trace(t, p.Name), isVaried || testfull.IsEnabled())
		})
	}
}

// TestPropertiesOfReferenceTraces does the same for the test traces of the reference reader, unusual ones and mostly a few
// events long.
func TestPropertiesOfReferenceTraces(t *testing.T) {
	traces := must.Have(refdata.Traces())(t)
	for i, tr := range traces {
		if testing.Short() && i%4 != 0 {
			continue
		}
		t.Run(tr.Name, func(t *testing.T) {
			t.Parallel()
			data := must.Have(tracetext.Assemble(tr.Text))(t)
			checkProperties(t, data, true)
		})
	}
}

// allRequests is an Options.Slowest that reports every request in full; Options.Exact follows them all.
const allRequests = math.MaxInt32

// checkProperties checks what must be true of the reports on any trace and on parts of it. With schema, the JSON of selected requests is
// compared with the schema as well as that of all.
func checkProperties(t *testing.T, data []byte, schema bool) {
	t.Helper()
	rep := explainAll(t, data, "")
	if rep == nil {
		return
	}
	_, serial := explainJSON(t, data, whylate.Options{Slowest: 5, Workers: 1})
	schematest.Validate(t, t.Name(), serial)
	if _, parallel := explainJSON(t, data, whylate.Options{Slowest: 5, Workers: 3}); !bytes.Equal(serial, parallel) {
		t.Errorf("the report differs with 3 workers: %s", firstDifference(serial, parallel))
	}
	const pattern = `^main\.`
	checkConsistent(t, data, nil, false)
	checkConsistent(t, data, regexp.MustCompile(pattern), false)
	if explainAll(t, data, pattern) != nil && schema {
		_, text := explainJSON(t, data, whylate.Options{Request: regexp.MustCompile(pattern)})
		schematest.Validate(t, t.Name()+" --request "+pattern, text)
	}
	for _, cut := range cutsOf(data) {
		checkCut(t, data[:cut])
	}
}

// checkConsistent checks timelines, requests and report with package validate.
func checkConsistent(t *testing.T, data []byte, request *regexp.Regexp, damaged bool) {
	t.Helper()
	checks := &validate.Checks{Damaged: damaged}
	opts := engine.Options{Checks: checks}
	opts.Request = request
	if _, err := engine.Explain(context.Background(), bytes.NewReader(data), opts); err != nil {
		return // the callers judge errors
	}
	if err := checks.Err(); err != nil {
		t.Error(err)
	}
}

// explainAll explains every request and checks that the parts add up. It returns nil if there is nothing to explain.
func explainAll(t *testing.T, data []byte, pattern string) *report.Report {
	t.Helper()
	opts := whylate.Options{Slowest: allRequests, Exact: true}
	if pattern != "" {
		opts.Request = regexp.MustCompile(pattern)
	}
	rep, err := whylate.Explain(context.Background(), bytes.NewReader(data), opts)
	if errors.Is(err, whylate.ErrNothing) {
		return nil
	}
	must.Do(t, err)
	schematest.Report(t, rep)
	for i := range rep.Groups {
		checkGroup(t, rep, &rep.Groups[i])
	}
	return rep
}

// explainJSON returns the report and its JSON, nil if there is nothing to explain.
func explainJSON(t *testing.T, data []byte, opts whylate.Options) (*report.Report, []byte) {
	t.Helper()
	rep, err := whylate.Explain(context.Background(), bytes.NewReader(data), opts)
	if errors.Is(err, whylate.ErrNothing) {
		return nil, nil
	}
	must.Do(t, err)
	text := must.Have(json.Marshal(rep))(t)
	return rep, text
}

func firstDifference(a, b []byte) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	from := max(0, i-120)
	return fmt.Sprintf("…%s\nand …%s", a[from:min(len(a), i+120)], b[from:min(len(b), i+120)])
}

// checkGroup checks that the parts of each request, of each band and of the group add up.
func checkGroup(t *testing.T, rep *report.Report, g *report.Group) {
	t.Helper()
	check.Equal(t, len(g.Slowest), g.Count, "%s %s: requests are reported in full", g.Kind, g.Name)
	var total, unknown int64
	for i := range g.Slowest {
		r := &g.Slowest[i]
		total += r.LatencyNS
		checkRequest(t, rep, g, r)
		for _, s := range r.Segments {
			// In the first generation a wait may have begun before the trace.
			if s.Cause == "unknown" && s.StartNS > 1.1e9 {
				unknown += s.DurationNS
			}
		}
	}
	check.True(t, total == g.TotalNS, "%s %s: the latencies add up to %d, the group says %d", g.Kind, g.Name, total, g.TotalNS)
	check.True(t, float64(unknown) <= 0.01*float64(total), "%s %s: of %d ns, %d are unknown", g.Kind, g.Name, total, unknown)
	var histogram int64
	for _, h := range g.Histogram {
		histogram += h[1]
	}
	check.True(t, histogram == int64(g.Count), "%s %s: the histogram has %d of %d requests", g.Kind, g.Name, histogram, g.Count)
	// Rules and views follow a row from band to band: running time with the same function and calling function has one line.
	line := map[[2]string]report.SiteKey{}
	for _, b := range g.Bands {
		var shares float64
		var sum int64
		for _, c := range b.Causes {
			if c.Cause == "cpu" && c.Site != nil {
				fns := [2]string{c.Site.Func, c.Site.Key().From.Func}
				if first, ok := line[fns]; ok && first != c.Site.Key() {
					t.Errorf("%s %s, %s: %s is at line %d and at line %d", g.Kind, g.Name, b.Band, c.Site.Func, first.Line, c.Site.Line)
				}
				line[fns] = c.Site.Key()
			}
			shares += c.Share
			sum += c.TotalNS
		}
		check.False(t, b.Count > 0 && sum > 0 && math.Abs(shares-1) > 1e-6,
			"%s %s, %s: the shares add up to %g", g.Kind, g.Name, b.Band, shares)
		check.False(t, b.Band == report.BandAll && (sum != g.TotalNS || b.Count != g.Count),
			"%s %s: the causes of all %d requests add up to %d ns, the %d latencies to %d", g.Kind, g.Name, b.Count, sum, g.Count, g.TotalNS)
	}
}

func checkRequest(t *testing.T, rep *report.Report, g *report.Group, r *report.Request) {
	t.Helper()
	end := r.StartNS
	for _, s := range r.Segments {
		if s.StartNS != end || s.DurationNS <= 0 {
			t.Errorf("%s %s: a segment of the request at %d begins at %d and lasts %d; the one before ended at %d", g.Kind, g.Name, r.StartNS, s.StartNS, s.DurationNS, end)
			return
		}
		end += s.DurationNS
	}
	check.Equal(t, end, r.StartNS+r.LatencyNS,
		"%s %s: the segments of the request at %d cover %d of %d ns", g.Kind, g.Name, r.StartNS, end-r.StartNS, r.LatencyNS)
	check.True(t, r.StartNS >= 0 && end <= rep.Input.DurationNS,
		"%s %s: the request from %d to %d is not within the trace of %d ns", g.Kind, g.Name, r.StartNS, end, rep.Input.DurationNS)
}

// cutsOf returns offsets at which to cut a trace, some anywhere and some at the boundaries of batches.
func cutsOf(data []byte) []int {
	var cuts []int
	for i := range 3 {
		cuts = append(cuts, (2*i+1)*len(data)/6)
	}
	if chunks, err := tracetext.Split(data); err == nil {
		for i := 0; i < len(chunks); i += 1 + len(chunks)/3 {
			cuts = append(cuts, chunks[i].Data)
		}
	}
	return append(cuts, 0, 3, 16, 17, len(data)-1)
}

func checkCut(t *testing.T, data []byte) {
	t.Helper()
	rep, err := whylate.Explain(context.Background(), bytes.NewReader(data), whylate.Options{Slowest: allRequests, Exact: true})
	switch {
	case err != nil && rep != nil:
		t.Errorf("cut after %d bytes: both a report and an error: %v", len(data), err)
	case err != nil:
		return
	case !rep.Input.Truncated && !isWholeTrace(data):
		t.Errorf("cut after %d bytes: not marked as truncated", len(data))
	}
	schematest.Report(t, rep)
	for i := range rep.Groups {
		checkGroup(t, rep, &rep.Groups[i])
	}
}

// isWholeTrace reports whether a trace that was cut cannot be distinguished from one that ended there.
func isWholeTrace(data []byte) bool {
	chunks, err := tracetext.Split(data)
	return err == nil && len(chunks) > 0
}
