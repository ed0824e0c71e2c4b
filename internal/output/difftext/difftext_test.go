package difftext

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/judge/watch"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// diff returns a random diff of a large service: eight groups changed, nine did not. ns returns the numbers.
func diff(name string, ns func() int64) *compare.Diff {
	change := func(evidence bool) compare.Change {
		p := func() *int64 { v := ns(); return &v }
		return compare.Change{Old: p(), New: p(), Delta: p(), Low: p(), High: p(), Evidence: evidence}
	}
	count := func() int { return int(ns() % 100_000) }
	d := &compare.Diff{
		Old: compare.Input{Name: name, Go: "1.26", DurationNS: ns(), GOMAXPROCS: count(), Requests: count()},
		New: compare.Input{Name: "new", Go: "1.27", DurationNS: ns(), GOMAXPROCS: 128, Truncated: true}, Confidence: 0.99,
		Warnings: []report.Warning{{Text: "recorded with another load: " + name}},
	}
	for i := range 17 {
		g := compare.Group{Name: "example.org/shop/internal/handlers.(*Server)." + strings.Repeat("Handle", 1+5*(i%8)) + name[:4], Kind: "http1", Changed: i < 8, OldCount: count(), NewCount: count()}
		if i == 0 {
			g.NewOpen = count()
		}
		if !g.Changed {
			g.Name = strings.Repeat("quiet", i) + name[:4]
		}
		g.Mean, g.P50, g.P90, g.P99 = change(g.Changed), change(false), compare.Change{}, change(g.Changed)
		for k := range 12 {
			r := compare.Row{Cause: "sleep", OldNS: ns(), NewNS: ns(), DeltaNS: ns(), Evidence: k%2 == 0, NewSite: &report.Site{Func: fmt.Sprint(g.Name, k), File: "/src/" + name, Line: count()}}
			if i == 7 {
				r.Via = []report.Via{{Wait: report.WaitLock, Site: r.NewSite}, {Wait: report.WaitChan, Site: r.NewSite}}
			}
			if k%5 == 4 {
				r.Cause, r.NewSite = report.CauseOther, nil
			}
			g.Causes, g.Tail = append(g.Causes, r), append(g.Tail, r)
		}
		d.Groups = append(d.Groups, g)
	}
	d.Appeared = []compare.GroupRef{{Name: name, Count: count(), Open: count()}}
	d.Vanished = d.Appeared
	return d
}

// TestHostile: a diff may contain any names and numbers; none causes a panic, and no name reaches the terminal unescaped.
func TestHostile(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	odd := []int64{0, -1, 1, math.MaxInt64, math.MinInt64, 1 << 40}
	for range 50 {
		var out bytes.Buffer
		must.Do(t, Write(&out, diff("\x1b[2J\u202e", func() int64 { return odd[rng.IntN(len(odd))] }), Options{Full: true}))
		if i := strings.IndexFunc(out.String(), func(r rune) bool { return r < ' ' && r != '\n' || r == 0x202e }); i >= 0 {
			t.Fatalf("control character in %q", out.String())
		}
	}
}

// TestFits: lines are no wider than the terminal, and the diff of a large service has about one screen.
func TestFits(t *testing.T) {
	n := int64(0)
	d := diff("a/very/long/name/of/a/recording/"+strings.Repeat("x", 300)+".trace", func() int64 { n += 12_345_678; return n })
	for _, width := range []int{0, 72, 80, 100, 200} {
		for _, full := range []bool{false, true} {
			var plain, colored bytes.Buffer
			must.Do(t, errors.Join(Write(&plain, d, Options{Width: width, Full: full}), Write(&colored, d, Options{Width: width, Full: full, Color: true})))
			lines := strings.Split(strings.TrimSuffix(plain.String(), "\n"), "\n")
			for _, l := range lines {
				if n := termtext.Width(l); n > max(width, 72) && width > 0 || n > 100 && width == 0 {
					t.Errorf("width %d: %d columns: %s", width, n, l)
				}
			}
			check.False(t, !full && len(lines) > 50, "width %d: %d lines are more than a screen:\n%s", width, len(lines), plain.String())
			if got := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(colored.String(), ""); got != plain.String() || got == colored.String() {
				t.Errorf("width %d: colours change more than colours", width)
			}
		}
	}
}

