package acceptance_test

import (
	"math"
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// TestChannelPools: requests queue for places of three pools made of channels, each held and given back in another way: by the request
// while goroutines of its own work, by a goroutine that it started, by one that it started after it had taken the place. Each is
// a pool of so many places, whose holder sleeps for so long, and its line is where they wait. It would catch a pool that is told
// as a sleep of others, goroutines of requests taken for workers, more of which would help, and requests that hand their work
// to idle workers taken for a queue.
func TestChannelPools(t *testing.T) {
	data, _ := testprog.Record(t, "pools")
	rep := explainBytes(t, data, whylate.Options{})
	for _, want := range []struct {
		group, site  string
		slots        float64
		title, sleep string
		heldNS       float64
	}{
		// Where nobody waits for so long that both places are given back twice, how many there are is not said.
		{"parted", "", 2, "", "main.partedWork", 6e6},
		{"child", "pools.go:42", 2, "one of 2 places", "main.childWork", 7e6},
		{"give", "pools.go:54", 1, "the only place", "main.givenWork", 5e6},
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
		if !strings.Contains(first.Title, want.title) || !strings.Contains(first.Title, want.site) || first.Site.Func != want.sleep {
			t.Errorf("%s: %s", want.group, describeFinding(first))
		}
		if n := evidenceOf(first, "pool size seen in use"); n != want.slots && !(want.title == "" && math.IsNaN(n)) {
			t.Errorf("%s: %v places, there are %v", want.group, n, want.slots)
		}
		const maxDelay = 4e6 // by which a sleep may end
		if ns := evidenceOf(first, "mean time for which it is held"); ns < want.heldNS || ns > want.heldNS+maxDelay {
			t.Errorf("%s: a place is held for %.0f ns, by the program for %.0f", want.group, ns, want.heldNS)
		}
		if p := first.Predicted; p == nil || p.P50NS.Est < int64(want.heldNS) || float64(p.P50NS.Est) > want.heldNS+maxDelay {
			t.Errorf("%s: with places enough %+v, nobody would wait", want.group, p)
		}
	}
	for i := range rep.Findings {
		if f := &rep.Findings[i]; f.Code == report.RulePoolTooSmall && strings.HasSuffix(groupNameOf(rep, f.Group), ").handed") {
			t.Errorf("requests that idle workers serve: %s", describeFinding(f))
		}
	}
}

// TestPoolSizes: how many places pools of real programs and of services have is known from those who held one while
// others waited throughout. It would catch a number that counts those who were given a place one after the other, past those
// who waited, or before the first of them came.
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
		if reported != c.slots {
			t.Errorf("%s: %v places are said, there are %v", name, reported, c.slots)
		}
	}
}

func groupNameOf(rep *report.Report, id string) string {
	if g := rep.Group(id); g != nil {
		return g.Name
	}
	return ""
}
