package browser

import (
	"bytes"
	"io"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/viewer/inspect"
	"github.com/whylate/whylate/internal/viewer/view"
	"github.com/whylate/whylate/report/html"
)

// TestJoinedServices: the page of services that call each other names the service of each group, links callers with callees, and draws
// what the other service did for a request on a lane of it.
func TestJoinedServices(t *testing.T) {
	browser := chromium(t)
	var services []*explain.Service
	for _, name := range []string{"audit", "stock"} {
		services = append(services, &explain.Service{Options: explain.Options{Name: name, Reopen: func() (io.ReadCloser, error) { return os.Open(testprog.Recording(t, "shop/"+name+".trace")) }}})
	}
	r := must.Have(explain.ExplainServices(t.Context(), services))(t)
	for _, width := range []int{1280, 400} {
		p := open(t, browser, r, width, width == 400, "")
		p.checkAppearance(width)
		p.screenshot("joined-" + map[bool]string{true: "narrow", false: "wide"}[width == 400])
		p.close()
	}
	p := open(t, browser, r, 1280, false, "")
	defer p.close()
	for name, want := range map[string]string{"audit": "audit · calls stock", "stock": "stock · called by audit"} {
		if got := evaluate[string](p, `document.querySelector('[data-service=`+name+`] .service').innerText`); !strings.HasPrefix(got, want) {
			t.Errorf("the row of %s says %q, want %q", name, got, want)
		}
	}
	if p.run(chromedp.Click(chromedp.CSS(`[data-service=audit] .service a`))); !strings.HasSuffix(evaluate[string](p, `document.querySelector('#group h2').innerText`), " of stock") {
		t.Error("the link of the called service does not show a group of it")
	}
	caller := &r.Groups[0]
	must.True(t, caller.Service == "audit", "the first group is of %q", caller.Service)
	p.goTo("#req=" + url.QueryEscape(caller.Slowest[0].ID))
	lane := evaluate[float64](p, `+[...document.querySelectorAll('#requests .waterfall text.lane')].find(e => e.firstChild.data === 'stock').getAttribute('y')`)
	served := 0
	for i, d := range evaluate[[]drawnSegment](p, segments) {
		s := &caller.Slowest[0].Segments[i]
		if isHere := d.LaneY > lane-10 && d.LaneY < lane+10; isHere != (s.Service == "stock") {
			t.Errorf("segment %d of service %q is drawn at %.0f, the lane of stock at %.0f", i, s.Service, d.LaneY, lane)
		}
		if s.Service == "stock" {
			served++
		}
	}
	check.True(t, served != 0, "no segment is of stock")
}

// TestServiceMenu: the page of a file with several recordings asks for that of another service.
func TestServiceMenu(t *testing.T) {
	data := testprog.Trace(t, "http1")
	x, asked := inspect.NewIndex(inspect.Limits{}), make(chan string, 1)
	s := must.Have(view.New(view.Options{Page: html.Options{Services: []string{"audit", "stock"}}, ReadAgain: func(service string) { asked <- service }}))(t)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	rep := must.Have(explain.Explain(t.Context(), bytes.NewReader(data), explain.Options{Name: "shop.whylate#stock", Index: x}))(t)
	must.Do(t, s.Show(must.Have(inspect.Open(x, bytes.NewReader(data), int64(len(data))))(t), rep))
	p := loadPage(t, chromium(t), server.URL+"/#group="+rep.Groups[0].ID, "html[data-live=ready]", func(url string) bool { return strings.HasPrefix(url, server.URL+"/") }, 1280, false)
	defer p.close()
	p.waitForTiles()
	check.Equal(t, evaluate[string](p, `document.getElementById('service').value`), "stock", "the menu shows")
	p.run(chromedp.Evaluate[chromedp.Void](`(e => { e.value = 'audit'; e.dispatchEvent(new Event('change')); })(document.getElementById('service'))`))
	check.Equal(t, <-asked, "audit", "the page asks for")
	p.waitAcrossPages(`document.querySelector('.reading') && location.hash === ''`)
	server.CloseClientConnections()
}
