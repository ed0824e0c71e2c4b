package acceptance_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/internal/testing/testprog"
)

var liveRuns = flag.Int("runs", 5, "how often TestLive runs each service")

// TestLive runs every service of lab/truth several times under its load and counts the right diagnoses. Runs differ with the
// machine and the service, so no run is judged alone: the test fails if the share of right answers, of a service or of all
// together, has fallen below that in testdata/rates.md. With -update it rewrites that page.
func TestLive(t *testing.T) {
	testfull.Need(t, "to run services and their clients in real time")
	table := must.Have(readRates())(t)
	var names []string
	for _, name := range testprog.Services(t) {
		if outcomeOf(t, testprog.Service(t, name)).Service.Name == name {
			names = append(names, name)
		}
	}
	testprog.Build(t, "lab/truth")
	t.Run("services", func(t *testing.T) {
		for _, name := range names {
			t.Run(name, func(t *testing.T) {
				if !runsAlone[name] {
					t.Parallel()
				}
				table.judgeRow(t, name, func() (judgement, time.Duration) {
					rec, err := testprog.RunService(t, testprog.RunFor(name).Args...)
					if err != nil && strings.Contains(err.Error(), "this machine cannot give the service its place") {
						t.Skip(err)
					}
					must.Do(t, err)
					o := outcomeOf(t, rec)
					rep := explainBytes(t, rec.Trace, optionsOf(name, rec))
					return judgeCauses(rep, o).plus(judgeFindings(rep, o)), time.Duration(o.Lateness.P99NS)
				})
			})
		}
	})
	runs := map[string][]string{}
	for _, r := range testprog.Runs() {
		runs[r.Name] = r.Args
	}
	for _, long := range []struct {
		test  string
		judge func(*testing.T, ...*testprog.Recorded) error
		runs  []string // of testprog.Runs
	}{
		{"TestWhatIfPubSub", judgePubSubPrediction, []string{"pubsub-long", "pubsub-fixed"}},
		{"TestWhatIfCheck", judgeActorPrediction, []string{"actor-select-long"}},
		{"TestWitness", judgeClientClock, []string{"waitgroup-long"}},
		{"TestWitness", judgeClientClock, []string{"h2-sleep-long"}},
		{"TestWitness", judgeClientClock, []string{"grpc-unary-long"}},
		{"TestWitnessOfSaturation", judgeSaturated, []string{"cpu-hogs-saturated"}},
		{"TestWitnessOfSaturation", judgeSaturated, []string{"waitgroup-saturated"}},
		{"TestWitnessOfSaturation", judgeSaturated, []string{"h2-sleep-saturated"}},
		{"TestWitnessOfSaturation", judgeSaturated, []string{"grpc-unary-saturated"}},
		{"TestFixes", judgeFix, []string{"pubsub-long", "pubsub-fixed"}},
		{"TestFixes", judgeFix, []string{"exec-child-long", "exec-child-fixed"}},
		{"TestFixes", judgeFix, []string{"slow-database-long", "slow-database-fixed"}},
	} {
		row := long.test + " " + long.runs[0]
		t.Run(row, func(t *testing.T) {
			table.judgeRow(t, row, func() (j judgement, late time.Duration) {
				var recs []*testprog.Recorded
				for _, name := range long.runs {
					rec := must.Have(testprog.RunService(t, runs[name]...))(t)
					recs = append(recs, rec)
					late = max(late, time.Duration(outcomeOf(t, rec).Lateness.P99NS))
				}
				return judgement{spoiled: long.judge(t, recs...)}, late
			})
		})
	}
	table.judgeAll(t)
}

// runsAlone has the services that use all processors: nothing runs in parallel with them.
var runsAlone = map[string]bool{"cpu-hogs": true, "gosched-loops": true, "stw-stacks": true, "stw-memstats": true, "gc-assist": true, "gc-churn": true, "gc-workers": true, "gc-forced-beside": true, "debug-logs": true, "ticker-herd": true,
	"cpu-std": true, "mutex-cpu": true, "single-worker": true, "rwmutex-reader": true, "rwmutex-writer": true, "once": true, "hub-late": true, "long-runs": true,
	"few-ps": true, "many-ps": true, "throttled": true}

// ratesPage has the rates of the last run of TestLive with -update.
const ratesPage = "internal/acceptance/testdata/rates.md"

const ratesHead = `# How often live runs are diagnosed rightly

` + "`TestLive`" + ` runs each service of ` + "`lab/truth`" + ` several times, loads it from another process, and judges each run alone, without another
try: the first cause, its site and way, the share of the time, the findings. Rows that begin with Test are the same for the claim that test holds
recordings to. *right of* is how many were right, of those that prove something; *void* are those whose names were right, but whose shares or counts were
off while timers on the machine were more than 3 ms late at the 99th percentile.

` + "`.ci/full live`" + ` runs it again and fails where a service, or all together, is right less often than here: where so few right ones have a chance of less
than 1 in 100 if nothing has changed. ` + "`WHYLATE_FULL=1 go test ./internal/acceptance -run TestLive -timeout 60m -runs 10 -update`" + ` rewrites the rows.

| what | right of | | void | measured |
|---|---|---|---|---|
`

