package termtext

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

func TestEscape(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", "main.(*Server[go.shape.int]).handle", "main.(*Server[go.shape.int]).handle"},
		{"letters of other scripts", "main.größe.处理", "main.größe.处理"},
		{"colour", "\x1b[31mred\x1b[0m", `\x1b[31mred\x1b[0m`},
		{"window title", "\x1b]0;owned\a", `\x1b]0;owned\x07`},
		{"C1 control", "\u009b31m", `\u009b31m`},
		{"C1 as a raw byte", "\x9b31m", `\x9b31m`},
		{"line ends", "a\r\nb\tc", `a\r\nb\tc`},
		{"line separator", "a\u2028b", `a\u2028b`},
		{"bidi override", "main.\u202egnp.exe", `main.\u202egnp.exe`},
		{"bidi isolate", "\u2066x\u2069", `\u2066x\u2069`},
		{"zero width", "ma\u200bin", `ma\u200bin`},
		{"byte order mark", "\ufeffmain", `\ufeffmain`},
		{"no-break space", "a\u00a0b", `a\u00a0b`},
		{"NUL and DEL", "a\x00b\x7f", `a\x00b\x7f`},
		{"not UTF-8", "a\xff\xfeb", `a\xff\xfeb`},
		{"half a rune", "\xe5\xa4", `\xe5\xa4`},
		{"the replacement character itself", "\ufffd", "\ufffd"},
		{"tag characters", "x\U000e0041", `x\U000e0041`},
		{"one accent", "e\u0301", "e\u0301"},
		{"a heap of accents", "e\u0301\u0301\u0301\u0301f\u0301", "e\u0301\u0301\\u0301\\u0301f\u0301"},
	} {
		check.Equal(t, Escape(c.in), c.want, "%s: Escape(%q)", c.name, c.in)
	}
}

func TestWidth(t *testing.T) {
	for s, want := range map[string]int{"": 0, "abc": 3, "处理": 4, "e\u0301": 1, "ﾊﾝ": 2, "Ａ": 2, "…": 1, "🙂": 2, "größe": 5} {
		check.Equal(t, Width(s), want, "Width(%q)", s)
	}
}

func TestHead(t *testing.T) {
	for _, c := range []struct {
		in   string
		max  int
		want string
	}{
		{"short", 10, "short"}, {"exactly10!", 10, "exactly10!"}, {"eleven char", 10, "eleven ch…"},
		{"处理处理", 5, "处理…"}, {"处理处理", 4, "处…"}, {"x", 0, ""}, {"xy", 1, "…"}, {"\x1b\x1b\x1b", 9, `\x1b\x1b…`},
	} {
		check.Equal(t, Head(c.in, c.max), c.want, "Head(%q, %d)", c.in, c.max)
	}
}

func TestMiddle(t *testing.T) {
	for _, c := range []struct {
		in   string
		max  int
		want string
	}{
		{"short", 10, "short"}, {"0123456789abc", 10, "012…789abc"}, {"0123456789", 10, "0123456789"},
		{"x", 0, ""}, {"xy", 1, "…"}, {"ab\u202ecd", 9, "ab…202ecd"},
	} {
		check.Equal(t, Middle(c.in, c.max), c.want, "Middle(%q, %d)", c.in, c.max)
	}
}

// FuzzCut: for any text the result is no wider than max, has no invisible character, is valid UTF-8, and is unchanged if it
// fits.
func FuzzCut(f *testing.F) {
	for _, s := range []string{"", "plain", "处理\u0301\u0301\u0301", "\x1b[2J\xff", strings.Repeat("e\u0301", 300), strings.Repeat("\u0301", 400), strings.Repeat("\xf0\x9f\x99", 90), "\u06e1"} {
		for _, n := range []int{0, 1, 7, 40} {
			f.Add(s, n)
		}
	}
	f.Fuzz(func(t *testing.T, s string, max int) {
		max = min(max, 1<<10)
		for name, got := range map[string]string{"Head": Head(s, max), "Middle": Middle(s, max)} {
			if w := Width(got); w > 0 && w > max {
				t.Fatalf("%s(%q, %d) is %d columns wide: %q", name, s, max, w, got)
			}
			must.True(t, utf8.ValidString(got), "%s(%q, %d) is not UTF-8: %q", name, s, max, got)
			for _, r := range got {
				must.True(t, unicode.IsPrint(r), "%s(%q, %d) has %U", name, s, max, r)
			}
			// With max 0 the result is empty: it has no combining mark, which would change the character before it.
			if e := Escape(s); max > 0 && len(s) < 1<<10 && Width(e) <= max && got != e {
				t.Fatalf("%s(%q, %d) = %q, though all of it fits: %q", name, s, max, got, e)
			}
		}
	})
}

func TestMegabytesAreCutInNoTime(t *testing.T) {
	long := strings.Repeat("x\x1b", 32<<20)
	if n := testing.AllocsPerRun(1, func() { Middle(long, 60); Head(long, 60) }); n > 100 {
		t.Errorf("%v allocations for one cut", n)
	}
}

// TestTable: columns are aligned, the first one to the left and the others to the right.
func TestTable(t *testing.T) {
	got := Table("  ", [][]string{{"route", "p50", "p99"}, {"GET /items/{id}", "1ms", "1.25ms"}, {"/", "900µs", "3ms"}}, 1)
	want := "" +
		"  route              p50     p99\n" +
		"  GET /items/{id}    1ms  1.25ms\n" +
		"  /                900µs     3ms\n"
	check.True(t, got == want, "got\n%s\nwant\n%s", got, want)
}
