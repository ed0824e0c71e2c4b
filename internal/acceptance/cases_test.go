package acceptance_test

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/cli"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

// casesTable has the truths about the recordings in lab/recordings/cases; its head explains the format.
const casesTable = "internal/acceptance/testdata/cases.txt"

// A caseTruth is a stanza of casesTable: what a command must print, and must not print, about some recordings.
type caseTruth struct {
	command string // explain, diff or verify
	files   []string
	truth   string
	demands []caseDemand
}

// A caseDemand is a line of a stanza.
type caseDemand struct {
	line       int
	text       string // the line
	verb       string // say, never, quiet or loud
	part       string
	pattern    *regexp.Regexp
	knownWrong string // the reason why the demand is not met
}

// caseVerbs has the verbs of demands and whether they have a part and a pattern.
var caseVerbs = map[string]bool{"say": true, "never": true, "quiet": false, "loud": false}

// casesIn reads a table of cases.
func casesIn(table string) (cases []caseTruth, err error) {
	for i, line := range strings.Split(table, "\n") {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest = strings.TrimSpace(rest)
		hasPattern, isDemand := caseVerbs[verb]
		var last *caseTruth
		if len(cases) > 0 {
			last = &cases[len(cases)-1]
		}
		switch {
		case verb == "" || verb == "#":
		case verb == "explain" || verb == "diff" || verb == "verify":
			cases = append(cases, caseTruth{command: verb, files: strings.Fields(rest)})
		case last == nil:
			return nil, fmt.Errorf("line %d is before the first case: %s", i+1, line)
		case verb == "truth" || verb == "control":
			last.truth += rest + "\n"
		case verb == "known" && strings.HasPrefix(rest, "wrong: ") && len(last.demands) > 0:
			last.demands[len(last.demands)-1].knownWrong = strings.TrimPrefix(rest, "wrong: ")
		case isDemand:
			d := caseDemand{line: i + 1, text: strings.TrimSpace(line), verb: verb}
			if hasPattern {
				var pattern string
				d.part, pattern, _ = strings.Cut(rest, " ")
				if d.pattern, err = regexp.Compile(strings.TrimSpace(pattern)); err != nil || strings.TrimSpace(pattern) == "" {
					return nil, fmt.Errorf("line %d: %s: %v", i+1, line, err)
				}
			}
			last.demands = append(last.demands, d)
		default:
			return nil, fmt.Errorf("line %d has an unknown verb: %s", i+1, line)
		}
	}
	return cases, nil
}

// A caseAnswer has the parts of an answer that demands name, and the severities of its findings.
type caseAnswer struct {
	parts      map[string]string
	severities []report.Severity // of findings above info, the first one first
}

// problem returns how an answer violates a demand, "" if it does not.
func (d *caseDemand) problem(a *caseAnswer) string {
	major := func(s report.Severity) bool { return s.IsMajor() }
	switch d.verb {
	case "quiet":
		if slices.ContainsFunc(a.severities, major) {
			return fmt.Sprintf("has findings of severity %v", a.severities)
		}
		return ""
	case "loud":
		if len(a.severities) == 0 || !a.severities[0].IsMajor() {
			return fmt.Sprintf("has findings of severity %v", a.severities)
		}
		return ""
	}
	text, ok := a.parts[d.part]
	found := d.pattern.FindString(text)
	switch {
	case !ok:
		return fmt.Sprintf("has no part %q", d.part)
	case d.verb == "say" && found == "":
		return "says " + orNothing(text)
	case d.verb == "never" && found != "":
		return fmt.Sprintf("says %q in %s", found, text)
	}
	return ""
}

// answerOfReport takes an explanation apart.
func answerOfReport(t *testing.T, rep *report.Report) *caseAnswer {
	t.Helper()
	var screen bytes.Buffer
	must.Do(t, text.Write(&screen, rep, text.Options{Command: "whylate explain x.whylate"}))
	a := &caseAnswer{}
	var groups, verdict, causes, findings, major []string
	for i := range rep.Groups {
		groups = append(groups, fmt.Sprintf("%s %s %d", rep.Groups[i].Kind, rep.Groups[i].Name, rep.Groups[i].Count))
	}
	for i := range rep.Verdict {
		v := &rep.Verdict[i]
		verdict = append(verdict, v.Text)
		for j := range v.Causes {
			c := &v.Causes[j]
			claimed := claim{}
			claimed.cause, claimed.site = workOf(c)
			key := strings.TrimPrefix(claimed.key(), "sentence ")
			if c.Queue != nil {
				key = "queued " + key
			}
			causes = append(causes, key)
		}
	}
	for _, f := range rep.Findings {
		if f.Severity == report.SeverityInfo || f.Ignored != "" {
			continue
		}
		text := fmt.Sprintf("[%s] %s", f.Severity, findingWords(&f))
		findings = append(findings, text)
		if f.Severity.IsMajor() {
			major = append(major, text)
		}
		a.severities = append(a.severities, f.Severity)
	}
	first := func(list []string) string {
		return strings.Join(list[:min(len(list), 1)], "")
	}
	a.parts = map[string]string{
		"groups": strings.Join(groups, "\n"), "sentence": first(verdict), "verdict": strings.Join(verdict, "\n"), "causes": strings.Join(causes, "\n"),
		"first": first(findings), "major": strings.Join(major, "\n"), "findings": strings.Join(findings, "\n"),
		"screen": strings.Join(strings.Fields(screen.String()), " "),
	}
	a.parts["all"] = a.parts["screen"] + "\n" + a.parts["verdict"] + "\n" + a.parts["findings"]
	return a
}

