package predict

import (
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestCallers: a change at a dependency's line is about all callers, or about the named one; a change at a line of the
// service's own code includes its calls. It fails if a prediction for one caller counts the time of others.
func TestCallers(t *testing.T) {
	syms := tracefmt.NewSymbols()
	dep := tracefmt.FrameText{Func: "dep.org/x.(*C).Do", File: "/m/dep.org/x@v1.0.0/x.go", Line: 7}
	loadCall := syms.AddStack(dep, tracefmt.FrameText{Func: "shop.org/s.load", File: "/s/load.go", Line: 12})
	saveCall := syms.AddStack(dep, tracefmt.FrameText{Func: "shop.org/s.save", File: "/s/save.go", Line: 12})
	ownLine := syms.AddStack(tracefmt.FrameText{Func: "shop.org/s.load", File: "/s/load.go", Line: 13})
	withoutCaller := syms.AddStack(dep)
	cause.NewCallerFinder(syms, modules.New(modules.Options{})).ExamineStacks()
	m := &Model{syms: syms, sites: cause.NewSites(syms)}
	for _, c := range []struct {
		site string
		want [4]bool // a, b, own, alone
	}{
		{"x.go:7", [4]bool{true, true, false, true}},
		{"dep.org/x.(*C).Do:7", [4]bool{true, true, false, true}},
		{"dep.org/x.(*C).Do:7 from shop.org/s.load:12", [4]bool{true, false, false, true}},
		{"x.go:7 from save.go:12", [4]bool{false, true, false, true}},
		{"load.go:12", [4]bool{true, false, false, false}},
		{"s.load", [4]bool{true, false, true, false}},
		{"x.go:8", [4]bool{}},
	} {
		s := m.parseSite(c.site)
		for i, id := range []tracefmt.StackID{loadCall, saveCall, ownLine, withoutCaller} {
			check.Equal(t, m.matches(s, m.sites.SiteOf(id)), c.want[i], "%s means site %d", c.site, i)
			if wait := (target{cause: cause.Network, site: m.sites.SiteOf(id), stack: id}); i < 2 {
				check.Equal(t, m.matchedShare(s, wait, true), oneIf(c.want[i]), "%s means a wait with the stack of site %d", c.site, i)
			}
		}
	}
}

// TestCallsWithWrites: with fewer calls, the system calls that send them are fewer as well, and those of another line are not.
func TestCallsWithWrites(t *testing.T) {
	syms := tracefmt.NewSymbols()
	line := func(n uint32) tracefmt.FrameText {
		return tracefmt.FrameText{Func: "shop.org/s.load", File: "/s/load.go", Line: n}
	}
	read := syms.AddStack(tracefmt.FrameText{Func: "dep.org/x.(*C).Read", File: "/m/dep.org/x@v1.0.0/x.go", Line: 7}, line(12))
	write := tracefmt.FrameText{Func: "dep.org/x.(*C).Write", File: "/m/dep.org/x@v1.0.0/x.go", Line: 9}
	ownWrite, otherWrite := syms.AddStack(write, line(12)), syms.AddStack(write, line(13))
	cause.NewCallerFinder(syms, modules.New(modules.Options{})).ExamineStacks()
	m := &Model{syms: syms, sites: cause.NewSites(syms)}
	for _, id := range []tracefmt.StackID{read, ownWrite, otherWrite} {
		m.targets = append(m.targets, target{cause: cause.Syscall, site: m.sites.SiteOf(id), stack: id})
	}
	m.targets[0].cause = cause.Network
	for withWrites, want := range map[bool][]float64{true: {1, 1, 0}, false: {1, 0, 0}} {
		got, _ := m.targetWeights(&Change{Cause: "network", Site: "dep.org/x.(*C).Read:7 from shop.org/s.load:12", WithWrites: withWrites})
		check.True(t, slices.Equal(got, want), "with the writes %t: %v", withWrites, got)
	}
}

// TestConnecting: all that happens while a request waits for a connection to be opened belongs to that, whatever its cause.
func TestConnecting(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	opening, other := symbols.AddStack(tracefmt.FrameText{Func: "dep.org/db.Connect"}), symbols.AddStack(tracefmt.FrameText{Func: "dep.org/db.Query"})
	symbols.SetOpensConnection(opening)
	for _, c := range []struct {
		cause                   cause.Cause
		wait                    tracefmt.StackID
		opens, connects, isKept bool // opens: by its stack
	}{{cause.CPU, opening, false, true, true}, {cause.CPU, other, false, false, false}, {cause.CPU, other, true, true, true}, {cause.Network, opening, false, true, true}, {cause.Network, other, false, false, true}} {
		got, waits := target{cause: c.cause, opensConnection: c.opens}, waitStacks{}.add(c.wait).add(other)
		got.setWaits(waits, symbols)
		if reuse := Reuse("dep.org/db.Connect"); reuse.mayAffect(&got) != c.connects || (got.waits == waits) != c.isKept {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}
