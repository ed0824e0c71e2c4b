package cli

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// addComparable adds reports of three versions of one service: before.json, after.json, whose handler
// sleeps 5 ms longer and has a finding, and again.json, which is as before.
func addComparable(files map[string][]byte) error {
	for _, v := range []struct {
		name  string
		seed  uint64
		sleep float64
	}{{"before", 1, 0}, {"again", 2, 0}, {"after", 3, 5e6}} {
		var out bytes.Buffer
		if err := report.WriteJSON(&out, shopReport(v.name, v.seed, v.sleep)); err != nil {
			return err
		}
		files[v.name+".json"] = out.Bytes()
	}
	return nil
}

// shopReport returns a report about 1000 requests that take about 11 ms each, plus the sleep.
func shopReport(name string, seed uint64, sleep float64) *report.Report {
	rng := rand.New(rand.NewPCG(seed, 1))
	site := func(fn string, line int) *report.Site {
		return &report.Site{Func: fn, File: "/src/shop/main.go", Line: line}
	}
	g := report.Group{ID: "shop", Name: "main.shop", Named: true, Kind: report.KindHTTP1, Entry: site("main.shop", 10), Count: 1000}
	var network, cpu int64
	for i := range int64(40) {
		b := report.Block{StartNS: i * 250e6, DurationNS: 250e6, Count: 25, Causes: map[report.CauseName]int64{}}
		for k := range int64(3) {
			b.Histogram = append(b.Histogram, [2]int64{(10+2*k)*1e6 + int64(sleep) + rng.Int64N(1e5), 12 - 5*k + k*k})
		}
		b.Histogram[2][1] = 25 - b.Histogram[0][1] - b.Histogram[1][1]
		n, c := 240e6+rng.Int64N(20e6), 25e6+rng.Int64N(2e6)
		b.Causes["network"], b.Causes["cpu"] = n, c
		b.TotalNS = n + c
		if sleep > 0 {
			b.Causes["sleep"] = int64(25 * sleep)
			b.TotalNS += b.Causes["sleep"]
		}
		network, cpu = network+n, cpu+c
		g.TotalNS += b.TotalNS
		g.Blocks = append(g.Blocks, b)
	}
	at := func(ns int64) *int64 { ns += int64(sleep); return &ns }
	mean := g.TotalNS / 1000
	g.LatencyNS = report.Latency{Mean: &mean, P50: at(10.9e6), P90: at(13.1e6), P99: at(13.9e6), Max: at(14.1e6)}
	for _, band := range []struct {
		name  report.BandName
		share int64
		count int
	}{{report.BandAll, 1, 1000}, {report.Band5090, 2, 400}, {report.Band9099, 10, 90}, {report.Band99, 100, 10}} {
		b := report.Band{Band: band.name, Count: band.count, FromNS: 0, ToNS: *g.LatencyNS.Max + 1}
		all := float64(g.TotalNS)
		add := func(cause report.CauseName, s *report.Site, ns int64) {
			b.Causes = append(b.Causes, report.Cause{Cause: cause, Site: s, TotalNS: ns / band.share, Share: float64(ns) / all, Requests: band.count})
		}
		add("network", site("shop/db.query", 77), network)
		if sleep > 0 {
			add("sleep", site("main.backoff", 30), int64(1000*sleep))
		}
		add("cpu", site("main.render", 20), cpu)
		g.Bands = append(g.Bands, b)
	}
	r := &report.Report{Schema: report.Schema, Groups: []report.Group{g}}
	r.Input = report.Input{Name: name + ".trace", DurationNS: 10e9, Go: "1.26", GOMAXPROCS: 2}
	r.Runtime.Throttle.Verdict = "none"
	if sleep > 0 {
		r.Findings = append(r.Findings, report.Finding{
			ID: "f1", Code: "WL2001", Severity: report.SeverityHigh, Title: "a sleep is on the path of every request", Cause: "sleep",
			Site: site("main.backoff", 30), Group: "shop", Share: 0.3, Confidence: 0.9, Fix: "wait for what the sleep waits for",
		}, report.Finding{
			ID: "f2", Code: "WL5001", Severity: report.SeverityMedium, Title: "clock, trouble: 100%\r\n::error::" + fmt.Sprint(seed), Group: "shop",
		}, report.Finding{ID: "f3", Code: "WL1001", Severity: report.SeverityHigh, Title: "known", Group: "shop", Ignored: "accepted"})
	}
	return r
}

// TestCIDocs runs the commands of docs/ci.md without their files: the commands are valid, and the only errors are the missing
// files.
func TestCIDocs(t *testing.T) {
	doc := must.Have(os.ReadFile(filepath.Join("..", "..", "docs", "ci.md")))(t)
	t.Chdir(t.TempDir())
	commands := regexp.MustCompile(`(?m)^(?:    |.*run: | +)whylate ((?:check|diff|explain) .*)$`)
	joined := regexp.MustCompile(`\\\n *`).ReplaceAllString(string(doc), "")
	n := 0
	for _, m := range commands.FindAllStringSubmatch(joined, -1) {
		line, _, _ := strings.Cut(m[1], "  ") // a remark
		line, _, _ = strings.Cut(line, " > ")
		line, _, _ = strings.Cut(line, " || ")
		var args []string
		for _, a := range regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1) {
			args = append(args, strings.Trim(a, "'"))
		}
		var out, errs bytes.Buffer
		if status := Run(t.Context(), args, strings.NewReader(""), &out, &errs); status != ExitFailed || !strings.Contains(errs.String(), "there is no file") {
			t.Errorf("%q: exit status %d, %s", args, status, errs.String())
		}
		n++
	}
	check.True(t, n >= 8, "only %d commands were found", n)
}
