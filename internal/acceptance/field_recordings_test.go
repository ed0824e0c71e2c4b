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
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

// fieldEdge is how many requests the clients and a trace may count differently for other reasons than errors of either: some
// were under way when the trace began or ended.
const fieldEdge = 5

// fieldWhy begins the part of Field.KnownWrong that is written by hand; what stands before it is what whylate says.
const fieldWhy = ". Why: "

// A fieldAnswer is what whylate says of a recording of a real program, as far as its truth speaks of it.
type fieldAnswer struct {
	group, cause, site, own, code string
	finding, only                 string
	count, p50, p99               string
	loud                          string
	untrue                        []string // what is said with confidence and is not so
}

// fieldKeys are what is judged: the first answer, then numbers.
var (
	fieldFirst   = []string{"group", "cause", "site", "own", "code", "finding", "only", "says", "loud"}
	fieldNumbers = []string{"count", "p50", "p99"}
	fieldKeys    = slices.Concat(fieldFirst, []string{"false"}, fieldNumbers)
)

// judgeField holds a report against the program's recorded truth: what was judged, with what is wrong about it, "" if it is
// right. Healthy programs must have no loud finding, and nothing that alarms.
func judgeField(rep *report.Report, f *testprog.Field) (wrong map[string]string, said fieldAnswer) {
	wrong = map[string]string{}
	tr := &f.Truth
	judge := func(key, want, got string) {
		if want == "" {
			return
		}
		wrong[key] = ""
		if ok, err := regexp.MatchString(want, got); err != nil {
			wrong[key] = err.Error()
		} else if !ok {
			wrong[key] = fmt.Sprintf("says %s", orNothing(got))
		}
	}
	said.untrue = falseOfField(rep, f)
	wrong["false"] = ""
	if len(said.untrue) > 0 {
		wrong["false"] = "says " + strings.Join(said.untrue, "; ")
	}
	g := fieldGroup(rep, tr.Group)
	if g == nil {
		var names []string
		for _, g := range rep.Groups {
			names = append(names, fmt.Sprintf("%s %s (%d)", g.Kind, g.Name, g.Count))
		}
		said.group = strings.Join(names[:min(len(names), 4)], ", ")
		g = &report.Group{}
	} else {
		said.group = g.Name
	}
	judge("group", tr.Group, said.group)
	said.cause, said.site, said.own = firstCause(rep, g)
	if tr.Cause != "" {
		judge("cause", "^("+tr.Cause+")$", said.cause)
	}
	judge("site", tr.Site, said.site)
	judge("own", tr.Own, said.own)
	if first := firstJudged(rep, f.Story != ""); first != nil {
		said.code, said.finding = string(first.Code), siteText(first.Site)
	}
	if tr.Code != "" {
		judge("code", "^("+tr.Code+")$", said.code)
	}
	judge("finding", tr.Finding, said.finding)
	if tr.Only {
		said.only = alarms(rep, f.Beside != "", strings.Split(tr.Code, "|")...)
		judge("only", "^$", said.only)
	}
	if tr.MustSay != "" {
		wrong["says"] = ""
		if ok, err := regexp.MatchString(tr.MustSay, allSaid(rep)); err != nil || !ok {
			wrong["says"] = fmt.Sprintf("does not say %s", tr.MustSay)
		}
	}
	said.loud = alarms(rep, f.Beside != "")
	if first := firstJudged(rep, f.Story != ""); tr.Loud {
		wrong["loud"] = ""
		if first == nil || !first.Severity.IsMajor() {
			wrong["loud"] = "says it quietly"
		}
	}
	if f.Healthy {
		wrong["loud"] = ""
		if said.loud != "" {
			wrong["loud"] = "says " + short(said.loud)
		}
	}
	near := func(key string, got, want int64, within float64, edge int64, show func(int64) string) string {
		if within > 0 {
			wrong[key] = ""
			if off := math.Abs(float64(got - want)); off > within*float64(want)+float64(edge) {
				wrong[key] = fmt.Sprintf("says %s, by the clients' clock it is %s", show(got), show(want))
			}
		}
		return show(got) + " of " + show(want)
	}
	number := func(n int64) string { return fmt.Sprint(n) }
	took := func(n int64) string { return time.Duration(n).Round(10 * time.Microsecond).String() }
	value := func(n *int64) int64 {
		if n == nil {
			return 0
		}
		return *n
	}
	said.count = near("count", int64(g.Count), int64(f.Client.Requests), tr.CountWithin, fieldEdge, number)
	said.p50 = near("p50", value(g.LatencyNS.P50), int64(f.Client.P50), tr.P50Within, 0, took)
	said.p99 = near("p99", value(g.LatencyNS.P99), int64(f.Client.P99), tr.P99Within, 0, took)
	return wrong, said
}

