package text_test

import (
	"bytes"
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func read(t testing.TB, name string) *report.Report {
	t.Helper()
	f := must.Have(os.Open(filepath.Join("..", "testdata", name+".json")))(t)
	defer f.Close()
	r, err := report.ReadJSON(f)
	must.Do(t, err, name)
	return r
}

func render(t testing.TB, r *report.Report, opts text.Options) string {
	t.Helper()
	var out bytes.Buffer
	must.Do(t, text.Write(&out, r, opts))
	return out.String()
}

func TestGolden(t *testing.T) {
	for _, c := range []struct {
		golden, sample string
		opts           text.Options
	}{
		{"pubsub-80", "pubsub", text.Options{Width: 80, Command: "whylate explain pubsub.trace"}},
		{"pubsub-120", "pubsub", text.Options{Width: 120, Full: true, Command: "whylate explain pubsub.trace"}},
		{"pubsub-color", "pubsub", text.Options{Width: 100, Color: true}},
		{"pubsub-band", "pubsub", text.Options{Width: 100, Band: report.Band99, Command: "whylate explain --band p99-max pubsub.trace"}},
		{"pubsub-full", "pubsub", text.Options{Width: 100, AllGroups: true, Slowest: -1}},
		{"tso-80", "tso", text.Options{Width: 80}},
		{"tso-100", "tso", text.Options{Full: true, Command: "whylate explain http://tso:6060"}},
		{"hostile", "hostile", text.Options{Width: 100, Full: true, Command: "whylate explain \x1b[31m"}},
		{"none", "none", text.Options{Width: 80, Command: "whylate explain batch.trace"}},
	} {
		got := render(t, read(t, c.sample), c.opts)
		file := filepath.Join("testdata", c.golden+".golden")
		must.Golden(t, *update, file, []byte(got))
	}
}

// TestLinesFit: for every sample and width, no line is wider than the width, and no character moves the cursor or changes the direction
// of writing.
func TestLinesFit(t *testing.T) {
	for _, sample := range []string{"pubsub", "tso", "hostile", "none"} {
		r := read(t, sample)
		for width := 60; width <= 200; width += 1 + width/40 {
			for _, opts := range []text.Options{{Command: "whylate explain x.trace"}, {AllGroups: true, Slowest: 5}, {Band: report.Band99, Command: strings.Repeat("x", 300)}} {
				opts.Width = width
				checkLines(t, sample, render(t, r, opts), width)
			}
		}
	}
}

func checkLines(t *testing.T, name, out string, width int) {
	t.Helper()
	for i, line := range strings.Split(out, "\n") {
		if w := termtext.Width(line); w > width {
			t.Fatalf("%s at %d columns: line %d has %d:\n%s", name, width, i+1, w, line)
		}
		for _, r := range line {
			must.True(t, unicode.IsPrint(r), "%s at %d columns: line %d has %U", name, width, i+1, r)
		}
		must.True(t, strings.TrimRight(line, " ") == line, "%s at %d columns: line %d ends with blanks: %q", name, width, i+1, line)
	}
}

// TestFactsAreNotBroken: a line ends between facts, not within one.
func TestFactsAreNotBroken(t *testing.T) {
	p50, p99 := int64(1e6), int64(202e6)
	r := &report.Report{Groups: []report.Group{{Count: 1000}}, Servers: []report.Server{{Count: 1000, LatencyNS: report.Latency{P50: &p50, P99: &p99}}}}
	for n := range 40 {
		r.Input.Name = strings.Repeat("x", 1+n)
		out := render(t, r, text.Options{Width: 80})
		check.True(t, strings.Contains(out, "p99 202ms") && !strings.Contains(out, "\u00a0"), "a name of %d letters: %s", 1+n, out)
	}
}

func TestColorsChangeNothingElse(t *testing.T) {
	r := read(t, "pubsub")
	colored := render(t, r, text.Options{Width: 100, Color: true})
	check.True(t, strings.Contains(colored, "\x1b[1m"), "no colours with Color")
	var b strings.Builder
	for rest := colored; ; {
		before, after, found := strings.Cut(rest, "\x1b[")
		b.WriteString(before)
		if !found {
			break
		}
		_, rest, found = strings.Cut(after, "m")
		must.True(t, found, "an escape sequence without an end")
	}
	check.Equal(t, b.String(), render(t, r, text.Options{Width: 100}),
		"without its escape sequences, the coloured text is not the plain one")
}

// TestMegabyteNames checks that output does not grow with names. The test binary's time limit detects time that does.
func TestMegabyteNames(t *testing.T) {
	r := read(t, "hostile")
	long := strings.Repeat("main.\x1b[2J处", 1<<18)
	r.Input.Name, r.Groups[0].Name = long, long
	for i := range r.Groups[0].Bands {
		for j := range r.Groups[0].Bands[i].Causes {
			c := &r.Groups[0].Bands[i].Causes[j]
			c.Site = &report.Site{Func: long, File: long, Line: j}
			c.Via = []report.Via{{Wait: report.WaitKind(long), Site: c.Site}}
		}
	}
	r.Input.Warnings = []report.Warning{{Text: long}}
	r.Findings[0].Title, r.Findings[0].Fix = long, long
	out := render(t, r, text.Options{Width: 80, Command: "whylate explain " + long})
	checkLines(t, "megabyte names", out, 80)
	check.True(t, len(out) <= 64<<10, "the text has %d bytes", len(out))
}

// TestOneScreen: no finding of high severity is left out, however many lines it takes, and no sentence is cut. What does not fit on a
// screen is counted.
func TestOneScreen(t *testing.T) {
	for _, sample := range []string{"pubsub", "tso"} {
		for _, w := range []int{60, 100} {
			r := read(t, sample)
			r.Input.Warnings = []report.Warning{{Text: strings.Repeat("something is missing ", 20)}}
			for i, severity := range []report.Severity{report.SeverityHigh, report.SeverityMedium, report.SeverityMedium} {
				title := strings.Repeat("what takes long ", 15) + strconv.Itoa(i)
				r.Findings = append(r.Findings, report.Finding{Severity: severity, Title: title, Group: r.Groups[0].ID, Remedy: "end it " + strconv.Itoa(i), Fix: strings.Repeat("end it, or ", 40) + "."})
			}
			screen := render(t, r, text.Options{Width: w, Command: "whylate explain x"})
			screen = strings.Join(strings.Fields(screen), " ") // lines are broken at spaces
			if !strings.Contains(screen, "end it 0") || !strings.Contains(screen, "--full") || w == 100 && strings.Contains(screen, "…") {
				t.Errorf("%s in %d columns:\n%s", sample, w, screen)
			}
			if !strings.Contains(screen, "end it 1") && !strings.Contains(screen, "of medium severity: --full") && !strings.Contains(screen, "of medium severity and 1 note: --full") {
				t.Errorf("%s in %d columns: a finding is neither shown nor counted:\n%s", sample, w, screen)
			}
			check.True(t, strings.Contains(screen, "something is missing") != strings.Contains(screen, "1 note"),
				"%s in %d columns: a note is neither shown nor counted:\n%s", sample, w, screen)
		}
	}
}

// TestNothingWon: without a prediction, the share of a finding is shown as its cost, not as a gain.
func TestNothingWon(t *testing.T) {
	for _, won := range []bool{true, false} {
		r := read(t, "tso")
		r.Findings = r.Findings[:1]
		if !won {
			r.Findings[0].Predicted = nil
		}
		screen := render(t, r, text.Options{Width: 100})
		check.True(t, strings.Contains(screen, " gain ") == won && strings.Contains(screen, " cost ") != won,
			"with a prediction, %v:\n%s", won, screen)
	}
}

// TestFaultsAndABusyMachine: the finding about a busy machine does not displace a fault's advice, however many verdicts there are. It is
// a change if it is the only finding or took more of the time; otherwise a line says how it affects the numbers.
func TestFaultsAndABusyMachine(t *testing.T) {
	r := read(t, "tso")
	r.Input.Warnings = []report.Warning{{Text: "something is missing"}}
	machine := report.Finding{Code: report.RuleBusyMachine, Severity: report.SeverityHigh, Title: "other processes use the CPUs", Fix: "reserve CPUs"}
	fault := report.Finding{Code: report.RuleLockConvoy, Severity: report.SeverityHigh, Title: "requests queue", Fix: "release it first", Group: r.Groups[0].ID}
	for n, list := range [][]report.Finding{{machine}, {machine, fault}} {
		r.Findings = list
		screen := render(t, r, text.Options{Width: 60})
		if strings.Contains(screen, " do       reserve CPUs") != (n == 0) || strings.Contains(screen, "also     other processes use the CPUs; reserve CPUs") != (n == 1) || strings.Contains(screen, "release it first") != (n == 1) || !strings.Contains(screen, "WL1009") {
			t.Errorf("%d faults:\n%s", n, screen)
		}
	}
	// A low finding also precedes the machine's, if it is about the cause in the first sentence.
	r.Verdict = verdict.Verdicts(r)
	cause := r.Verdict[0].Causes[0].Cause
	for _, c := range []struct {
		finding report.Finding
		first   bool
	}{
		{report.Finding{Severity: report.SeverityLow, Cause: cause, Group: r.Verdict[0].Group}, true},
		{report.Finding{Severity: report.SeverityInfo, Cause: cause, Group: r.Verdict[0].Group}, false},
		{report.Finding{Severity: report.SeverityLow, Cause: report.CauseSleep, Group: r.Verdict[0].Group}, false},
		{report.Finding{Severity: report.SeverityLow, Cause: cause, Group: "another"}, false},
	} {
		c.finding.Code, c.finding.Title, c.finding.Fix = report.RuleComputes, "handle computes", "make it cheaper"
		r.Findings = []report.Finding{machine, {Code: report.RuleSlowPeer, Severity: report.SeverityLow, Title: "requests wait"}, c.finding}
		screen := render(t, r, text.Options{Width: 100})
		if index := strings.Index(screen, "make it cheaper"); (index >= 0 && index < strings.Index(screen, "other processes")) != c.first || strings.Contains(screen, " do       reserve CPUs") == c.first {
			t.Errorf("%+v:\n%s", c.finding, screen)
		}
	}
}

// TestCertainty: a finding that is more likely wrong than right shows why, and no gain. One that is fairly certain shows both.
func TestCertainty(t *testing.T) {
	for confidence, want := range map[float64][2]string{
		0.29: {" sure     only 29%: the machine was busy", " gain "},
		0.65: {"; cause only 65% certain: the machine was busy", " sure "},
		0.9:  {" gain ", "the machine was busy"},
	} {
		r := read(t, "tso")
		r.Findings = r.Findings[:1]
		r.Findings[0].Confidence, r.Findings[0].Doubt = confidence, "the machine was busy"
		screen := render(t, r, text.Options{Width: 200})
		check.True(t, strings.Contains(screen, want[0]) && !strings.Contains(screen, want[1]), "%v:\n%s", confidence, screen)
	}
	r := read(t, "tso")
	r.Findings = append(r.Findings[:1], report.Finding{Code: report.RuleBusyMachine, Severity: report.SeverityInfo, Title: "other processes use the CPUs", Fix: "reserve CPUs"})
	r.Findings[0].Confidence, r.Findings[0].Doubt, r.Findings[0].DoubtedBy = 0.29, "threads waited for a CPU", report.RuleBusyMachine
	screen := render(t, r, text.Options{Width: 200})
	check.True(t, strings.Contains(screen, " but      threads waited for a CPU\n") && !strings.Contains(screen, "29%") && !strings.Contains(screen, "reserve CPUs"), "%s", screen)
}

// TestGainOfBoth: of several changes, the screen says whether one is enough, else the gain of all together, and whose latencies a gain is
// about.
func TestGainOfBoth(t *testing.T) {
	r := read(t, "tso")
	f := r.Findings[0]
	f.Title, f.Combined, f.Site, f.Changes = "the second fault", new(*f.Predicted), nil, nil
	f.Combined.ChangeText = "with all"
	r.Findings = []report.Finding{r.Findings[0], f}
	r.Groups = append(r.Groups, report.Group{ID: "other", Name: "main.other", Named: true, Kind: report.KindTask, Count: 1})
	screen := render(t, r, text.Options{Width: 200})
	check.True(t, strings.Contains(screen, "\nor       [") && !strings.Contains(screen, " all      p99 ") && strings.Count(screen, " gain     pdclient.GetTSAsync: p99 ") == 2, "%s", screen)
	f.Combined.P50NS.Est, f.Combined.P99NS.Est = 0, 0
	screen = render(t, r, text.Options{Width: 200})
	check.True(t, strings.Contains(screen, "\nthen     [") && strings.Count(screen, " all      p99 ") == 1, "%s", screen)
	r.Findings[0].Remedy, r.Findings[1].Remedy, r.Findings[1].Code = "run it elsewhere", "run it elsewhere", report.RulePsTaken
	screen = render(t, r, text.Options{Width: 200})
	check.True(t, strings.Count(screen, "run it elsewhere") == 1 && strings.Contains(screen, " do       the same change\n"), "%s", screen)
	r.Findings[1].Combined = nil
	screen = render(t, r, text.Options{Width: 200})
	check.True(t, strings.Contains(screen, "\nand      ["), "%s", screen)
}

// TestSaidOnce: the short form says once that requests are few, that other requests show no handler, and what computes.
func TestSaidOnce(t *testing.T) {
	r := read(t, "tso")
	r.Groups, r.Servers = r.Groups[:1], nil
	r.Groups[0].Count, r.Groups[0].Named = 77, true
	r.Judged = &report.Judged{Rules: 3, Clear: []report.RuleCode{"WL1001"}, Blind: []report.Blind{{Text: "no CPU samples", Codes: []report.RuleCode{"WL5011"}}}}
	r.Findings = []report.Finding{
		{Code: report.RuleFewRequests, Severity: report.SeverityInfo, Title: "the trace has only 77 requests"},
		{Code: report.RuleBiasedNames, Severity: report.SeverityInfo, Title: "those of named groups are too high"},
		{Code: report.RuleComputes, Severity: report.SeverityInfo, Title: "main.spin computes"},
	}
	r.Verdict = verdict.Verdicts(r)
	c := &r.Verdict[0].Causes[0]
	c.Cause, c.Share, c.Sites[0].Share, c.Sites[0].Site = report.CauseCPU, 0.98, 0.98, &report.Site{Func: "main.spin"}
	screen := render(t, r, text.Options{Width: 200})
	for _, want := range []string{"77 requests, too few for a p99", "mostly computing: only less work in main.spin makes them faster; 1 of 3 rules clear, 1 not judged (no CPU samples)."} {
		check.True(t, strings.Contains(screen, want), "want %q:\n%s", want, screen)
	}
	check.False(t, strings.Contains(screen, "\nalso "), "%s", screen)
	r.Groups[0].Count = 3
	check.True(t, strings.Contains(render(t, r, text.Options{Width: 200}), "only 3 requests, too few to generalise: record longer"), "3 requests")
}

// TestGainOfSlowest: a gain begins with the slow requests, as the verdict does. If the range of a prediction includes the latency before,
// the first screen and the long form say with the same words that no gain is sure.
func TestGainOfSlowest(t *testing.T) {
	r := read(t, "tso")
	pr := r.Findings[0].Predicted
	g := r.Group(r.Findings[0].Group)
	half, p99 := *g.LatencyNS.P50/2, *g.LatencyNS.P99
	pr.P50NS = report.Estimate{Est: half, Low: half, High: half}
	for high, want := range map[int64]string{p99 / 2: "p99 14.1ms → 2.8ms to 7.1ms, p50 640µs → 320µs", p99 + 1: "p99 14.1ms → 2.8ms to 14ms, perhaps no gain, p50 640µs → 320µs"} {
		pr.P99NS = report.Estimate{Est: p99 / 4, Low: p99 / 5, High: high}
		screen := strings.ReplaceAll(render(t, r, text.Options{Width: 200}), "\u00a0", " ")
		check.True(t, strings.Contains(screen, want), "want %q:\n%s", want, screen)
		if high > p99 {
			full := strings.ReplaceAll(render(t, r, text.Options{Width: 200, Full: true}), "\u00a0", " ")
			check.True(t, strings.Contains(full, want), "want %q:\n%s", want, full)
		}
	}
}

// TestIntended: what a finding of severity info says of the slow requests' first cause is in the sentence that nothing is to be changed.
func TestIntended(t *testing.T) {
	r := read(t, "tso")
	r.Verdict = verdict.Verdicts(r)
	r.Judged = &report.Judged{}
	for _, group := range []string{r.Verdict[0].Group, "another"} {
		r.Findings = []report.Finding{{Code: report.RuleSleep, Severity: report.SeverityInfo, Title: "requests send a stream", Group: group, Cause: r.Verdict[0].Causes[0].Cause, Share: 1}}
		screen := render(t, r, text.Options{Width: 200})
		check.Equal(t, strings.Contains(screen, ", as intended: requests send a stream;"), group != "another", "%s", screen)
	}
}

// TestVerdictFirst: the first lines contain the first cause of the slowest requests, with its line of code.
func TestVerdictFirst(t *testing.T) {
	for sample, want := range map[string][]string{
		"pubsub": {"(*Consumer).fetchOffsets consumer.go:678", "64%", "asleep", "(*Consumer).release consumer.go:427", "32%"},
		"tso":    {"http2_client.go:1620", "69%", "ready to run", "main.spin main.go:140"},
	} {
		lines := strings.SplitN(render(t, read(t, sample), text.Options{Width: 100}), "\n", 8)
		top := strings.Join(strings.Fields(strings.Join(lines[:7], " ")), " ") // lines are broken at spaces
		for _, w := range want {
			check.True(t, strings.Contains(top, w), "%s: the first lines do not say %q:\n%s", sample, w, strings.Join(lines[:7], "\n"))
		}
	}
}

// TestDurationsParse: every duration has Go's syntax.
func TestDurationsParse(t *testing.T) {
	for _, sample := range []string{"pubsub", "tso"} {
		out := render(t, read(t, sample), text.Options{AllGroups: true, Band: report.Band99})
		out += render(t, read(t, sample), text.Options{}) + render(t, read(t, sample), text.Options{Full: true})
		n := 0
		for _, word := range strings.FieldsFunc(out, func(r rune) bool {
			return r == ' ' || r == '\n' || r == '(' || r == ')' || r == ',' || r == '+' || r == ';' || r == ':'
		}) {
			unit := strings.TrimLeft(word, "0123456789.")
			if unit == word || (unit != "s" && unit != "ms" && unit != "µs" && unit != "ns") {
				continue
			}
			n++
			if _, err := time.ParseDuration(word); err != nil {
				t.Errorf("%s: %v", sample, err)
			}
			check.True(t, len(strings.TrimLeft(strings.ReplaceAll(strings.TrimSuffix(word, unit), ".", ""), "0")) <= 3,
				"%s: %s has more than three significant digits", sample, word)
		}
		check.True(t, n >= 20, "%s: only %d durations", sample, n)
	}
}

// TestCheck: the comparison with natural variation is below a prediction, and explains a difference.
func TestCheck(t *testing.T) {
	r := read(t, "pubsub")
	g := &r.Groups[0]
	predicted := report.Predicted{Change: "f=2ms", P50NS: report.Estimate{Est: 2.5e6, Low: 2e6, High: 3.3e6}, P99NS: report.Estimate{Est: 4e6, Low: 3e6, High: 7e6}}
	for _, c := range []struct {
		name  string
		check *report.Check
		want  []string
	}{
		{"none", nil, nil},
		{"agrees", &report.Check{Requests: 1312, AtMostNS: 251234, P50NS: 2.41e6, PredictedNS: predicted.P50NS, Agrees: true},
			[]string{"cross-check: 1,312 requests of this trace spent at most 250µs there: p50 2.41ms, in line with the prediction"}},
		{"about as much", &report.Check{Requests: 1, AtLeastNS: 1.96e6, AtMostNS: 2.84e6, P50NS: 2.41e6, PredictedNS: predicted.P50NS, Agrees: true, CauseRemoved: true},
			[]string{"cross-check: 1 request of this trace spent 2ms to 2.8ms there: p50 2.41ms, in line with the 2.5ms predicted without it"}},
		{"slower", &report.Check{Requests: 60, AtMostNS: 250000, P50NS: 9.8e6, PredictedNS: predicted.P50NS},
			[]string{"caution: 60 requests of this trace spent at most 250µs there: p50 9.80ms, where 2.5ms (2ms to 3.3ms) is predicted; another cause makes them slow"}},
		{"faster", &report.Check{Requests: 60, AtMostNS: 250000, P50NS: 1e5, PredictedNS: predicted.P50NS, CauseRemoved: true},
			[]string{"caution: 60 requests of this trace spent at most 250µs there: p50 100µs, where 2.5ms (2ms to 3.3ms) is predicted without it; they may be lighter requests"}},
	} {
		predicted.Check = c.check
		inWhatIf, inFinding := *r, *r
		inWhatIf.WhatIf = []report.WhatIf{{Group: g.ID, Name: g.Name, Requests: g.Count, Predicted: predicted}}
		inFinding.Findings = []report.Finding{{ID: "f", Code: "WL2001", Severity: report.SeverityHigh, Title: "requests sleep", Group: g.ID, Predicted: &predicted}}
		for name, r := range map[string]*report.Report{"what if": &inWhatIf, "finding": &inFinding} {
			for _, width := range []int{60, 100} {
				out := render(t, r, text.Options{Width: width, Full: true}) + render(t, r, text.Options{Width: width})
				checkLines(t, name, out, width)
				joined := strings.Join(strings.Fields(out), " ")
				for _, w := range c.want {
					check.True(t, strings.Contains(joined, w), "%s, %s: it does not say %q:\n%s", name, c.name, w, out)
				}
				check.False(t, c.want == nil && (strings.Contains(out, "cross-check:") || strings.Contains(out, "caution:")),
					"%s: it mentions a check:\n%s", name, out)
			}
		}
	}
}

func FuzzWrite(f *testing.F) {
	for _, sample := range []string{"pubsub", "tso", "hostile", "none"} {
		data := must.Have(os.ReadFile(filepath.Join("..", "testdata", sample+".json")))(f)
		f.Add(data, 80, "")
		f.Add(data, 120, "p99-max")
	}
	f.Fuzz(func(t *testing.T, data []byte, width int, band string) {
		r, err := report.ReadJSON(bytes.NewReader(data))
		if err != nil {
			return
		}
		out := render(t, r, text.Options{Width: width, Band: report.BandName(band), Command: "whylate explain x", Slowest: 3})
		width = cmp.Or(width, 100)
		checkLines(t, "fuzzed", out, min(max(width, 60), 200))
	})
}

// BenchmarkWrite is for a report with as many groups as a large service has routes.
func BenchmarkWrite(b *testing.B) {
	r := read(b, "pubsub")
	for i := range 500 {
		g := r.Groups[1]
		g.Name += strconv.Itoa(i)
		r.Groups = append(r.Groups, g)
	}
	for b.Loop() {
		render(b, r, text.Options{AllGroups: true})
	}
}

// TestPipesAreNoPeers: the poller also waits for pipes, whose other end is not called a peer.
func TestPipesAreNoPeers(t *testing.T) {
	r := read(t, "pubsub")
	for i := range r.Groups {
		for k := range r.Groups[i].Bands {
			for j := range r.Groups[i].Bands[k].Causes {
				c := &r.Groups[i].Bands[k].Causes[j]
				c.Cause, c.Kind, c.Call = "network", "outbound", "os.(*File).Write"
			}
		}
	}
	page := strings.Join(strings.Fields(render(t, r, text.Options{Width: 100, Full: true})), " ")
	check.True(t, strings.Contains(page, "waiting for the other end of a pipe") && !strings.Contains(page, "waiting for a peer"),
		"a pipe is called a peer:\n%s", page)
}

// TestSampled: if only some requests were followed, the header says how many, and the largest error of shares. It rounds that error up
// to a tenth of a point, which the tables do not show.
func TestSampled(t *testing.T) {
	r := read(t, "pubsub")
	for _, c := range []struct {
		err  float64
		want string
	}{{0, "followed 1234: the slowest and a sample of the others"}, {0.00004, "others, shares to ±0.1 points"}, {0.0098, "others, shares to ±1.0 points"}} {
		r.Input.Sampled = &report.Sampled{Walked: 1234, Requests: 99999}
		r.Groups[0].Bands[1].Causes[0].ShareError = c.err
		head, _, _ := strings.Cut(render(t, r, text.Options{Width: 1000}), "\n\n")
		if head = strings.Join(strings.Fields(head), " "); !strings.Contains(head, c.want) || c.err == 0 && strings.Contains(head, "points") {
			t.Errorf("with an error of %g: %s", c.err, head)
		}
	}
	r.Input.Sampled = nil
	if head, _, _ := strings.Cut(render(t, r, text.Options{Width: 1000}), "\n\n"); !strings.Contains(head, "followed a sample of the run, shares to ±1.0 points") {
		t.Errorf("with a sample of a run's pieces: %s", head)
	}
}
