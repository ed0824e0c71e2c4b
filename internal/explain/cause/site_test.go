package cause

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestSites: a site is the innermost line outside the standard library; if there is none, the outermost line that is
// informative.
func TestSites(t *testing.T) {
	for _, c := range []struct {
		name  string
		stack []string // innermost first
		want  string
		std   bool // nothing but the standard library is on it
	}{
		{"own code under std", []string{"time.Sleep", "example.org/shop.(*Cart).wait", "net/http.HandlerFunc.ServeHTTP", "net/http.(*conn).serve"}, "example.org/shop.(*Cart).wait", false},
		{"a dependency counts as code", []string{"runtime.gopark", "github.com/lib/pq.(*conn).recv", "database/sql.(*DB).query", "main.load"}, "github.com/lib/pq.(*conn).recv", false},
		{"main is not a library", []string{"sync.(*Mutex).Lock", "main.run", "main.main", "runtime.main"}, "main.run", false},
		{"a domain that looks like a package", []string{"os.ReadFile", "net.example/x.f"}, "net.example/x.f", false},
		{"vendored std is std", []string{"vendor/golang.org/x/net/http2/hpack.(*Decoder).Write", "main.f"}, "main.f", false},
		{"a handler of std below the server", []string{"runtime.chanrecv1", "net/http/httputil.(*ReverseProxy).ServeHTTP", "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve"}, "net/http/httputil.(*ReverseProxy).ServeHTTP", true},
		{"the goroutine of a server's connection", []string{"internal/poll.(*FD).Read", "net.(*conn).Read", "net/http.(*conn).serve"}, "net/http.(*conn).serve", true},
		{"a connection's handshake", []string{"crypto/internal/fips140/bigmod.addMulVVW1024", "crypto/tls.(*Conn).handshakeContext", "crypto/tls.(*Conn).HandshakeContext", "net/http.(*conn).serve"}, "crypto/tls.(*Conn).HandshakeContext", true},
		{"a handshake that the service's own code calls", []string{"crypto/tls.(*Conn).HandshakeContext", "example.org/shop.dial", "main.main"}, "example.org/shop.dial", false},
		{"a goroutine of the runtime", []string{"runtime.gcBgMarkWorker", "runtime.goexit"}, "runtime.gcBgMarkWorker", true},
		{"no informative frame", []string{"runtime.goexit"}, "runtime.goexit", true},
		{"closures and generics", []string{"slices.SortFunc[...]", "example.org/x.Sort[...].func1"}, "example.org/x.Sort[...].func1", false},
	} {
		syms, id := oneStack(c.stack)
		s := NewSites(syms)
		for range 2 { // computed, and cached
			check.Equal(t, syms.String(syms.Frame(s.SiteOf(id)).Func), c.want, "%s", c.name)
		}
		check.Equal(t, s.isAllStdlib(id), c.std, "%s: all of the standard library %t", c.name, !c.std)
	}
	check.Equal(t, NewSites(tracefmt.NewSymbols()).SiteOf(0), 0, "the empty stack has a site")
}

// oneStack returns symbols with one stack, innermost function first.
func oneStack(fns []string) (*tracefmt.Symbols, tracefmt.StackID) {
	syms := tracefmt.NewSymbols()
	var frames []tracefmt.FrameText
	for i, fn := range fns {
		frames = append(frames, tracefmt.FrameText{Func: fn, File: "f.go", Line: uint32(i + 1)})
	}
	return syms, syms.AddStack(frames...)
}
