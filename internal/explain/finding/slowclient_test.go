package finding

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestBehindOtherClient: a client that reads slowly delays the requests that wait for the goroutine of its request. It does not delay those
// whose own goroutines write to it, and what a request waits for in HTTP/2 is its own client.
func TestBehindOtherClient(t *testing.T) {
	const aloneTitle, behindTitle = "the server waits for its client", "requests wait at main.item (main.go:7) behind another client, which reads slowly what is written at main.archive (main.go:9)"
	writeCall, readCall := "net/http.(*response).Write", "net/http.(*body).Read"
	sharedConnection := []report.Via{{Wait: report.WaitSelect, Site: site("item@7")}, {Wait: report.WaitSelect, Site: inModule("github.com/xtaci/smux.(*Session).recvLoop@435", "github.com/xtaci/smux")}}
	for name, c := range map[string]struct {
		call              string
		via               []report.Via
		otherRequestShare float64 // -1: three requests wait for a goroutine that serves none
		title, fix        string
	}{
		"another request's client":            {writeCall, via("select item@7", "select forward@30"), 0.9, behindTitle, "let nothing that others need wait for one client at main.archive (main.go:9)"},
		"another subscriber's client":         {writeCall, via("chan item@7", "chan send publish@30"), 0.9, behindTitle, "do not wait for one client at main.publish (main.go:30)"},
		"a library's shared connection":       {writeCall, sharedConnection, 0.9, behindTitle, "in smux: set Config.Version to 2"},
		"a goroutine of several requests":     {writeCall, via("chan item@7"), -1, behindTitle, "let nothing that others need wait"},
		"a full channel and HTTP/2":           {"net/http.(*http2Framer).ReadFrame", via("chan send item@7", "select archive@9 net/http.(*http2responseWriter).Write", "select net/http.(*conn).serve@1980"), 0, behindTitle, "do not wait for one client at main.item"},
		"a goroutine of the request":          {writeCall, via("chan item@7"), 0, aloneTitle, "nothing"},
		"the request itself":                  {writeCall, nil, 0.9, aloneTitle, "nothing"},
		"another request's client that sends": {readCall, via("select item@7"), 0, aloneTitle, "nothing"},
	} {
		ownWait := report.Cause{Cause: "network", Kind: "inbound", Call: writeCall, Site: site("archive@9"), TotalNS: ms(500)}
		otherWait := report.Cause{Cause: "network", Kind: "inbound", Call: c.call, Site: site("archive@9"), Via: c.via, TotalNS: ms(3000)}
		if strings.HasSuffix(name, "HTTP/2") {
			otherWait.Site = site("net/http.(*http2serverConn).readFrames@4837")
		}
		found := findAll(t, &Input{Report: oneGroup(ownWait, otherWait), Services: []queues.ServiceStats{{Cause: "network", Site: site("archive@9"), OtherRequestShare: max(0, c.otherRequestShare), WaitersPerServer: 1 - 2*min(0, c.otherRequestShare), Requests: 100, BatchSize: 1}}}, rulesWithPrefix("WL2"))
		isBehind := c.title == behindTitle
		check.True(t, len(found) > 0 && strings.HasPrefix(found[0].Title, c.title) && strings.Contains(found[0].Fix, c.fix), "%s: %+v", name, found)
		check.True(t, len(found) > 0 && (found[0].Severity != report.SeverityLow) == isBehind && (found[0].Queue != nil) == isBehind, "%s: severity, queue of %+v", name, found)
	}
}