// findingWords returns what a finding states and advises, with its site.
func findingWords(f *report.Finding) string {
	c := claim{code: f.Code, site: f.Site}
	words := fmt.Sprintf("%s; %s; %s", f.Title, c.key(), f.Fix)
	if f.Predicted != nil {
		words += "; " + f.Predicted.Change
	}
	return words
}

// TestCases judges what a person reads about recordings whose truth was known before they were explained: the first screen,
// the sentences, and titles and advice of findings above info. Demands marked "known wrong" must be violated, all others met.
func TestCases(t *testing.T) {
	cases := must.Have(casesIn(string(must.Have(os.ReadFile(casesTable))(t))))(t)
	testprog.RecordingsDir(t)
	path := func(file string) string { // of the directory cases, unless the name has another one
		if !strings.Contains(file, "/") {
			file = "cases/" + file
		}
		return testprog.Recording(t, file)
	}
	judged := map[string]bool{}
	for i := range cases {
		c := &cases[i]
		for _, file := range c.files {
			judged[file] = judged[file] || c.command == "explain"
		}
		t.Run(c.command+" "+strings.Join(c.files, " "), func(t *testing.T) {
			must.True(t, c.truth != "" && len(c.demands) != 0, "the case has no truth or no demand")
			var answer *caseAnswer
			if c.command == "explain" {
				answer = answerOfReport(t, explainFile(t, path(c.files[0])))
			} else {
				var stdout, stderr bytes.Buffer
				cli.Run(t.Context(), []string{c.command, path(c.files[0]), path(c.files[1])}, strings.NewReader(""), &stdout, &stderr)
				answer = &caseAnswer{parts: map[string]string{c.command: strings.Join(strings.Fields(stdout.String()+stderr.String()), " ")}}
			}
			for j := range c.demands {
				d := &c.demands[j]
				switch problem := d.problem(answer); {
				case problem != "" && d.knownWrong == "":
					t.Errorf("%s:%d: %s: the answer %s", casesTable, d.line, d.text, problem)
				case problem == "" && d.knownWrong != "":
					t.Errorf("%s:%d: %s: this is right now, remove its \"known wrong: %s\"", casesTable, d.line, d.text, d.knownWrong)
				}
			}
		})
	}
	for _, prefix := range []string{"", "strangers/"} {
		for _, f := range must.Have(filepath.Glob(testprog.Dir + "/" + cmp.Or(prefix, "cases/") + "*"))(t) {
			if name := prefix + strings.TrimSuffix(filepath.Base(f), testprog.Packed); !judged[name] {
				t.Errorf("%s has no case of %s in %s", f, name, casesTable)
			}
		}
	}
}

// TestCaseDemands: demands are met and violated as their verbs say.
func TestCaseDemands(t *testing.T) {
	table := "explain x\ntruth t\nsay first peer\nnever all client\nknown wrong: r\nquiet\nloud\n"
	cases := must.Have(casesIn(table))(t)
	must.True(t, len(cases) == 1 && len(cases[0].demands) == 4 && cases[0].demands[1].knownWrong == "r", "%+v", cases)
	good := caseAnswer{parts: map[string]string{"first": "a peer", "all": "a peer"}, severities: []report.Severity{report.SeverityLow}}
	bad := caseAnswer{parts: map[string]string{"first": "a client", "all": "a client"}, severities: []report.Severity{report.SeverityHigh}}
	for i, wantProblems := range [][2]bool{{false, true}, {false, true}, {false, true}, {true, false}} {
		d := &cases[0].demands[i]
		check.Equal(t, [2]bool{d.problem(&good) != "", d.problem(&bad) != ""}, wantProblems, "%s: problems", d.text)
	}
	for _, wrong := range []string{"say first peer", "explain x\nsay first", "explain x\nsay first (", "explain x\nshout", "explain x\nknown wrong: r"} {
		if _, err := casesIn(wrong); err == nil {
			t.Errorf("%q is read without an error", wrong)
		}
	}
}

// TestBatchIsNoLongPoll: requests that wait for a batch which another of them began wait for work, whichever part of the recording
// is explained.
func TestBatchIsNoLongPoll(t *testing.T) {
	file := testprog.Recording(t, "strangers/events.trace")
	for _, from := range []string{"1s", "1500ms"} {
		findings := explainFile(t, file, "--from", from).Findings
		check.True(t, len(findings) != 0 && findings[0].Code == report.RuleSleep && findings[0].Severity.IsMajor(),
			"from %s: %+v", from, findings)
	}
}
