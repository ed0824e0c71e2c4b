package screen

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/judge/watch"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func p(ns int64) *int64 { return &ns }

// state returns the state of a service with problems.
func state(service string) watch.State {
	at, since := noon.Add(-2*time.Second), noon.Add(-50*time.Second)
	s := watch.State{
		Schema: watch.Schema, Service: service, Time: at, Polls: 9, ReportAt: &at, DurationNS: 1.01e9, Bytes: 341_000, Requests: 1342, Observer: 1,
		Cost: watch.CostState{CPUNS: 7e6, ShareDuringTrace: 0.0035, Share: 0.0007, Budget: 0.02, IntervalNS: 5e9},
	}
	site := func(fn string, line int) *report.Site {
		return &report.Site{Func: fn, File: "/src/shop/order.go", Line: line}
	}
	part := func(c report.CauseName, share float64, words string, s *report.Site) watch.Part {
		return watch.Part{Cause: c, Share: share, Words: words, Site: s, Place: "shop.(*orders).commit order.go:131"}
	}
	var history []watch.Point
	for i := range 30 {
		pt := watch.Point{Time: noon.Add(time.Duration(i-30) * 5 * time.Second), NS: p(int64(20e6 + i%7*5e6)), Cause: report.CauseLock}
		if i == 12 {
			pt.NS = nil
		}
		history = append(history, pt)
	}
	s.Groups = []watch.Group{
		{Name: "POST /orders", Kind: report.KindMark, Count: 1200, PerSecond: 1188, P50NS: p(18.2e6), P99NS: p(81.4e6), MaxNS: p(90e6), PercentileRequests: 1200, PercentilePolls: 1, History: history,
			Causes: []watch.Part{part(report.CauseNetwork, 0.72, "waiting for a peer on the network", site("shop.(*orders).commit", 131)), part(report.CauseLock, 0.2, "waiting for a lock", nil), part(report.CauseCPU, 0.05, "computing", nil)}},
		{Name: "GET /orders/{id}", Kind: report.KindMark, Count: 142, PerSecond: 140.6, P50NS: p(1.1e6), P99NS: p(3.7e6), MaxNS: p(4e6), PercentileRequests: 142, PercentilePolls: 1, History: history[:1],
			Causes: []watch.Part{part(report.CauseCPU, 0.97, "computing", site("shop.render", 17))}},
		{Name: "GET /metrics", Kind: report.KindMark, Idle: true, MaxNS: p(2e6), PercentileRequests: 1, PercentilePolls: 3, Causes: []watch.Part{}},
	}
	s.Findings = []watch.Finding{
		{Code: "WL2005", Severity: report.SeverityHigh, Title: "requests wait for a peer's answer at shop.(*orders).commit (order.go:131)", Fix: "call the peer less often, for several things at once, or in parallel; or find out on the peer's side why it is slow", Groups: []string{"POST /orders"}, State: watch.StateStill, FirstSeen: since, LastSeen: at, SeenPolls: 7, PollsSince: 9},
		{Code: "WL3001", Severity: report.SeverityMedium, Title: "requests help the garbage collector", Groups: []string{"POST /orders", "GET /orders/{id}", "GET /metrics"}, State: watch.StateNew, FirstSeen: at, LastSeen: at, SeenPolls: 1, PollsSince: 1},
		{Code: "WL1002", Severity: report.SeverityInfo, Title: "a fact", State: watch.StateNew, FirstSeen: at, LastSeen: at, SeenPolls: 1, PollsSince: 1},
		{Code: "WL2001", Severity: report.SeverityHigh, Title: "requests wait while another goroutine sleeps", Groups: []string{}, State: watch.StateGone, FirstSeen: since, LastSeen: noon.Add(-20 * time.Second), SeenPolls: 3, PollsSince: 9},
	}
	return s
}

func app(color bool, services ...string) *App {
	a := NewApp(services, color)
	for i, name := range services {
		*a.Pane(i) = Pane{State: state(name), Doing: "next look", DoingUntil: noon.Add(3 * time.Second)}
	}
	return a
}

