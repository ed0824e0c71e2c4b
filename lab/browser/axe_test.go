package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/viewer/inspect"
	"github.com/whylate/whylate/report/html"
)

// axeFile is the accessibility checker, installed by `npm install --prefix artefacts axe-core@4` (.ci/full does).
const axeFile = "../../artefacts/node_modules/axe-core/axe.min.js"

// axe checks a tab by the rules of WCAG 2.2, AA, and by best practices.
func (p *tab) axe(source, name string) {
	p.t.Helper()
	p.run(chromedp.Evaluate[chromedp.Void](source + "\n;undefined"))
	text := runAction(p, chromedp.Evaluate[string](`axe.run(document, { resultTypes: ['violations'] }).then(r => JSON.stringify(r.violations.map(v => ({ ID: v.id, Help: v.help, Nodes: v.nodes.slice(0, 4).map(n => n.html.slice(0, 200) + ' ' + n.failureSummary.slice(0, 200)) }))))`, chromedp.EvalAwaitPromise))
	var found []struct {
		ID, Help string
		Nodes    []string
	}
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		p.t.Fatal(err)
	}
	for _, f := range found {
		p.t.Errorf("%s: %s (%s): %q", name, f.ID, f.Help, f.Nodes)
	}
}

// TestAxe checks pages in light and dark, wide and narrow, and the live page with everything open, with axe-core.
func TestAxe(t *testing.T) {
	browser := chromium(t)
	data, err := os.ReadFile(filepath.FromSlash(axeFile))
	if err != nil {
		t.Skip("no axe-core here (npm install --prefix artefacts axe-core@4)")
	}
	source := string(data)
	for _, name := range []string{"tso", "pubsub", "none"} {
		for _, width := range []int{390, 1440} {
			for _, dark := range []bool{false, true} {
				p := openWith(t, browser, readSample(t, name), html.Options{Editor: "vscode"}, width, dark, "")
				p.run(chromedp.Evaluate[chromedp.Void](`for (const d of document.querySelectorAll('details')) d.open = true`))
				p.settle()
				p.axe(source, fmt.Sprint(name, " ", width, " dark ", dark))
				p.close()
			}
		}
	}
	_, trace, url := serveTrace(t, testprog.Trace(t, "http1-long"), "http1.trace")
	page := must.Have(trace.Requests(context.Background(), inspectSlowest))(t)
	for _, width := range []int{390, 2560} {
		p := visitServer(t, browser, url, "#open="+page.Rows[0].ID, width, false)
		p.run(chromedp.Evaluate[chromedp.Void](`document.getElementById('functions').scrollIntoView()`))
		p.waitUntil(`document.querySelectorAll('.functions [data-function]').length > 0`)
		p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('.functions tbody button').click()`))
		p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('.lanes').focus()`))
		p.press("m")
		p.selectedArea()
		p.waitForTiles()
		p.axe(source, fmt.Sprint("live ", width))
		p.screenshot(fmt.Sprint("live-all-open-", width))
		p.close()
	}
}

var inspectSlowest = inspect.Query{Sort: "latency", Descending: true, Limit: 1}
