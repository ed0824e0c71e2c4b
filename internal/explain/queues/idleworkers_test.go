package queues

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/testing/check"
)

// TestWorkersAtOnce: while none is idle, a pool has all goroutines that its function runs on, also those that work on tasks which no request waits for. Goroutines
// that a starter of any function began belong together if they were given the same function.
func TestWorkersAtOnce(t *testing.T) {
	const ms = 1_000_000
	for name, c := range map[string]struct {
		stacks         [][]string
		servers, count int
	}{
		"a pool": {[][]string{
			{"time.Sleep:300", "main.price:5", "dep.org/pool.worker:9"},
			{"time.Sleep:300", "main.notify:7", "dep.org/pool.worker:9"},
			{"time.Sleep:300", "main.notify:7", "dep.org/pool.worker:9"},
			{"runtime.chanrecv1:442", "dep.org/pool.dispatch:3"},
		}, 2, 3},
		"an idle worker has a queue of its own": {[][]string{
			{"time.Sleep:300", "main.price:5", "dep.org/pool.worker:9"},
			{"time.Sleep:300", "main.price:5", "dep.org/pool.worker:9"},
			{"runtime.chanrecv1:442", "dep.org/pool.worker:8"},
		}, 2, 2},
		"started by a group": {[][]string{
			{"time.Sleep:300", "main.work:5", "golang.org/x/sync/errgroup.(*Group).Go.func1:9"},
			{"time.Sleep:300", "main.work:5", "golang.org/x/sync/errgroup.(*Group).Go.func1:9"},
			{"time.Sleep:300", "main.work:5", "golang.org/x/sync/errgroup.(*Group).Go.func1:9"},
			{"time.Sleep:300", "main.refresh:6", "golang.org/x/sync/errgroup.(*Group).Go.func1:9"},
		}, 2, 3},
		"one goroutine for each shard": {[][]string{
			{"time.Sleep:300", "main.shard:5"},
			{"time.Sleep:300", "main.shard:5"},
		}, 1, 1},
	} {
		p := waitingAt(t, c.stacks)
		start := p.stage.Win.Start()
		w := new(path.WalkResult)
		w.Req = &request.Request{G: 99, Start: start, End: start + 120*ms}
		svc := &service{server: 1, start: start + 60*ms, end: start + 120*ms}
		p.sampleIdleWorkers(w, svc)
		sum := &Sum{workers: []*workerSum{p}, services: map[serviceKey]*serviceSum{{}: {maxServers: c.servers}}}
		sum.addIdleSamples()
		check.Equal(t, sum.services[serviceKey{}].maxServers, c.count, "%s", name)
	}
}
