package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// fleetProgram builds whylate-fleet.
func fleetProgram(t *testing.T) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "whylate-fleet")
	if out, err := exec.Command("go", "build", "-o", exe, "../../fleet/cmd/whylate-fleet").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return exe
}

// startFleet runs the program until the test ends, and returns its output by line.
func startFleet(t *testing.T, exe string, args ...string) *bufio.Scanner {
	t.Helper()
	c := exec.Command(exe, args...)
	out := must.Have(c.StdoutPipe())(t)
	c.Stderr = c.Stdout // verb serve logs its address
	must.Do(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		_, _ = io.Copy(io.Discard, out)
		_ = c.Wait()
	})
	return bufio.NewScanner(out)
}

// textAfter returns the word that follows a text, in the first line that contains the text.
func textAfter(t *testing.T, in *bufio.Scanner, text string) string {
	t.Helper()
	for in.Scan() {
		if _, rest, ok := strings.Cut(in.Text(), text); ok {
			rest, _, _ = strings.Cut(rest+" ", " ")
			return strings.TrimSuffix(rest, ".")
		}
	}
	t.Fatalf("it ended without %q: %v", text, in.Err())
	return ""
}

type fleetFinding struct {
	Problem, Service, Code, Title, Site string
	Versions                            []string
	Win                                 float64 `json:"win_per_second"`
}

func fleetFindings(t *testing.T, origin, query string) (out []fleetFinding) {
	t.Helper()
	res := must.Have(http.Get(origin + "/v1/findings" + query))(t)
	defer res.Body.Close()
	must.Do(t, json.NewDecoder(res.Body).Decode(&out))
	return out
}

// openFleetPage opens a page of the fleet.
func openFleetPage(t *testing.T, browser context.Context, origin, path string, width int, dark bool) *tab {
	t.Helper()
	p := loadPage(t, browser, origin+path, "footer", func(u string) bool { return strings.HasPrefix(u, origin+"/") || strings.HasPrefix(u, "data:") }, width, dark)
	p.settle()
	return p
}

// follow clicks on the first element of a selector, and returns the path of the page that opens.
func (p *tab) follow(selector, ready string) string {
	p.t.Helper()
	from := evaluate[string](p, `location.href`)
	p.run(chromedp.Click(chromedp.CSS(selector)))
	p.waitAcrossPages(fmt.Sprintf(`location.href !== %q && document.readyState === 'complete' && document.querySelector(%q)`, from, ready))
	p.settle()
	return evaluate[string](p, `location.pathname`)
}

