package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/exp/trace"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/lab/truth/catalog"
	"github.com/whylate/whylate/lab/truth/load"
)

// programEnv is the environment variable that turns the test binary into the tested program, so that services, load and peers
// are child processes as in use.
const programEnv = "TRUTH_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		main()
	}
	os.Setenv(programEnv, "1")
	os.Exit(m.Run())
}

func TestCatalog(t *testing.T) {
	all := must.Have(catalog.All())(t)
	// The causes of a report.
	causes := map[string]bool{"cpu": true, "sched": true, "sched-wake": true, "sched-poll": true, "throttle": true, "gc-assist": true, "gc-wait": true,
		"stw": true, "sleep": true, "network": true, "syscall": true, "lock": true, "chan": true, "queue": true}
	kinds := map[string]string{"http1": "http1", "h2": "http2", "grpc": "grpc"}
	names := map[string]bool{}
	for _, s := range all {
		check.False(t, names[s.Name], "two services are named %s", s.Name)
		names[s.Name] = true
		tr := s.Truth
		for _, c := range append(tr.OrCauses, tr.Cause) {
			if c != "" && !causes[c] {
				t.Errorf("%s: no cause is called %q", s.Name, c)
			}
		}
		if tr.Cause != "" && (tr.Site.Func == "" || tr.Injected == "" || (tr.Share == 0) == (tr.ShareMin == 0)) {
			t.Errorf("%s: incomplete truth %+v", s.Name, tr)
		}
		if want, ok := kinds[s.Proto]; ok && tr.Kind != want {
			t.Errorf("%s: %s serves groups of kind %s, not %s", s.Name, s.Proto, want, tr.Kind)
		}
		slow := s.Proto == "none"
		for _, p := range s.Load.Paths {
			slow = slow || p.Slow
		}
		check.True(t, slow, "%s: no path belongs to the slow group", s.Name)
	}
	var out bytes.Buffer
	must.Equal(t, run(context.Background(), []string{"list", "-json"}, nil, &out, io.Discard), 0, "list: status")
	var listed []catalog.Service
	if err := json.Unmarshal(out.Bytes(), &listed); err != nil || len(listed) != len(all) {
		t.Errorf("list prints %d of %d services: %v", len(listed), len(all), err)
	}
}

// runsAlone has the services that take all processors.
var runsAlone = map[string]bool{"cpu-hogs": true, "gosched-loops": true, "stw-stacks": true, "stw-memstats": true, "gc-assist": true, "ticker-herd": true,
	"cpu-std": true, "mutex-cpu": true, "single-worker": true, "rwmutex-writer": true, "once": true, "hub-late": true, "long-runs": true, "cpu-handler": true, "one-proc": true, "gc-forced": true}

func TestServices(t *testing.T) {
	testfull.Need(t, "to run services and their clients in real time")
	all := must.Have(catalog.All())(t)
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			if !runsAlone[s.Name] {
				t.Parallel()
			}
			testService(t, s)
		})
	}
}

// testService compares a service with its truth. Properties that no machine can change are tested once. Properties that other
// processes can disturb get three tries; if all fail and the machine was not quiet in one of them, the test is skipped with
// the reason.
func testService(t *testing.T, s *catalog.Service) {
	const tries = 3
	var doubts error
	var maxLateness time.Duration
	for try := range tries {
		faulty, res, data := mustRecord(t, s, false, 800*time.Millisecond, 0.5)
		if try == 0 {
			checkAnyMachine(t, s, faulty, res, data)
		}
		fixed, _, _ := mustRecord(t, s, true, 400*time.Millisecond, -1)
		maxLateness = max(maxLateness, time.Duration(faulty.Lateness.P99NS), time.Duration(fixed.Lateness.P99NS))
		if doubts = checkQuietMachine(s, faulty, fixed); doubts == nil {
			return
		}
	}
	if maxLateness > 3*time.Millisecond {
		t.Skipf("the machine was not quiet (timers up to %v late, 99th percentile), so this proves nothing: %v", maxLateness, doubts)
	}
	t.Error(doubts)
}

func mustRecord(t *testing.T, s *catalog.Service, fixed bool, d time.Duration, seconds float64) (*Outcome, *load.Result, []byte) {
	t.Helper()
	var stderr bytes.Buffer
	out, res, rec, err := recordRun(t.Context(), s, startOptions{fixed: fixed}, d, seconds, &stderr)
	if errors.Is(err, errPlace) {
		t.Skip(err)
	}
	must.True(t, err == nil, "fixed %t: %v\n%s", fixed, err, stderr.Bytes())
	must.True(t, out.Client.Count != 0 && out.Client.Failed == 0,
		"fixed %t: %d requests answered, %d failed\n%s", fixed, out.Client.Count, out.Client.Failed, stderr.Bytes())
	return out, res, rec.trace
}

