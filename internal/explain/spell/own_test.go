package spell

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestOwn: whoever's code a wait on another goroutine stands in, the standard library's as well, the service's own line is
// that of the innermost wait that led there and has one. It would catch a report that has readLoop of net/http as the line
// to change, and one that names the handler where a worker of the service's own asked.
func TestOwn(t *testing.T) {
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
	cause.NewPlacer(syms, set).Place()
	sp := &Speller{Syms: syms, Sites: cause.NewSites(syms), Modules: set}
	for _, c := range []struct {
		site string
		vias []string
		by   string
		want string // its function
	}{
		{"loop", []string{"trip"}, "", "shop.org/s.stock"},
		{"dep", []string{"trip"}, "", "shop.org/s.stock"},
		{"loop", []string{"trip", "serve"}, "", "shop.org/s.stock"},
		{"loop", []string{"trip", "do"}, "", "shop.org/s.work"},
		{"loop", []string{"own", "dep"}, "", "shop.org/s.stock"},
		{"loop", []string{"serve"}, "", ""},
		{"loop", nil, "", ""},
		{"own", []string{"do"}, "", ""},
		{"do", []string{"trip"}, "", "shop.org/s.work"},
		{"dep", []string{"dep"}, "started", "shop.org/s.handle"},
		{"dep", []string{"trip"}, "started", "shop.org/s.stock"},
		{"own", nil, "started", ""},
		{"dep", nil, "dep", ""},
	} {
		var vias []path.Via
		for _, v := range c.vias {
			vias = append(vias, path.Via{Site: sp.Sites.Of(stacks[v])})
		}
		by := tracefmt.FrameID(0)
		if c.by != "" {
			by = syms.Stack(stacks[c.by])[0]
		}
		got := ""
		if own := sp.Own(sp.Sites.Of(stacks[c.site]), vias, by); own != 0 {
			got = syms.String(syms.Frame(own).Func)
		}
		if got != c.want {
			t.Errorf("%s by %v: %q, want %q", c.site, c.vias, got, c.want)
		}
	}
}
