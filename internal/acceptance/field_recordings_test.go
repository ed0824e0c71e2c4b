package acceptance_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/cli"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

// fieldEdge is the allowed difference between the request counts of the clients and of a trace: requests were in progress when
// the trace began or ended.
const fieldEdge = 5

// reasonMark separates the problem, which -update writes into Field.KnownWrong, from the reason, which is written by hand.
const reasonMark = ". Why: "

// A fieldAnswer has the parts of a report that the truth about a real program's recording judges.
type fieldAnswer struct {
	group, cause, site, ownLine, code string
	finding, unexpectedAlarms         string
	count, p50, p99                   string
	alarms                            string
	falseClaims                       []string // confident claims that contradict the truth
}

// fieldAnswerKeys and fieldNumberKeys name the judged parts of an answer.
var (
	fieldAnswerKeys = []string{"group", "cause", "site", "own", "code", "finding", "only", "says", "topics", "loud"}
	fieldNumberKeys = []string{"count", "p50", "p99"}
	fieldKeys       = slices.Concat(fieldAnswerKeys, []string{"false"}, fieldNumberKeys)
)

// judgeField compares a report with the recorded truth about its program. problems has a key for each judged part, with the
// problem or "" if the part is right. A healthy program must have no major finding and no late requests.
func judgeField(rep *report.Report, f *testprog.FieldCase) (problems map[string]string, answer fieldAnswer) {
	problems = map[string]string{}
	tr := &f.Truth
	judge := func(key, want, got string) {
		if want == "" {
			return
		}
		problems[key] = ""
		if ok, err := regexp.MatchString(want, got); err != nil {
			problems[key] = err.Error()
		} else if !ok {
			problems[key] = fmt.Sprintf("says %s", orNothing(got))
		}
	}
	answer.falseClaims = falseFieldClaims(rep, f)
	problems["false"] = ""
	if len(answer.falseClaims) > 0 {
		problems["false"] = "says " + strings.Join(answer.falseClaims, "; ")
	}
	g := fieldGroup(rep, tr.Group)
	if g == nil {
		var names []string
		for _, g := range rep.Groups {
			names = append(names, fmt.Sprintf("%s %s (%d)", g.Kind, g.Name, g.Count))
		}
		answer.group = strings.Join(names[:min(len(names), 4)], ", ")
		g = &report.Group{}
	} else {
		answer.group = g.Name
	}
	judge("group", tr.Group, answer.group)
	answer.cause, answer.site, answer.ownLine = firstCause(rep, g)
	if tr.Cause != "" {
		judge("cause", "^("+tr.Cause+")$", answer.cause)
	}
	judge("site", tr.Site, answer.site)
	judge("own", tr.OwnSite, answer.ownLine)
	if first := firstFieldFinding(rep, f.Story != ""); first != nil {
		answer.code, answer.finding = string(first.Code), siteText(first.Site)
	}
	if tr.Code != "" {
		judge("code", "^("+tr.Code+")$", answer.code)
	}
	judge("finding", tr.Finding, answer.finding)
	if tr.IsOnlyLoud {
		answer.unexpectedAlarms = alarmsOf(rep, f.OtherLoad != "", strings.Split(tr.Code, "|")...)
		judge("only", "^$", answer.unexpectedAlarms)
	}
	if tr.RequiredText != "" {
		problems["says"] = ""
		if ok, err := regexp.MatchString(tr.RequiredText, reportWords(rep)); err != nil || !ok {
			problems["says"] = fmt.Sprintf("does not say %s", tr.RequiredText)
		}
	}
	problems["topics"] = ""
	if _, missing := judgeTopics(rep, fieldGroup(rep, tr.Group), "field/"+f.Name); len(missing) > 0 {
		problems["topics"] = fmt.Sprintf("says nothing of %q", missing)
	}
	answer.alarms = alarmsOf(rep, f.OtherLoad != "")
	if first := firstFieldFinding(rep, f.Story != ""); tr.Loud {
		problems["loud"] = ""
		if first == nil || !first.Severity.IsMajor() {
			problems["loud"] = "says it quietly"
		}
	}
	if f.Healthy {
		problems["loud"] = ""
		if answer.alarms != "" {
			problems["loud"] = "says " + shortened(answer.alarms)
		}
	}
	compareNumber := func(key string, got, want int64, tolerance float64, slack int64, format func(int64) string) string {
		if tolerance > 0 {
			problems[key] = ""
			if off := math.Abs(float64(got - want)); off > tolerance*float64(want)+float64(slack) {
				problems[key] = fmt.Sprintf("says %s, by the clients' clock it is %s", format(got), format(want))
			}
		}
		return format(got) + " of " + format(want)
	}
	number := func(n int64) string { return fmt.Sprint(n) }
	duration := func(n int64) string { return time.Duration(n).Round(10 * time.Microsecond).String() }
	value := func(n *int64) int64 {
		if n == nil {
			return 0
		}
		return *n
	}
	answer.count = compareNumber("count", int64(g.Count), int64(f.Client.Requests), tr.CountWithin, fieldEdge, number)
	answer.p50 = compareNumber("p50", value(g.LatencyNS.P50), int64(f.Client.P50), tr.P50Within, 0, duration)
	answer.p99 = compareNumber("p99", value(g.LatencyNS.P99), int64(f.Client.P99), tr.P99Within, 0, duration)
	return problems, answer
}

