package explain_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

const (
	us = 1_000
	ms = 1_000_000
)

// writeScrape writes one HTTP/1 request on connection g whose handler sleeps.
func writeScrape(th, poller *tracetext.Thread, clock int64, g uint64, handler string) {
	const serve = "net/http.(*conn).serve:2074"
	poller.Unblock(clock, g)
	th.Start(clock+us, g)
	th.Create(clock+2*us, g+1_000_000+uint64(clock), "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", serve)
	th.Block(clock+3*us, "sleep", "time.Sleep", handler, "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", serve)
	poller.Unblock(clock+50*us, g)
	th.Start(clock+51*us, g)
	th.Block(clock+60*us, "network", "internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", serve)
}

// writeIdleWait lets a connection wait for its first request.
func writeIdleWait(th, poller *tracetext.Thread, clock int64, g uint64) {
	poller.Unblock(clock, g)
	th.Start(clock+100, g)
	th.Block(clock+200, "network", "internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", "net/http.(*conn).serve:2074")
}

// TestHandshake: a client that opens a connection for a request also waits for the TLS handshake; one that opens it in
// advance does not. Half of the requests arrive a moment after the end of the handshake. It fails if they count without
// their handshake.
func TestHandshake(t *testing.T) {
	for name, tc := range map[string]struct {
		pause    int64 // until the first request arrives
		from, to int64 // bounds of p50
	}{
		"for a request": {50 * us, 6 * ms, 7 * ms},
		"in advance":    {30 * ms, 0, ms},
	} {
		builder := tracetext.New(26)
		th, poller := builder.Thread(), builder.ThreadWithoutP()
		builder.Waiting(3)
		clock := int64(2 * ms)
		for i := range uint64(40) {
			const serve = "net/http.(*conn).serve:2074"
			g, wait := 100+i, tc.pause
			if tc.pause < ms && i%2 == 0 {
				wait = 0
			}
			poller.Unblock(clock, 3)
			th.Start(clock+us, 3)
			th.Create(clock+2*us, g, "net/http.(*conn).serve", "net/http.(*Server).Serve")
			th.Block(clock+3*us, "network", "internal/poll.(*FD).Accept", "net/http.(*Server).Serve")
			th.Start(clock+4*us, g)
			th.Block(clock+5*us, "network", "internal/poll.(*FD).Read", "crypto/tls.(*Conn).HandshakeContext", "net/http.(*conn).serve:1980")
			clock += 6 * ms
			poller.Unblock(clock, g)
			th.Start(clock+us, g)
			if wait > 0 {
				th.Block(clock+2*us, "network", "internal/poll.(*FD).Read", "net/http.(*connReader).Read", "net/http.(*conn).readRequest", serve)
				clock += wait
				poller.Unblock(clock+2*us, g)
				th.Start(clock+3*us, g)
			}
			th.Create(clock+4*us, 1000+i, "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", serve)
			th.Block(clock+5*us, "sleep", "time.Sleep", "example.com/shop.show", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", serve)
			poller.Unblock(clock+50*us, g)
			th.Start(clock+51*us, g)
			th.Block(clock+60*us, "network", "internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", serve)
			clock += ms
		}
		rep := explainBuilt(t, builder, whylate.Options{})
		if g := groupNamed(rep, "example.com/shop.show"); g == nil || g.Count != 40 || *g.LatencyNS.P50 < tc.from || *g.LatencyNS.P50 > tc.to {
			t.Errorf("opened %s: %q, %+v", name, groupTexts(rep), g)
		}
	}
}

func groupNamed(rep *report.Report, name string) *report.Group {
	for i := range rep.Groups {
		if rep.Groups[i].Name == name {
			return &rep.Groups[i]
		}
	}
	return nil
}

func groupTexts(rep *report.Report) (out []string) {
	for _, g := range rep.Groups {
		out = append(out, fmt.Sprintf("%s %s (%d) %s", g.Kind, g.Name, g.Count, g.Role))
	}
	for _, l := range rep.Input.LeftOut {
		out = append(out, fmt.Sprintf("left out: %s %s (%d) %s", l.Kind, l.Name, l.Count, l.Reason))
	}
	return out
}

// TestJobsNextToScrapes: a datagram server's library starts a goroutine for each packet, and its metrics are scraped
// sometimes. It fails if twelve scrapes hide all jobs.
func TestJobsNextToScrapes(t *testing.T) {
	builder := tracetext.New(26)
	th, poller := builder.Thread(), builder.ThreadWithoutP()
	builder.Waiting(3)
	builder.Waiting(7)
	writeIdleWait(th, poller, 1*ms, 7)
	clock := int64(2 * ms)
	for i := range 120 {
		const serve, reader = "github.com/miekg/dns.(*Server).serveUDPPacket", "github.com/miekg/dns.(*Server).serveUDP"
		poller.Unblock(clock, 3)
		th.Start(clock+us, 3)
		th.Create(clock+2*us, uint64(1000+i), serve, reader)
		th.Block(clock+3*us, "network", "internal/poll.(*FD).ReadMsgInet4", "net.(*UDPConn).ReadMsgUDP", reader)
		th.Start(clock+4*us, uint64(1000+i))
		th.Destroy(clock + 30*us)
		if i%10 == 5 {
			writeScrape(th, poller, clock+40*us, 7, "github.com/prometheus/client_golang/prometheus/promhttp.HandlerForTransactional.func1")
		}
		clock += 500 * us
	}
	rep := explainBuilt(t, builder, whylate.Options{})
	must.Equal(t, len(rep.Groups), 2, "groups: %q", groupTexts(rep))
	if g := rep.Groups[0]; g.Name != "github.com/miekg/dns.(*Server).serveUDPPacket" || g.Count != 120 || g.Role != report.RoleRequests {
		t.Errorf("first comes %q", groupTexts(rep)[0])
	}
	if g := rep.Groups[1]; g.Count != 12 || g.Role != report.RoleMonitoring {
		t.Errorf("then comes %q", groupTexts(rep)[1])
	}
}

// TestLibraryWaits: a consumer calls a library to get messages, and the library waits for them in a new goroutine.
// These goroutines are no requests. If their creator proceeds, or also waits for other work, they are jobs. It fails if
// the creator's wait does not decide, or if they are no jobs of a creator that has its own iterations.
func TestLibraryWaits(t *testing.T) {
	const (
		lib    = "@/go/pkg/mod/example.org/kgo@v1.2.0/consumer.go:694"
		poll   = "example.org/kgo.(*Client).PollRecords" + lib
		waiter = "example.org/kgo.(*Client).PollRecords.func4" + lib
		caller = "main.(*service).consume.func1@/src/main.go:135"
	)
	const commit = "example.org/kgo.(*Client).CommitRecords@/go/pkg/mod/example.org/kgo@v1.2.0/consumer.go:900"
	for name, tc := range map[string]struct {
		waits, hasIterations, jobs bool
		rest                       []string // where it waits in addition
	}{
		"polls": {true, false, false, nil}, "proceeds": {false, false, true, nil}, "waits for work and for the library": {true, true, true, []string{caller}},
		"commits each message": {true, true, false, []string{commit, caller}},
	} {
		builder := tracetext.New(26)
		th, poller := builder.Thread(), builder.ThreadWithoutP()
		builder.Waiting(3)
		clock := int64(2 * ms)
		for i := range 120 {
			job := uint64(1000 + i)
			if i == 0 || tc.hasIterations || !tc.waits {
				poller.Unblock(clock, 3)
				th.Start(clock+us, 3)
			}
			th.Create(clock+2*us, job, waiter, poll, caller)
			if tc.waits {
				th.Block(clock+3*us, "select", poll, caller)
			} else {
				th.Block(clock+3*us, "chan receive", caller)
			}
			th.Start(clock+4*us, job)
			th.Block(clock+5*us, "sync", "sync.(*Cond).Wait", waiter)
			poller.Unblock(clock+20*ms, job)
			th.Start(clock+20*ms+us, job)
			if tc.waits {
				th.Unblock(clock+20*ms+2*us, 3)
			}
			th.Destroy(clock + 20*ms + 3*us)
			if tc.waits {
				th.Start(clock+20*ms+4*us, 3)
			}
			if tc.hasIterations {
				th.Block(clock+20*ms+9*us, "chan receive", tc.rest...)
			}
			clock += 20*ms + 10*us
			if tc.hasIterations {
				clock += ms
			}
		}
		if tc.waits && !tc.hasIterations {
			th.Block(clock, "select", poll, caller)
		}
		rep := explainBuilt(t, builder, whylate.Options{})
		g := slices.IndexFunc(rep.Groups, func(g report.Group) bool { return g.Kind == report.KindGoroutine })
		if (g >= 0) != tc.jobs || tc.jobs && rep.Groups[g].Count < 100 {
			t.Errorf("%s: groups are %v", name, groupTexts(rep))
		}
	}
}

// TestManyGoroutinesWithFewIterations counts iterations over all goroutines of a function: 2,000 goroutines with three
// each have as many as six with 1,000. The wait before the trace has no stack, but nearly all goroutines wait in the
// same place.
func TestManyGoroutinesWithFewIterations(t *testing.T) {
	builder := tracetext.New(26)
	th, timer := builder.Thread(), builder.ThreadWithoutP()
	const n = 2000
	wait := []string{"runtime.chanrecv1", "example.com/checker.(*target).watch"}
	for g := range uint64(n) {
		builder.Waiting(100 + g)
	}
	clock := int64(1 * ms)
	for range 3 {
		for g := range uint64(n) {
			timer.Unblock(clock, 100+g)
			th.Start(clock+us, 100+g)
			th.Block(clock+2*us, "chan receive", wait...)
			clock += 3 * us
		}
	}
	rep := explainBuilt(t, builder, whylate.Options{})
	if g := groupNamed(rep, "example.com/checker.(*target).watch"); g == nil || g.Kind != report.KindLoop || g.Count != 3*n {
		t.Errorf("want %d iterations, got %q", 3*n, groupTexts(rep))
	}
}

// TestWorkForRequests: a worker is a part of requests if handlers wait for the work that they pass to it, and so is a
// goroutine that handlers start. Both are counted. A worker for which handlers do not wait is reported next to them.
func TestWorkForRequests(t *testing.T) {
	for _, waits := range []bool{true, false} {
		builder := tracetext.New(26)
		th, helper, poller := builder.Thread(), builder.Thread(), builder.ThreadWithoutP()
		builder.Waiting(7)
		builder.Waiting(8)
		writeIdleWait(th, poller, 1*ms, 7)
		const serve = "net/http.(*conn).serve:2074"
		inside := func(frames ...string) []string {
			return append(frames, "example.com/shop.(*server).order", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", serve)
		}
		work := []string{"runtime.chanrecv1", "example.com/shop.(*mailer).run"}
		// The trace shows the worker waiting before the first request.
		poller.Unblock(1*ms+500*us, 8)
		helper.Start(1*ms+501*us, 8)
		helper.Block(1*ms+502*us, "chan receive", work...)
		clock := int64(2 * ms)
		for i := range 40 {
			poller.Unblock(clock, 7)
			th.Start(clock+us, 7)
			th.Create(clock+2*us, uint64(10_000+i), "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", serve)
			th.Create(clock+3*us, uint64(1000+i), "example.com/shop.(*server).order.func1", inside()...)
			th.Unblock(clock+4*us, 8, inside("runtime.chansend1")...)
			if waits {
				th.Block(clock+5*us, "chan receive", inside("runtime.chanrecv1")...)
			} else {
				th.Block(clock+5*us, "network", "internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", serve)
			}
			th.Start(clock+6*us, uint64(1000+i))
			th.Destroy(clock + 8*us)
			helper.Start(clock+6*us, 8)
			if waits {
				helper.Unblock(clock+90*us, 7, "runtime.chansend1", "example.com/shop.(*mailer).run")
			}
			helper.Block(clock+100*us, "chan receive", work...)
			if waits {
				th.Start(clock+101*us, 7)
				th.Block(clock+105*us, "network", "internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", serve)
			}
			clock += 500 * us
		}
		rep := explainBuilt(t, builder, whylate.Options{})
		mailer := groupNamed(rep, "example.com/shop.(*mailer).run")
		check.True(t, (mailer == nil) == waits, "handlers wait: %v; groups: %q", waits, groupTexts(rep))
		check.True(t, groupNamed(rep, "example.com/shop.(*server).order.func1") == nil, "a handler's own goroutine is a group: %q", groupTexts(rep))
		leftOut := map[string]int{}
		for _, l := range rep.Input.LeftOut {
			if l.Reason == report.LeftOutServing {
				leftOut[l.Name] = l.Count
			}
		}
		if leftOut["example.com/shop.(*server).order.func1"] != 40 || waits && leftOut["example.com/shop.(*mailer).run"] < 39 {
			t.Errorf("handlers wait: %v; left out: %v", waits, leftOut)
		}
	}
}

// TestUnawaitedWork: in a process that serves requests, two workers contend on a mutex. If a timer begins the work that they share, no
// request waits for it, and their wait is a fact. If the network begins it, a client may wait.
func TestUnawaitedWork(t *testing.T) {
	for _, isTimed := range []bool{true, false} {
		builder := tracetext.New(26)
		th, second, poller := builder.Thread(), builder.Thread(), builder.ThreadWithoutP()
		const feeder, first, other, conn = 3, 4, 5, 7
		work := []string{"runtime.chanrecv1", "example.com/shop.(*stats).work"}
		rest := []string{"runtime.chanrecv1", "example.com/shop.(*stats).run"}
		reason := "chan receive"
		if !isTimed {
			rest, reason = []string{"internal/poll.(*FD).Read", "example.com/shop.(*stats).run"}, "network"
		}
		for _, g := range []uint64{feeder, first, other, conn} {
			builder.Waiting(g)
		}
		writeIdleWait(th, poller, 1*ms, conn)
		for i, g := range []uint64{first, other, feeder} {
			clock := 2*ms + int64(i)*100*us
			poller.Unblock(clock, g)
			th.Start(clock+us, g)
			if g == feeder {
				th.Block(clock+2*us, reason, rest...)
			} else {
				th.Block(clock+2*us, "chan receive", work...)
			}
		}
		clock := int64(3 * ms)
		for range 60 {
			writeScrape(th, poller, clock, conn, "example.com/shop.show")
			clock += 200 * us
			poller.Unblock(clock, feeder)
			th.Start(clock+us, feeder)
			th.Unblock(clock+2*us, first, "runtime.chansend1", "example.com/shop.(*stats).run")
			th.Unblock(clock+3*us, other, "runtime.chansend1", "example.com/shop.(*stats).run")
			th.Block(clock+4*us, reason, rest...)
			th.Start(clock+5*us, first)
			second.Start(clock+5*us, other)
			second.Block(clock+20*us, "sync", "sync.(*Mutex).Lock", "example.com/shop.(*stats).work")
			clock += 6 * ms
			th.Unblock(clock, other, "sync.(*Mutex).Unlock", "example.com/shop.(*stats).work")
			th.Block(clock+us, "chan receive", work...)
			second.Start(clock+2*us, other)
			second.Block(clock+us*100, "chan receive", work...)
			clock += ms
		}
		rep := explainBuilt(t, builder, whylate.Options{})
		i := slices.IndexFunc(rep.Findings, func(f report.Finding) bool { return f.Code == report.RuleLockConvoy })
		must.True(t, i >= 0, "timed: %v: no lock is reported: %q", isTimed, groupTexts(rep))
		check.Equal(t, rep.Findings[i].Severity.IsMajor(), !isTimed, "timed: %v: the lock matters to clients", isTimed)
	}
}

// TestIdleMain: a main goroutine that sleeps is no request. The report lists start functions instead, the one with the
// most wakes first.
func TestIdleMain(t *testing.T) {
	builder := tracetext.New(26)
	th, timer := builder.Thread(), builder.ThreadWithoutP()
	builder.Waiting(1)
	for g := range uint64(3) {
		builder.Waiting(10 + g)
	}
	sleep := []string{"time.Sleep", "main.main", "runtime.main"}
	timer.Unblock(1*ms, 1)
	th.Start(1*ms+us, 1)
	th.Block(1*ms+5*us, "sleep", sleep...)
	for g := range uint64(3) {
		clock := int64(2+g) * ms
		timer.Unblock(clock, 10+g)
		th.Start(clock+us, 10+g)
		th.Block(clock+30*us, "chan receive", "runtime.chanrecv1", "example.com/feed.(*reader).next", "example.com/feed.(*reader).run")
	}
	timer.Unblock(900*ms, 1)
	th.Start(900*ms+us, 1)
	th.Block(900*ms+5*us, "sleep", sleep...)
	builder.NextGeneration(1_000 * ms)
	rep := explainBuilt(t, builder, whylate.Options{})
	must.Equal(t, len(rep.Groups), 0, "groups: %q", groupTexts(rep))
	must.Equal(t, len(rep.Starts), 2, "start functions: %+v", rep.Starts)
	s := rep.Starts[0]
	if s.Site.Func != "example.com/feed.(*reader).run" || s.Inner == nil || s.Inner.Func != "example.com/feed.(*reader).next" || s.Goroutines != 3 || s.Wakes != 3 || s.RunningNS != 3*29*us {
		t.Errorf("%+v", s)
	}
	if m := rep.Starts[1]; m.Site.Func != "main.main" || m.Wakes != 2 {
		t.Errorf("%+v", m)
	}
}

// TestSaturatedWorker: a worker that always has work never waits for any. A library's limiter delays it within its
// iterations and not between them. The loop is named by the service function and not by the library function that
// started it.
func TestSaturatedWorker(t *testing.T) {
	builder := tracetext.New(26)
	th, timer := builder.Thread(), builder.ThreadWithoutP()
	builder.Waiting(5)
	inside := func(frames ...string) []string {
		return append(frames, "main.(*controller).reconcile", "main.(*controller).work", "k8s.io/apimachinery/pkg/util/wait.UntilWithContext@/mod/k8s.io/apimachinery@v0.37.2/wait.go:172")
	}
	limiter := inside("runtime.selectgo", "golang.org/x/time/rate.(*Limiter).Wait@/mod/golang.org/x/time@v0.9.0/rate.go:234")
	clock := int64(1 * ms)
	for range 21 {
		timer.Unblock(clock, 5)
		th.Start(clock+us, 5)
		th.Syscall(clock+10*us, inside("syscall.write")...)
		th.SyscallEnd(clock + 60*us)
		th.Block(clock+100*us, "select", limiter...)
		clock += 10 * ms
	}
	rep := explainBuilt(t, builder, whylate.Options{})
	g := groupNamed(rep, "main.(*controller).work")
	must.True(t, g != nil && g.Count >= 19 && g.LatencyNS.P50 != nil && *g.LatencyNS.P50 >= 9*ms, "groups: %q", groupTexts(rep))
	check.Equal(t, g.All().Causes[0].Cause, report.CauseSleep, "the first cause")
}

// TestBenchmark: the iterations of a benchmark do not wait for work. An event that each has once separates them, here a
// system call.
func TestBenchmark(t *testing.T) {
	builder := tracetext.New(26)
	th := builder.Thread()
	builder.Waiting(9)
	th.Unblock(500*us, 9)
	th.Start(501*us, 9)
	const n = 50
	clock := int64(1 * ms)
	for range n {
		th.Syscall(clock, "syscall.Fdatasync", "example.com/store.put", "example.com/store.BenchmarkPut", "testing.(*B).runN", "testing.(*B).launch")
		th.SyscallEnd(clock + 700*us)
		clock += 1 * ms
	}
	th.Block(clock, "chan receive", "runtime.chanrecv1", "testing.(*B).launch")
	rep := explainBuilt(t, builder, whylate.Options{})
	g := groupNamed(rep, "example.com/store.BenchmarkPut")
	must.True(t, g != nil && g.Count == n-1, "groups: %q", groupTexts(rep))
	if c := g.All().Causes[0]; c.Cause != report.CauseSyscall || g.LatencyNS.P50 == nil || *g.LatencyNS.P50 < 950*us || *g.LatencyNS.P50 > 1050*us {
		t.Errorf("p50 %v, first %s", *g.LatencyNS.P50, c.Cause)
	}
}

// TestSubtests: a subtest is a request, named by its function.
func TestSubtests(t *testing.T) {
	builder := tracetext.New(26)
	th, timer := builder.Thread(), builder.ThreadWithoutP()
	builder.Waiting(3)
	clock := int64(1 * ms)
	test := []string{"testing.(*T).Run", "example.com/store.TestPut", "testing.tRunner"}
	timer.Unblock(clock, 3)
	th.Start(clock+us, 3)
	for i := range uint64(12) {
		id := 100 + i
		th.Create(clock+10*us, id, "testing.tRunner", test...)
		th.Block(clock+12*us, "chan receive", append([]string{"runtime.chanrecv1"}, test...)...)
		th.Start(clock+13*us, id)
		th.Block(clock+20*us, "sleep", "time.Sleep", "example.com/store.TestPut.func1", "testing.tRunner")
		timer.Unblock(clock+900*us, id)
		th.Start(clock+901*us, id)
		th.Unblock(clock+905*us, 3, "runtime.chansend1", "testing.tRunner")
		th.Destroy(clock + 910*us)
		th.Start(clock+911*us, 3)
		clock += 1 * ms
	}
	th.Block(clock, "chan receive", append([]string{"runtime.chanrecv1"}, test...)...)
	rep := explainBuilt(t, builder, whylate.Options{})
	if g := groupNamed(rep, "example.com/store.TestPut.func1"); g == nil || g.Count != 12 {
		t.Fatalf("groups: %q", groupTexts(rep))
	}
}

// TestRegionsOfLibraries: a client library marks parts of calls as regions of some microseconds. They are no
// requests, but their callers are. A helper that begins and ends a region for its caller marks the caller's work, and
// so does a framework that calls the service within a region.
func TestRegionsOfLibraries(t *testing.T) {
	const (
		lib   = "example.com/pd/client@v1.2.0/client.go"
		spawn = "main.main"
		n     = 40
	)
	for owner, tt := range map[string]struct {
		begin, end, during []string
		isRequest          bool
	}{
		"a client's":    {[]string{"runtime/trace.StartRegion", "example.com/pd/client.(*Client).GetTS@" + lib + ":10", "main.transaction:5"}, []string{"runtime/trace.(*Region).End", "example.com/pd/client.(*Client).GetTS@" + lib + ":14", "main.transaction:5"}, nil, false},
		"a helper's":    {[]string{"runtime/trace.StartRegion", "example.com/pd/client.Start@" + lib + ":20", "main.transaction:5"}, []string{"runtime/trace.(*Region).End", "example.com/pd/client.Span.End@" + lib + ":24", "main.transaction:9"}, nil, true},
		"a framework's": {[]string{"runtime/trace.StartRegion", "example.com/pd/client.run@" + lib + ":30"}, []string{"runtime/trace.(*Region).End", "example.com/pd/client.run@" + lib + ":34"}, []string{"time.Sleep", "main.handle:7", "example.com/pd/client.run@" + lib + ":32"}, true},
		"the service's": {[]string{"runtime/trace.StartRegion", "main.transaction:4"}, []string{"runtime/trace.(*Region).End", "main.transaction:9"}, nil, true},
	} {
		builder := tracetext.New(26)
		th, timer := builder.Thread(), builder.ThreadWithoutP()
		builder.Waiting(1)
		start := "main.transaction"
		if owner == "a framework's" {
			start = "example.com/pd/client.run@" + lib
		}
		clock := int64(1 * ms)
		for i := range uint64(n) {
			g := 100 + i
			timer.Unblock(clock, 1)
			th.Start(clock+us, 1)
			th.Create(clock+2*us, g, start, spawn)
			th.Block(clock+3*us, "sleep", "time.Sleep", spawn)
			th.Start(clock+4*us, g)
			th.RegionBegin(clock+5*us, 0, "part", tt.begin...)
			if tt.during != nil {
				th.Block(clock+6*us, "sleep", tt.during...)
				timer.Unblock(clock+30*us, g)
				th.Start(clock+31*us, g)
			}
			th.RegionEnd(clock+40*us, 0, "part", tt.end...)
			th.Block(clock+41*us, "sleep", "time.Sleep", "main.transaction:9")
			timer.Unblock(clock+90*us, g)
			th.Start(clock+91*us, g)
			th.Destroy(clock + 100*us)
			clock += 200 * us
		}
		rep := explainBuilt(t, builder, whylate.Options{})
		if g := groupNamed(rep, "part"); (g != nil) != tt.isRequest {
			t.Errorf("%s region is a request: %v, want %v: %q", owner, g != nil, tt.isRequest, groupTexts(rep))
		}
		if owner == "a client's" && (groupNamed(rep, "main.transaction") == nil || groupNamed(rep, "main.transaction").Role != report.RoleRequests) {
			t.Errorf("%s region hides who calls it: %q", owner, groupTexts(rep))
		}
		if isLeftOut := slices.ContainsFunc(rep.Input.LeftOut, func(l report.LeftOut) bool {
			return l.Kind == report.KindRegion && l.Name == "part" && l.Count == n && l.Reason == report.LeftOutLibrary
		}); isLeftOut == tt.isRequest {
			t.Errorf("%s region is named among what is left out: %v: %q", owner, isLeftOut, groupTexts(rep))
		}
	}
}

// TestTickersNextToJobs: goroutines that check once a second for work rank behind the jobs that they delay, even if
// they are many more and all wait for a CPU at once. Waits that their first tick ended had begun before the trace.
func TestTickersNextToJobs(t *testing.T) {
	const n = 500
	builder := tracetext.New(26)
	th, timer := builder.Thread(), builder.ThreadWithoutP()
	for g := range uint64(n) {
		builder.Waiting(1000 + g)
	}
	builder.Waiting(1)
	clock := int64(1 * ms)
	for range 2 {
		for g := range uint64(n) {
			timer.Unblock(clock, 1000+g)
		}
		for g := range uint64(n) {
			clock += 3 * us
			th.Start(clock, 1000+g)
			th.Block(clock+2*us, "select", "main.tick")
		}
		for i := range uint64(30) {
			g := 5000 + i + uint64(clock)
			timer.Unblock(clock+3*us, 1)
			th.Start(clock+4*us, 1)
			th.Create(clock+5*us, g, "main.transaction", "main.main")
			th.Block(clock+6*us, "sleep", "time.Sleep", "main.main")
			th.Start(clock+7*us, g)
			th.Block(clock+8*us, "sleep", "time.Sleep", "main.transaction")
			timer.Unblock(clock+100*us, g)
			th.Start(clock+101*us, g)
			th.Destroy(clock + 110*us)
			clock += 200 * us
		}
	}
	rep := explainBuilt(t, builder, whylate.Options{})
	if len(rep.Groups) != 2 || rep.Groups[0].Name != "main.transaction" || rep.Groups[0].Role != report.RoleRequests || rep.Groups[1].Role != report.RoleBackground || rep.Groups[1].Count != 2*n {
		t.Errorf("%q", groupTexts(rep))
	}
}

// TestJobsWithoutClient: if no client and no network data begins jobs, the process does them on its own initiative,
// next to a server's requests. If a goroutine that reads from the network starts them, clients wait for them.
func TestJobsWithoutClient(t *testing.T) {
	for _, isFromNetwork := range []bool{false, true} {
		builder := tracetext.New(26)
		th, helper, poller := builder.Thread(), builder.Thread(), builder.ThreadWithoutP()
		builder.Waiting(3)
		builder.Waiting(7)
		writeIdleWait(th, poller, 1*ms, 7)
		const schedule, job = "example.com/lib.(*scheduler).run", "example.com/shop.(*archive).pack"
		wait := []string{"select", "runtime.selectgo", schedule}
		if isFromNetwork {
			wait = []string{"network", "internal/poll.(*FD).Read", "net.(*conn).Read", schedule}
		}
		clock := int64(2 * ms)
		for i := range 120 {
			poller.Unblock(clock, 3)
			th.Start(clock+us, 3)
			th.Create(clock+2*us, uint64(1000+i), job, schedule)
			th.Block(clock+3*us, wait[0], wait[1:]...)
			helper.Start(clock+4*us, uint64(1000+i))
			helper.Destroy(clock + 800*us)
			writeScrape(th, poller, clock+900*us, 7, "example.com/shop.(*server).balance")
			clock += ms
		}
		rep := explainBuilt(t, builder, whylate.Options{})
		pack := groupNamed(rep, job)
		check.True(t, pack != nil && (pack.Role == report.RoleRequests) == isFromNetwork, "jobs from the network %v: %q", isFromNetwork, groupTexts(rep))
	}
}

// TestJobsThatStartEachOther: a parallel descent of a tree starts goroutines that start others with the same functions.
// All are a part of the request that started the first. If a goroutine that reads from the network started the first,
// they are requests.
func TestJobsThatStartEachOther(t *testing.T) {
	const serve, field, list, read = "net/http.(*conn).serve:2074", "example.com/graph.field", "example.com/graph.list", "example.com/shop.(*feed).read"
	for _, isForRequest := range []bool{false, true} {
		builder := tracetext.New(26)
		th, poller := builder.Thread(), builder.ThreadWithoutP()
		builder.Waiting(3)
		builder.Waiting(7)
		writeIdleWait(th, poller, 1*ms, 7)
		clock := int64(2 * ms)
		for i := range uint64(120) {
			job := 1000 + 10*i
			writeScrape(th, poller, clock, 7, "example.com/shop.version")
			clock += 200 * us
			if isForRequest {
				poller.Unblock(clock, 7)
				th.Start(clock+us, 7)
				th.Create(clock+2*us, job+9, "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", serve)
				th.Create(clock+3*us, job, field, "example.com/shop.query", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", serve)
				th.Block(clock+4*us, "chan receive", "runtime.chanrecv1", "example.com/shop.query", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", serve)
			} else {
				poller.Unblock(clock, 3)
				th.Start(clock+us, 3)
				th.Create(clock+2*us, job, field, read)
				th.Block(clock+3*us, "network", "internal/poll.(*FD).Read", "net.(*conn).Read", read)
			}
			for k := range uint64(8) {
				start, next := field, list
				if k%2 == 1 {
					start, next = list, field
				}
				th.Start(clock+10*us, job+k)
				if k < 7 {
					th.Create(clock+11*us, job+k+1, next, start)
				}
				th.Block(clock+12*us, "sleep", "time.Sleep", "example.com/shop.(*order).customer", start)
				poller.Unblock(clock+100*us, job+k)
				th.Start(clock+101*us, job+k)
				if isForRequest && k == 7 {
					th.Unblock(clock+102*us, 7, start)
				}
				th.Destroy(clock + 103*us)
				clock += 200 * us
			}
			if isForRequest {
				th.Start(clock, 7)
				th.Block(clock+10*us, "network", "internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", serve)
			}
			clock += ms
		}
		rep := explainBuilt(t, builder, whylate.Options{})
		if got := slices.ContainsFunc(rep.Groups, func(g report.Group) bool { return g.Kind == report.KindGoroutine }); got == isForRequest {
			t.Errorf("for a request %v: %q", isForRequest, groupTexts(rep))
		}
	}
}
