package finding

import (
	"strings"

	"github.com/whylate/whylate/report"
)

func selfLoadRule() Rule {
	return Rule{
		Code: report.RuleLoadInProcess, Name: "load-in-process",
		Summary: "the load seems to come from the same process",
		Doc: Doc{
			Means: "A load generator or test client runs in the same process as the server: it takes Ps and CPU from it, wakes with it, and allocates on its heap. Latencies and waits for Ps are those of both " +
				"together, and the server alone may behave otherwise.",
			Measured: "Goroutines of an HTTP client's connections (net/http.(*persistConn), the HTTP/2 and gRPC clients' readers) ran about as often as HTTP requests were served, and no request's critical path leads through one of " +
				"them: the calls are not made on behalf of the requests.",
			Wrong: "A service that calls others in the background at the same rate as it is called, and never lets a request wait for it, looks the same.",
		},
		Run: selfLoad,
	}
}

// isClient reports whether a function is the reading loop of an HTTP or gRPC client's connection.
func isClient(fn string) bool {
	for _, name := range []string{"net/http.(*persistConn).readLoop", "http2clientConnReadLoop).run", "http2ClientConn).readLoop", "http2.(*ClientConn).readLoop", "internal/transport.(*http2Client).reader"} {
		if strings.Contains(fn, name) {
			return true
		}
	}
	return false
}

// fewestOwn is how many requests it takes to say where they came from.
const fewestOwn = 50

func selfLoad(in *Input) []Verdict {
	served := 0
	for i := range in.Report.Groups {
		g := &in.Report.Groups[i]
		if g.Kind.Protocol() != "" {
			served += g.Count
		}
		if leadsToClient(g) {
			return nil
		}
	}
	if served += in.Report.Input.Observer; served < fewestOwn {
		return nil
	}
	runs := int64(0)
	for i := range in.Process.Runs {
		if r := &in.Process.Runs[i]; isClient(r.Start) {
			runs += r.Runs
		}
	}
	if 2*runs < int64(served) {
		return nil
	}
	return doubt(report.Finding{
		Title: "the load seems to come from the same process", Confidence: 0.8,
		Evidence: []report.Evidence{
			{Text: "runs of HTTP clients' connections in this process", Value: float64(runs), Unit: "count"},
			{Text: "requests served", Value: float64(served), Unit: "count"},
		},
		Fix: "run the load generator as a process of its own, best on another machine",
	})
}

// leadsToClient reports whether a request waits for a client's connection.
func leadsToClient(g *report.Group) bool {
	if len(g.Bands) == 0 {
		return false
	}
	for i := range g.All().Causes {
		c := &g.All().Causes[i]
		if c.Site != nil && (isClient(c.Site.Func) || c.Cause == report.CauseNetwork && c.Kind != "inbound" && strings.Contains(c.Site.Func, "grpc/internal/transport")) {
			return true
		}
		for k := range c.Via {
			if s := c.Via[k].Site; s != nil && strings.Contains(s.Func, "persistConn).roundTrip") {
				return true
			}
		}
	}
	return false
}
