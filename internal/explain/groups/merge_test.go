package groups_test

import (
	"bytes"
	"context"
	"maps"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestSwitchBehindWrappers sends requests through two wrappers to two handlers. If the division stopped at a wrapper with one
// callee, there would be one group with the name of the outer wrapper; if the few requests that show only wrappers kept their
// names, there would be a third group, of two fast requests. A handler whose one callee does the work is not divided.
func TestSwitchBehindWrappers(t *testing.T) {
	const run, conn = "net/http.(*http2serverConn).runHandler", "net/http.(*http2serverConn).serve"
	b := tracetext.New(26)
	m, o := b.Thread(11), b.Thread()
	now, g := int64(1000), uint64(100)
	serve := func(ns int64, waits ...[]string) {
		m.Create(now, g, run, "net/http.(*http2serverConn).processHeaders", conn)
		m.Block(now+10, "select", "runtime.selectgo", conn)
		m.Start(now+20, g)
		now += 100
		for _, stack := range waits {
			m.Block(now, "sleep", append(stack, "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", run)...)
			o.Unblock(now+ns, g)
			m.Start(now+ns+10, g)
			now += ns + 100
		}
		m.Destroy(now)
		o.Unblock(now+1000, 11)
		m.Start(now+1010, 11)
		now += 2000
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
	m.Block(now, "select", "runtime.selectgo", conn)
	data := must.Have(b.Bytes())(t)
	rep := must.Have(whylate.Explain(context.Background(), bytes.NewReader(data), whylate.Options{}))(t)
	got := map[string]int{}
	for _, g := range rep.Groups {
		got[g.Name] = g.Count
	}
	want := map[string]int{"main.list": n, "main.order": n, "main.page": n, "HTTP/2 handlers that the trace does not name": 2}
	check.True(t, maps.Equal(got, want), "the groups are %v, want %v", got, want)
}

// TestFewBehindWrappers sends few requests through a wrapper, as in the snapshot of a flight recorder: all ended requests
// show one function below it, which becomes their name. The name of a closure, or of two, would be useless to a reader. But
// many requests are not named by where they happened to wait, nor those of two routes by the function that both call.
func TestFewBehindWrappers(t *testing.T) {
	const serve = "net/http.(*conn).serve:2074"
	for _, c := range []struct {
		name   string
		n      int
		stacks [][]string
		want   map[string]int
	}{
		{"one handler", 3, [][]string{{"main.(*shop).order", "main.watched.func1"}}, map[string]int{"main.(*shop).order": 3}},
		{"two wrappers", 3, [][]string{{"main.(*shop).order", "main.counted.func1", "main.watched.func2.1"}}, map[string]int{"main.(*shop).order": 3}},
		{"no wrapper", 3, [][]string{{"main.load", "main.(*shop).order"}}, map[string]int{"main.(*shop).order": 3}},
		{"many", 25, [][]string{{"main.(*shop).order", "main.watched.func1"}}, map[string]int{"main.watched.func1": 25}},
		{"two routes", 3, [][]string{{"main.query", "main.main.func1"}, {"main.query", "main.main.func2"}}, map[string]int{"main.main.func1": 3, "main.main.func2": 3}},
		{"in the closure itself, too", 3, [][]string{{"main.query", "main.main.func1"}, {"main.main.func1"}}, map[string]int{"main.main.func1": 6}},
	} {
		b := tracetext.New(26)
		th, poller := b.Thread(), b.ThreadWithoutP()
		b.Waiting(7)
		now := int64(100_000)
		idle := func() {
			th.Block(now, "network", "internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", serve)
			now += 10_000
		}
		next := func() {
			poller.Unblock(now, 7)
			th.Start(now+1000, 7)
			now += 2000
		}
		next()
		idle()
		wait := func(stack ...string) {
			th.Block(now, "sync", append(append([]string{"sync.(*Mutex).Lock"}, stack...), "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", serve)...)
			now += 50_000
		}
		nextG := uint64(1000)
		handler := func() {
			next()
			th.Create(now, nextG, "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", serve)
			nextG++
			now += 1000
		}
		for range c.n {
			for _, stack := range c.stacks {
				handler()
				wait(stack...)
				next()
				idle()
			}
		}
		if len(c.stacks) == 1 { // the open request takes the snapshot, in the wrapper
			handler()
			wait(c.stacks[0]...)
			next()
			wait(append([]string{"main.snapshot"}, c.stacks[0][1:]...)...)
		}
		data := must.Have(b.Bytes())(t)
		rep := must.Have(whylate.Explain(context.Background(), bytes.NewReader(data), whylate.Options{}))(t)
		got, open := map[string]int{}, 0
		for _, g := range rep.Groups {
			got[g.Name] = g.Count
			open += g.Open.Count
		}
		if !maps.Equal(got, c.want) || len(c.stacks) == 1 && open != 1 {
			t.Errorf("%s: the groups are %v, %d open; want %v", c.name, got, open, c.want)
		}
	}
}
