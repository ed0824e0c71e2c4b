package names

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestGroupName: the name of a closure includes its line, because its number does not identify it for a reader.
// The placeholder for unknown handlers has a short form.
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
		{report.Group{Name: "HTTP/1 handlers that the trace does not name", Kind: report.KindHTTP1}, 60, "HTTP/1 handlers that the trace does not name"},
		{report.Group{Name: "HTTP/1 handlers that the trace does not name", Kind: report.KindHTTP1}, 24, "unnamed HTTP/1 handlers"},
		{report.Group{Name: "job.func1", Kind: report.KindTask, Entry: entry("job.func1")}, 60, "job.func1"},
	} {
		check.Equal(t, GroupName(&c.g, c.max), c.want, "%s in %d columns", c.g.Name, c.max)
	}
}
