package html_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/html"
)

func write(t *testing.T, r *report.Report) string {
	t.Helper()
	var out bytes.Buffer
	must.Do(t, html.Write(&out, r, html.Options{Command: "whylate explain x.trace"}))
	return out.String()
}

var data = regexp.MustCompile(`(?s)<script type="application/json" id="report">(.*?)</script>`)

// TestPageHoldsTheReport: the JSON in the page is the complete report, whatever characters its names have.
func TestPageHoldsTheReport(t *testing.T) {
	names, err := filepath.Glob("../testdata/*.json")
	must.True(t, err == nil && len(names) != 0, "no samples: %v", err)
	for _, name := range names {
		raw := must.Have(os.ReadFile(name))(t)
		r := must.Have(report.ReadJSON(bytes.NewReader(raw)))(t)
		r.Verdict = verdict.Verdicts(r) // a page has one, also of reports of earlier versions
		m := data.FindAllStringSubmatch(write(t, r), -1)
		must.Equal(t, len(m), 1, "%s: elements hold the report", name)
		back, err := report.ReadJSON(strings.NewReader(m[0][1]))
		must.Do(t, err, name)
		var want, got bytes.Buffer
		check.True(t, report.WriteJSON(&want, r) == nil && report.WriteJSON(&got, back) == nil && want.String() == got.String(),
			"%s: the page contains another report", name)
	}
}

func TestHostileNamesStayText(t *testing.T) {
	evil := "</script><script>alert(1)</script><!--<img src=x onerror=alert(1)>\u2028\u2029\"'`${x}{{script}}&amp;"
	r := &report.Report{Schema: report.Schema, Groups: []report.Group{{Name: evil, Kind: report.KindTask}}}
	r.Input.Name = evil
	var out bytes.Buffer
	must.Do(t, html.Write(&out, r, html.Options{Command: evil, Version: evil}))
	page := out.String()
	plain := write(t, &report.Report{Schema: report.Schema})
	for _, tag := range []string{"<script", "</script", "<!--", "<img", "<style"} {
		if got, want := strings.Count(page, tag), strings.Count(plain, tag); got != want {
			t.Errorf("%q occurs %d times in the page, %d times without the names", tag, got, want)
		}
	}
	check.True(t, !strings.Contains(page, "\u2028") && !strings.Contains(page, "\u2029"), "the page contains a line separator")
}

// TestPageIsSelfContained searches the page for anything that a browser would fetch. lab/browser tests the page in a browser.
func TestPageIsSelfContained(t *testing.T) {
	page := write(t, &report.Report{Schema: report.Schema})
	for _, pattern := range []string{`(?i)\b(src|href)\s*=\s*["']?https?:`, `@import`, `url\((?:["'])?(?:https?:|//)`, `\bfetch\(`, `XMLHttpRequest`, `WebSocket`, `EventSource`, `sendBeacon`, `\bimport\s*[({"']`, `innerHTML`, `outerHTML`, `insertAdjacentHTML`, `document\.write`, `\beval\(`} {
		if match := regexp.MustCompile(pattern).FindStringIndex(page); match != nil {
			t.Errorf("the page holds %q: ...%s", pattern, page[max(0, match[0]-60):match[1]])
		}
	}
	check.True(t, strings.Contains(page, `http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'sha256-`),
		"the page has no content security policy, or one that allows more")
	check.True(t, len(page) <= 1<<20, "without data, the page has %d bytes, more than 1 MiB", len(page))
}

// TestModulesJoin checks the conditions for joining the modules: every import names an earlier module, no import or export remains,
// and no two modules declare the same name.
func TestModulesJoin(t *testing.T) {
	page := write(t, &report.Report{Schema: report.Schema})
	script := page[strings.Index(page, `<script type="module">`):]
	check.Equal(t, regexp.MustCompile(`(?m)^(import|export)\b.*`).FindString(script), "", "not removed")
	declared := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(?:async )?(?:function\*?|const|let|class) (\w+)`).FindAllStringSubmatch(script, -1) {
		check.False(t, declared[m[1]], "%s is declared twice at the top of modules", m[1])
		declared[m[1]] = true
	}
	order := map[string]int{}
	for i, m := range regexp.MustCompile(`(?m)^// (\w+)\.js$`).FindAllStringSubmatch(script, -1) {
		order[m[1]] = i
	}
	files, _ := filepath.Glob("page/*.js")
	check.True(t, len(files) == len(order), "%d modules, %d of them in the page", len(files), len(order))
	for _, f := range files {
		text := must.Have(os.ReadFile(f))(t)
		name := strings.TrimSuffix(filepath.Base(f), ".js")
		for _, m := range regexp.MustCompile(`(?m)^import \{(.*)\} from '\./(\w+)\.js';`).FindAllStringSubmatch(string(text), -1) {
			position, ok := order[m[2]]
			check.True(t, ok && position < order[name], "%s imports from %s, which is not before it", name, m[2])
			for _, id := range strings.Split(m[1], ",") {
				if !regexp.MustCompile(`(?m)^export (?:const|let|class|function\*?) ` + strings.TrimSpace(id) + `\b`).Match(mustRead(t, "page/"+m[2]+".js")) {
					t.Errorf("%s imports %s, which %s does not export", name, strings.TrimSpace(id), m[2])
				}
			}
		}
	}
}

func mustRead(t *testing.T, name string) []byte {
	t.Helper()
	return must.Have(os.ReadFile(name))(t)
}

// TestLargeReports: the page of a report with many long requests has at most 3 MB, and contains the complete report.
func TestLargeReports(t *testing.T) {
	r := &report.Report{Schema: report.Schema}
	site := &report.Site{Func: "github.com/example/service/internal/deep/down.(*Handler).ServeHTTP", File: "/go/src/github.com/example/service/internal/deep/down/handler.go"}
	for i := range 5 {
		g := report.Group{ID: fmt.Sprint(i), Name: "main.f", Kind: report.KindHTTP1}
		q := report.Request{ID: fmt.Sprint("r", i), LatencyNS: 2000}
		for k := range 2000 {
			line := *site
			line.Line = k
			q.Segments = append(q.Segments, report.Segment{StartNS: int64(k), DurationNS: 1, Goroutine: uint64(k % 40), Cause: "cpu", Site: &line})
		}
		g.Slowest = []report.Request{q, q, q}
		r.Groups = append(r.Groups, g)
	}
	begin := time.Now()
	page := write(t, r)
	t.Logf("a page of %d bytes, in %v", len(page), time.Since(begin).Round(time.Millisecond))
	check.True(t, len(page) <= 3e6, "the page has %d bytes", len(page))
	m := regexp.MustCompile(`<script type="application/gzip;base64" id="report">([^<]*)</script>`).FindStringSubmatch(page)
	must.True(t, m != nil, "the report is not in the page")
	packed := must.Have(base64.StdEncoding.DecodeString(m[1]))(t)
	z := must.Have(gzip.NewReader(bytes.NewReader(packed)))(t)
	back := must.Have(report.ReadJSON(z))(t)
	want, got := must.Have(report.CompactJSON(r))(t), must.Have(report.CompactJSON(back))(t)
	check.True(t, bytes.Equal(want, got), "the page contains another report")
}