// shortened cuts a text for display.
func shortened(s string) string {
	if r := []rune(s); len(r) > 200 {
		return string(r[:200]) + "..."
	}
	return s
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

// fieldGroup returns the group whose name matches; of several, the one with the most time.
func fieldGroup(rep *report.Report, name string) *report.Group {
	re, err := regexp.Compile(name)
	if err != nil {
		return nil
	}
	var best *report.Group
	for i := range rep.Groups {
		if g := &rep.Groups[i]; re.MatchString(g.Name) && (best == nil || g.TotalNS > best.TotalNS) {
			best = g
		}
	}
	return best
}

// firstCause returns the first cause of a group's slow requests and its first site, as in the verdict. Without a verdict it
// adds up the time of each cause over its sites first, as the verdict does.
func firstCause(rep *report.Report, g *report.Group) (cause, site, ownLine string) {
	for _, v := range rep.Verdict {
		if v.Group == g.ID && g.ID != "" && len(v.Causes) > 0 {
			c := &v.Causes[0]
			work, s := workOf(c)
			return string(work), siteText(s), ownText(s)
		}
	}
	sums := map[report.CauseName]int64{}
	rows := workRows(g.Tail())
	for _, c := range rows {
		sums[c.Cause] += c.TotalNS
	}
	first := report.CauseName("")
	for _, c := range slices.Sorted(maps.Keys(sums)) {
		if first == "" || sums[c] > sums[first] {
			first = c
		}
	}
	for _, c := range rows {
		if c.Cause == first {
			return string(first), siteText(c.Site), ownText(c.Site)
		}
	}
	return "", "", ""
}

// ownText returns the line that the service's authors can change: the calling line, or the site itself if no caller is known.
func ownText(s *report.Site) string {
	if s == nil || s.CalledFrom == nil {
		return siteText(s)
	}
	return fmt.Sprintf("%s %s:%d", s.CalledFrom.Func, s.CalledFrom.File, s.CalledFrom.Line)
}

func siteText(s *report.Site) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%s %s:%d", s.Func, s.File, s.Line)
}

// firstFieldFinding returns the first finding. In a story, whose servers and clients share the machine, it returns the
// foremost.
func firstFieldFinding(rep *report.Report, story bool) *report.Finding {
	switch {
	case story:
		return rep.Foremost()
	case len(rep.Findings) > 0:
		return &rep.Findings[0]
	}
	return nil
}

// alarmsOf returns what a report raises an alarm about: major findings except the expected codes, and late requests. WL1009 is
// no alarm if the machine was made busy for the recording.
func alarmsOf(rep *report.Report, busyMachine bool, expected ...string) string {
	var all []string
	for _, f := range rep.Findings {
		if busyMachine && f.Code == report.RuleBusyMachine || slices.Contains(expected, string(f.Code)) {
			continue
		}
		if f.Ignored == "" && f.Severity.IsMajor() {
			all = append(all, fmt.Sprintf("%s %s: %s", f.Severity, f.Code, f.Title))
		}
	}
	for _, v := range rep.Verdict {
		if v.Open != nil && v.Open.Late {
			all = append(all, "late: "+v.Open.Text)
		}
	}
	return strings.Join(all, "; ")
}