// TestDraw compares screens with golden files, which a person has checked.
func TestDraw(t *testing.T) {
	lost := app(false, "shop-1:6060")
	*lost.Pane(0) = Pane{State: state("shop-1:6060"), Doing: "trying again", DoingUntil: noon.Add(8 * time.Second)}
	tried := noon.Add(-14 * time.Second)
	lost.Pane(0).Failures, lost.Pane(0).TriedSince, lost.Pane(0).Problem = 3, &tried, "connection to 10.0.0.1:6060 refused: no process listens there: check the host and the port, and that the service is running and lets you reach its profiling port"
	starting := NewApp([]string{"shop-1:6060"}, false)
	text := app(false, "shop-1:6060")
	text.ShowText("shop-1:6060, the last look", strings.Repeat("a line of a report that is longer than forty columns are\n", 30))
	text.Draw(40, 12, noon) // as it was when the key was pressed
	text.HandleKey(Space)
	for _, c := range []struct {
		name           string
		app            *App
		columns, lines int
	}{
		{"80x24", app(false, "shop-1:6060"), 80, 24},
		{"40x20", app(false, "shop-1:6060"), 40, 20},
		{"140x40", app(false, "shop-1:6060"), 140, 40},
		{"160x24-two", app(false, "shop-1:6060", "shop-2:6060"), 160, 24},
		{"80x24-three", app(false, "shop-1:6060", "shop-2:6060", "shop-3:6060"), 80, 24},
		{"lost", lost, 80, 20},
		{"starting", starting, 80, 5},
		{"text", text, 40, 12},
		{"colours", app(true, "shop-1:6060"), 80, 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b strings.Builder
			for _, l := range c.app.Draw(c.columns, c.lines, noon) {
				b.WriteString(strings.ReplaceAll(strings.TrimRight(l, " "), "\x1b", "^") + "\n")
			}
			file := filepath.Join("testdata", c.name+".txt")
			must.Golden(t, *update, file, []byte(b.String()))
		})
	}
}

// TestDrawFits: for any texts of a service and at every size, no line is wider than the screen, there are no more lines than
// it has, and no text reaches the terminal unescaped.
func TestDrawFits(t *testing.T) {
	bad := "\x1b[2J\x07日本語\u202e" + strings.Repeat("x", 300) + "\r\n"
	one := app(false, bad)
	pane := one.Pane(0)
	pane.Problem, pane.Failures, pane.Note, pane.Doing = bad, 2, bad, "next look"
	for i := range pane.Groups {
		pane.Groups[i].Name = bad
		for k := range pane.Groups[i].Causes {
			c := &pane.Groups[i].Causes[k]
			c.Words, c.Place, c.Share = bad, bad, 0.9 // more than all together
			c.Site = &report.Site{Func: bad, File: bad, Line: -5}
		}
	}
	for i := range pane.Findings {
		pane.Findings[i].Title, pane.Findings[i].Fix, pane.Findings[i].Groups = bad, bad, []string{bad}
	}
	pane.Groups[0].History[3].NS = p(1 << 62)
	two, three, none := app(false, "a", "b"), app(false, "a", "b", "c"), NewApp([]string{bad, "b"}, false)
	text := app(false, "a")
	text.ShowText(bad, strings.Repeat(strings.Repeat("words of any length ", 10)+"\n", 50))
	for name, a := range map[string]*App{"hostile": one, "two": two, "three": three, "nothing known": none, "text": text} {
		for _, columns := range []int{1, 2, 3, 7, 20, 39, 40, 59, 60, 71, 72, 80, 99, 100, 113, 140, 200, 500} {
			for _, lines := range []int{1, 2, 3, 4, 5, 7, 9, 10, 11, 12, 13, 15, 17, 20, 24, 25, 33, 47, 60} {
				got := a.Draw(columns, lines, noon)
				must.True(t, len(got) <= lines, "%s at %dx%d: %d lines", name, columns, lines, len(got))
				for _, l := range got {
					if termtext.Width(l) > columns || strings.ContainsFunc(l, func(r rune) bool { return r < ' ' || r == 0x7f }) {
						t.Fatalf("%s at %dx%d: %d columns: %q", name, columns, lines, termtext.Width(l), l)
					}
				}
			}
		}
	}
	check.True(t, one.Draw(0, 0, noon) == nil, "something is drawn on nothing")
}

// TestColoursAreClosed: each line ends without a colour, and without its colours equals the line that is drawn without
// colours.
func TestColoursAreClosed(t *testing.T) {
	for _, columns := range []int{40, 80, 200} {
		with, without := app(true, "a", "b").Draw(columns, 40, noon), app(false, "a", "b").Draw(columns, 40, noon)
		for i := range with {
			bare := with[i]
			for strings.Contains(bare, "\x1b") {
				from := strings.IndexByte(bare, 0x1b)
				bare = bare[:from] + bare[from+strings.IndexByte(bare[from:], 'm')+1:]
			}
			shade := strings.NewReplacer("▓", "█", "▒", "█", "░", "█")
			check.True(t, strings.TrimRight(bare, " ") == strings.TrimRight(shade.Replace(without[i]), " "),
				"%d columns: %q is %q without colours", columns, bare, without[i])
			if last := strings.LastIndexByte(with[i], 0x1b); last >= 0 && !strings.HasPrefix(with[i][last:], reset) {
				t.Errorf("%d columns: the colour stays on: %q", columns, with[i])
			}
		}
	}
}

