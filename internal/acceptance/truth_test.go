package acceptance_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/schematest"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// An outcome is the part of lab/truth's truth.json by which a diagnosis is judged; the fields are documented there.
type outcome struct {
	Service  truthService
	Traced   clientSummary
	Share    *float64
	Client   clientSummary // of the whole run
	Affected clientSummary `json:"met"` // the requests of Traced that the fault delayed
	Fixed    bool
	Lateness struct {
		P99NS int64 `json:"p99_ns"`
	}
}

type truthService struct {
	Name, Proto string
	Load        struct{ Conns int }
	Truth       struct {
		Kind, Group, Cause string
		OrCauses           []string `json:"or_causes"`
		Site               truthSite
		OrSites            []truthSite `json:"or_sites"`
		Via                []string
		Second             *truthSite
		Share              float64
		ShareMin           float64 `json:"share_min"`
		LeastNS            int64   `json:"least_ns"`
		Unmeasured         bool
		Doubt              string
	}
	Findings *truthFindings
}

type clientSummary struct {
	Count  int
	MeanNS int64 `json:"mean_ns"`
	P50NS  int64 `json:"p50_ns"`
	P99NS  int64 `json:"p99_ns"`
	MaxNS  int64 `json:"max_ns"`
}

// A truthSite is a function and line. Line 0 matches any line of the function; no function means the whole process.
type truthSite struct {
	Func, File string
	Line       int
}

func (s truthSite) matches(r *report.Site) bool {
	if s.Func == "" {
		return r == nil
	}
	return r != nil && r.Func == s.Func && (s.Line == 0 || r.Line == s.Line && strings.HasSuffix(r.File, "/"+s.File))
}

// A judgement has the errors of a diagnosis. Wrong names are wrong on any machine; shares and counts may be spoiled by other
// processes.
type judgement struct{ wrong, spoiled error }

func (j judgement) plus(o judgement) judgement {
	return judgement{errors.Join(j.wrong, o.wrong), errors.Join(j.spoiled, o.spoiled)}
}