// TestField explains recordings of real programs, which were not written for this project, with the command, and compares each
// answer with the truth: the program's fault or that it has none, and its clients' clocks. Parts listed in known_wrong must be
// wrong; all others must be right.
func TestField(t *testing.T) {
	dir, names := testprog.Corpus(t)
	page := fieldPage{}
	var lines []int
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			f := must.Have(testprog.ReadField(dir, name))(t)
			requireTopics(t, "field/"+name)
			rep := explainFile(t, testprog.FieldRecording(t, dir, name))
			problems, answer := judgeField(rep, f)
			if *update {
				knownProblems := map[string]string{}
				for key, problem := range problems {
					if problem == "" {
						continue
					}
					_, reason, _ := strings.Cut(f.KnownWrong[key], reasonMark)
					if knownProblems[key] = problem; reason != "" {
						knownProblems[key] += reasonMark + reason
					}
				}
				f.KnownWrong = knownProblems
				must.Do(t, f.Write(dir))
			}
			for key, problem := range problems {
				switch knownProblems := f.KnownWrong[key]; {
				case problem != "" && knownProblems == "":
					t.Errorf("%s: %s", key, problem)
				case problem == "" && knownProblems != "":
					t.Errorf("%s is right: run `go test ./internal/acceptance -run TestField -update` (it was known to be wrong: %s)", key, knownProblems)
				}
			}
			for key := range f.KnownWrong {
				if _, judged := problems[key]; !judged {
					t.Errorf("known_wrong has %q, which is not judged", key)
				}
			}
			page.add(f, problems, &answer)
			var output strings.Builder
			must.Do(t, text.Write(&output, rep, text.Options{Command: "whylate explain x.trace"}))
			lines = append(lines, strings.Count(output.String(), "\n"))
			checkScreen(t, rep, output.String())
		})
	}
	if len(page.rows) == len(names) {
		// The answer takes at most 26 lines for nine recordings of ten.
		if slices.Sort(lines); lines[len(lines)*9/10] > 26 {
			t.Errorf("one answer of ten has more than %d lines", lines[len(lines)*9/10])
		}
		page.check(t)
		page.tally().checkRow(t, setCorpus)
	}
}

// checkScreen checks a default answer: what to do is written in whole, a gain names its change, each finding of high severity is there,
// and those of medium severity are there or counted. Without any the answer says so.
func checkScreen(t *testing.T, rep *report.Report, screen string) {
	t.Helper()
	screen = strings.Join(strings.Fields(screen), " ") // lines are broken at spaces
	hasMajor := false
	for i := range rep.Findings {
		f := &rep.Findings[i]
		if f.Ignored != "" || !f.Severity.IsMajor() {
			continue
		}
		hasMajor = true
		isShown := strings.Contains(screen, "· "+string(f.Code))
		check.False(t, !isShown && (f.Severity == report.SeverityHigh || !strings.Contains(screen, "of medium severity")),
			"%s (%s) is neither shown nor counted:\n%s", f.Code, f.Severity, screen)
		check.True(t, f.Remedy != "" && strings.HasPrefix(f.Fix, f.Remedy),
			"%s: %q does not begin with what to do first, %q", f.Code, f.Fix, f.Remedy)
		check.False(t, f.Predicted != nil && f.Predicted.ChangeText == "",
			"%s: the gain does not say of which change it is: %+v", f.Code, f.Predicted)
	}
	for do := range strings.SplitSeq(screen, " do ") {
		if sentence, _, _ := strings.Cut(do, " gain "); do != screen && strings.HasSuffix(sentence, "…") {
			t.Errorf("what to do is cut: %s", sentence)
		}
	}
	if len(rep.Groups) > 0 && !hasMajor && !slices.ContainsFunc([]string{"nothing to change", "the time is a peer's, ", "nothing urgent: ", "cannot tell which work: ", "nothing to judge: ", "uncertain: ", "probably the peer: "}, func(result string) bool { return strings.Contains(screen, "found "+result) }) {
		t.Errorf("the answer does not say that nothing is to change, or urgent, or why it is unknown:\n%s", screen)
	}
}

