package cause

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestCaller: a site in a dependency, or in a helper that only pauses, has the innermost own line above it as its caller. A site in
// other own code, or without own code above it, has no caller. Functions with connecting names within the own line open a connection. It
// fails if the handler is named instead of the helper that called.
func TestCaller(t *testing.T) {
	const pgx = "github.com/jackc/pgx/v5/pgconn.(*PgConn).Exec@/m/github.com/jackc/pgx/v5@v5.5.0/pgconn/pgconn.go:9"
	const pool = "github.com/jackc/pgx/v5/pgxpool.(*Pool).Query@/m/github.com/jackc/pgx/v5@v5.5.0/pgxpool/pool.go:3"
	for _, c := range []struct {
		name       string
		stack      []testFrame
		site, from string
		connects   bool
	}{
		{"a dependency", []testFrame{stdFrame("net.(*conn).Read"), depFrame(pgx), depFrame(pool), ownFrame("example.org/shop/store.Load"), ownFrame("example.org/shop.Serve"), stdFrame("net/http.(*conn).serve")}, "github.com/jackc/pgx/v5/pgconn.(*PgConn).Exec", "example.org/shop/store.Load", false},
		{"own code", []testFrame{stdFrame("time.Sleep"), ownFrame("example.org/shop/store.Load"), depFrame(pool), ownFrame("example.org/shop.Serve")}, "example.org/shop/store.Load", "", false},
		{"set-up", []testFrame{stdFrame("text/template/parse.Parse"), stdFrame("html/template.(*Template).Parse"), stdFrame("html/template.(*Template).ParseFS"), ownFrame("example.org/shop.load"), ownFrame("example.org/shop.Render")}, "html/template.(*Template).ParseFS", "example.org/shop.load", false},
		{"set-up in a dependency", []testFrame{stdFrame("regexp/syntax.parse"), stdFrame("regexp.compile"), stdFrame("regexp.MustCompile"), depFrame(pool), ownFrame("example.org/shop.Render")}, "regexp.MustCompile", "example.org/shop.Render", false},
		{"the first use of what set-up made", []testFrame{stdFrame("html/template.(*escaper).escape"), stdFrame("html/template.escapeTemplate"), stdFrame("html/template.(*Template).ExecuteTemplate"), ownFrame("example.org/shop.Render")}, "html/template.escapeTemplate", "example.org/shop.Render", false},
		{"another use", []testFrame{stdFrame("text/template.(*state).walk"), stdFrame("html/template.(*Template).ExecuteTemplate"), ownFrame("example.org/shop.Render")}, "example.org/shop.Render", "", false},
		{"set-up without own code", []testFrame{stdFrame("regexp.MustCompile"), depFrame(pgx)}, pgx[:len("github.com/jackc/pgx/v5/pgconn.(*PgConn).Exec")], "", false},
		{"a helper that pauses", []testFrame{stdFrame("runtime.selectgo"), ownFrame("example.org/shop.sleepContext"), ownFrame("example.org/shop.(*Pool).Lookup"), ownFrame("example.org/shop.Serve")}, "example.org/shop.sleepContext", "example.org/shop.(*Pool).Lookup", false},
		{"a handler that pauses", []testFrame{stdFrame("time.Sleep"), ownFrame("example.org/shop.Sleep"), stdFrame("net/http.(*conn).serve")}, "example.org/shop.Sleep", "", false},
		{"a longer word that begins like that of a pause", []testFrame{stdFrame("time.Sleep"), ownFrame("example.org/shop.sleeps"), ownFrame("example.org/shop.Serve")}, "example.org/shop.sleeps", "", false},
		{"a dependency's goroutine", []testFrame{stdFrame("net.(*conn).Read"), depFrame(pgx)}, "github.com/jackc/pgx/v5/pgconn.(*PgConn).Exec", "", false},
		{"a standard library frame between", []testFrame{depFrame(pgx), stdFrame("database/sql.(*DB).query"), ownFrame("example.org/shop/store.Load.func1")}, "github.com/jackc/pgx/v5/pgconn.(*PgConn).Exec", "example.org/shop/store.Load.func1", false},
		{"a dependency that connects", []testFrame{stdFrame("net.(*conn).Read"), depFrame(pgx), depFrame("github.com/jackc/pgx/v5/pgconn.ConnectConfig@/m/github.com/jackc/pgx/v5@v5.5.0/pgconn/pgconn.go:9"), ownFrame("example.org/shop.Serve")}, "github.com/jackc/pgx/v5/pgconn.(*PgConn).Exec", "example.org/shop.Serve", true},
		{"a standard library function that dials", []testFrame{stdFrame("net.(*netFD).connect"), stdFrame("net.(*Dialer).DialContext"), stdFrame("net/http.(*Transport).dialConn")}, "net/http.(*Transport).dialConn", "", true},
		{"a connecting name above the own line", []testFrame{stdFrame("net.(*conn).Read"), depFrame(pgx), ownFrame("example.org/shop.Connect"), depFrame("example.com/x.Connected@/m/example.com/x@v1.0.0/x.go:9"), depFrame("example.com/x.Dial@/m/example.com/x@v1.0.0/x.go:9")}, "github.com/jackc/pgx/v5/pgconn.(*PgConn).Exec", "example.org/shop.Connect", false},
		{"a longer word that begins like a connecting name", []testFrame{stdFrame("net.(*conn).Read"), depFrame("example.com/x.connected[...]@/m/example.com/x@v1.0.0/x.go:9"), depFrame("connect.dev/dial.Get[go.shape.interface { x.Dial }]@/m/connect.dev/dial@v1.0.0/x.go:9")}, "example.com/x.connected[...]", "", false},
	} {
		syms := tracefmt.NewSymbols()
		var text []tracefmt.FrameText
		for i, f := range c.stack {
			text = append(text, tracefmt.FrameText{Func: f.fn, File: f.file, Line: uint32(i + 1)})
		}
		id := syms.AddStack(text...)
		NewCallerFinder(syms, modules.New(modules.Options{})).ExamineStacks()
		f := syms.Frame(NewSites(syms).SiteOf(id))
		if site, from := syms.String(f.Func), syms.String(syms.Frame(f.Caller).Func); site != c.site || from != c.from {
			t.Errorf("%s: %s called from %q, want %s from %q", c.name, site, from, c.site, c.from)
		}
		check.Equal(t, syms.OpensConnection(id), c.connects, "%s: connects is %v", c.name, !c.connects)
	}
}

