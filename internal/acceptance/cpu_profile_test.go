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
	"github.com/whylate/whylate/internal/explain/validate"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// TestSharesAgreeWithTheProfile holds what HTTP requests are said to compute against the CPU profile of the same time:
// the samples on the goroutines of connections while these ran, as the reference reader tells them. Functions with a
// tenth of the profile and more have the same rank in the report, and their shares are within ten points. A line that
// gives running time to the function whose event ended the run, though no sample says so, fails.
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
	if judged == 0 {
		t.Error("no recording has a profile that is worth comparing with")
	}
}

// minSamples is how many samples a profile needs for its shares to be known to ten points.
const minSamples = 100

// comparesWithProfile returns false if there are too few samples to judge.
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

// addRunningTime adds a group's running time by function.
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
		t.Errorf("%s: by time, requests compute in %v; by their profile in %v", name, a, b)
	}
	for _, m := range []map[string]float64{got, profile} {
		for fn := range m {
			if gotShare, profileShare := shareOf(got, fn), shareOf(profile, fn); math.Abs(gotShare-profileShare) > 0.1 {
				t.Errorf("%s: %s has %.0f %% of the requests' computing, and %.0f %% of their profile", name, fn, 100*gotShare, 100*profileShare)
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

// profileSamples returns how many CPU samples each function has below root, while their goroutines ran: the innermost
// frame of the program's own, else root.
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
		if err != nil {
			t.Fatal(err)
		}
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

// TestComputingAgreesWithTheProgram holds the same against the program's own clock: http1-profile measures how long it was
// in each of its functions.
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

// TestBandsHaveNoMoreThanAll holds the reports of all recordings of services to the rules of package validate, of which
// one says that what is true of a part of the requests is true of all.
func TestBandsHaveNoMoreThanAll(t *testing.T) {
	for i, name := range testprog.Services(t) {
		if testing.Short() && i%8 != 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := engine.Options{Validate: new(validate.Checks)}
			must.Have(engine.Explain(context.Background(), bytes.NewReader(testprog.Service(t, name).Trace), opts))(t)
			if err := opts.Validate.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}