// checkAnyMachine tests the properties that hold on any machine, however busy.
func checkAnyMachine(t *testing.T, s *catalog.Service, out *Outcome, res *load.Result, data []byte) {
	t.Helper()
	check.True(t, out.Client.MinNS >= s.Truth.LeastNS,
		"the client's fastest request took %v; the fault alone takes %v", time.Duration(out.Client.MinNS), time.Duration(s.Truth.LeastNS))
	for _, r := range res.Requests {
		if r.BlamedNS < 0 || r.BlamedNS > r.End-r.Start {
			t.Errorf("a request took %v, of which %v is blamed on the fault", r.Latency(), time.Duration(r.BlamedNS))
			break
		}
	}
	shown := must.Have(sitesOf(data))(t)
	if out.Traced.Count == 0 {
		return // a request of the slow group may be longer than this short trace
	}
	tr := s.Truth
	if tr.Cause != "" && !shown.hasAny(append(tr.OrSites, tr.Site)) {
		t.Errorf("the trace shows nothing at the stated site %+v", tr.Site)
	}
	for _, expected := range []*catalog.Site{tr.UserSite, tr.Second} {
		if expected != nil && !shown.hasAny([]catalog.Site{*expected}) {
			t.Errorf("the trace shows nothing at the stated site %+v", *expected)
		}
	}
	if tr.Cause != "" && tr.Kind != "task" && tr.Group != "" && !shown.hasAny([]catalog.Site{{Func: tr.Group}}) {
		t.Errorf("the trace does not show the stated group %s", tr.Group)
	}
}

// checkQuietMachine tests the properties that hold on a quiet machine.
func checkQuietMachine(s *catalog.Service, faulty, fixed *Outcome) error {
	var errs []error
	if want := s.Truth.Share; want > 0 && faulty.Share != nil && (*faulty.Share < want-0.05 || *faulty.Share > want+0.05) {
		errs = append(errs, fmt.Errorf("the fault took %.3f of the slow group's time, stated is %.3f", *faulty.Share, want))
	}
	if s.FixAtMost > 0 {
		before, after := faulty.Client.P50NS, fixed.Client.P50NS
		if s.FixInTail {
			before, after = faulty.Client.P90NS, fixed.Client.P90NS
		}
		if float64(after) > s.FixAtMost*float64(before) {
			errs = append(errs, fmt.Errorf("the fix brings %v down to %v, promised is a factor of %.2f or better", time.Duration(before), time.Duration(after), s.FixAtMost))
		}
	}
	return errors.Join(errs...)
}

// traceSites has the functions and lines of a trace's stacks.
type traceSites struct {
	funcs map[string]bool
	lines map[string]bool // "func file:line", with the file relative to the repository's root
}

func (s *traceSites) hasAny(want []catalog.Site) bool {
	return slices.ContainsFunc(want, func(w catalog.Site) bool {
		return w.Line == 0 && s.funcs[w.Func] || w.Line > 0 && s.lines[fmt.Sprintf("%s %s:%d", w.Func, w.File, w.Line)]
	})
}

func sitesOf(data []byte) (*traceSites, error) {
	r, err := trace.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("opening the trace: %w", err)
	}
	s := &traceSites{map[string]bool{}, map[string]bool{}}
	add := func(st trace.Stack) {
		for f := range st.Frames() {
			s.funcs[f.Func] = true
			if i := strings.Index(f.File, "/lab/truth/"); i >= 0 {
				s.lines[fmt.Sprintf("%s %s:%d", f.Func, f.File[i+1:], f.Line)] = true
			}
		}
	}
	for {
		ev, err := r.ReadEvent()
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the trace: %w", err)
		}
		add(ev.Stack())
		if ev.Kind() == trace.EventStateTransition {
			add(ev.StateTransition().Stack)
		}
	}
}

func TestWrongUse(t *testing.T) {
	for _, args := range [][]string{nil, {"nosuch"}, {"load"}, {"load", "-nosuch"}, {"load", "-path", "/x"}, {"load", "-url", "127.0.0.1:1", "-path", "/x:0"}} {
		if got := run(context.Background(), args, strings.NewReader(""), io.Discard, io.Discard); got == 0 {
			t.Errorf("truth %q: status 0", args)
		}
	}
}
