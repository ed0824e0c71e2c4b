package names

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

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