// TestSitesByCaller: one line of a dependency is a different site for each own line that calls it, but not for
// different callers further out. Stacks that are added later are placed like earlier ones.
func TestSitesByCaller(t *testing.T) {
	syms := tracefmt.NewSymbols()
	p := NewCallerFinder(syms, modules.New(modules.Options{}))
	var ids []tracefmt.StackID
	for _, lines := range [][2]uint32{{1, 1}, {2, 1}, {1, 2}} {
		ids = append(ids, syms.AddStack(
			tracefmt.FrameText{Func: "dep.org/x.Do", File: "dep.org/x@v1.0.0/x.go", Line: 7},
			tracefmt.FrameText{Func: "shop.org/s.load", File: "/s/load.go", Line: lines[0]},
			tracefmt.FrameText{Func: "shop.org/s.serve", File: "/s/serve.go", Line: lines[1]}))
		p.ExamineStacks()
	}
	s := NewSites(syms)
	if a, b, c := s.SiteOf(ids[0]), s.SiteOf(ids[1]), s.SiteOf(ids[2]); a == b || a != c {
		t.Errorf("sites %d, %d, %d: want the first equal to the last, and the second different", a, b, c)
	}
}

// TestWrapper: if main only starts a dependency, that dependency is the program and its lines are own lines. If main
// has other code in the trace, it is not. It fails if no line of a program that is built with plugins is ever named.
func TestWrapper(t *testing.T) {
	const run = "app.org/app/run.Run@/m/app.org/app@v1.0.0/run/run.go"
	const forward = "app.org/app/forward.Serve@/m/app.org/app@v1.0.0/forward/f.go"
	const read = "dep.org/dns.Read@/m/dep.org/dns@v1.0.0/c.go"
	for _, c := range []struct {
		name       string
		otherStack []testFrame
		want       string
	}{
		{"a wrapper", nil, "app.org/app/forward.Serve"},
		{"main has handlers", []testFrame{stdFrame("time.Sleep"), ownFrame("main.handle")}, ""},
	} {
		syms := tracefmt.NewSymbols()
		add := func(stack ...testFrame) tracefmt.StackID {
			var text []tracefmt.FrameText
			for i, f := range stack {
				text = append(text, tracefmt.FrameText{Func: f.fn, File: f.file, Line: uint32(i + 1)})
			}
			return syms.AddStack(text...)
		}
		add(stdFrame("runtime.gopark"), depFrame(run), ownFrame("main.main"), stdFrame("runtime.main"))
		id := add(stdFrame("net.(*conn).Read"), depFrame(read), depFrame(forward), depFrame(read))
		if c.otherStack != nil {
			add(c.otherStack...)
		}
		NewCallerFinder(syms, modules.New(modules.Options{})).ExamineStacks()
		f := syms.Frame(NewSites(syms).SiteOf(id))
		check.Equal(t, syms.String(syms.Frame(f.Caller).Func), c.want, "%s: %s called from", c.name, syms.String(f.Func))
	}
}

type testFrame struct{ fn, file string }

func stdFrame(fn string) testFrame { return testFrame{fn, "/usr/local/go/src/x.go"} }
func ownFrame(fn string) testFrame { return testFrame{fn, "/home/u/shop/x.go"} }
func depFrame(text string) testFrame {
	for i := range text {
		if text[i] == '@' {
			return testFrame{text[:i], text[i+1:]}
		}
	}
	return testFrame{text, ""}
}