// TestFreshFieldRecordings judges new recordings in the directory WHYLATE_FIELD: 80 % of the parts that are right for the
// stored recordings must be right for the new ones. Each recording is a separate run on a machine that may be shared, so none
// is judged alone.
func TestFreshFieldRecordings(t *testing.T) {
	dir := os.Getenv("WHYLATE_FIELD")
	if dir == "" {
		t.Skip("needs fresh recordings: only with WHYLATE_FIELD=DIR (.ci/full field)")
	}
	names := must.Have(testprog.FieldNames(dir))(t)
	corpus, _ := testprog.Corpus(t)
	right, all := 0, 0
	for _, name := range names {
		f := must.Have(testprog.ReadField(dir, name))(t)
		stored := must.Have(testprog.ReadField(corpus, name))(t)
		problems, _ := judgeField(explainFile(t, testprog.FieldRecording(t, dir, name)), f)
		for _, key := range slices.Sorted(maps.Keys(problems)) {
			if stored.KnownWrong[key] != "" {
				continue
			}
			all++
			if problems[key] == "" {
				right++
			} else {
				t.Logf("%s: %s %s", name, key, problems[key])
			}
		}
	}
	t.Logf("%d of %d parts that are right for the stored recordings are right", right, all)
	check.True(t, all != 0 && float64(right) >= 0.8*float64(all), "less than 80 %% are right")
}

var heldOutDir = flag.String("field", "", "directory of recordings that TestFieldHeld judges and prints (field -corpus -held)")

var heldOutRow = flag.String("set", "held out, around libraries", "row of docs/internals/accuracy.md that TestFieldHeld counts, and writes with -update")

// TestHeldOutRecordings judges recordings outside the corpus, in the directory -field, and prints a row of
// docs/internals/accuracy.md for each. It does not fail on a wrong answer: held-out recordings measure accuracy, rules are not
// changed to suit them.
func TestHeldOutRecordings(t *testing.T) {
	if *heldOutDir == "" {
		t.Skip("needs held-out recordings: -field DIR")
	}
	names := must.Have(testprog.FieldNames(*heldOutDir))(t)
	if len(names) == 0 {
		t.Fatalf("there are no recordings in %s", *heldOutDir)
	}
	page := fieldPage{}
	for _, name := range names {
		f := must.Have(testprog.ReadField(*heldOutDir, name))(t)
		problems, answer := judgeField(explainFile(t, testprog.FieldRecording(t, *heldOutDir, name)), f)
		page.add(f, problems, &answer)
	}
	fmt.Print(page.heldOutTable(), "\n", page.tally().row(*heldOutRow), "\n")
	if *update {
		page.tally().checkRow(t, *heldOutRow)
	}
}

// explainFile explains a file with the command. It caches the report if there are no flags: callers must not change it.
func explainFile(t testing.TB, file string, flags ...string) *report.Report {
	t.Helper()
	if rep, ok := cachedReports.Load(file); ok && len(flags) == 0 {
		return rep.(*report.Report)
	}
	args := []string{"explain", "--json", file}
	if testing.Short() {
		args = append(args, "--slowest", "0") // the slowest requests are half of the JSON and are not judged
	}
	var out, stderr bytes.Buffer
	if status := cli.Run(t.Context(), append(args, flags...), strings.NewReader(""), &out, &stderr); status != 0 {
		t.Fatalf("explaining %s: status %d: %s", file, status, stderr.Bytes())
	}
	rep := must.Have(report.ReadJSON(&out))(t) // which checks that it is valid
	if len(flags) == 0 {
		cachedReports.Store(file, rep)
	}
	return rep
}

// TestSlowestIsOnlyShown: findings do not depend on how many of the slowest requests --slowest shows, although rules read
// these requests.
func TestSlowestIsOnlyShown(t *testing.T) {
	file := testprog.Recording(t, "field/tso-lost.whylate")
	want := explainFile(t, file, "--slowest", "3").Findings
	for _, n := range []int{0, 1} {
		rep := explainFile(t, file, "--slowest", strconv.Itoa(n))
		check.True(t, len(want) != 0 && reflect.DeepEqual(rep.Findings, want),
			"--slowest %d: %d findings differ from the %d with --slowest 3", n, len(rep.Findings), len(want))
		for _, g := range rep.Groups {
			if len(g.Slowest) > n || n == 0 && g.Typical != nil {
				t.Errorf("--slowest %d: %s has %d of the slowest requests, or a typical one", n, g.Name, len(g.Slowest))
			}
		}
	}
}

