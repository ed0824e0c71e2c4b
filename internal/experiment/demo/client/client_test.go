package client

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/experiment/demo"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestServiceUnderLoad runs service and load in one process: every route answers, and each takes at
// least the time of its fault.
func TestServiceUnderLoad(t *testing.T) {
	store := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer store.Close()
	go demo.Store(store)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	url := make(chan string, 1)
	failed := make(chan error, 1)
	go func() { failed <- demo.Serve(ctx, store.Addr().String(), "", func(u string) { url <- u }) }()
	var base string
	select {
	case base = <-url:
	case err := <-failed:
		t.Fatal(err)
	}
	loading, done := context.WithTimeout(ctx, time.Second)
	defer done()
	got := Load(loading, base)
	for _, r := range demo.Routes() {
		res := got[r.Path]
		if res.Count == 0 || res.Errors > res.Count { // on a busy machine some take too long
			t.Errorf("%s: %d answers, %d errors, the first %v", r.Path, res.Count, res.Errors, res.Err)
		}
	}
	if p := got["/report"].P50; p < demo.Backoff {
		t.Errorf("/report took %v, less than it sleeps", p)
	}
	if p := got["/order"].P50; p < demo.SlowWrite {
		t.Errorf("/order took %v, less than its write", p)
	}
	cancel()
	if err := <-failed; err != nil {
		t.Errorf("after the end: %v", err)
	}
}
