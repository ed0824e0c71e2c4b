package server

import (
	"flag"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

var update = flag.Bool("update", false, "rewrite testdata/pages.txt")

// TestPages: testdata/pages.txt has the texts, links and bars of pages, and answers of the API, about two versions of a service on five
// pods, of which one is throttled.
func TestPages(t *testing.T) {
	defer func(l *time.Location) { time.Local = l }(time.Local)
	time.Local = time.UTC
	s, h := newTestServer(t)
	begin := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	var id string
	for i := range 10 {
		id = fmt.Sprintf("%032x", i)
		rep := hostileReport(int64(1+i/5) * 1e6)
		g, total := &rep.Groups[0], float64(1000+100*i)
		g.Slowest[0].StartNS, g.Slowest[0].Goroutine, g.Slowest[0].Segments[0].StartNS = 5e6, 9, 5e6
		g.Name, g.TotalNS, g.Blocks = "GET /", int64(1e9*(1+i/5)), []report.Block{{StartNS: 1}}
		g.Bands = []report.Band{{Band: report.BandAll, Count: 100, Causes: []report.Cause{{Cause: "sleep", TotalNS: 600, Share: 600 / total}, {Cause: "lock", TotalNS: int64(total) - 600, Share: 1 - 600/total}}}, {Band: report.Band99, Count: 1, Causes: []report.Cause{{Cause: "lock", TotalNS: 5, Share: 1}}}}
		if i%5 == 3 {
			g.HistogramCauses["throttle"] = []int64{4e9, 5e9}
		}
		low := rep.Findings[0]
		low.Code, low.Severity, low.Title = "WL2005", report.SeverityLow, "peers are slow"
		rep.Findings = append(rep.Findings, low)
		if i >= 5 {
			rep.Findings[0].Code, rep.Findings[0].Title = "WL2002", "new in this version"
		}
		l := rows.Labels{Service: "shop", Version: fmt.Sprint("v", 1+i/5), Environment: "live", Pod: fmt.Sprint("p", i%5), Node: "n"}
		must.Do(t, s.Store.AddRecording(t.Context(), store.Recording{ID: id, Labels: l, Received: begin.Add(time.Duration(i*i) * 20 * time.Minute), Bytes: 5}))
		finishWith(t, s, id, rep)
	}
	problems, _, err := s.Store.Overview(t.Context(), store.Selection{From: begin, To: begin.Add(48 * time.Hour)})
	must.True(t, err == nil && len(problems) == 3, "%+v %v", problems, err)
	const span = "from=2026-05-04T00:00:00Z&to=2026-05-06T00:00:00Z"
	style, shown, blank := regexp.MustCompile(`(?s)<style.*?</style>`), regexp.MustCompile(`<(rect|svg|line|text)[^>]*>|href="[^"]*"`), regexp.MustCompile(`\s+`)
	var got strings.Builder
	for _, path := range []string{"/?", "/service/shop?", "/moments?environment=live&trace=" + strings.Repeat("a", 32) + "&", "/finding/" + problems[0].Problem + "?", "/recordings/" + id + "?",
		"/recordings/" + id + "/view?problem=" + problems[0].Problem + "&", "/recordings/" + id + "/view?problem=" + problems[1].Problem + "&", "/recordings/" + id + "/report?problem=" + problems[1].Problem + "&",
		"/v1/findings?", "/v1/versions?", "/v1/series?service=shop&", "/v1/pods?service=shop&", "/v1/report?service=shop&version=v2&", "/v1/recordings/" + id + "?"} {
		w := request(h, "GET", path+span, "")
		must.True(t, w.Code == http.StatusOK || w.Code == http.StatusFound, "%s: %d %s", path, w.Code, w.Body)
		text := w.Body.String()
		if location := w.Header().Get("Location"); location != "" {
			text = location
		} else if !strings.HasPrefix(path, "/v1") {
			text = regexp.MustCompile(`<[^>]*>`).ReplaceAllStringFunc(style.ReplaceAllString(text, ""), func(tag string) string {
				return " " + strings.Trim(strings.Join(shown.FindAllString(tag, -1), " "), "<>") + " "
			})
			text = strings.ReplaceAll(text, strings.ReplaceAll(strings.ReplaceAll(span, ":", "%3A"), "&", "&amp;"), "SPAN")
			text = strings.ReplaceAll(blank.ReplaceAllString(text, " "), " href", "\nhref")
		}
		fmt.Fprintf(&got, "%s\n%s\n\n", path, strings.ReplaceAll(text, "},{", "},\n{"))
	}
	must.Golden(t, *update, "testdata/pages.txt", []byte(got.String()))
}
