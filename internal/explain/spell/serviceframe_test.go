package spell

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestServiceFrame: if a wait on another goroutine is in a library or the standard library, the service line is that of
// the innermost wait in the chain that has one. It fails if the report names readLoop of net/http as the line to
// change, or the handler where a worker of the service made the call.
func TestServiceFrame(t *testing.T) {
	syms := tracefmt.NewSymbols()
	std := tracefmt.FrameText{Func: "net/http.(*persistConn).readLoop", File: "/go/src/net/http/transport.go", Line: 2330}
	serve := tracefmt.FrameText{Func: "net/http.(*conn).serve", File: "/go/src/net/http/server.go", Line: 1980}
	dep := tracefmt.FrameText{Func: "dep.org/x.(*C).loop", File: "/m/dep.org/x@v1.0.0/x.go", Line: 7}
	stock := tracefmt.FrameText{Func: "shop.org/s.stock", File: "/s/stock.go", Line: 12}
	work := tracefmt.FrameText{Func: "shop.org/s.work", File: "/s/work.go", Line: 30}
	trip := tracefmt.FrameText{Func: "net/http.(*persistConn).roundTrip", File: "/go/src/net/http/transport.go", Line: 2900}
	do := tracefmt.FrameText{Func: "dep.org/x.(*C).Do", File: "/m/dep.org/x@v1.0.0/x.go", Line: 9}
	stacks := map[string]tracefmt.StackID{
		"loop": syms.AddStack(std), "serve": syms.AddStack(serve), "dep": syms.AddStack(dep),
		"started": syms.AddStack(tracefmt.FrameText{Func: "shop.org/s.handle", File: "/s/handle.go", Line: 39}),
		"own":     syms.AddStack(stock), "trip": syms.AddStack(trip, stock), "do": syms.AddStack(do, work),
	}
	set := modules.New(modules.Options{})
	cause.NewCallerFinder(syms, set).ExamineStacks()
	sp := &Speller{Syms: syms, Sites: cause.NewSites(syms), Modules: set}
	for _, tc := range []struct {
		site    string
		vias    []string
		starter string
		want    string // function of the service line
		isApart bool   // no call connects the service line with the site
	}{
		{"loop", []string{"trip"}, "", "shop.org/s.stock", false},
		{"dep", []string{"trip"}, "", "shop.org/s.stock", true},
		{"loop", []string{"trip", "serve"}, "", "shop.org/s.stock", false},
		{"loop", []string{"trip", "do"}, "", "shop.org/s.work", true},
		{"loop", []string{"own", "dep"}, "", "shop.org/s.stock", true},
		{"loop", []string{"serve"}, "", "", false},
		{"loop", nil, "", "", false},
		{"own", []string{"do"}, "", "", false},
		{"do", []string{"trip"}, "", "shop.org/s.work", false},
		{"dep", []string{"dep"}, "started", "shop.org/s.handle", true},
		{"dep", []string{"trip"}, "started", "shop.org/s.stock", true},
		{"own", nil, "started", "", false},
		{"dep", nil, "dep", "", false},
	} {
		var vias []path.ChainWait
		for _, v := range tc.vias {
			vias = append(vias, path.ChainWait{Site: sp.Sites.SiteOf(stacks[v]), Call: sp.Sites.CallOf(stacks[v])})
		}
		starter := tracefmt.FrameID(0)
		if tc.starter != "" {
			starter = syms.Stack(stacks[tc.starter])[0]
		}
		got, isApart := "", false
		site := sp.Sites.SiteOf(stacks[tc.site])
		if from := sp.SiteFor(site, sp.ServiceFrame(site, vias, starter), sp.Vias(vias)).CalledFrom; from != nil {
			got, isApart = from.Func, from.OtherGoroutine
		}
		check.True(t, got == tc.want && isApart == tc.isApart,
			"%s by %v: %q (apart: %v), want %q (%v)", tc.site, tc.vias, got, isApart, tc.want, tc.isApart)
	}
}
