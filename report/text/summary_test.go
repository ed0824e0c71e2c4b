package text_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report/text"
)

func summary(t *testing.T, list []text.NamedReport, opts text.Options) string {
	t.Helper()
	var out bytes.Buffer
	must.Do(t, text.WriteSummary(&out, list, opts))
	return out.String()
}

func TestSummaryComparesReplicas(t *testing.T) {
	pubsub, tso := read(t, "pubsub"), read(t, "tso")
	list := []text.NamedReport{{"svc-1:6060", pubsub}, {"svc-2:6060", pubsub}, {"other:1", tso}}
	got := summary(t, list, text.Options{Width: 100})
	// Every group's title says on how many; a service without it has a dash.
	check.True(t, strings.Contains(got, "in 2 of 3 recordings") && strings.Contains(got, "in 1 of 3 recordings"), "summary\n%s", got)
	lines := strings.Split(got, "\n")
	for _, name := range []string{"svc-1:6060", "svc-2:6060", "other:1"} {
		n := 0
		for _, l := range lines {
			if strings.HasPrefix(l, name+" ") {
				n++
			}
		}
		check.True(t, n != 0 && n <= 3, "%s has %d lines in\n%s", name, n, got)
	}
	// The two that are the same read the same.
	var one, two []string
	for _, l := range lines {
		if rest, ok := strings.CutPrefix(l, "svc-1:6060"); ok {
			one = append(one, rest)
		}
		if rest, ok := strings.CutPrefix(l, "svc-2:6060"); ok {
			two = append(two, rest)
		}
	}
	check.Equal(t, strings.Join(one, "\n"), strings.Join(two, "\n"), "equal replicas differ:\n%s", got)
}

func TestSummaryOfNothing(t *testing.T) {
	if got := summary(t, []text.NamedReport{{"a", read(t, "none")}}, text.Options{}); got != "no requests in any of the traces\n" {
		t.Errorf("%q", got)
	}
}

func TestSummaryFits(t *testing.T) {
	list := []text.NamedReport{{"a\x1b[2J\u202e", read(t, "hostile")}, {strings.Repeat("long", 100), read(t, "pubsub")}}
	for width := 60; width <= 200; width += 7 {
		for _, l := range strings.Split(summary(t, list, text.Options{Width: width}), "\n") {
			if n := termtext.Width(l); n > width {
				t.Errorf("width %d: %d columns: %q", width, n, l)
			}
			check.False(t, strings.ContainsFunc(l, func(r rune) bool { return unicode.IsControl(r) || r == '\u202e' }), "control characters in %q", l)
		}
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestSummaryReportsWriteErrors(t *testing.T) {
	check.Error(t, text.WriteSummary(failing{}, nil, text.Options{}), "no error")
}