// A fieldPage has the totals at the end of docs/internals/accuracy.md and the table of all recordings in testdata.
type fieldPage struct{ rows []fieldRow }

type fieldRow struct {
	f        *testprog.FieldCase
	problems map[string]string
	answer   fieldAnswer
}

const (
	accuracyPage  = "docs/internals/accuracy.md"
	answersPage   = "internal/acceptance/testdata/recordings.md"
	accuracyBegin = "<!-- written by go test ./internal/acceptance -run TestField -update -->"
)

func (p *fieldPage) add(f *testprog.FieldCase, problems map[string]string, answer *fieldAnswer) {
	p.rows = append(p.rows, fieldRow{f, problems, *answer})
}

// countRight counts the rows of healthy or faulty programs for which any of the keys is judged, and those of them without a
// problem.
func (p *fieldPage) countRight(healthy bool, keys ...string) (right, all int) {
	for _, r := range p.rows {
		judged, bad := false, false
		for _, k := range keys {
			problem, ok := r.problems[k]
			judged = judged || ok
			bad = bad || problem != ""
		}
		if judged && r.f.Healthy == healthy {
			all++
			if !bad {
				right++
			}
		}
	}
	return right, all
}

// totals returns the last section of docs/internals/accuracy.md.
func (p *fieldPage) totals() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n## Totals\n\n", accuracyBegin)
	writeRow := func(label string, right, all int) {
		if all > 0 {
			fmt.Fprintf(&b, "| %s | %d | %d | %.0f %% |\n", label, right, all, 100*float64(right)/float64(all))
		}
	}
	b.WriteString("| | right | of | |\n|---|---|---|---|\n")
	faultRight, faultAll := p.countRight(false, fieldAnswerKeys...)
	healthyRight, healthyAll := p.countRight(true, fieldAnswerKeys...)
	writeRow("first answers", faultRight+healthyRight, faultAll+healthyAll)
	writeRow("of programs with a fault", faultRight, faultAll)
	writeRow("of healthy programs", healthyRight, healthyAll)
	quiet, quietAll := p.countRight(true, "loud")
	writeRow("healthy programs without a loud finding", quiet, quietAll)
	for _, k := range []struct{ key, label string }{
		{"group", "the group is found"}, {"cause", "first cause"}, {"site", "place"}, {"own", "the program's own line"}, {"code", "first finding"},
		{"count", "count of requests"}, {"p50", "p50"}, {"p99", "p99"},
	} {
		r1, a1 := p.countRight(false, k.key)
		r2, a2 := p.countRight(true, k.key)
		writeRow(k.label, r1+r2, a1+a2)
	}
	return b.String()
}

// answerTable returns the table of all recordings and the reasons of known wrong answers.
func (p *fieldPage) answerTable() string {
	var b strings.Builder
	b.WriteString("# What is said of each recording of the corpus\n\nWritten by `go test ./internal/acceptance -run TestField -update`; " +
		"docs/internals/accuracy.md explains the classes and has the totals.\n\n| recording | program | what is wrong with it | must be said | is said | first answer | count | p50 | p99 |\n|---|---|---|---|---|---|---|---|---|\n")
	mark := func(r *fieldRow, key, text string) string {
		problem, judged := r.problems[key]
		switch {
		case !judged:
			return "" // a number that is not judged must not be compared
		case problem == "":
			return text
		default:
			return "**" + text + "**"
		}
	}
	var reasons strings.Builder
	for i := range p.rows {
		r := &p.rows[i]
		f := r.f
		fault, expected, given, answer := r.cells()
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", f.Name, f.Module, fault, expected, given, answer,
			mark(r, "count", r.answer.count), mark(r, "p50", r.answer.p50), mark(r, "p99", r.answer.p99))
		for _, k := range fieldKeys {
			if r.problems[k] != "" {
				fmt.Fprintf(&reasons, "- `%s` %s: %s\n", f.Name, k, cellEscaper.Replace(f.KnownWrong[k]))
			}
		}
	}
	if reasons.Len() > 0 {
		b.WriteString("\n## What is wrong, and why\n\n" + reasons.String())
	}
	return b.String()
}

