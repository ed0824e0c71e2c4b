package names

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestGroupName: the name of a closure includes its line, because its number does not identify it for a reader.
func TestGroupName(t *testing.T) {
	entry := func(fn string) *report.Site { return &report.Site{Func: fn, File: "/src/api.go", Line: 417} }
	for _, c := range []struct {
		g    report.Group
		max  int
		want string
	}{
		{report.Group{Name: "x.org/api.(*API).Register.func2.1", Kind: report.KindHTTP1, Entry: entry("x.org/api.(*API).Register.func2.1")}, 60, "api.(*API).Register.func2.1 api.go:417"},
		{report.Group{Name: "x.org/api.(*API).Register.func12", Kind: report.KindHTTP1, Entry: entry("x.org/api.(*API).Register.func12")}, 30, "(*API)…ister.func12 api.go:417"},
		{report.Group{Name: "x.org/api.(*API).Query", Kind: report.KindHTTP1, Entry: entry("x.org/api.(*API).Query")}, 60, "api.(*API).Query"},
		{report.Group{Name: "x.org/api.run.func1", Kind: report.KindHTTP1}, 60, "api.run.func1"},
		{report.Group{Name: "job.func1", Kind: report.KindTask, Entry: entry("job.func1")}, 60, "job.func1"},
	} {
		check.Equal(t, GroupName(&c.g, c.max), c.want, "%s in %d columns", c.g.Name, c.max)
	}
}

// TestPlace: a well-known line of the standard library is described by its purpose, and a dependency's line has its caller.
func TestPlace(t *testing.T) {
	s := &report.Site{Func: "net/http.(*conn).serve", File: "/go/src/net/http/server.go", Line: 1989, Does: "reading the request"}
	if got := SiteText(s, 80); got != "net/http, reading the request server.go:1989" {
		t.Errorf("%q", got)
	}
	check.Equal(t, SiteText(s, 34), "reading the request server.go:1989", "in few columns")
	s = &report.Site{Func: "dep.org/x.Do", CalledFrom: &report.Caller{Func: "x.org/s.load", File: "/s/load.go", Line: 12, Calls: "dep.org/x.Do"}}
	if lead, fn, pos := CallerParts(s, 80); lead+fn+" "+pos != "called from s.load load.go:12" {
		t.Errorf("%q %q %q", lead, fn, pos)
	}
	s.CalledFrom.Calls = ""
	if lead, fn, pos := CallerParts(s, 80); lead+fn+" "+pos != "awaited at s.load load.go:12" {
		t.Errorf("a line in a call of the library that waits for its other goroutine: %q %q %q", lead, fn, pos)
	}
	s.CalledFrom.OtherGoroutine = true
	if lead, fn, pos := CallerParts(s, 80); lead+fn+" "+pos != "reached from s.load load.go:12" {
		t.Errorf("a line that waits for what another goroutine does there: %q %q %q", lead, fn, pos)
	}
}
