package acceptance_test

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// TestChannelPools: requests queue for slots of three pools made of channels. A slot is held and released by the request while
// its goroutines work, by a goroutine that the request started, or by one that it started after it acquired the slot. Each is
// found as a pool with its size, its holder's sleep and the line of the queue. It must not be reported as a sleep of other
// goroutines, its goroutines must not count as workers, and requests that hand their work to idle workers must not count as a
// queue.
func TestChannelPools(t *testing.T) {
	data, _ := testprog.Record(t, "pools")
	rep := explainBytes(t, data, whylate.Options{})
	for _, want := range []struct {
		group, site  string
		slots        float64
		title, sleep string
		heldNS       float64
	}{
		// If no request waits until both slots are released twice, the size of the pool is unknown.
		{"parted", "", 2, "", "main.partedWork", 6e6},
		{"child", "pools.go:42", 2, "one of 2 slots", "main.childWork", 7e6},
		{"give", "pools.go:54", 1, "the only slot", "main.givenWork", 5e6},
	} {
		var first *report.Finding
		for i := range rep.Findings {
			if f := &rep.Findings[i]; first == nil && f.Cause != "" && strings.HasSuffix(groupNameOf(rep, f.Group), ")."+want.group) {
				first = f
			}
		}
		if first == nil || first.Code != report.RulePoolTooSmall {
			t.Errorf("%s: the first finding is %s", want.group, describeFinding(first))
			continue
		}
		check.True(t, strings.Contains(first.Title, want.title) && strings.Contains(first.Title, want.site) && first.Site.Func == want.sleep,
			"%s: %s", want.group, describeFinding(first))
		if n := evidenceOf(first, "pool size seen in use"); n != want.slots && !(want.title == "" && math.IsNaN(n)) {
			t.Errorf("%s: %v slots, want %v", want.group, n, want.slots)
		}
		const maxDelay = 4e6 // of the end of a sleep
		if ns := evidenceOf(first, "mean time for which it is held"); ns < want.heldNS || ns > want.heldNS+maxDelay {
			t.Errorf("%s: a slot is held for %.0f ns, in the program for %.0f", want.group, ns, want.heldNS)
		}
		if p := first.Predicted; p == nil || p.P50NS.Est < int64(want.heldNS) || float64(p.P50NS.Est) > want.heldNS+maxDelay {
			t.Errorf("%s: the prediction for enough slots is %+v, want no wait", want.group, p)
		}
	}
	for i := range rep.Findings {
		if f := &rep.Findings[i]; f.Code == report.RulePoolTooSmall && strings.HasSuffix(groupNameOf(rep, f.Group), ").handed") {
			t.Errorf("a pool is found for requests that idle workers serve: %s", describeFinding(f))
		}
	}
}

// TestPoolSizes: the size of a pool is the number of goroutines that held a slot while others waited throughout. It must not
// count goroutines that received a slot one after the other, overtook the waiters, or came before the first waiter.
func TestPoolSizes(t *testing.T) {
	field := func(name string) *report.Report {
		return explainFile(t, testprog.Recording(t, "field/"+name+".whylate"))
	}
	for name, c := range map[string]struct {
		rep   *report.Report
		slots float64
	}{
		"pgxpool-held": {field("pgxpool-held"), 4}, "redis-pool": {field("redis-pool"), 1}, "vm-one-at-a-time": {field("vm-one-at-a-time"), 1},
		"semaphore": {explainService(t, "semaphore"), 1}, "weighted": {explainService(t, "weighted"), 2},
	} {
		reported := math.NaN()
		for i := range c.rep.Findings {
			if f := &c.rep.Findings[i]; f.Code == report.RulePoolTooSmall && math.IsNaN(reported) {
				reported = evidenceOf(f, "pool size seen in use")
			}
		}
		check.Equal(t, reported, c.slots, "%s: slots are reported", name)
	}
}

// TestPoolsOfSeveralLines: requests wait for one pool at three lines, of which the report always shows the same one.
func TestPoolsOfSeveralLines(t *testing.T) {
	first := ""
	for range 10 {
		sites := ""
		rep := explainFile(t, testprog.Recording(t, "field/redis-pool.whylate"), "--slowest", "3")
		for i := range rep.Groups {
			for k := range rep.Groups[i].Slowest {
				for _, pool := range rep.Groups[i].Slowest[k].Pools {
					sites += fmt.Sprintln(pool.Site.OwnLine().Line)
				}
			}
		}
		if first = cmp.Or(first, sites); sites == "" || sites != first {
			t.Fatalf("the sites are %q, and were %q", sites, first)
		}
	}
}

func groupNameOf(rep *report.Report, id string) string {
	if g := rep.Group(id); g != nil {
		return g.Name
	}
	return ""
}