// TestFollow: the page of a link arrives at any time after the click, and replaces the one that is asked.
func TestFollow(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		time.Sleep(time.Duration(n) * time.Millisecond)
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<link rel="icon" href="data:,"><a href="/%d">next</a>`, n+1)
	}))
	t.Cleanup(server.Close)
	p := loadPage(t, chromium(t), server.URL, "a", func(string) bool { return true }, 400, false)
	for n := range 40 {
		must.Equal(t, p.follow("a", "a"), fmt.Sprint("/", n+1), "link %d leads to", n)
	}
	p.close()
}

// TestFleetDemo: within a minute, the bad deploy is first on the start page, with version, cause, line and gain; three clicks
// lead to the recording, one to the wait on its timelines. Each page on the way is accessible, wide and narrow, in light and dark.
func TestFleetDemo(t *testing.T) {
	browser := chromium(t)
	in := startFleet(t, fleetProgram(t), "-listen", "127.0.0.1:0", "demo")
	origin := textAfter(t, in, "The fleet is at ")
	textAfter(t, in, "Checkout v2 is deployed")
	begin := time.Now()
	go func() { // its log must not fill the pipe
		for in.Scan() {
		}
	}()
	isBadDeployFirst := func() bool {
		f := fleetFindings(t, origin, "")
		return len(f) > 0 && f[0].Service == "checkout" && slices.Contains(f[0].Versions, "v2") && f[0].Code == "WL2002" && strings.Contains(f[0].Site, "demo.go:") && f[0].Win > 0
	}
	for !isBadDeployFirst() {
		must.True(t, time.Since(begin) <= time.Minute, "the bad deploy is not first after %v: %+v", time.Since(begin), fleetFindings(t, origin, ""))
		time.Sleep(time.Second)
	}
	t.Logf("the bad deploy was first after %v", time.Since(begin).Round(time.Second))

	p := openFleetPage(t, browser, origin, "/?from=24h", 1280, false)
	for _, want := range []string{"checkout", "v2", "Mutex", "demo.go:", "off each request"} {
		if got := evaluate[string](p, `document.querySelector('table tr:nth-child(2)').innerText`); !strings.Contains(got, want) {
			t.Errorf("the first finding says %q, without %q", got, want)
		}
	}
	paths := []string{"/?from=24h"}
	for i, click := range []struct{ selector, to string }{
		{`a[href^="/service/"]`, "/service/checkout"},
		{`a.title`, "/finding/"},
		{`main a[href^="/recordings/"]`, "/recordings/"},
	} {
		if got := p.follow(click.selector, "footer"); !strings.HasPrefix(got, click.to) {
			t.Fatalf("click %d leads to %s", i+1, got)
		}
		paths = append(paths, evaluate[string](p, `location.pathname + location.search`))
	}
	if got := evaluate[string](p, `document.body.innerText`); !strings.Contains(got, "whylate view") || !strings.Contains(got, "checkout") {
		t.Errorf("the recording's page says %q", got)
	}
	res, err := http.Get(origin + evaluate[string](p, `document.querySelector('main a[href$="/raw"]').getAttribute('href')`))
	must.Do(t, err)
	_ = res.Body.Close()
	check.True(t, res.StatusCode == http.StatusOK, "the file: %s", res.Status)
	if got := p.follow(`main a[href*="/report"]`, "html[data-ready=true]"); !strings.HasSuffix(got, "/report") {
		t.Errorf("the report is at %s", got)
	}
	p.close()
	// Two versions side by side.
	p = openFleetPage(t, browser, origin, paths[1], 1280, false)
	p.follow(`a[href^="/compare"]`, "html[data-ready=true]")
	if got := evaluate[string](p, `document.getElementById('before-after').innerText`); !strings.Contains(got, "GET /checkout") {
		t.Errorf("side by side: %q", got)
	}
	p.screenshot("fleet-compare")
	p.close()
	// One click leads from the start page to the interval in which a request waits, on the lane of its goroutine.
	p = openFleetPage(t, browser, origin, paths[0], 1280, false)
	facts := origin + evaluate[string](p, `document.querySelector('main a[href*="/view?"]').pathname`) + "/api/facts"
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) { // a page that is loaded while the trace is read loads itself again
		if res, err := http.Get(facts); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				break
			}
		}
		must.True(t, time.Since(begin) <= actionTimeout, "the viewer does not answer")
	}
	if got := p.follow(`main a[href*="/view?"]`, "html[data-live=ready]"); !strings.HasSuffix(got, "/view/") {
		t.Errorf("the timelines are at %s", got)
	}
	p.waitUntil(`document.querySelector('.moment').textContent.includes('waiting')`)
	p.screenshot("fleet-view")
	p.close()
	paths = append(paths, "/moments?from=24h&service=checkout", "/?from=24h&severity=low&service=checkout")
	checkFleet(t, browser, origin, "demo", paths)
}

// checkFleet checks pages of a fleet for the last 24 hours.
func checkFleet(t *testing.T, browser context.Context, origin, name string, paths []string) {
	t.Helper()
	axe, err := os.ReadFile(filepath.FromSlash(axeFile))
	if err != nil {
		t.Log("no axe-core here (npm install --prefix artefacts axe-core@4)")
	}
	for i, path := range paths {
		for _, width := range []int{390, 1280} {
			for _, dark := range []bool{false, true} {
				p := openFleetPage(t, browser, origin, path, width, dark)
				p.checkWidth(width)
				if len(axe) > 0 {
					p.axe(string(axe), fmt.Sprint(path, " ", width, " dark ", dark))
				}
				if !dark || i == 0 {
					p.screenshot(fmt.Sprintf("fleet-%s-%d-%d-dark-%v", name, i, width, dark))
				}
				if width == 1280 && !dark {
					if lost := evaluate[[]string](p, `[...document.querySelectorAll('main a[href^="/"]')].map(a => new URL(a.href)).filter(u => !u.pathname.startsWith('/v1/') && !/\/(raw|report|view)$|^\/compare$/.test(u.pathname) && u.searchParams.get('from') !== '24h').map(u => u.href)`); len(lost) > 0 {
						t.Errorf("%s: links without the time: %q", path, lost)
					}
					p.checkTabKey(path)
				}
				p.close()
			}
		}
	}
}

// TestFleetHostile: names from recordings and headers are shown as text on all pages; none runs as a script or breaks a page.
func TestFleetHostile(t *testing.T) {
	browser := chromium(t)
	const evil = `<img src=x onerror=alert(1)>"'><script>alert(2)</script>{{.}}` + "\u202e"
	dir := filepath.Join(t.TempDir(), "fleet")
	exe := fleetProgram(t)
	token, err := exec.Command(exe, "-dir", dir, "token", "shop").Output()
	must.Do(t, err)
	origin := textAfter(t, startFleet(t, exe, "-dir", dir, "-listen", "127.0.0.1:0", "serve"), "address=")
	for _, version := range []string{"v1", evil} {
		var trc bytes.Buffer
		must.Do(t, trace.Start(&trc))
		for i := range 60 {
			ctx, task := trace.NewTask(context.Background(), evil)
			trace.WithRegion(ctx, evil, func() { time.Sleep(time.Duration(1+i%3*20) * time.Millisecond) })
			task.End()
		}
		trace.Stop()
		q := must.Have(http.NewRequest("POST", origin+"/v1/recordings", bytes.NewReader(trc.Bytes())))(t)
		q.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		for _, name := range []string{"Version", "Environment", "Pod", "Node"} {
			q.Header.Set("Whylate-"+name, version)
		}
		res := must.Have(http.DefaultClient.Do(q))(t)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusAccepted {
			t.Fatal(res.Status)
		}
	}
	var found []fleetFinding
	for begin := time.Now(); len(found) == 0; time.Sleep(100 * time.Millisecond) {
		if found = fleetFindings(t, origin, ""); time.Since(begin) > actionTimeout {
			t.Fatal("there is no finding")
		}
	}
	paths := []string{"/?from=24h", "/service/shop?from=24h", "/finding/" + found[0].Problem + "?from=24h", "/moments?from=24h&trace=" + url.QueryEscape(evil), "/moments?from=24h&service=" + url.QueryEscape(evil)}
	checkFleet(t, browser, origin, "hostile", paths)
}
