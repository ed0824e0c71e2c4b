package acceptance_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// TestSlowWaitsNameWhatRan: if slow requests wait for a P, the report names what ran during these waits. A random sample of
// all requests would miss what only delays slow ones.
func TestSlowWaitsNameWhatRan(t *testing.T) {
	judged := 0
	for _, name := range testprog.Services(t) {
		rep := explainService(t, name)
		for k := range rep.Groups {
			g := &rep.Groups[k]
			for _, c := range g.Tail().Causes {
				if meanWait := c.TotalNS / int64(max(c.Requests, 1)); c.Cause == report.CauseSched && c.Share >= 0.02 && meanWait >= 500e3 {
					judged++
					check.True(t, len(c.RanMeanwhile) != 0,
						"%s: slow requests of %s wait for a P at %v, %d ns each, but the report names nothing that ran", name, g.Name, c.Site, meanWait)
				}
			}
		}
	}
	check.True(t, judged != 0, "no slow request of any recording waits for a P")
}

// TestWhatRanIsNamedBySamples: in http1-profile only two functions compute, and neither causes an event, so their names must
// come from CPU samples, not from the event that ended a run or the goroutine's first frame.
func TestWhatRanIsNamedBySamples(t *testing.T) {
	rep := explainBytes(t, testprog.Trace(t, "http1-profile"), whylate.Options{})
	named, all := 0.0, 0.0
	for i := range rep.Groups {
		for _, c := range rep.Groups[i].All().Causes {
			for _, s := range c.RanMeanwhile {
				all += s.Share * float64(c.TotalNS)
				if s.Site != nil && (s.Site.Func == "main.(*search).scan" || s.Site.Func == "main.(*search).decode") {
					named += s.Share * float64(c.TotalNS)
				}
			}
		}
	}
	// The rest ran without a sample: a sample is taken each 10 ms of CPU time.
	check.True(t, all != 0 && named/all >= 0.8, "scan and decode ran for %.0f of %.0f ns of the waits", named, all)
}

// TestWhatRanIsEqualForCalls: what ran while a handler's requests waited for a P is the same whether the requests are found by
// their server or selected with Options.Request. A random sample of requests, or of parts of their waits, fails if it is
// small.
func TestWhatRanIsEqualForCalls(t *testing.T) {
	judged := 0
	for _, name := range []string{"cpu-hogs", "cpu-hogs-saturated", "long-runs", "gc-workers", "gosched-loops", "ticker-herd", "waitgroup-saturated"} {
		data := testprog.Service(t, name).Trace
		for _, g := range explainBytes(t, data, whylate.Options{}).Groups {
			want, total := ranDuringWaits(&g)
			if !g.Named || total < 0.2*float64(g.TotalNS) {
				continue
			}
			fn := g.Name[strings.LastIndexByte(g.Name, '/')+1:]
			for _, called := range explainBytes(t, data, whylate.Options{Request: regexp.MustCompile(regexp.QuoteMeta(fn) + "$")}).Groups {
				got, waited := ranDuringWaits(&called)
				if called.Name != g.Name || called.Count == 0 || waited < 0.2*float64(called.TotalNS) {
					continue
				}
				judged++
				if a, b := largestKey(want), largestKey(got); a != b {
					t.Errorf("%s: while requests of %s waited, %s ran most; while its calls waited, %s", name, g.Name, a, b)
				}
			}
		}
	}
	check.True(t, judged >= 2, "only %d groups could be compared", judged)
}

// ranDuringWaits returns, by function, what ran while a group's requests waited for a P, and how long they waited.
func ranDuringWaits(g *report.Group) (byFunc map[string]float64, waited float64) {
	byFunc = map[string]float64{}
	for _, c := range g.All().Causes {
		if c.Cause != report.CauseSched {
			continue
		}
		waited += float64(c.TotalNS)
		for _, s := range c.RanMeanwhile {
			if s.Site != nil {
				byFunc[s.Site.Func] += s.Share * float64(c.TotalNS)
			}
		}
	}
	return byFunc, waited
}

func largestKey(m map[string]float64) (best string) {
	for k, v := range m {
		if v > m[best] || v == m[best] && k < best {
			best = k
		}
	}
	return best
}

// TestWhatRanIsNotAWrapper: a goroutine of sync.WaitGroup.Go that never waits has no event with its own line, so the report
// names the line that started it, not the wrapper function that all such goroutines begin with.
func TestWhatRanIsNotAWrapper(t *testing.T) {
	rep := explainService(t, "waitgroup-saturated")
	named := 0
	for i := range rep.Groups {
		for _, c := range rep.Groups[i].All().Causes {
			for _, s := range c.RanMeanwhile {
				switch {
				case s.Site == nil:
				case strings.HasPrefix(s.Site.Func, "sync.(*WaitGroup).Go"):
					t.Errorf("%.0f%% of what ran while requests waited at %v is %v", 100*s.Share, c.Site, s.Site)
				case strings.Contains(s.Site.Func, "catalog.(*waitGroup)."):
					named++
				}
			}
		}
	}
	check.True(t, named != 0, "no function of the service is named")
}
