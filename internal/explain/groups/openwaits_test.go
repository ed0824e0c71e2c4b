package groups_test

import (
	"bytes"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestOpenWaitsByTotalTime: the place where a hundred open requests wait is first, although the report has the times of only twenty
// of them, which are less than those of two requests at another place.
func TestOpenWaitsByTotalTime(t *testing.T) {
	const run, conn = "net/http.(*http2serverConn).runHandler", "net/http.(*http2serverConn).serve"
	b := tracetext.New(26)
	m := b.Thread(11)
	now := int64(1000)
	block := func(g uint64, line string) {
		m.Create(now, g, run, "net/http.(*http2serverConn).processHeaders", conn)
		m.Stop(now+10, "preempted", conn)
		m.Start(now+20, g)
		m.Block(now+30, "chan receive", "runtime.chanrecv1", line, "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", run)
		m.Start(now+40, 11)
		now += 100
	}
	block(100, "main.order:10")
	block(101, "main.order:10")
	now += 300_000
	for i := range uint64(100) {
		block(200+i, "main.order:20")
	}
	now += 10_000
	m.Block(now, "select", "runtime.selectgo", conn)
	data := must.Have(b.Bytes())(t)
	rep := must.Have(whylate.Explain(t.Context(), bytes.NewReader(data), whylate.Options{}))(t)
	must.Equal(t, len(rep.Groups), 1, "groups")
	waits := rep.Groups[0].Open.Waits
	must.Equal(t, len(waits), 2, "places")
	check.True(t, waits[0].Count == 100 && waits[0].TotalNS() < waits[1].TotalNS(), "the first place has %d requests and %v", waits[0].Count, waits[0].StuckNS)
}
