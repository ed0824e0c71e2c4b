package finding

import (
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestDoubts checks each rule about what weakens a report against an input for which it reports, and one for which it just does
// not.
func TestDoubts(t *testing.T) {
	plain := func() *Input {
		return newInput(process.Stats{BusyNS: 4e9, Events: 1e6}, groupWith(report.Cause{Cause: "sleep", Site: siteOf("main.handle"), TotalNS: 1}))
	}
	client := func(runs int64) []process.ClientCalls {
		return []process.ClientCalls{{Start: "main.client", Count: runs}}
	}
	computing := func(in *Input) { in.Report.Groups[0].Bands[0].Causes[0].Cause = "cpu" }
	unnamedGroup := func(n int) report.Group { return report.Group{ID: "u", Kind: report.KindHTTP1, Count: n} }
	namedGroup := func() report.Group {
		return report.Group{ID: "o", Kind: report.KindHTTP1, Name: "main.other", Named: true, Count: 100}
	}
	blocks := func(slow ...int64) []report.Block {
		var out []report.Block
		for i, n := range slow {
			out = append(out, report.Block{StartNS: int64(i) * 250e6, DurationNS: 250e6, Count: 100, Histogram: [][2]int64{{9e6, 100 - n}, {12e6, 0}, {15e6, n}}})
		}
		return out
	}
	for _, c := range []struct {
		code  string
		yes   func(*Input)
		no    func(*Input)
		knows string // text that title or evidence must contain
	}{
		{"WL5001", func(in *Input) { in.Report.Groups[0].Count = 99 }, func(in *Input) { in.Report.Groups[0].Count = 100 }, "99"},
		{"WL5002", func(in *Input) { in.Report.Input.Truncated = true }, func(*Input) {}, ""},
		{"WL5003", func(in *Input) { in.Report.Groups = append(in.Report.Groups, namedGroup(), unnamedGroup(30)) }, func(in *Input) { in.Report.Groups = append(in.Report.Groups, unnamedGroup(5)) }, ""},
		{"WL5004", func(in *Input) { computing(in); in.Process.Events = 10e6 }, func(in *Input) { computing(in); in.Process.Events = 4e6 }, ""},
		{"WL5004", func(in *Input) { computing(in); in.Process.Events = 10e6 }, func(in *Input) { in.Process.Events = 10e6 }, ""}, // the requests sleep
		{"WL5004", func(in *Input) { computing(in); in.Process.Samples = process.Samples{All: 400, Tracing: 50} },
			func(in *Input) {
				computing(in)
				in.Process.Events = 10e6
				in.Process.Samples = process.Samples{All: 400, Tracing: 20}
			}, "samples"},
		{"WL5005", func(in *Input) { in.Process.ClientCalls = client(400) }, func(in *Input) { in.Process.ClientCalls = client(80) }, ""},
		{"WL5005", func(in *Input) {
			in.Process.ClientCalls = client(400)
			in.WorksForServer = func(start string) bool { return start == "main.other" }
		}, func(in *Input) {
			in.Process.ClientCalls = client(400) // of handlers, or of goroutines that they start
			in.WorksForServer = func(start string) bool { return start == "main.client" }
		}, ""},
		{"WL5005", func(in *Input) { in.Process.ClientCalls = client(400) }, func(in *Input) { in.Process.ClientCalls, in.NoSelfConnections = client(400), true }, ""},
		{"WL5006", func(in *Input) { in.Report.Groups[0].PollGapNS.P50 = ptr(int64(3e6)) }, func(in *Input) { in.Report.Groups[0].PollGapNS.P50 = ptr(int64(1e6)) }, ""},
		{"WL5007", func(in *Input) {
			in.Report.Input.Warnings = []report.Warning{{Code: "clock", Text: "3 events had impossible times"}}
		}, func(in *Input) {
			in.Report.Input.Warnings = []report.Warning{{Code: "newer-format", Text: "x"}}
		}, "3 events"},
		{"WL5008", func(in *Input) {
			in.Report.Input.Warnings = []report.Warning{{Code: "lost-events", Text: "3 events stood without"}}
		}, func(*Input) {}, "3 events"},
		{"WL5009", func(in *Input) { in.Report.Groups[0].Open.OldestNS = 3e9 }, func(in *Input) { in.Report.Groups[0].Open.OldestNS = 15e8 }, ""},
		{"WL5010", func(in *Input) {
			in.Report.Groups[0].LatencyNS.P90 = ptr(int64(11e6))
			in.Report.Groups[0].Blocks = blocks(1, 2, 40, 2, 3)
		}, func(in *Input) {
			in.Report.Groups[0].LatencyNS.P90 = ptr(int64(11e6))
			in.Report.Groups[0].Blocks = blocks(10, 12, 14, 12, 10)
		}, ""},
		{"WL5011", func(in *Input) { in.Process.Samples = process.Samples{All: 200} }, func(in *Input) { in.Process.Samples = process.Samples{All: 400} }, "samples"},
		{"WL5011", func(in *Input) { in.Report.Host = hostWith(2, 4e9, 2e9, 2e9) }, func(in *Input) {
			in.Report.Host = hostWith(2, 4e9, 1e9, 33e8)
			in.Process.Samples = process.Samples{All: 200} // the kernel's counters are more reliable
		}, "threads"},
	} {
		for _, wanted := range []bool{true, false} {
			in := plain()
			if wanted {
				c.yes(in)
			} else {
				c.no(in)
			}
			faults, facts, all := findCodes(t, in)
			if slices.Contains(faults, c.code) || slices.Contains(facts, c.code) != wanted {
				t.Errorf("%s should be found %t: faults %v, facts %v", c.code, wanted, faults, facts)
				continue
			}
			if !wanted {
				continue
			}
			texts := ""
			for _, f := range all {
				if string(f.Code) == c.code {
					texts += f.Title
					for _, e := range f.Evidence {
						texts += " " + e.Text
					}
				}
			}
			check.True(t, strings.Contains(texts, c.knows), "%s says %q, which lacks %q", c.code, texts, c.knows)
		}
	}
	if faults, facts, _ := findCodes(t, plain()); faults != nil || facts != nil {
		t.Errorf("an input without a reason for doubt: faults %v, facts %v", faults, facts)
	}
}

// TestBiasedNamesCountAllRequests: of a hundred requests with known latencies, those with a name are the slow half. A sum
// without the unnamed requests would have a p50 of 5 ms or more.
func TestBiasedNamesCountAllRequests(t *testing.T) {
	group := func(name string, histogram ...[2]int64) report.Group {
		g := report.Group{ID: "g" + name, Kind: report.KindHTTP1, Name: name, Named: name != "", Histogram: histogram}
		for _, b := range histogram {
			g.Count += int(b[1])
			g.LatencyNS.Max = ptr(b[0])
		}
		return g
	}
	in := newInput(process.Stats{BusyNS: 4e9, Events: 1e6}, groupWith(report.Cause{Cause: "sleep", Site: siteOf("main.handle"), TotalNS: 1}))
	in.Report.Groups = []report.Group{
		group("main.a", [2]int64{5e6, 20}, [2]int64{7e6, 5}),
		group("main.b", [2]int64{6e6, 20}, [2]int64{9e6, 5}),
		group("", [2]int64{1e5, 30}, [2]int64{3e5, 20}),
	}
	verdicts := rulesByCode(report.RuleBiasedNames)[0].Run(in)
	must.True(t, len(verdicts) != 0, "no finding")
	v := &verdicts[0]
	const want = "all 100 HTTP/1 requests have p50 300µs, p99 9ms; "
	check.True(t, strings.HasPrefix(v.Title, want), "the title is %q, want %q", v.Title, want)
	if e := v.Evidence; len(e) != 3 || e[1].Value != 3e5 || e[2].Value != 9e6 || e[2].Text != "all 100 HTTP/1 requests: p99" {
		t.Errorf("the evidence is %+v", e)
	}
}
