package acceptance_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/html"
	"github.com/whylate/whylate/report/text"
)

// TestCalledFrom: if requests wait in a dependency, the report, its text and its page also show the service's line that called
// the dependency, which the catalog knows, and the dependency's module with the version required by lab/go.mod.
func TestCalledFrom(t *testing.T) {
	rec := testprog.Service(t, "grpc-client")
	rep := must.Have(whylate.Explain(context.Background(), bytes.NewReader(rec.Trace), whylate.Options{}))(t)
	const fn, line = "github.com/whylate/whylate/lab/truth/catalog.(*grpcCaller).ask", 363
	checkSite := func(place string, s *report.Site) {
		t.Helper()
		switch {
		case s == nil || s.CalledFrom == nil:
			t.Errorf("%s: no line of the service called %+v", place, s)
		case s.CalledFrom.Func != fn || s.CalledFrom.Line != line:
			t.Errorf("%s: called from %+v, want %s, line %d", place, *s.CalledFrom, fn, line)
		case s.Module != "google.golang.org/grpc" || !strings.Contains(labModFile(t), s.Module+" "+s.Version):
			t.Errorf("%s: in %s %s, which lab/go.mod does not require", place, s.Module, s.Version)
		}
	}
	checkSite("the verdict", rep.Verdict[0].Causes[0].Sites[0].Site)
	checkSite("the first finding", rep.Findings[0].Site)
	checkSite("the largest cause", rep.Groups[0].All().Causes[0].Site)
	slowest := rep.Groups[0].Slowest[0].Segments
	longest := &slowest[0]
	for i := range slowest {
		if slowest[i].DurationNS > longest.DurationNS {
			longest = &slowest[i]
		}
	}
	checkSite("the longest wait of slowest request", longest.Site)

	// Another goroutine reads the answer: the line waits for it and does not call the reader.
	const callerText = "catalog.(*grpcCaller).ask"
	if s := rep.Verdict[0].Text; !strings.Contains(s, callerText+" network.go:363") || strings.Contains(s, "called from") {
		t.Errorf("the verdict does not name the service's line: %s", s)
	}
	var out bytes.Buffer
	must.Do(t, text.Write(&out, rep, text.Options{Width: 120, Full: true}))
	if n := len(regexp.MustCompile(`catalog\.\(\*grpcCaller\)\.ask \(?network\.go:363`).FindAllString(strings.Join(strings.Fields(out.String()), " "), -1)); n < 3 { // why, change, and the table
		t.Errorf("the text names the service's line %d times:\n%s", n, out.String())
	}
	out.Reset()
	must.Do(t, html.Write(&out, rep, html.Options{}))
	check.True(t, strings.Contains(out.String(), `"called_from":{"func":"`+fn), "the page's data does not contain the service's line")
}

// TestModules: if Options.Modules names another module, the service's own code counts as a dependency.
func TestModules(t *testing.T) {
	rec := testprog.Service(t, "grpc-client")
	rep := must.Have(whylate.Explain(context.Background(), bytes.NewReader(rec.Trace), whylate.Options{Modules: []string{"google.golang.org/grpc"}}))(t)
	if s := rep.Groups[0].All().Causes[0].Site; s.CalledFrom != nil || !strings.HasPrefix(s.Func, "google.golang.org/grpc") {
		t.Errorf("%s (%s) is in the service's module, but is shown as called from %+v", s.Func, path.Base(s.File), s.CalledFrom)
	}
}

// labModFile returns the text of lab/go.mod.
func labModFile(t *testing.T) string {
	t.Helper()
	b := must.Have(os.ReadFile("lab/go.mod"))(t)
	return string(b)
}

// TestJudgedRules: a report lists a rule as judged only if the recording has the data that the rule needs; of two recordings,
// one has CPU samples.
func TestJudgedRules(t *testing.T) {
	for name, want := range map[string]bool{"cpusamples": true, "http1": false} {
		rep := must.Have(whylate.Explain(context.Background(), bytes.NewReader(testprog.Trace(t, name)), whylate.Options{}))(t)
		judged := true
		for _, b := range rep.Judged.Blind {
			if b.Text == "no CPU samples" {
				judged = false
			}
		}
		check.True(t, judged == want, "%s: %s", name, rep.Judged.Text)
		var out bytes.Buffer
		if err := text.Write(&out, rep, text.Options{Width: 200, Full: true}); err != nil || !strings.Contains(out.String(), fmt.Sprintf("\njudged   %d rules: ", len(report.RuleCodes()))) {
			t.Errorf("%s: the text does not say which rules judged (%v):\n%s", name, err, out.String())
		}
	}
}

// TestWellKnownLines: lines of net/http that are in nearly every trace have a description of their purpose in addition to the
// function and line, which only a reader of net/http's source understands.
func TestWellKnownLines(t *testing.T) {
	rep := must.Have(whylate.Explain(context.Background(), bytes.NewReader(testprog.Trace(t, "http1")), whylate.Options{}))(t)
	descriptions := map[string]bool{}
	for i := range rep.Groups {
		for _, c := range rep.Groups[i].All().Causes {
			if c.Site == nil || c.Site.Func != "net/http.(*conn).serve" {
				continue
			}
			check.True(t, c.Site.Does != "", "%s %s:%d has no description", c.Site.Func, path.Base(c.Site.File), c.Site.Line)
			descriptions[c.Site.Does] = true
		}
	}
	for _, want := range []string{"reading the request", "beginning the next request", "finishing the answer"} {
		check.True(t, descriptions[want], "no line is described as %q: %v", want, descriptions)
	}
}
