package acceptance_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

// firstScreens has what the first screen of each answer shows on a terminal of 100 columns.
type firstScreens struct {
	lines      []int
	namedCount int
	rows       []string
}

// add renders an answer and checks whether the first cause of its verdict and the text up to it name the true cause and site.
func (g *firstScreens) add(t *testing.T, name string, rep *report.Report, o *outcome) {
	t.Helper()
	truth := &o.Service.Truth
	var out bytes.Buffer
	must.Do(t, text.Write(&out, rep, text.Options{Command: "whylate explain " + name + ".trace"}))
	g.lines = append(g.lines, strings.Count(out.String(), "\n"))
	if truth.Cause == "" {
		return // healthy, or with several causes
	}
	_, verdictText, isLate := strings.Cut(out.String(), "\nwhy ")
	if !isLate {
		_, verdictText, _ = strings.Cut(out.String(), "\nwhere ")
	}
	verdictText, _, _ = strings.Cut(verdictText, "\n\n")
	v := &report.Verdict{}
	if len(rep.Verdict) > 0 {
		v = &rep.Verdict[0]
	}
	causeText, firstCause, workName := "", "nothing", ""
	if len(v.Causes) > 0 {
		c := &v.Causes[0]
		work, site := workOf(c)
		if causeText, firstCause, workName = c.Text, string(work), string(work); c.AheadWork != nil {
			firstCause = "queue behind " + firstCause
		}
		if site != nil {
			firstCause += " in " + words.FuncName(site.Func)
		}
	}
	top := strings.Join(strings.Fields(verdictText), " ")
	if i := strings.Index(top, causeText); i >= 0 {
		top = top[:i+len(causeText)]
	}
	sites := append([]truthSite{truth.Site}, truth.OrSites...)
	last := func(fn string) string { return fn[strings.LastIndexByte(fn, '.')+1:] }
	ok := len(v.Causes) > 0 && (workName == truth.Cause || slices.Contains(truth.OrCauses, workName)) &&
		slices.ContainsFunc(sites, func(s truthSite) bool { return strings.Contains(top, last(s.Func)) })
	mark := "no"
	if ok {
		g.namedCount++
		mark = "yes"
	}
	g.rows = append(g.rows, fmt.Sprintf("| %s | %s in %s | %s | %s |", name, truth.Cause, words.FuncName(truth.Site.Func), firstCause, mark))
}

// check requires for nine of ten answers that they have at most 24 lines and that the first cause is the true one.
func (g *firstScreens) check(t *testing.T) {
	t.Helper()
	slices.Sort(g.lines)
	quantileLines := func(share float64) int { return g.lines[int(share*float64(len(g.lines)-1))] }
	check.True(t, quantileLines(0.9) <= 24, "nine of ten answers have up to %d lines, want at most 24", quantileLines(0.9))
	check.True(t, 10*g.namedCount >= 9*len(g.rows),
		"the first cause is the true one for %d of %d recordings, want nine of ten", g.namedCount, len(g.rows))
	page := fmt.Sprintf("# What the first lines name\n\nFor those who change the verdict: the first cause of the default answer against the truth that each recording was made with. "+
		"Written by `go test ./internal/acceptance -run TestTruth -update`.\n\nLines of the answer at 100 columns, over %d recordings: median %d, 90th percentile %d, at most %d. The first cause is the true one for %d of %d recordings that have one.\n\n"+
		"| recording | truth | first cause | named |\n|---|---|---|---|\n%s\n", len(g.lines), quantileLines(0.5), quantileLines(0.9), quantileLines(1), g.namedCount, len(g.rows), strings.Join(g.rows, "\n"))
	must.Golden(t, *update, filepath.Join("internal", "acceptance", "testdata", "first_screen.md"), []byte(page))
}