// TestShifts: a shift with evidence is shown as a number, one without as a sign, and a group with too few polls in a sentence.
func TestShifts(t *testing.T) {
	low, high, less := 0.8, 1.2, -0.3
	var b strings.Builder
	shifts := []watch.Shift{
		{Name: "GET /report", OldPolls: 8, NewPolls: 3, OldNS: 100e6, NewNS: 200e6, RunsChange: compare.RunsChange{Interval: compare.Interval{Est: 1, Low: &low, High: &high}, Relative: true, Evidence: true}},
		{Name: "GET /order", OldPolls: 2, NewPolls: 2, OldNS: 90e6, NewNS: 80e6, RunsChange: compare.RunsChange{Interval: compare.Interval{Est: -0.1, Low: &less, High: &high}, Relative: true}},
	}
	must.Do(t, WriteShifts(&b, shifts, Options{Width: 100}))
	const want = `
Over all looks: p99 of each look, or its slowest request; the last looks with requests compared with
those before, with a 99% interval of the change.
                                           looks   before     last    change
  GET /report                              8 → 3    100ms    200ms     +100%  +80% to +120%
  GET /order                               2 → 2   90.0ms   80.0ms         ~  -30% to +120%
`
	check.Equal(t, b.String(), want, "it says")
	b.Reset()
	if err := WriteShifts(&b, nil, Options{}); err != nil || !strings.Contains(b.String(), "four of them") {
		t.Errorf("without any it says %s, %v", b.String(), err)
	}
}

// TestRoutes: a route has the same name as in other views. It detects "GET /items/{id}" shortened to "{id}", the text after
// its last slash.
func TestRoutes(t *testing.T) {
	d := &compare.Diff{
		Groups:   []compare.Group{{Name: "GET /items/{id}", Kind: report.KindMark}},
		Appeared: []compare.GroupRef{{Name: "POST /orders/{id}/items", Kind: report.KindMark}}, Vanished: []compare.GroupRef{{Name: "example.org/shop/cart.Add", Kind: report.KindRegion}},
	}
	for _, full := range []bool{true, false} {
		var b strings.Builder
		must.Do(t, Write(&b, d, Options{Full: full}))
		for _, want := range []string{"GET /items/{id}", "POST /orders/{id}/items"} {
			check.True(t, strings.Contains(b.String(), want), "full %v: %q is not in %s", full, want, b.String())
		}
	}
}

// TestWaits: a chain of waits begins with that of the requests, such as one for a lock whose holder asks a peer.
func TestWaits(t *testing.T) {
	site := func(fn string, line int) *report.Site {
		return &report.Site{Func: fn, File: "/src/main.go", Line: line}
	}
	oldNS, newNS, deltaNS := int64(12e6), int64(1e6), int64(-11e6)
	change := compare.Change{Old: &oldNS, New: &newNS, Delta: &deltaNS, Low: &deltaNS, High: &deltaNS, Evidence: true}
	row := compare.Row{Cause: report.CauseNetwork, OldNS: oldNS, NewNS: newNS, DeltaNS: deltaNS, Evidence: true, NewSite: site("main.unwrap", 51),
		Via: []report.Via{{Wait: report.WaitLock, Site: site("main.key", 78)}, {Wait: report.WaitSelect, Site: site("main.call", 60)}, {Wait: report.WaitChan, Site: site("main.unwrap", 51)}}}
	var out strings.Builder
	must.Do(t, Write(&out, &compare.Diff{Groups: []compare.Group{{Name: "get", Changed: true, Mean: change, P50: change, P90: change, P99: change, Causes: []compare.Row{row}}}}, Options{}))
	check.True(t, strings.Contains(out.String(), "via lock main.key main.go:78 → chan main.unwrap main.go:51\n"), "%s", out.String())
}