// judgeCauses compares a report's causes with the truth.
func judgeCauses(rep *report.Report, o *outcome) judgement {
	var wrong, spoiled []error
	tr := &o.Service.Truth
	if o.Traced.Count == 0 {
		return judgement{spoiled: errors.New("no request is within the trace")}
	}
	g := slowGroup(rep, o)
	if tr.Cause == "" {
		return judgement{} // a healthy service; its handler need not be in the trace
	}
	if g == nil {
		var names []string
		for _, g := range rep.Groups {
			names = append(names, fmt.Sprintf("%s %s (%d)", g.Kind, g.Name, g.Count))
		}
		return judgement{wrong: fmt.Errorf("no group is %s %s; there are %q", tr.Kind, tr.Group, names)}
	}
	if g.Count == 0 {
		return judgement{}
	}
	causes := append([]string{tr.Cause}, tr.OrCauses...)
	sites := append([]truthSite{tr.Site}, tr.OrSites...)
	isRight := func(c *report.Cause) bool {
		return slices.Contains(causes, string(c.Cause)) && slices.ContainsFunc(sites, func(s truthSite) bool { return s.matches(c.Site) })
	}
	rows := workRows(&g.Bands[0])
	first := &rows[0]
	if i := slices.IndexFunc(rows, func(c report.Cause) bool { return isRight(&c) }); tr.Unmeasured && i >= 0 && i < 3 {
		// The service does not measure all delays, so it may compute, or queue for a P, for longer than the injected delay.
		first = &rows[i]
	}
	if !isRight(first) {
		wrong = append(wrong, fmt.Errorf("the first cause of %s is %s, not %s at %s:%d", g.Name, describe(first), tr.Cause, tr.Site.Func, tr.Site.Line))
	} else if !isSubsequence(tr.Via, first.Via) {
		wrong = append(wrong, fmt.Errorf("the wait chain of %s is %s, not by %v", g.Name, describe(first), tr.Via))
	}
	share, ns := 0.0, int64(0)
	for i := range rows {
		// The service's clock cannot distinguish computing from assisting the garbage collector and from waiting for a P in
		// between.
		c := &rows[i]
		asCause := *c
		if asCause.Cause = report.CauseName(tr.Cause); isRight(c) || tr.Cause == "cpu" && slices.Contains(overheads, c.Cause) && isRight(&asCause) {
			share += c.Share
			ns += c.TotalNS
		}
	}
	// Requests in progress when the trace begins or ends are known only to the trace or only to the client: at most one per
	// connection at either end.
	slack := 2*o.Service.Load.Conns + o.Traced.Count/10
	unnamedCount := 0
	for _, u := range rep.Groups {
		if u.Kind == g.Kind && !u.Named {
			unnamedCount += u.Count
		}
	}
	client := float64(o.Traced.MeanNS) * float64(o.Traced.Count)
	switch {
	case o.Share != nil && unnamedCount > 0 && tr.Cause != "cpu" && g.Count < o.Traced.Count-slack:
		// Requests that did not wait show no handler. The client does not know which these were, but they have no part in the
		// cause.
		if shareOfClientTime := float64(ns) / client; math.Abs(shareOfClientTime-*o.Share) > 0.05 {
			spoiled = append(spoiled, fmt.Errorf("the cause has %.3f of all requests' time, by the service's own clock %.3f", shareOfClientTime, *o.Share))
		}
	case o.Share != nil:
		if math.Abs(share-*o.Share) > 0.05 {
			spoiled = append(spoiled, fmt.Errorf("the cause has %.3f of the time of %s, by the service's own clock %.3f", share, g.Name, *o.Share))
		}
	case tr.Share > 0 && math.Abs(share-tr.Share) > 0.05:
		spoiled = append(spoiled, fmt.Errorf("the cause has %.3f of the time of %s, by construction %.3f", share, g.Name, tr.Share))
	case share < tr.ShareMin-0.05:
		spoiled = append(spoiled, fmt.Errorf("the cause has %.3f of the time of %s, by construction at least %.3f", share, g.Name, tr.ShareMin))
	}
	if tr.Second != nil {
		if i := slices.IndexFunc(rows, func(c report.Cause) bool { return tr.Second.matches(c.Site) }); i < 0 || i > 2 {
			wrong = append(wrong, fmt.Errorf("the second fault, at %s:%d, is not among the first causes of %s", tr.Second.Func, tr.Second.Line, g.Name))
		}
	}
	if n := o.Traced.Count; g.Count > n+slack || g.Count+unnamedCount < n-slack {
		spoiled = append(spoiled, fmt.Errorf("%s has %d requests and %d more show no handler; the client has %d", g.Name, g.Count, unnamedCount, n))
	}
	return judgement{errors.Join(wrong...), errors.Join(spoiled...)}
}

var overheads = []report.CauseName{report.CauseSched, report.CauseSchedWake, report.CauseGCAssist, report.CauseGCWait, report.CauseSTW}

// slowGroup returns the group that the truth names. A handler on two listeners has two groups; then it returns the slower one.
func slowGroup(rep *report.Report, o *outcome) *report.Group {
	tr := &o.Service.Truth
	var best *report.Group
	for i := range rep.Groups {
		g := &rep.Groups[i]
		if string(g.Kind) != tr.Kind {
			continue
		}
		switch {
		case tr.Kind == string(report.KindTask):
			if g.Name != tr.Group {
				continue
			}
		case tr.Group != "" && (g.Entry == nil || g.Entry.Func != tr.Group):
			continue
		}
		if best == nil || g.TotalNS > best.TotalNS {
			best = g
		}
	}
	return best
}

func describe(c *report.Cause) string {
	s := fmt.Sprintf("%s %.3f", c.Cause, c.Share)
	if c.Site != nil {
		s += fmt.Sprintf(" at %s:%d", c.Site.Func, c.Site.Line)
	}
	for _, v := range c.Via {
		s += " via " + string(v.Wait)
		if v.Site != nil {
			s += fmt.Sprintf(" %s:%d", v.Site.Func, v.Site.Line)
		}
	}
	return s
}

