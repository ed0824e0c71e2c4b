package acceptance_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"golang.org/x/exp/trace"

	"github.com/whylate/whylate"
	engine "github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/testing/validate"
	"github.com/whylate/whylate/report"
)

// TestSharesAgreeWithTheProfile compares the computing time of HTTP requests with the CPU samples that the reference reader
// finds on the goroutines of connections while these were running. Functions with at least a tenth of the samples have the
// same rank in the report, and their shares are within ten points. The test fails if running time is attributed to the
// function whose event ended the run although no sample shows it.
func TestSharesAgreeWithTheProfile(t *testing.T) {
	judged := 0
	for _, p := range testprog.Programs() {
		if !strings.HasPrefix(p.Name, "http1-p") { // the others have no profile
			continue
		}
		data := testprog.Trace(t, p.Name)
		if comparesWithProfile(t, p.Name, data, "net/http.(*conn).serve") {
			judged++
		}
	}
	check.True(t, judged != 0, "no recording has enough CPU samples")
}

// minSamples is the number of samples that a profile needs for its shares to be accurate to ten points.
const minSamples = 100

// comparesWithProfile compares a recording's report with its CPU samples. It returns false if there are too few samples.
func comparesWithProfile(t *testing.T, name string, data []byte, root string) bool {
	t.Helper()
	profile := profileSamples(t, data, root)
	if sumOf(profile) < minSamples {
		return false
	}
	got := map[string]float64{}
	for _, g := range explainBytes(t, data, whylate.Options{}).Groups {
		if g.Kind == report.KindHTTP1 {
			addRunningTime(got, &g)
		}
	}
	compareShares(t, name, got, profile)
	return true
}

// addRunningTime adds a group's running time to sums, by function.
func addRunningTime(sums map[string]float64, g *report.Group) {
	for _, c := range g.All().Causes {
		if c.Cause == report.CauseCPU && c.Site != nil {
			sums[c.Site.Func] += float64(c.TotalNS)
		}
	}
}

func compareShares(t *testing.T, name string, got, profile map[string]float64) {
	t.Helper()
	shareOf := func(m map[string]float64, fn string) float64 { return m[fn] / sumOf(m) }
	largeFunctions := func(m map[string]float64) (out []string) {
		for _, fn := range slices.SortedFunc(maps.Keys(m), func(a, b string) int { return int(math.Copysign(1, m[b]-m[a])) }) {
			if shareOf(m, fn) >= 0.1 {
				out = append(out, fn)
			}
		}
		return out
	}
	if a, b := largeFunctions(got), largeFunctions(profile); !slices.Equal(a, b) {
		t.Errorf("%s: functions by computing time are %v, by CPU samples %v", name, a, b)
	}
	for _, m := range []map[string]float64{got, profile} {
		for fn := range m {
			if gotShare, profileShare := shareOf(got, fn), shareOf(profile, fn); math.Abs(gotShare-profileShare) > 0.1 {
				t.Errorf("%s: %s has %.0f %% of the computing time and %.0f %% of the CPU samples", name, fn, 100*gotShare, 100*profileShare)
			}
		}
	}
}

func sumOf(m map[string]float64) (sum float64) {
	for _, v := range m {
		sum += v
	}
	return sum
}

// profileSamples returns the number of CPU samples of each function whose stack contains root and whose goroutine was running:
// the innermost function of package main counts, or root if there is none.
func profileSamples(t *testing.T, data []byte, root string) map[string]float64 {
	t.Helper()
	r := must.Have(trace.NewReader(bytes.NewReader(data)))(t)
	states := map[trace.GoID]trace.GoState{}
	samples := map[string]float64{}
	for {
		ev, err := r.ReadEvent()
		if errors.Is(err, io.EOF) {
			return samples
		}
		must.Do(t, err)
		switch ev.Kind() {
		case trace.EventStateTransition:
			if st := ev.StateTransition(); st.Resource.Kind == trace.ResourceGoroutine {
				_, states[st.Resource.Goroutine()] = st.Goroutine()
			}
		case trace.EventStackSample:
			ownFunc, belowRoot := "", false
			for f := range ev.Stack().Frames() {
				if ownFunc == "" && strings.HasPrefix(f.Func, "main.") {
					ownFunc = f.Func
				}
				belowRoot = belowRoot || f.Func == root
			}
			if belowRoot && states[ev.Goroutine()] == trace.GoRunning {
				ownFunc = cmp.Or(ownFunc, root)
				samples[ownFunc]++
			}
		}
	}
}

// TestComputingAgreesWithTheProgram compares the same shares with the program's own clock: http1-profile measures the time
// that it spends in each of its functions.
func TestComputingAgreesWithTheProgram(t *testing.T) {
	data, facts := testprog.Record(t, "http1-profile")
	want, got := map[string]float64{}, map[string]float64{}
	for _, fn := range []string{"scan", "decode", "audit"} {
		want["main.(*search)."+fn] = float64(facts.Facts["ns "+fn])
	}
	for _, g := range explainBytes(t, data, whylate.Options{}).Groups {
		addRunningTime(got, &g)
	}
	compareShares(t, "http1-profile", got, want)
}

// TestBandsHaveNoMoreThanAll checks the reports of all recordings of services with package validate. One of its rules: no band
// of requests has more of anything than all requests have.
func TestBandsHaveNoMoreThanAll(t *testing.T) {
	for i, name := range testprog.Services(t) {
		if testing.Short() && i%8 != 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checks := new(validate.Checks)
			opts := engine.Options{Checks: checks}
			must.Have(engine.Explain(context.Background(), bytes.NewReader(testprog.Service(t, name).Trace), opts))(t)
			if err := checks.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}
