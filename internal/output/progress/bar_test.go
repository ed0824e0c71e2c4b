package progress

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

func TestWanted(t *testing.T) {
	for _, c := range []struct {
		terminal bool
		env      map[string]string
		want     bool
	}{
		{true, nil, true},
		{false, nil, false},
		{true, map[string]string{"TERM": "dumb"}, false},
		{true, map[string]string{"TERM": "xterm", "NO_COLOR": "1"}, true},
		{true, map[string]string{"CI": "true"}, false},
		{true, map[string]string{"CI": "false"}, true},
	} {
		check.Equal(t, IsWanted(c.terminal, func(k string) string { return c.env[k] }), c.want, "terminal %v, environment %v", c.terminal, c.env)
	}
}

func TestNoBarOnAFile(t *testing.T) {
	f := must.Have(os.Create(t.TempDir() + "/out"))(t)
	defer f.Close()
	bar := NewBar(f, func(string) string { return "" })
	bar.Set(State{Label: "x", Bytes: 1}) // nil bars are valid
	bar.Clear()
	if info, _ := f.Stat(); bar != nil || info.Size() != 0 {
		t.Errorf("a bar was drawn into a file: %d bytes", info.Size())
	}
	if r := strings.NewReader("x"); NewReader(r, bar, "x", 1) != io.Reader(r) {
		t.Error("without a bar, NewReader must not wrap")
	}
}

func TestLine(t *testing.T) {
	for _, c := range []struct {
		s     State
		width int
		want  string
	}{
		{State{Label: "svc:6060", Elapsed: 5 * time.Second, Total: 10 * time.Second, Bytes: 12345678}, 60,
			"svc:6060  [=============             ]  5.0s of 10s, 12.3 MB"},
		{State{Label: "svc:6060", Elapsed: 5 * time.Second, Total: 10 * time.Second}, 29, "svc:6060  5.0s of 10s, 0 B"},
		{State{Label: "svc:6060", Elapsed: 25 * time.Second, Total: 10 * time.Second}, 20, "…  10.0s of 10s, 0 B"},
		{State{Label: "x.trace", Bytes: 50, Size: 200}, 40, "x.trace  [===            ]  25% of 200 B"},
		{State{Label: "-", Bytes: 1500}, 40, "-  1.50 kB"},
		{State{Label: "a\x1b[2J日本語の長い名前", Bytes: 1}, 20, `a\x1b[2J日本語…  1 B`},
		{State{Label: "svc", Note: "connecting"}, 40, "svc  connecting"},
	} {
		got := c.s.line(c.width)
		check.True(t, termtext.Width(got) <= c.width, "%q is wider than %d", got, c.width)
		check.True(t, got == c.want, "width %d:\n%q, want\n%q", c.width, got, c.want)
	}
}

func TestAnyWidth(t *testing.T) {
	for width := range 200 {
		for _, s := range []State{{Label: "a label", Elapsed: 3 * time.Second, Total: 4 * time.Second}, {Bytes: 1, Size: 3}, {}} {
			if n := termtext.Width(s.line(width)); n > width {
				t.Fatalf("%d columns for a width of %d", n, width)
			}
		}
	}
}

func TestDrawing(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	b := &Bar{w: &out, width: func() int { return 40 }, clock: func() time.Time { return now }}
	b.Set(State{Label: "long label", Bytes: 1})
	b.Set(State{Label: "dropped", Bytes: 2}) // too soon
	now = now.Add(interval)
	b.Set(State{Label: "short", Bytes: 3})
	b.Clear()
	b.Clear() // nothing left to clear
	want := "\rlong label  1 B" + "\rshort  3 B     " + "\r          \r"
	check.True(t, out.String() == want, "drawn\n%q, want\n%q", out.String(), want)
}

func TestReaderCountsAndClears(t *testing.T) {
	var out bytes.Buffer
	b := &Bar{w: &out, width: func() int { return 40 }, clock: time.Now}
	r := NewReader(strings.NewReader(strings.Repeat("x", 100)), b, "f", 100)
	if data, err := io.ReadAll(r); err != nil || len(data) != 100 {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	if s := out.String(); !strings.Contains(s, "100% of 100 B") || !strings.HasSuffix(s, "\r") || b.drawnColumns != 0 {
		t.Errorf("drawn %q", s)
	}
}