// TestWrap divides lines between words, and keeps colours.
func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text    string
		columns int
		want    []string
	}{
		{"", 10, []string{""}},
		{"short", 10, []string{"short"}},
		{"one two three", 7, []string{"one two", "three"}},
		{"abcdefghij", 4, []string{"abcd", "efgh", "ij"}},
		{"日本語", 4, []string{"日本", "語"}},
		{"a \x1b[31mred words\x1b[0m b", 6, []string{"a \x1b[31mred\x1b[0m", "\x1b[31mwords\x1b[0m", "b"}},
		{"x\x1b[3", 5, []string{"x"}},
	} {
		if got := wrap(c.text, c.columns); !slices.Equal(got, c.want) {
			t.Errorf("%q in %d: %q, want %q", c.text, c.columns, got, c.want)
		}
	}
}

// TestKeys checks the sequences that terminals send, in one piece or several.
func TestKeys(t *testing.T) {
	for data, want := range map[string][]Key{
		"q": {"q"}, "\x1b": {Esc}, "\x1b[A\x1bOB": {Up, Down}, "\x1b[5~\x1b[6~": {PageUp, PageDown}, "\x03": {CtrlC}, "\r": {Enter}, "\t ": {Tab, Space},
		"\x1b[200~": nil, "\x1b[1;5A": nil, "é": nil, "\x1b[": nil, "\x00\x01": nil, "\x1bq": {Esc, "q"},
	} {
		if got := parseKeys([]byte(data)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", data, got, want)
		}
	}
}

// FuzzKeys: users may paste anything.
func FuzzKeys(f *testing.F) {
	f.Add([]byte("\x1b[A\xff\x1bO"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a := app(false, "a", "b")
		for _, k := range parseKeys(data) {
			a.HandleKey(k)
			a.Draw(50, 20, noon)
		}
	})
}

// TestKeysDo: keys select, open and close.
func TestKeysDo(t *testing.T) {
	a := app(false, "a", "b")
	a.HandleKey("2")
	check.Equal(t, a.Focus(), 1, "2 is not the second")
	a.HandleKey(Tab)
	check.Equal(t, a.Focus(), 0, "after the last comes the first")
	a.HandleKey("3")
	check.Equal(t, a.Focus(), 0, "there is no third")
	for k, want := range map[Key]Action{"e": Explain, "s": Save, "d": Diff, "q": Quit, CtrlC: Quit, "x": NoAction, Esc: NoAction} {
		check.Equal(t, a.HandleKey(k), want, "%s", k)
	}
	var long strings.Builder
	for i := range 100 {
		fmt.Fprintln(&long, "line", i)
	}
	a.ShowText("x", long.String())
	first := func() string { return a.Draw(40, 11, noon)[0] }
	for _, c := range []struct {
		key  Key
		want string
	}{{Up, "line 0"}, {Down, "line 1"}, {Space, "line 9"}, {"G", "line 90"}, {Down, "line 90"}, {PageUp, "line 82"}, {"k", "line 81"}, {Home, "line 0"}} {
		if first(); a.HandleKey(c.key) != NoAction || first() != c.want {
			t.Errorf("%s: %q, want %q", c.key, first(), c.want)
		}
	}
	check.True(t, a.HandleKey("s") == NoAction && a.HandleKey("q") == NoAction && a.page == nil && a.HandleKey("q") == Quit,
		"q closes the text first")
}

// TestPlain: there is a block for each poll, and findings are shown only when they appear and vanish.
func TestPlain(t *testing.T) {
	var b strings.Builder
	w := NewPlain(&b, 100, false)
	s := state("shop-1:6060")
	for range 2 {
		must.Do(t, w.Write(&s))
	}
	s.Findings[0].State = watch.StateGone
	w.Write(&s)
	s.Failures, s.Problem = 1, "connection refused"
	w.Write(&s)
	file := filepath.Join("testdata", "plain.txt")
	must.Golden(t, *update, file, []byte(b.String()))
}