// heldOutTable returns the table of held-out recordings, followed by the problems of each.
func (p *fieldPage) heldOutTable() string {
	var b, reasons strings.Builder
	b.WriteString("| recording | program | what is wrong with it | must be said | is said | first answer | date |\n|---|---|---|---|---|---|---|\n")
	for i := range p.rows {
		r := &p.rows[i]
		fault, expected, reported, class := r.cells()
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", r.f.Name, r.f.Module, fault, expected, reported, class, r.f.Date)
		for _, k := range fieldKeys {
			if r.problems[k] != "" {
				fmt.Fprintf(&reasons, "- `%s` %s: %s\n", r.f.Name, k, cellEscaper.Replace(r.problems[k]))
			}
		}
	}
	faultRight, faultAll := p.countRight(false, fieldAnswerKeys...)
	healthyRight, healthyAll := p.countRight(true, fieldAnswerKeys...)
	fmt.Fprintf(&b, "\nFirst answers right: %d of %d with a fault, %d of %d healthy.\n\n%s", faultRight, faultAll, healthyRight, healthyAll, reasons.String())
	return b.String()
}

var cellEscaper = strings.NewReplacer("|", "\\|", "\n", " ", "*", "\\*", "_", "\\_", "<", "&lt;")

// cells returns the columns of a recording that are not numbers.
func (r *fieldRow) cells() (fault, expected, reported, className string) {
	f := r.f
	fault = f.Description
	if f.Healthy {
		fault = "nothing: " + fault
	}
	if f.OtherLoad != "" && f.Story == "" {
		fault += " (beside " + f.OtherLoad + ")"
	}
	expected, reported = "nothing loud", "nothing loud"
	switch {
	case f.Story != "" && !f.Healthy:
		expected = strings.Join(slices.DeleteFunc([]string{f.Truth.Code, f.Truth.Finding}, isEmpty), " at ")
		reported = orNothing(strings.Join(slices.DeleteFunc([]string{r.answer.code, shortSite(r.answer.finding)}, isEmpty), " at "))
		if f.Truth.IsOnlyLoud {
			expected += ", nothing else"
		}
		if r.answer.unexpectedAlarms != "" {
			reported += ", " + shortened(r.answer.unexpectedAlarms)
		}
	case !f.Healthy:
		expected = strings.Join(slices.DeleteFunc([]string{f.Truth.Cause, f.Truth.Site, f.Truth.OwnSite, f.Truth.Code}, isEmpty), ", ")
		reported = strings.Join(slices.DeleteFunc([]string{r.answer.cause, shortSite(r.answer.site), shortSite(r.answer.ownLine), r.answer.code}, isEmpty), ", ")
	case r.answer.alarms != "":
		reported = shortened(r.answer.alarms)
	}
	return cellEscaper.Replace(fault), cellEscaper.Replace(expected), cellEscaper.Replace(reported), r.class().String()
}

func (p *fieldPage) tally() *tally {
	var t tally
	for i := range p.rows {
		t[p.rows[i].class()]++
	}
	return &t
}

func (r *fieldRow) class() class { return classOfField(r.problems, r.answer.falseClaims) }

func isEmpty(s string) bool { return s == "" }

// shortSite drops the directories of a file.
func shortSite(s string) string {
	name, file, ok := strings.Cut(s, " ")
	if !ok {
		return s
	}
	return name + " " + filepath.Base(file)
}

// check compares the pages with those generated from the recordings, or writes them with -update.
func (p *fieldPage) check(t *testing.T) {
	old := must.Have(os.ReadFile(accuracyPage))(t)
	head, _, _ := strings.Cut(string(old), accuracyBegin)
	for page, text := range map[string]string{accuracyPage: head + p.totals(), answersPage: p.answerTable()} {
		if *update {
			must.Do(t, os.WriteFile(page, []byte(text), 0o666))
			continue
		}
		// Words and numbers change with nearly every rule, so only the full test run requires that the pages are current.
		check.False(t, testfull.IsEnabled() && text != string(must.Have(os.ReadFile(page))(t)) && !t.Failed(),
			"%s is not what the recordings say: run `go test ./internal/acceptance -run TestField -update`", page)
	}
}
