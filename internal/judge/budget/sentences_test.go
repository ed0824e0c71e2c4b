package budget

import (
	"bytes"
	"flag"
	"fmt"
	"testing"

	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

var update = flag.Bool("update", false, "write the golden files")

// TestSentences checks the sentences of each kind of limit and finding.
func TestSentences(t *testing.T) {
	var b bytes.Buffer
	say := func(s string) { b.WriteString(s + "\n") }
	g := &report.Group{Name: "main.(*service).order", Count: 1234}
	open := &report.Group{Name: "main.order", Count: 1}
	open.Open.Count, open.Open.OldestNS = 3, 5e9
	rep := func(n int) *report.Report {
		r := &report.Report{}
		r.Input.Name, r.Input.DurationNS = "x.trace", 2e9
		for i := range n {
			r.Groups = append(r.Groups, report.Group{Name: fmt.Sprint("main.g", i)})
		}
		return r
	}
	site := &report.Site{Func: "main.work", File: "main.go", Line: 7}
	latency := &Limit{Group: "order", Stat: "p99", NS: 25e6}
	cause := &Limit{Cause: "lock", Band: report.Band99, Share: 0.25}
	all := &Limit{Cause: "lock", Band: report.BandAll, Share: 0.25}
	say(truncatedText(rep(0)))
	say(noRequestsText(open, latency))
	for _, n := range []int{0, 1, maxNames, maxNames + 1} {
		say(noGroupText(rep(n), latency))
	}
	say(noGroupText(rep(1), &Limit{Stat: "max"}))
	say(fewText(g, latency, 100000))
	say(fewText(open, latency, 100))
	for _, largest := range []*report.Cause{nil, {Cause: "lock", Share: 0.5, Site: site}, {Cause: "stw", Kind: "mark", Share: 0.25}, {Cause: "cpu"}} {
		say(latencyText(g, latency, 30e6, largest))
		say(shareText(g, cause, 0.5, largest))
		say(shareText(g, all, 0.5, largest))
	}
	say(noBandText(g, cause))
	say(noBandText(open, all))
	for _, f := range []*report.Finding{{Title: "a lock is held"}, {Title: "a lock is held", Site: site}, {Title: "a lock is held", Fix: "Hold it for less.", Site: site},
		{Title: "a lock is held at " + names.Position(site), Site: site}} {
		say(findingText("", f))
		say(findingText("main.(*service).order", f))
	}
	say(vanishedText("main.order", rep(0)))
	say(appearedText("main.order"))
	must.Golden(t, *update, "testdata/sentences.txt", b.Bytes())
}