func isSubsequence(want []string, via []report.Via) bool {
	for _, v := range via {
		// The truth has one word for all waits on a channel and one for all locks.
		w := strings.TrimSuffix(string(v.Wait), " send")
		if w == "once" {
			w = "lock"
		}
		if len(want) > 0 && w == want[0] {
			want = want[1:]
		}
	}
	return len(want) == 0
}

// TestTruth explains recordings of services that are late for a known reason, each under load from another process, and
// compares the answers with that reason. The reason and its share of the time come from the clocks of service and client at
// recording time, so the result does not depend on this machine. TestLive runs the services again.
func TestTruth(t *testing.T) {
	var table confusionTable
	var classes tally
	var screens firstScreens
	wanted := map[string]*truthFindings{}
	for _, name := range testprog.Services(t) {
		rec := testprog.Service(t, name)
		o := outcomeOf(t, rec)
		if o.Service.Name != name {
			continue // one of testprog.Runs: other tests judge it
		}
		wanted[name] = o.Service.Findings
		t.Run(name, func(t *testing.T) {
			rep := explainService(t, name)
			requireTopics(t, "truth/"+name)
			j := judgeCauses(rep, o).plus(judgeFindings(rep, o))
			table.add(o, rep)
			screens.add(t, name, rep, o)
			c, untrue := classOfService(rep, o)
			classes[c]++
			check.Equal(t, (len(untrue) > 0), knownFalse[name] != "",
				"confident false claims: %q; knownFalse has %q", untrue, knownFalse[name])
			if _, missing := judgeTopics(rep, slowGroup(rep, o), "truth/"+name); len(missing) > 0 {
				j.wrong = errors.Join(j.wrong, fmt.Errorf("nothing is said of %q", missing))
			}
			err, knownReason := errors.Join(j.wrong, j.spoiled), knownWrong[name]
			switch {
			case err != nil && knownReason == "":
				t.Error(err)
			case err == nil && knownReason != "":
				t.Errorf("this is right: remove it from knownWrong (%s)", knownReason)
			}
		})
	}
	table.check(t, wanted)
	if len(wanted) == len(table.rows) {
		classes.checkRow(t, setServices)
		screens.check(t)
	}
}

// knownWrong has the services whose recordings are not diagnosed rightly, with the error. Each is a fault to fix.
var knownWrong = map[string]string{
	"single-worker": "WL1007 is found in addition to the queue, although one goroutine cannot compute on all Ps: in five of six recordings",
}

// knownFalse has the services whose reports have a confident false claim (falseServiceClaims), with the claim.
var knownFalse = map[string]string{}

// maxTimerDelay is the 99th percentile of timer delays up to which a machine must give right shares and latencies.
const maxTimerDelay = 3 * time.Millisecond

func outcomeOf(t testing.TB, rec *testprog.Recorded) *outcome {
	t.Helper()
	o := new(outcome)
	must.Do(t, json.Unmarshal(rec.Truth, o), "reading the truth about the service")
	return o
}

func optionsOf(name string, rec *testprog.Recorded) whylate.Options {
	opts := whylate.Options{Name: name}
	if rec.Host != nil {
		opts.Host = bytes.NewReader(rec.Host)
	}
	return opts
}

// cachedReports has the reports of explainService and explainFile, which several tests share.
var cachedReports sync.Map // name or path -> *report.Report

// explainService explains a recording of lab/truth. It caches the report: callers must not change it.
func explainService(t testing.TB, name string) *report.Report {
	t.Helper()
	if rep, ok := cachedReports.Load(name); ok {
		return rep.(*report.Report)
	}
	rec := testprog.Service(t, name)
	rep := explainBytes(t, rec.Trace, optionsOf(name, rec))
	cachedReports.Store(name, rep)
	return rep
}

func explain(t testing.TB, r io.Reader, opts whylate.Options) *report.Report {
	t.Helper()
	rep := must.Have(whylate.Explain(t.Context(), r, opts))(t)
	schematest.Report(t, rep)
	return rep
}

func explainBytes(t testing.TB, data []byte, opts whylate.Options) *report.Report {
	t.Helper()
	return explain(t, bytes.NewReader(data), opts)
}