// short cuts a text that is only shown.
func short(s string) string {
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

// fieldGroup returns the group that a truth means: of several, that with most time.
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

// firstCause returns the first cause of a group's slow requests and its first place, as the verdict has it: causes are
// summed up before they are divided by place.
func firstCause(rep *report.Report, g *report.Group) (cause, site, own string) {
	for _, v := range rep.Verdict {
		if v.Group == g.ID && g.ID != "" && len(v.Causes) > 0 {
			c := &v.Causes[0]
			if len(c.Sites) > 0 {
				site, own = siteText(c.Sites[0].Site), ownText(c.Sites[0].Site)
			}
			return string(c.Cause), site, own
		}
	}
	sums := map[report.CauseName]int64{}
	rows := g.Tail().Causes
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

// ownText returns the line that the service's authors can change: the site itself, if nothing of theirs is told that led there.
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

// firstJudged returns the first finding of all; in a story, whose servers and clients are on the same machine, the foremost.
func firstJudged(rep *report.Report, story bool) *report.Finding {
	switch {
	case story:
		return rep.Foremost()
	case len(rep.Findings) > 0:
		return &rep.Findings[0]
	}
	return nil
}

// alarms returns what in a report would make somebody leave his bed: loud findings but for those of the codes that are expected,
// and requests told to be late. That the machine is busy is no alarm where it was.
func alarms(rep *report.Report, busy bool, expected ...string) string {
	var all []string
	for _, f := range rep.Findings {
		if busy && f.Code == report.RuleBusyMachine || slices.Contains(expected, string(f.Code)) {
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

// TestField explains the recordings of real programs, which nobody here wrote, with the command itself, and holds the answer
// against the truth of each: its fault, or that it has none, and its clients' clocks. What a recording's truth lists as
// known to be wrong must be wrong; all else must be right.
func TestField(t *testing.T) {
	dir, names := testprog.Corpus(t)
	page := fieldPage{}
	var lines []int
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			f := must.Have(testprog.ReadField(dir, name))(t)
			rep := explainFile(t, testprog.FieldRecording(t, dir, name))
			wrong, said := judgeField(rep, f)
			if *update {
				known := map[string]string{}
				for key, is := range wrong {
					if is == "" {
						continue
					}
					_, reason, _ := strings.Cut(f.KnownWrong[key], fieldWhy)
					if known[key] = is; reason != "" {
						known[key] += fieldWhy + reason
					}
				}
				f.KnownWrong = known
				must.Do(t, f.Write(dir))
			}
			for key, is := range wrong {
				switch known := f.KnownWrong[key]; {
				case is != "" && known == "":
					t.Errorf("%s: %s", key, is)
				case is == "" && known != "":
					t.Errorf("%s is right now: run `go test ./internal/acceptance -run TestField -update` (it was known to be wrong: %s)", key, known)
				}
			}
			for key := range f.KnownWrong {
				if _, judged := wrong[key]; !judged {
					t.Errorf("known_wrong speaks of %q, which is not judged", key)
				}
			}
			page.add(f, wrong, &said)
			var shown strings.Builder
			must.Do(t, text.Write(&shown, rep, text.Options{Command: "whylate explain x.trace"}))
			lines = append(lines, strings.Count(shown.String(), "\n"))
		})
	}
	if len(page.rows) == len(names) {
		// The answer fits one screen of 24 lines.
		if slices.Sort(lines); lines[len(lines)*9/10] > 24 {
			t.Errorf("one answer of ten takes more than %d lines", lines[len(lines)*9/10])
		}
		page.check(t)
		page.tally().checkRow(t, setCorpus)
	}
}

// TestFieldAnew judges recordings that were made a moment ago, in the directory that WHYLATE_FIELD names, against those that
// are kept: of what is right of these, most must be right of the new ones. Each is a run of its own on a machine that others may
// use, so that none is judged alone.
func TestFieldAnew(t *testing.T) {
	dir := os.Getenv("WHYLATE_FIELD")
	if dir == "" {
		t.Skip("needs fresh recordings: only with WHYLATE_FIELD=DIR (.ci/full field)")
	}
	names := must.Have(testprog.Fields(dir))(t)
	corpus, _ := testprog.Corpus(t)
	right, all := 0, 0
	for _, name := range names {
		f := must.Have(testprog.ReadField(dir, name))(t)
		kept := must.Have(testprog.ReadField(corpus, name))(t)
		wrong, _ := judgeField(explainFile(t, testprog.FieldRecording(t, dir, name)), f)
		for _, key := range slices.Sorted(maps.Keys(wrong)) {
			if kept.KnownWrong[key] != "" {
				continue
			}
			all++
			if wrong[key] == "" {
				right++
			} else {
				t.Logf("%s: %s %s", name, key, wrong[key])
			}
		}
	}
	t.Logf("%d of %d are right as in the recordings that are kept", right, all)
	if all == 0 || float64(right) < 0.8*float64(all) {
		t.Error("too few")
	}
}

var fieldHeld = flag.String("field", "", "directory of recordings that TestFieldHeld judges and prints (field -corpus -held)")

var fieldSet = flag.String("set", "held out, around libraries", "row of docs/internals/accuracy.md that TestFieldHeld counts, and writes with -update")

// TestFieldHeld judges recordings that are not kept, in the directory that -field names, and prints a row of docs/internals/accuracy.md for
// each. Right or wrong, it does not fail: what is held out is looked at, not worked towards.
func TestFieldHeld(t *testing.T) {
	if *fieldHeld == "" {
		t.Skip("needs recordings that are held out: -field DIR")
	}
	names := must.Have(testprog.Fields(*fieldHeld))(t)
	if len(names) == 0 {
		t.Fatalf("there are no recordings in %s", *fieldHeld)
	}
	page := fieldPage{}
	for _, name := range names {
		f := must.Have(testprog.ReadField(*fieldHeld, name))(t)
		wrong, said := judgeField(explainFile(t, testprog.FieldRecording(t, *fieldHeld, name)), f)
		page.add(f, wrong, &said)
	}
	fmt.Print(page.held(), "\n", page.tally().row(*fieldSet), "\n")
	if *update {
		page.tally().checkRow(t, *fieldSet)
	}
}

// explainFile explains a file as a user does, without flags once in a process. The report is shared: read it only.
func explainFile(t testing.TB, file string, flags ...string) *report.Report {
	t.Helper()
	if rep, ok := answers.Load(file); ok && len(flags) == 0 {
		return rep.(*report.Report)
	}
	args := []string{"explain", "--json", file}
	if testing.Short() {
		args = append(args, "--slowest", "0") // half of the JSON, and no part of what is judged
	}
	var out, says bytes.Buffer
	if status := cli.Run(t.Context(), append(args, flags...), strings.NewReader(""), &out, &says); status != 0 {
		t.Fatalf("explaining %s: status %d: %s", file, status, says.Bytes())
	}
	rep := must.Have(report.ReadJSON(&out))(t) // which checks that it is valid
	if len(flags) == 0 {
		answers.Store(file, rep)
	}
	return rep
}

// TestSlowestIsOnlyShown: what is found does not depend on how many of the slowest requests are shown, though rules read these.
func TestSlowestIsOnlyShown(t *testing.T) {
	file := testprog.Recording(t, "field/tso-lost.whylate")
	want := explainFile(t, file, "--slowest", "3").Findings
	for _, n := range []int{0, 1} {
		rep := explainFile(t, file, "--slowest", strconv.Itoa(n))
		if len(want) == 0 || !reflect.DeepEqual(rep.Findings, want) {
			t.Errorf("--slowest %d: %d findings, usually %d, or not the same", n, len(rep.Findings), len(want))
		}
		for _, g := range rep.Groups {
			if len(g.Slowest) > n || n == 0 && g.Typical != nil {
				t.Errorf("--slowest %d: %s has %d", n, g.Name, len(g.Slowest))
			}
		}
	}
}

// A fieldPage has the totals at the end of docs/internals/accuracy.md and the table of all recordings in testdata.
type fieldPage struct{ rows []fieldRow }

type fieldRow struct {
	f     *testprog.Field
	wrong map[string]string
	said  fieldAnswer
}

const (
	accuracyPage  = "docs/internals/accuracy.md"
	answersPage   = "internal/acceptance/testdata/recordings.md"
	accuracyBegin = "<!-- written by go test ./internal/acceptance -run TestField -update -->"
)

func (p *fieldPage) add(f *testprog.Field, wrong map[string]string, said *fieldAnswer) {
	p.rows = append(p.rows, fieldRow{f, wrong, *said})
}

// judged counts rows of which any of the keys is judged, and those of them of which none is wrong.
func (p *fieldPage) judged(healthy bool, keys ...string) (right, all int) {
	for _, r := range p.rows {
		judged, bad := false, false
		for _, k := range keys {
			is, ok := r.wrong[k]
			judged = judged || ok
			bad = bad || is != ""
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

// totals returns the end of docs/internals/accuracy.md.
func (p *fieldPage) totals() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n## Totals\n\n", accuracyBegin)
	total := func(what string, right, all int) {
		if all > 0 {
			fmt.Fprintf(&b, "| %s | %d | %d | %.0f %% |\n", what, right, all, 100*float64(right)/float64(all))
		}
	}
	b.WriteString("| | right | of | |\n|---|---|---|---|\n")
	ill, illAll := p.judged(false, fieldFirst...)
	well, wellAll := p.judged(true, fieldFirst...)
	total("first answers", ill+well, illAll+wellAll)
	total("of programs with a fault", ill, illAll)
	total("of healthy programs", well, wellAll)
	quiet, quietAll := p.judged(true, "loud")
	total("healthy programs without a loud finding", quiet, quietAll)
	for _, k := range []struct{ key, what string }{
		{"group", "the group is found"}, {"cause", "first cause"}, {"site", "place"}, {"own", "the program's own line"}, {"code", "first finding"},
		{"count", "count of requests"}, {"p50", "p50"}, {"p99", "p99"},
	} {
		r1, a1 := p.judged(false, k.key)
		r2, a2 := p.judged(true, k.key)
		total(k.what, r1+r2, a1+a2)
	}
	return b.String()
}

// answers returns the table of all recordings, and the reasons of known wrong answers.
func (p *fieldPage) answers() string {
	var b strings.Builder
	b.WriteString("# What is said of each recording of the corpus\n\nWritten by `go test ./internal/acceptance -run TestField -update`; " +
		"docs/internals/accuracy.md explains the classes and has the totals.\n\n| recording | program | what is wrong with it | must be said | is said | first answer | count | p50 | p99 |\n|---|---|---|---|---|---|---|---|---|\n")
	mark := func(r *fieldRow, key, text string) string {
		is, judged := r.wrong[key]
		switch {
		case !judged:
			return "" // numbers that are not judged would only invite comparison
		case is == "":
			return text
		default:
			return "**" + text + "**"
		}
	}
	var reasons strings.Builder
	for i := range p.rows {
		r := &p.rows[i]
		f := r.f
		about, must, is, answer := r.cells()
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", f.Name, f.Module, about, must, is, answer,
			mark(r, "count", r.said.count), mark(r, "p50", r.said.p50), mark(r, "p99", r.said.p99))
		for _, k := range fieldKeys {
			if r.wrong[k] != "" {
				fmt.Fprintf(&reasons, "- `%s` %s: %s\n", f.Name, k, fieldCell.Replace(f.KnownWrong[k]))
			}
		}
	}
	if reasons.Len() > 0 {
		b.WriteString("\n## What is wrong, and why\n\n" + reasons.String())
	}
	return b.String()
}

// held is the table of recordings that are not kept, and under it what is wrong about each.
func (p *fieldPage) held() string {
	var b, reasons strings.Builder
	b.WriteString("| recording | program | what is wrong with it | must be said | is said | first answer | date |\n|---|---|---|---|---|---|---|\n")
	for i := range p.rows {
		r := &p.rows[i]
		about, must, is, answer := r.cells()
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", r.f.Name, r.f.Module, about, must, is, answer, r.f.Date)
		for _, k := range fieldKeys {
			if r.wrong[k] != "" {
				fmt.Fprintf(&reasons, "- `%s` %s: %s\n", r.f.Name, k, fieldCell.Replace(r.wrong[k]))
			}
		}
	}
	ill, illAll := p.judged(false, fieldFirst...)
	well, wellAll := p.judged(true, fieldFirst...)
	fmt.Fprintf(&b, "\nFirst answers right: %d of %d with a fault, %d of %d healthy.\n\n%s", ill, illAll, well, wellAll, reasons.String())
	return b.String()
}

var fieldCell = strings.NewReplacer("|", "\\|", "\n", " ", "*", "\\*", "_", "\\_", "<", "&lt;")

// cells returns a recording's columns in the table, apart from numbers.
func (r *fieldRow) cells() (about, must, is, answer string) {
	f := r.f
	about = f.About
	if f.Healthy {
		about = "nothing: " + about
	}
	if f.Beside != "" && f.Story == "" {
		about += " (beside " + f.Beside + ")"
	}
	must, is = "nothing loud", "nothing loud"
	switch {
	case f.Story != "" && !f.Healthy:
		must = strings.Join(slices.DeleteFunc([]string{f.Truth.Code, f.Truth.Finding}, empty), " at ")
		is = orNothing(strings.Join(slices.DeleteFunc([]string{r.said.code, shortSite(r.said.finding)}, empty), " at "))
		if f.Truth.Only {
			must += ", nothing else"
		}
		if r.said.only != "" {
			is += ", " + short(r.said.only)
		}
	case !f.Healthy:
		must = strings.Join(slices.DeleteFunc([]string{f.Truth.Cause, f.Truth.Site, f.Truth.Own, f.Truth.Code}, empty), ", ")
		is = strings.Join(slices.DeleteFunc([]string{r.said.cause, shortSite(r.said.site), shortSite(r.said.own), r.said.code}, empty), ", ")
	case r.said.loud != "":
		is = short(r.said.loud)
	}
	return fieldCell.Replace(about), fieldCell.Replace(must), fieldCell.Replace(is), r.class().String()
}

func (p *fieldPage) tally() *tally {
	var t tally
	for i := range p.rows {
		t[p.rows[i].class()]++
	}
	return &t
}

func (r *fieldRow) class() class { return classOfField(r.wrong, r.said.untrue) }

func empty(s string) bool { return s == "" }

// shortSite drops the directories of a file.
func shortSite(s string) string {
	name, file, ok := strings.Cut(s, " ")
	if !ok {
		return s
	}
	return name + " " + filepath.Base(file)
}

// check compares the pages with what was found, or writes them.
func (p *fieldPage) check(t *testing.T) {
	old, err := os.ReadFile(accuracyPage)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(old), accuracyBegin)
	for page, text := range map[string]string{accuracyPage: head + p.totals(), answersPage: p.answers()} {
		if *update {
			must.Do(t, os.WriteFile(page, []byte(text), 0o666))
			continue
		}
		// Words and numbers change with nearly every rule; a change of a rule need not write these pages each time.
		if testfull.On() && text != string(must.Have(os.ReadFile(page))(t)) && !t.Failed() {
			t.Errorf("%s is not what the recordings say: run `go test ./internal/acceptance -run TestField -update`", page)
		}
	}
}
