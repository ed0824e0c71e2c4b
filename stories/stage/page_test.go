package stage

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestProfile: the stacks that pprof prints are read from the leaf to the root, and a function counts once per stack. A frame
// without a value belongs to the stack before it.
func TestProfile(t *testing.T) {
	p := must.Have(parseTraces("File: x\nType: cpu\n" +
		"-----------+-------------------------------------------------------\n" +
		"      10ms   runtime.futex\n             runtime.findRunnable\n             runtime.schedule\n             runtime.park_m\n             runtime.mcall\n" +
		"-----------+-------------------------------------------------------\n" +
		"      30ms   main.(*m).work\n             main.handle (inline)\n             net/http.(*conn).serve\n" +
		"-----------+-------------------------------------------------------\n"))(t)
	check.True(t, p.Total == 40*time.Millisecond && p.Scheduler() == 0.25, "%v in all, %v in the scheduler", p.Total, p.Scheduler())
	if got := p.TimeIn(func(f string) bool { return strings.HasPrefix(f, "main.") }); got != 30*time.Millisecond {
		t.Errorf("%v in main", got)
	}
	if f, d := p.Busiest(); f != "main.(*m).work" || d != 30*time.Millisecond {
		t.Errorf("%s took the most, %v", f, d)
	}
	s := &Stage{keep: t.TempDir()}
	name := must.Have(s.WriteFlame(p, "flame"))(t)
	svg := must.Have(os.ReadFile(filepath.Join(s.keep, name)))(t)
	for _, want := range []string{"<title>net/http.(*conn).serve, 30ms</title>", "<title>runtime.futex, 10ms</title>", "<title>main.handle, 30ms</title>"} {
		check.True(t, strings.Contains(string(svg), want), "no %s in\n%s", want, svg)
	}
}

// TestPage: a page shows each arm with a link to its report, and the expected finding of a wrong arm; charts have a point for
// each value, and a service's text is escaped.
func TestPage(t *testing.T) {
	var b strings.Builder
	must.Do(t, WriteHTML(&b, []*Result{{Story: "pool", Date: "2026-11-23", Machine: "2 CPUs", Arms: []Arm{
		{Name: "before", P50NS: 1e6, Finding: Place{Code: "WL1002", Site: "main.f<int>"}, Expected: Place{Code: "WL4001"}, Report: "pool-before.html", Says: "why <this>"},
		{Name: "after", Right: true},
	}, Charts: []Chart{{Title: "p99 by load", Unit: "ns", Log: true, X: []string{"200", "4000"}, Lines: []Line{{"before", []float64{1e6, 1e8}}, {"after", []float64{1e6, -1}}}}}}}))
	for _, want := range []string{`<a href="pool-before.html">before</a>`, "main.f&lt;int&gt;", "expected WL4001", "why &lt;this&gt;", "before, 4000: 100ms", "none"} {
		check.True(t, strings.Contains(b.String(), want), "no %s on the page", want)
	}
	if got := strings.Count(b.String(), "<circle"); got != 3 {
		t.Errorf("%d points for 3 values", got)
	}
}

// TestContract: the JSON names of a result that programs read stay.
func TestContract(t *testing.T) {
	b := must.Have(json.Marshal(&Result{Arms: []Arm{{}}}))(t)
	var got struct {
		Arms []map[string]json.RawMessage
	}
	all := map[string]json.RawMessage{}
	must.Do(t, errors.Join(json.Unmarshal(b, &got), json.Unmarshal(b, &all)))
	for _, k := range []string{"story", "machine", "versions", "arms", "predicted_p50_ns", "measured_p50_ns", "factor", "published_factor"} {
		if _, ok := all[k]; !ok {
			t.Errorf("a result has no %s", k)
		}
	}
	for _, k := range []string{"name", "p50_ns", "p99_ns", "finding", "expected", "right"} {
		if _, ok := got.Arms[0][k]; !ok {
			t.Errorf("an arm has no %s", k)
		}
	}
	for _, k := range []string{"finding", "expected"} {
		if place := string(got.Arms[0][k]); !strings.Contains(place, `"code":`) || !strings.Contains(place, `"site":`) {
			t.Errorf("%s is %s", k, place)
		}
	}
}
