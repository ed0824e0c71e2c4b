package load

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/endless"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestEndlessHeads sends requests to servers whose headers never end. Without bounds, four of them
// took 1.5 to 2.9 GB.
func TestEndlessHeads(t *testing.T) {
	if testing.Short() {
		t.Skip("sends requests over the loopback network")
	}
	const requests = 4
	try := func(t *testing.T, url string, h HTTP) *Result {
		var r *Result
		n := endless.Allocated(func() {
			var err error
			r, err = Run(context.Background(), Options{Targets: []Target{{URL: url}}, Phases: []Phase{{requests * 10, requests * 10, time.Second / 10}}, HTTP: h, Seed: 1})
			must.Do(t, err)
		})
		check.True(t, r.Requests != 0 && r.Errors == r.Requests, "%d of %d requests have errors", r.Errors, r.Requests)
		check.True(t, n <= (uint64(r.Requests+2)*8<<20), "%d bytes were allocated for %d requests", n, r.Requests)
		return r
	}
	for _, kind := range endless.Heads() {
		t.Run(kind, func(t *testing.T) {
			r := try(t, endless.Serve(t, kind), HTTP{})
			for _, f := range r.Reasons {
				check.True(t, strings.Contains(f.Text, "headers go beyond"), "it says %q", f.Text)
			}
		})
	}
	t.Run("http2", func(t *testing.T) {
		// A head that net/http takes where it is not bounded.
		long := strings.Repeat("x", 1<<20)
		srv := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Long", long) })}
		srv.Protocols.SetUnencryptedHTTP2(true)
		l := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
		go srv.Serve(l)
		defer srv.Close()
		try(t, "http://"+l.Addr().String(), HTTP{H2: true})
	})
}