// A rate is a row: how often its answer was right.
type rate struct {
	right, runs, void int
	measured          string
}

// rates has the rows of the page and those of this run.
type rates struct {
	published map[string]rate

	mu      sync.Mutex
	current map[string]rate
}

func readRates() (*rates, error) {
	r := &rates{published: map[string]rate{}, current: map[string]rate{}}
	text, err := os.ReadFile(ratesPage)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 7 {
			continue
		}
		var c rate
		if n, err := fmt.Sscan(cells[2]+" "+cells[3]+" "+cells[4], &c.right, &c.runs, &c.void); n == 3 && err == nil {
			c.measured = strings.TrimSpace(cells[5])
			r.published[strings.TrimSpace(cells[1])] = c
		}
	}
	return r, nil
}

// judgeRow runs a row several times and compares the rate of right answers with the published one.
func (r *rates) judgeRow(t *testing.T, row string, runOnce func() (judgement, time.Duration)) {
	t.Helper()
	current := rate{measured: fmt.Sprintf("%s, %d CPUs, %s", time.Now().UTC().Format("2006-01-02"), runtime.NumCPU(), runtime.Version())}
	for range *liveRuns {
		switch j, late := runOnce(); {
		case j.wrong == nil && j.spoiled == nil:
			current.right++
			current.runs++
		case j.wrong == nil && late > maxTimerDelay:
			current.void++
			t.Logf("void, timers are %v late: %v", late, j.spoiled)
		default:
			current.runs++
			t.Logf("not right: %v", errors.Join(j.wrong, j.spoiled))
		}
	}
	r.mu.Lock()
	r.current[row] = current
	r.mu.Unlock()
	published, isPublished := r.published[row]
	switch {
	case *update:
	case !isPublished:
		t.Errorf("%s has no row %q", ratesPage, row)
	case hasFallen(current, published):
		t.Errorf("right in %d of %d runs; by %s it was %d of %d", current.right, current.runs, ratesPage, published.right, published.runs)
	}
}

// hasFallen reports whether a rate is lower than the published one by more than chance: the probability of so few right runs,
// or fewer, is below 0.01. The probability of a right run is estimated from the published rate with one more right and one
// more wrong run.
func hasFallen(current, published rate) bool {
	p := float64(published.right+1) / float64(published.runs+2)
	sum, term := 0.0, math.Pow(1-p, float64(current.runs)) // of the binomial distribution
	for k := 0; k <= current.right; k++ {
		sum += term
		term *= float64(current.runs-k) / float64(k+1) * p / (1 - p)
	}
	return sum < 0.01
}

// judgeAll compares the sum of all rows with the published sum, or writes the page with -update.
func (r *rates) judgeAll(t *testing.T) {
	t.Helper()
	var current, published rate
	for row, c := range r.current {
		current.right, current.runs, current.void = current.right+c.right, current.runs+c.runs, current.void+c.void
		published.right, published.runs = published.right+r.published[row].right, published.runs+r.published[row].runs
	}
	t.Logf("right in %d of %d runs, %d void; by %s %d of %d", current.right, current.runs, current.void, ratesPage, published.right, published.runs)
	if !*update {
		check.False(t, hasFallen(current, published),
			"all rows: right in %d of %d runs; by %s it was %d of %d", current.right, current.runs, ratesPage, published.right, published.runs)
		return
	}
	maps.Copy(r.published, r.current)
	var b strings.Builder
	b.WriteString(ratesHead)
	for _, row := range slices.Sorted(maps.Keys(r.published)) {
		c := r.published[row]
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %s |\n", row, c.right, c.runs, c.void, c.measured)
	}
	if err := os.WriteFile(ratesPage, []byte(b.String()), 0o644); err != nil {
		t.Error(err)
	}
}

func TestHasFallen(t *testing.T) {
	for _, c := range []struct {
		current, published rate
		want               bool
	}{
		{rate{right: 5, runs: 5}, rate{right: 5, runs: 5}, false},
		{rate{right: 3, runs: 5}, rate{right: 5, runs: 5}, false}, // with p = 6/7: 0.15
		{rate{right: 1, runs: 5}, rate{right: 5, runs: 5}, true},  // 0.002
		{rate{right: 3, runs: 5}, rate{right: 98, runs: 98}, true},
		{rate{right: 1, runs: 5}, rate{right: 5, runs: 10}, false},
		{rate{}, rate{right: 10, runs: 10}, false},
		{rate{right: 400, runs: 450}, rate{right: 440, runs: 450}, true},
	} {
		check.Equal(t, hasFallen(c.current, c.published), c.want, "%+v after %+v: fallen", c.current, c.published)
	}
}