// TestTooFew: a group without an interval is not listed as unchanged, however much its median moved.
func TestTooFew(t *testing.T) {
	old, now, delta := int64(482e6), int64(92e6), int64(-390e6)
	moved := compare.Change{Old: &old, New: &now, Delta: &delta}
	sure := moved
	sure.Low, sure.High = &delta, &delta
	rare := sure
	rare.Episodes = &compare.Episodes{Old: 1, Chance: 1}
	probable := sure
	probable.Episodes, probable.Probable, probable.Delta = &compare.Episodes{Old: 1, New: 7, Chance: 0.07}, true, new(int64(390e6))
	d := &compare.Diff{Groups: []compare.Group{{Name: "few", Mean: moved, P50: moved}, {Name: "same", Mean: sure, P50: sure, P99: rare}, {Name: "often", Mean: sure, P50: sure, P99: probable}}}
	var out bytes.Buffer
	must.Do(t, Write(&out, d, Options{}))
	for _, want := range []string{"No evidence of a change in 1 group: same (", "p99 482ms → 92.0ms: slow requests in 1 episode before, 0 after). A few episodes", "Too few requests to judge 1 group: few (p50 482ms",
		"Probably slower, but no evidence: often (p50 482ms → 92.0ms, p99 482ms → 92.0ms: slow requests in 1 episode before, 7 after, which chance alone does once in 14). Record for 30 s"} {
		check.True(t, strings.Contains(strings.ReplaceAll(out.String(), "\n", " "), want), "%q is missing:\n%s", want, out.String())
	}
}

// TestServersAndFindings: all requests of a server come first, groups between which requests moved are not compared, and findings that
// are new or gone are listed.
func TestServersAndFindings(t *testing.T) {
	p := func(ns int64) *int64 { return &ns }
	fell := compare.Change{Old: p(50e6), New: p(1e6), Delta: p(-49e6), Low: p(-50e6), High: p(-40e6), Evidence: true}
	d := &compare.Diff{
		Servers: []compare.Group{{Name: "all HTTP/1 requests", Kind: report.KindHTTP1, Changed: true, Confidence: 0.995, OldCount: 1000, NewCount: 1100, Mean: fell, P50: fell,
			Members: []compare.Member{{Name: "example.org/shop/main.(*api).document", OldCount: 300, NewCount: 2, Moved: true}, {Name: "HTTP/1 handlers that the trace does not name", OldCount: 700, NewCount: 1098, Moved: true}}}},
		Groups:       []compare.Group{{Name: "HTTP/1 handlers that the trace does not name", Kind: report.KindHTTP1, Moved: true, OldCount: 700, NewCount: 1098}},
		Vanished:     []compare.GroupRef{{Name: "example.org/shop/main.(*api).document", Kind: report.KindHTTP1, Count: 300}},
		NewFindings:  []compare.FindingRef{{Code: "WL2005", Severity: report.SeverityLow, Title: "requests wait for a peer's answer"}},
		GoneFindings: []compare.FindingRef{{Code: "WL2002", Severity: report.SeverityHigh, Title: "requests queue for a Mutex"}, {Code: "WL2001", Severity: report.SeverityLow, Title: "a sleep"}},
	}
	var out strings.Builder
	must.Do(t, Write(&out, d, Options{Width: 100}))
	_, text, _ := strings.Cut(out.String(), "\n\n")
	const want = `all HTTP/1 requests  http1, 1000 → 1100 requests
            old      new    change  99.5% interval of the change
  mean   50.0ms   1.00ms      -98%  -50.0ms to -40.0ms
  p50    50.0ms   1.00ms      -98%  -50.0ms to -40.0ms
  its requests by group  main.(*api).document 300 → 2, HTTP/1 handlers that the trace does not name
                         700 → 1098

Not compared, because requests moved between them (a request shows its handler only if it waits):
HTTP/1 handlers that the trace does not name (700 → 1098 requests).

only in the old  main.(*api).document (300 requests)

Findings that are new:
  low     WL2005  requests wait for a peer's answer

Findings that are gone:
  high    WL2002  requests queue for a Mutex
  low     WL2001  a sleep
`
	check.Equal(t, text, want, "it says")
}
