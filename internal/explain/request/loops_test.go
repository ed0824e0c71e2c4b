package request_test

import (
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// A goroutine of the standard library that comes back to a wait repeatedly
// is no worker of anybody's.
func TestLoopOfTheStandardLibrary(t *testing.T) {
	b := tracetext.New(26)
	th := b.Thread()
	const root = "net/http.(*persistConn).writeLoop:2590"
	th.Create(1000, 7, root)
	now := int64(1000)
	for range 40 {
		th.Start(now+1000, 7)
		th.Block(now+2000, "select", root)
		th.Unblock(now+9000, 7)
		now += 10000
	}
	rep := explain(t, b, whylate.Options{})
	for _, g := range rep.Groups {
		if g.Kind == "loop" {
			t.Errorf("group %q of %d requests", g.Name, g.Count)
		}
	}
}
