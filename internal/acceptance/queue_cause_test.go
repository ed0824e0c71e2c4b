package acceptance_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/whylate/whylate/internal/judge/budget"
	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// queueServices are the services of lab/truth whose requests queue, each with the function that waits.
var queueServices = map[string]string{
	"connection-pool": "(*store).query", "worker-pool": "(*workers).ask", "semaphore": "(*semaphore).use", "single-worker": "(*worker).ask",
	"weighted": "(*Weighted).Acquire", "max-conns": "(*caller).call", "pipeline": "(*pipeline).submit", "back-pressure": "(*auditLog).record",
	"errgroup-limit": "(*Group).Go",
}

// TestOutputsNameTheQueue: where the first sentence says that requests queue, all that prints names the cause queue, at the line that
// waits. It fails if one of them names the work of those ahead instead.
func TestOutputsNameTheQueue(t *testing.T) {
	for service, fn := range queueServices {
		t.Run(service, func(t *testing.T) {
			rep := explainService(t, service)
			v := &rep.Verdict[0]
			g := rep.Group(v.Group)
			i := slices.IndexFunc(v.Causes, func(c report.VerdictCause) bool { return c.Cause == report.CauseQueue })
			must.True(t, i >= 0, "no cause of the verdict is a queue: %s", v.Text)
			c := &v.Causes[i]
			site := c.Sites[0].Site
			if !c.InSentence || !strings.HasPrefix(c.Text, "queueing for "+c.Queue.For+" at ") || !strings.Contains(c.Text, ", behind others that are ") || !strings.HasSuffix(site.Func, "."+fn) || c.AheadWork == nil {
				t.Errorf("%s at %s, want %s", c.Text, site.Func, fn)
			}
			row := queueRow(g.Tail())
			must.True(t, row != nil && row.Site.Equal(site) && row.AheadWork != nil && len(row.Via) != 0 && row.Kind == c.Queue.For,
				"the row of the band is %+v", row)
			queueNS := checkQueueSums(t, g)
			checkQueueProfile(t, rep, g, queueNS)
			limits := must.Have(budget.Parse("queue=1%,p50=1ns"))(t)
			violations := budget.Check(rep, budget.Rules{Limits: limits}).Violations
			if !slices.ContainsFunc(violations, func(v budget.Violation) bool { return strings.Contains(v.Text, "queue takes ") }) ||
				!slices.ContainsFunc(violations, func(v budget.Violation) bool { return strings.Contains(v.Text, "is queue at ") }) {
				t.Errorf("check says %+v", violations)
			}
			if change := largestChange(rep, g); change == nil || change.Cause != report.CauseQueue || !strings.HasSuffix(change.Site().Func, "."+fn) {
				t.Errorf("the largest change of diff is %+v", change)
			}
			for _, write := range []func(*report.Report) []byte{
				func(r *report.Report) []byte { var b bytes.Buffer; must.Do(t, export.CSV(&b, r)); return b.Bytes() },
				func(r *report.Report) []byte { var b bytes.Buffer; must.Do(t, export.OTLP(&b, r)); return b.Bytes() },
				func(r *report.Report) []byte { var b bytes.Buffer; must.Do(t, export.JSONL(&b, r)); return b.Bytes() },
			} {
				if out := write(rep); !bytes.Contains(out, []byte("queue")) || !bytes.Contains(out, []byte(c.Queue.For)) && !bytes.Contains(out, []byte(fn)) {
					t.Errorf("an export does not name the queue: %.200s", out)
				}
			}
		})
	}
}

// queueRow returns the largest row of the cause queue, nil if there is none.
func queueRow(b *report.Band) *report.Cause {
	for i := range b.Causes {
		if b.Causes[i].Cause == report.CauseQueue {
			return &b.Causes[i]
		}
	}
	return nil
}

