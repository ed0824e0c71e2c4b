package groups_test

import (
	"bytes"
	"context"
	"maps"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/tracefmt/tracetext"
)

// TestSwitchBehindWrappers sends requests through two wrappers to two handlers. A
// division that stops at a wrapper with one child would make one group of them,
// named by the outer wrapper; one that names what little is seen of wrappers alone
// would have a third group, of two fast requests. A handler whose one function does
// the work stays whole.
func TestSwitchBehindWrappers(t *testing.T) {
	const run, conn = "net/http.(*http2serverConn).runHandler", "net/http.(*http2serverConn).serve"
	b := tracetext.New(26)
	m, o := b.Thread(), b.Thread()
	m.Was(11)
	at, g := int64(1000), uint64(100)
	serve := func(ns int64, waits ...[]string) {
		m.Create(at, g, run, "net/http.(*http2serverConn).processHeaders", conn)
		m.Block(at+10, "select", "runtime.selectgo", conn)
		m.Start(at+20, g)
		at += 100
		for _, stack := range waits {
			m.Block(at, "sleep", append(stack, "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", run)...)
			o.Unblock(at+ns, g)
			m.Start(at+ns+10, g)
			at += ns + 100
		}
		m.Destroy(at)
		o.Unblock(at+1000, 11)
		m.Start(at+1010, 11)
		at += 2000
		g++
	}
	wrapped := func(fns ...string) []string {
		return append(append([]string{"time.Sleep"}, fns...), "main.authorized.func1", "main.logged.func1")
	}
	const n = 40
	for i := range n {
		serve(5000, wrapped("main.list:7"), wrapped("main.query", "main.list:8"))
		serve(9000, wrapped("main.order:17"), wrapped("main.save", "main.order:18"))
		serve(5000, []string{"time.Sleep", "main.load:5", "main.page"}, []string{"time.Sleep", "main.load:6", "main.page"})
		if i%20 == 0 {
			serve(500, []string{"time.Sleep", "main.logged.func1"})
		}
	}
	m.Block(at, "select", "runtime.selectgo", conn)
	data, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	rep, err := whylate.Explain(context.Background(), bytes.NewReader(data), whylate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, g := range rep.Groups {
		got[g.Name] = g.Count
	}
	want := map[string]int{"main.list": n, "main.order": n, "main.page": n, "(http2 requests that show no handler)": 2}
	if !maps.Equal(got, want) {
		t.Errorf("the groups are %v, want %v", got, want)
	}
}