// checkQueueSums checks that bands, buckets, blocks and requests agree on the time in queues, and that no time was lost or added. It
// returns that time.
func checkQueueSums(t *testing.T, g *report.Group) int64 {
	t.Helper()
	var bandNS, queueNS, bucketNS, bucketQueueNS, blockNS, blockQueueNS int64
	for i := range g.All().Causes {
		c := &g.All().Causes[i]
		bandNS += c.TotalNS
		if c.Cause != report.CauseQueue {
			continue
		}
		queueNS += c.TotalNS
		var routeNS int64
		for _, r := range c.AllRoutes() {
			if routeNS += r.TotalNS; r.AheadWork == nil {
				t.Errorf("a route of %s has no work of those ahead", c.Kind)
			}
		}
		check.True(t, routeNS <= c.TotalNS, "the routes of %s have %d ns of %d", c.Kind, routeNS, c.TotalNS)
	}
	for name, column := range g.HistogramCauses {
		for _, ns := range column {
			if bucketNS += ns; name == report.CauseQueue {
				bucketQueueNS += ns
			}
		}
	}
	for i := range g.Blocks {
		var sum int64
		for _, ns := range g.Blocks[i].Causes {
			sum += ns
		}
		blockNS += sum
		blockQueueNS += g.Blocks[i].Causes[report.CauseQueue]
	}
	check.True(t, bandNS == g.TotalNS && bucketNS == g.TotalNS && blockNS == g.TotalNS,
		"bands have %d ns, buckets %d, blocks %d, the group %d", bandNS, bucketNS, blockNS, g.TotalNS)
	for name, ns := range map[string]int64{"buckets": bucketQueueNS, "blocks": blockQueueNS} {
		if d := float64(ns) / float64(queueNS); d < 0.98 || d > 1.02 {
			t.Errorf("%s have %.3f of the queue's time in bands", name, d)
		}
	}
	for i := range g.Slowest {
		q := &g.Slowest[i]
		var sum, queued int64
		for k := range q.Segments {
			if sum += q.Segments[k].DurationNS; q.Segments[k].Cause == report.CauseQueue {
				queued += q.Segments[k].DurationNS
			}
		}
		check.True(t, sum == q.LatencyNS && queued != 0,
			"a slow request of %d ns has segments of %d, in queues %d", q.LatencyNS, sum, queued)
	}
	return queueNS
}

// checkQueueProfile checks that the profile of critical paths has the same time in queues.
func checkQueueProfile(t *testing.T, rep *report.Report, g *report.Group, want int64) {
	t.Helper()
	var out bytes.Buffer
	must.Do(t, export.Pprof(&out, rep))
	p := must.Have(profile.ParseData(out.Bytes()))(t)
	var got int64
	for _, s := range p.Sample {
		if s.Label["cause"][0] == string(report.CauseQueue) && s.Label["group"][0] == g.Name && s.Label["band"][0] == string(report.BandAll) {
			got += s.Value[0]
		}
	}
	check.True(t, got == want, "the profile has %d ns in queues, the report %d", got, want)
}

// largestChange returns the largest row of a comparison with a report in which no request of the group queues.
func largestChange(rep *report.Report, g *report.Group) *compare.Row {
	fixed := *rep
	fixed.Groups = slices.Clone(rep.Groups)
	for i := range fixed.Groups {
		if o := &fixed.Groups[i]; o.ID == g.ID {
			o.Bands = slices.Clone(o.Bands)
			for k := range o.Bands {
				o.Bands[k].Causes = slices.DeleteFunc(slices.Clone(o.Bands[k].Causes), func(c report.Cause) bool { return c.Cause == report.CauseQueue })
			}
			mean := *o.LatencyNS.Mean / 2
			o.LatencyNS.Mean = &mean
		}
	}
	for _, group := range compare.Reports(rep, &fixed).Groups {
		if group.ID == g.ID && len(group.Causes) > 0 {
			return &group.Causes[0]
		}
	}
	return nil
}

// TestNoQueueWhereNothingQueues: no time of services without a fault, or with another one, has the cause queue.
func TestNoQueueWhereNothingQueues(t *testing.T) {
	checked := 0
	for _, name := range testprog.Services(t) {
		o := outcomeOf(t, testprog.Service(t, name))
		if o.Service.Findings == nil || slices.Contains(append(o.Service.Findings.First, o.Service.Findings.AlsoAllowed...), string(report.RulePoolTooSmall)) {
			continue
		}
		checked++
		rep := explainService(t, name)
		for i := range rep.Groups {
			if row := queueRow(rep.Groups[i].All()); row != nil {
				t.Errorf("%s: %.1f %% of %s is queueing for %s", name, 100*row.Share, rep.Groups[i].Name, row.Kind)
			}
		}
	}
	check.True(t, checked >= 40, "only %d services were checked", checked)
}
