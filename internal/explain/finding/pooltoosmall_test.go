package finding

import (
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestPossibleAdvice checks two pools without a known size. A ticker that releases requests one by one is a limit: no
// more goroutines are advised and nothing is predicted. If many requests wait although hardly any slot is in use,
// neither a number of slots nor a hold time is advised.
func TestPossibleAdvice(t *testing.T) {
	ticks := queues.ServiceStats{Cause: "sleep", Site: site("refill@9"), WaitersPerServer: 18, BatchSize: 1, Servers: 1, MaxServers: 1, ServiceNS: 10e6, Requests: 100, PeriodNS: 10e6}
	rep := oneGroup(report.Cause{Cause: "sleep", Call: "runtime.chanrecv1", Site: site("refill@9"), Via: via("chan take@4"), TotalNS: ms(4000), Requests: 100})
	got := findAll(t, &Input{Report: rep, Services: []queues.ServiceStats{ticks}}, rulesByCode(report.RulePoolTooSmall, report.RuleFlushInterval, report.RuleSleep))
	if len(got) != 1 || !strings.Contains(got[0].Title, "requests are paced: one every 10ms") || strings.Contains(got[0].Fix, "goroutines") || got[0].Predicted != nil {
		t.Errorf("a ticker: %+v", got)
	}
	held := queues.ServiceStats{Cause: "network", Site: site("pay@5"), WaitersPerServer: 18, BatchSize: 1, OtherRequestShare: 1, Servers: 20, MaxServers: 20, Requests: 100}
	rep = oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: site("pay@5"), TotalNS: ms(40_000), Requests: 100,
		Routes: []report.Route{{Via: via("chan pay@4"), TotalNS: ms(39_999)}, {TotalNS: ms(1)}}})
	rep.Input.DurationNS = 2e9
	got = findWithBounds(t, &Input{Report: rep, Services: []queues.ServiceStats{held}}, rulesByCode(report.RulePoolTooSmall))
	check.True(t, len(got) == 1 && !strings.Contains(got[0].Fix, "would do") && !strings.Contains(got[0].Fix, "shorter"),
		"holders that do something else: %+v", got)
}

// TestSharedConnections checks the advice for a library's pool: holders that keep a connection release none while requests queue, so
// its size may be larger than the number of connections seen. If such holders are seen, so is the size.
func TestSharedConnections(t *testing.T) {
	const acquire, get = "github.com/redis/go-redis/v9/internal.(*FastSemaphore).Acquire", "github.com/redis/go-redis/v9.cmdable.Get"
	calledFrom := func(fn string, line int) *report.Site {
		return &report.Site{Func: fn, File: "x.go", Line: 7, Module: "github.com/redis/go-redis/v9", CalledFrom: &report.Caller{Func: "main.get", File: "/src/main.go", Line: line, Calls: get}}
	}
	in := func(fn string) *report.Site { return calledFrom(fn, 5) }
	for _, c := range []struct {
		name                     string
		ownLine, ownNS           int64 // of the requests' calls, next to those at line 5, which hold connections for 20 ms
		backgroundShare          float64
		title, advice, falseHint string
	}{
		{"only requests are seen", 5, ms(1000), 0, "queue for a connection of go-redis", "from 2 to about 3", "suffice"},
		{"the holders are seen", 5, ms(1000), 0.9, "queue for one of 2 connections of go-redis", "from 2 to 3", "about"},
		{"others call for long", 6, ms(100), 0, "held by main.get (main.go:5)", "give the calls at main.get (main.go:5) a pool of their own", "blocking"},
		{"others call for as long", 6, ms(1000), 0, "held by main.get (main.go:5)", "from 2 to about 3", "their own, as large as there are such"},
		{"the holders call another service", 6, ms(100), 0, "held by a goroutine that waits for the network at main.authorise", "make the call at main.authorise (x.go:7) before a connection is taken, because it needs none; or raise", "their own, as large as there are such"},
	} {
		const read = "github.com/redis/go-redis/v9/internal/proto.(*Reader).PeekReplyType"
		waits := []report.Via{{Wait: "select", Call: acquire, Site: in(acquire)}}
		rep := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: in(read), TotalNS: ms(3000), Routes: []report.Route{{Via: waits, TotalNS: ms(3000)}}},
			report.Cause{Cause: "network", Kind: "outbound", Site: calledFrom(read, int(c.ownLine)), TotalNS: c.ownNS})
		if strings.Contains(c.title, "authorise") {
			held := &rep.Groups[0].Bands[0].Causes[0]
			held.Site, held.Routes[0].Via = siteOf("main.authorise"), append(waits, report.Via{Wait: "select", Call: "net/http.(*persistConn).roundTrip", Site: siteOf("main.authorise")})
		}
		rep.Input.DurationNS = 40e9
		slots := queues.SlotWaits{Wait: "select", Call: acquire, Site: in(acquire), Waits: 100, BatchSize: 1, FormerWaiterShare: 1, OtherRequestShare: 1, Slots: 2, HoldNS: 20e6, QueuedShare: 0.05, BackgroundShare: c.backgroundShare, BackgroundHolders: 2}
		got := findWithBounds(t, &Input{Report: rep, SlotWaits: []queues.SlotWaits{slots}}, rulesByCode(report.RulePoolTooSmall))
		if len(got) != 1 || !strings.Contains(got[0].Title, c.title) || !strings.Contains(got[0].Fix, c.advice) || strings.Contains(got[0].Fix, c.falseHint) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// TestLongCalls: long calls of another route hold most connections of an http.Transport. They need one of their own.
func TestLongCalls(t *testing.T) {
	waits := []report.Via{{Wait: "select", Call: httpSlotFunc, Site: site("fast@40")}}
	rep := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: site("fast@40"), TotalNS: ms(4000), Routes: []report.Route{{Via: waits, TotalNS: ms(3000)}, {TotalNS: ms(1000)}}})
	rep.Input.DurationNS = 40e9
	slots := queues.SlotWaits{Wait: "select", Call: httpSlotFunc, Site: site("fast@40"), Waits: 100, BatchSize: 1, FormerWaiterShare: 1, OtherRequestShare: 1, Slots: 16, MaxWaiters: 9, HoldNS: 6e6, QueuedShare: 0.5, BackgroundShare: 0.9, BackgroundHolders: 15, BackgroundSite: site("poll@41")}
	found := findWithBounds(t, &Input{Report: rep, SlotWaits: []queues.SlotWaits{slots}}, rulesByCode(report.RulePoolTooSmall))
	must.True(t, len(found) == 1, "%+v", found)
	check.Equal(t, found[0].Title, "requests queue for one of 16 connections of an http.Transport, held by 15 calls at main.poll (main.go:41), where each holder waits for a peer's answer", "title")
	check.Equal(t, found[0].Fix, "give the 15 calls at main.poll (main.go:41) an http.Transport of their own, or raise MaxConnsPerHost (and MaxIdleConnsPerHost with it) from 16 to 17, with those goroutines in it", "fix")
}

// TestSharedLoad: requests that load the same at once need no more connections for that: one can load for all.
func TestSharedLoad(t *testing.T) {
	for line, want := range map[int]string{58: "let the first of them make the call at main.load (main.go:58)", 59: "raise MaxConnsPerHost"} {
		waits := []report.Via{{Wait: "select", Call: httpSlotFunc, Site: site("load@58")}}
		rep := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: site("load@58"), TotalNS: ms(4000), Routes: []report.Route{{Via: waits, TotalNS: ms(3000)}, {TotalNS: ms(1000)}}})
		slots := queues.SlotWaits{Wait: "select", Call: httpSlotFunc, Site: site("load@58"), Waits: 100, BatchSize: 1, FormerWaiterShare: 1, OtherRequestShare: 1, Slots: 2, HoldNS: 40e6, QueuedShare: 0.1}
		got := findWithBounds(t, &Input{Report: rep, SlotWaits: []queues.SlotWaits{slots}, SharedLoads: []queues.SharedLoad{{File: site("load@58").File, Line: line, Loads: 3, Callers: 20, Passers: 2}}}, rulesByCode(report.RulePoolTooSmall))
		check.True(t, len(got) == 1 && strings.HasPrefix(got[0].Fix, want), "%d: %+v", line, got)
	}
}

// TestUnawaitedTasks: requests queue for workers that are mostly at work for none of them. If requests of another group wait for many such tasks at
// once, their line is named.
func TestUnawaitedTasks(t *testing.T) {
	for _, c := range []struct {
		name           string
		bulkMS         int64
		unawaitedShare float64
		wait           string
		want           string
	}{
		{"bulk", 400, 0.9, "waitgroup upload@147", "give the tasks at main.upload (main.go:147) workers of their own"},
		{"few tasks", 10, 0.9, "waitgroup upload@147", "give what requests wait for at main."},
		{"one task", 400, 0.9, "chan upload@147", "give what requests wait for at main."},
		{"busy with requests", 400, 0.4, "waitgroup upload@147", "raise the number of goroutines"},
	} {
		rep := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: site("index@89"), TotalNS: ms(10_000), Via: via("chan put@111")})
		bulk := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: site("index@89"), TotalNS: ms(100 * c.bulkMS), Via: via(c.wait)}).Groups[0]
		bulk.ID = "bulk"
		rep.Groups = append(rep.Groups, bulk)
		workers := queues.ServiceStats{Cause: "network", Site: site("index@89"), WaitersPerServer: 8, BatchSize: 1, ServerWroteShare: 1, Servers: 4, MaxServers: 4, ServiceNS: ms(50), DirectNS: ms(5), UnawaitedShare: c.unawaitedShare, Requests: 100}
		got := findWithBounds(t, &Input{Report: rep, Services: []queues.ServiceStats{workers}}, rulesByCode(report.RulePoolTooSmall))
		check.True(t, len(got) > 0 && !slices.ContainsFunc(got, func(f report.Finding) bool { return !strings.HasPrefix(f.Fix, c.want) }), "%s: %+v", c.name, got)
	}
}

// TestPermits: a library's own limit guards nothing, so each request that waits at the same time can have a permit.
func TestPermits(t *testing.T) {
	acquire := site("golang.org/x/sync/semaphore.(*Weighted).Acquire@80")
	acquire.Module, acquire.CalledFrom = "golang.org/x/sync", &report.Caller{Func: "main.dim", File: "/src/main.go", Line: 64, Calls: "github.com/plgd-dev/go-coap/v3/net/client.(*Client[...]).Put"}
	waits := []report.Via{{Wait: "select", Call: "runtime.selectgo", Site: acquire}}
	rep := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: site("ask@5"), TotalNS: ms(4000), Routes: []report.Route{{Via: waits, TotalNS: ms(3000)}, {TotalNS: ms(1000)}}})
	slots := queues.SlotWaits{Wait: "select", Call: "runtime.selectgo", Site: acquire, Waits: 100, BatchSize: 1, FormerWaiterShare: 1, OtherRequestShare: 1, Slots: 1, HoldNS: 10e6, QueuedShare: 0.5, MaxWaiters: 6}
	got := findWithBounds(t, &Input{Report: rep, SlotWaits: []queues.SlotWaits{slots}}, rulesByCode(report.RulePoolTooSmall))
	check.True(t, len(got) == 1 && strings.Contains(got[0].Title, "queue for the only permit of go-coap") && strings.Contains(got[0].Fix, "raise options.WithLimitClientParallelRequest") &&
		strings.Contains(got[0].Fix, "from 1 to 7") && !strings.Contains(got[0].Fix, "guard data"), "%+v", got)
}

// TestTimedWaits: a library's goroutine, which sends the commands of many requests at once, waits for a connection of its pool, at most until a
// timer. It fails if the timer is a pause to shorten or a holder's
// work, or if only the wait for that goroutine is looked at.
func TestTimedWaits(t *testing.T) {
	radixSite := func(function string) *report.Site {
		s := site("github.com/mediocregopher/radix/v3." + function)
		s.Module = "github.com/mediocregopher/radix/v3"
		return s
	}
	acquire, read := radixSite("(*Pool).getExisting@560"), radixSite("(*timeoutConn).Read@205")
	read.CalledFrom = &report.Caller{Func: "main.next", File: "/src/main.go", Line: 60}
	batch := report.Via{Wait: "chan", Call: "runtime.chanrecv1", Site: radixSite("(*pipeliner).Do@109")}
	wait := report.Via{Wait: "select", Call: "runtime.selectgo", Site: acquire}
	timer := report.Cause{Cause: "sleep", Call: wait.Call, Site: acquire, TotalNS: ms(5000), Requests: 5, Via: []report.Via{batch}}
	held := report.Cause{Cause: "network", Kind: "outbound", Site: read, TotalNS: ms(4000), Requests: 10, Via: []report.Via{batch, wait}}
	for _, former := range []float64{1, 0} {
		rep := oneGroup(timer, held)
		in := &Input{Report: rep, Process: &process.Stats{}, SlotWaits: []queues.SlotWaits{
			{Wait: batch.Wait, Call: batch.Call, Site: batch.Site, Waits: 100, BatchSize: 4},
			{Wait: wait.Wait, Call: wait.Call, Site: acquire, Waits: 100, BatchSize: 1, FormerWaiterShare: former, OtherRequestShare: 0.5, Slots: 10, HoldNS: 1e9, QueuedShare: 1, MaxWaiters: 20},
		}}
		got := findAll(t, in, rulesWithPrefix("WL2"))
		must.True(t, len(got) != 0, "none")
		if former == 0 {
			check.True(t, got[0].Code == report.RuleSleep, "no pool: %+v", got[0])
			continue
		}
		in = &Input{Report: oneGroup(timer), Process: in.Process, SlotWaits: in.SlotWaits}
		late := findAll(t, in, rulesWithPrefix("WL2"))
		check.True(t, len(late) == 1 && strings.Contains(late[0].Title, "until their own deadline") && len(Queues(in)["g"]) == 0, "only timers: %+v", late)
		check.True(t, len(got) == 1 && strings.HasPrefix(got[0].Title, "requests queue for a connection of radix, held by main.next (main.go:60)") && strings.Contains(got[0].Fix, "raise the size given to radix.NewPool from 10"), "%+v", got)
	}
}

// TestScatteredComputing: if the holders of a slot compute at many lines, no line is named, and the advice is
// to compute less at all of them. If most of it is at one line, that line is named.
func TestScatteredComputing(t *testing.T) {
	const acquire = "golang.org/x/sync/semaphore.(*Weighted).Acquire@74"
	for _, c := range []struct {
		name          string
		ms            [3]int64
		title, advice string
	}{
		{"one line", [3]int64{2700, 200, 100}, "computes in main.parse (main.go:5)", "or make the work at main.parse (main.go:5) shorter than 10ms"},
		{"three lines", [3]int64{1100, 1000, 900}, "computes, the most in main.parse", "or compute for less than 10ms"},
	} {
		var causes []report.Cause
		for i, s := range []string{"parse@5", "render@6", "sum@7"} {
			causes = append(causes, report.Cause{Cause: "cpu", Site: site(s), SiteFrom: "sample", TotalNS: ms(c.ms[i]), Via: []report.Via{{Wait: "select", Call: "runtime.selectgo", Site: site(acquire)}}})
		}
		slots := queues.SlotWaits{Wait: "select", Call: "runtime.selectgo", Site: site(acquire), Waits: 100, BatchSize: 1, FormerWaiterShare: 1, OtherRequestShare: 1, Slots: 1, HoldNS: 10e6, QueuedShare: 0.9}
		got := findWithBounds(t, &Input{Report: oneGroup(causes...), SlotWaits: []queues.SlotWaits{slots}}, rulesByCode(report.RulePoolTooSmall))
		if len(got) != 1 || !strings.Contains(got[0].Title, c.title) || !strings.Contains(got[0].Fix, c.advice) {
			t.Errorf("%s: %+v", c.name, got)
			continue
		}
		check.True(t, slices.ContainsFunc(got[0].Evidence, func(e report.Evidence) bool { return e.Text == textOf("evidence pool-size") && e.Value == 1 }),
			"%s: the pool has one place: %+v", c.name, got[0].Evidence)
	}
}

// TestWideHolder: if some holders of a semaphore take many units at once, they are named, and no number of places is. If others take few
// at the same line, the line is named. The former may wait at a line of their own. Whatever the holders do, the change is about the line that waits.
func TestWideHolder(t *testing.T) {
	acquire := site("golang.org/x/sync/semaphore.(*Weighted).Acquire@74")
	acquire.CalledFrom = &report.Caller{Func: "main.reserve", File: "main.go", Line: 83, Calls: acquire.Func}
	waits := []report.Via{{Wait: "select", Call: "runtime.selectgo", Site: acquire}}
	for i, want := range [][2]string{
		{"main.export (main.go:74) takes many units", "give main.export (main.go:74) a semaphore of its own"},
		{"behind large Acquires at main.reserve (main.go:83)", "give the large Acquires at main.reserve (main.go:83) a semaphore of their own"},
	} {
		rep := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: site("fetch@35"), TotalNS: ms(4000), Routes: []report.Route{{Via: waits, TotalNS: ms(3000)}, {TotalNS: ms(1000)}}})
		slots := queues.SlotWaits{Wait: "select", Call: "runtime.selectgo", Site: acquire, Waits: 100, BatchSize: 2.3, FormerWaiterShare: float64(i), OtherRequestShare: float64(i), Slots: 16, HoldNS: 10e6, QueuedShare: 0.5, WideHolder: site("export@74"), WaitsPerRelease: 9, ReleasesFewToo: i == 1}
		got := findAll(t, &Input{Report: rep, SlotWaits: []queues.SlotWaits{slots}, Predict: func(_ string, changes []predict.Change) *report.Predicted {
			return &report.Predicted{Change: changes[0].String()}
		}}, rulesByCode(report.RulePoolTooSmall))
		if len(got) != 1 || !strings.Contains(got[0].Title, want[0]) || !strings.Contains(got[0].Fix, want[1]) || strings.Contains(got[0].Fix, "are enough") {
			t.Errorf("%+v", got)
			continue
		}
		check.Equal(t, got[0].Predicted.Change, "queue@golang.org/x/sync/semaphore.(*Weighted).Acquire:74=gone", "the change")
	}
}

// TestFanOutComputes: a limit of goroutines that compute is low without a predicted gain.
func TestFanOutComputes(t *testing.T) {
	for isPredicted, want := range map[bool]report.Severity{false: report.SeverityLow, true: report.SeverityHigh} {
		rep := oneGroup(report.Cause{Cause: "cpu", Site: site("draw@72"), Samples: 50, Via: via("chan send golang.org/x/sync/errgroup.(*Group).Go@74"), TotalNS: ms(4000)})
		got := findAll(t, &Input{Report: rep, Predict: func(string, []predict.Change) *report.Predicted {
			if isPredicted {
				return new(report.Predicted)
			}
			return nil
		}}, rulesByCode(report.RulePoolTooSmall))
		check.True(t, len(got) == 1 && got[0].Severity == want, "predicted %v: %+v", isPredicted, got)
	}
}

// TestFanOutToPeer: how many calls of one request a peer bears at once is not known. Where their gain is not, either, the severity is at most
// medium.
func TestFanOutToPeer(t *testing.T) {
	for isPredicted, want := range map[bool]report.Severity{false: report.SeverityMedium, true: report.SeverityHigh} {
		rep := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: site("book@72"), Via: via("chan send golang.org/x/sync/errgroup.(*Group).Go@74"), TotalNS: ms(4000)})
		got := findAll(t, &Input{Report: rep, Predict: func(string, []predict.Change) *report.Predicted {
			if isPredicted {
				return new(report.Predicted)
			}
			return nil
		}}, rulesByCode(report.RulePoolTooSmall))
		check.True(t, len(got) == 1 && got[0].Severity == want && strings.HasPrefix(got[0].Fix, "if the peer bears more calls at once, raise the limit given to SetLimit"), "predicted %v: %+v", isPredicted, got)
	}
}

// TestIdleRun: a program that spends nearly all of its run on waits for work does not end earlier without them.
func TestIdleRun(t *testing.T) {
	for leftNS, isPredicted := range map[int64]bool{100e6: false, 2e9: true} {
		rep := oneGroup(report.Cause{Cause: "sleep", Call: "time.Sleep", Site: site("ask@5"), TotalNS: ms(3900), Requests: 1})
		rep.Groups[0].Kind = report.KindRun
		was := int64(4e9)
		got := findAll(t, &Input{Report: rep, Predict: func(string, []predict.Change) *report.Predicted {
			return &report.Predicted{MaxNS: &report.Estimate{Est: leftNS}, WasMaxNS: &was}
		}}, rulesByCode(report.RuleSleep))
		check.True(t, len(got) == 1 && (got[0].Predicted != nil) == isPredicted, "%d ns are left: %+v", leftNS, got)
	}
}

// TestServedAtWakeUps: a goroutine serves one request each time that another one wakes it, so requests that are there wait for later ones. If they
// had not handed anything over, they may wait for an event.
func TestServedAtWakeUps(t *testing.T) {
	for _, handoverShare := range []float64{0.8, 0.1} {
		idle := &report.Site{Func: "net/http.(*conn).serve", File: "server.go", Line: 2103}
		rep := oneGroup(
			report.Cause{Cause: "network", Kind: "inbound", Site: idle, Via: via("chan handle@208", "select work@71"), TotalNS: ms(3000)},
			report.Cause{Cause: "sleep", Call: "time.Sleep", Site: site("work@84"), Via: via("chan handle@208"), TotalNS: ms(1000)})
		found := findAll(t, &Input{Report: rep, LongWaits: []queues.LongWaits{{Site: site("handle@208"), HandoverShare: handoverShare}}, Services: []queues.ServiceStats{
			{Cause: "network", Site: idle, OtherRequestShare: 1, Requests: 100, BatchSize: 1},
			{Cause: "sleep", Site: site("work@84"), WaitersPerServer: 2, Requests: 100, BatchSize: 1},
		}}, rulesByCode(report.RulePoolTooSmall))
		check.True(t, len(found) == 1 && strings.HasSuffix(found[0].Title, "waits at main.work (main.go:71) for the next request to wake it") == (handoverShare > 0.5), "%g: %+v", handoverShare, found)
	}
}

// TestForeignWork: the only goroutine that serves requests computes for far longer than all requests in the queue need. It does work of
// others, which the service can take off it. A library's only goroutine that does the library's own work cannot be raised in number.
func TestForeignWork(t *testing.T) {
	const library = "github.com/hashicorp/raft.(*deferError).Error@113"
	for _, c := range []struct {
		name, waits string
		work        report.Cause
		fastNS      int64
		want        string
	}{
		{"foreign work", "wait@4", report.Cause{Cause: "cpu", Site: site("snapshot@53")}, 1, "take the work at main.snapshot (main.go:53) off that goroutine: only copy there what it needs, and do the rest on another one. It is no part of most requests, which wait until it is done"},
		{"in a library's loop", library, report.Cause{Cause: "cpu", Site: site("snapshot@53")}, 1, "take the work at main.snapshot (main.go:53) off that goroutine: only copy there what it needs, and do the rest on another one. It is no part of most requests, which wait until it is done; in hashicorp/raft: Apply and Snapshot of the FSM share one goroutine; let Snapshot only copy what it needs, and encode that in FSMSnapshot.Persist, which runs on another"},
		{"each request needs it", "wait@4", report.Cause{Cause: "cpu", Site: site("apply@40")}, 1000, "raise the number of goroutines"},
		{"each request needs it in a library's loop", library, report.Cause{Cause: "cpu", Site: site("apply@40")}, 1000, "make the work at main.apply (main.go:40) shorter, or do it on another goroutine: a library runs it on one that serves a queue alone; in hashicorp/raft: Apply and"},
		{"the library's own work", library, report.Cause{Cause: "syscall", Call: "syscall.Fdatasync", Site: inModule("go.etcd.io/bbolt.fdatasync@9", "go.etcd.io/bbolt")}, 1000, ""},
	} {
		wait := report.Via{Wait: report.WaitSelect, Site: site(c.waits)}
		if c.waits == library {
			wait.Site.Module = "github.com/hashicorp/raft"
		}
		c.work.Via, c.work.TotalNS = []report.Via{wait}, ms(4000)
		rep := oneGroup(c.work)
		rep.Groups[0].Bands = []report.Band{rep.Groups[0].Bands[0], {Band: report.Band5090, Count: 40, Causes: slices.Clone(rep.Groups[0].Bands[0].Causes)}}
		rep.Groups[0].Bands[1].Causes[0].TotalNS = ms(4000) - 60*c.fastNS*1e4
		service := queues.ServiceStats{Cause: string(c.work.Cause), Site: c.work.Site, WaitersPerServer: 3, BatchSize: 1, Servers: 1, MaxServers: 1, ServiceNS: 10e6, Requests: 100}
		if c.work.Cause == report.CauseCPU {
			service.Site = wait.Site
		}
		found := findAll(t, &Input{Report: rep, Services: []queues.ServiceStats{service}}, rulesByCode(report.RulePoolTooSmall))
		check.True(t, c.want == "" && len(found) == 0 || len(found) == 1 && c.want != "" && strings.HasPrefix(found[0].Fix, c.want), "%s: %+v", c.name, found)
	}
}

// TestActors: an actor serves its own queue, so a larger number of actors is no advice. Another goroutine can make its call.
func TestActors(t *testing.T) {
	for servers := range 2 {
		const module = "github.com/asynkron/protoactor-go"
		waits := []report.Via{{Wait: report.WaitCond, Site: inModule(module+"/actor.(*Future).wait@116", module)}, {Wait: report.WaitSelect, Site: site("get@40")}}
		rep := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: site("get@40"), Via: waits, TotalNS: ms(4000)})
		service := queues.ServiceStats{Cause: "network", Site: site("get@40"), WaitersPerServer: 3, BatchSize: 1, ServerWroteShare: 1, AlreadyRunningShare: 0.8, Servers: 1 + 2*servers, MaxServers: 1 + 2*servers, ServiceNS: 9e6, Requests: 100}
		found := findAll(t, &Input{Report: rep, Services: []queues.ServiceStats{service}}, rulesByCode(report.RulePoolTooSmall))
		check.True(t, len(found) == 1 && strings.HasPrefix(found[0].Fix, "do the work at main.get (main.go:40) on another goroutine; in protoactor-go: ask before the message is sent") &&
			len(found[0].Changes) == 1 && found[0].Changes[0].Kind == "time", "%d servers: %+v", service.MaxServers, found)
	}
}

// TestUnawaited checks that waits in iterations of a loop that begin after its own pause are a fact and no fault.
func TestUnawaited(t *testing.T) {
	rep := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: site("ask@5"), TotalNS: ms(4000), Requests: 100})
	rep.Groups[0].Kind = report.KindLoop
	for _, isUnawaited := range []bool{false, true} {
		got := findAll(t, &Input{Report: rep, UnawaitedGroups: map[string]bool{"g": isUnawaited}}, rulesByCode(report.RuleSlowPeer))
		check.True(t, len(got) == 1 && (got[0].Severity == report.SeverityInfo) == isUnawaited, "unawaited: %v: %+v", isUnawaited, got)
	}
}

// TestWorkNextToRequests checks that waits in iterations that no request waits for are at most low where the process answers more requests of
// clients than there are iterations.
func TestWorkNextToRequests(t *testing.T) {
	for served, want := range map[int]report.Severity{10: report.SeverityHigh, 90: report.SeverityHigh, 200: report.SeverityLow} {
		rep := oneGroup(report.Cause{Cause: "sleep", Site: site("close@5"), Via: via("lock follow@5 sync.(*Mutex).Lock"), TotalNS: ms(4000), Requests: 100})
		rep.Groups[0].Kind = report.KindLoop
		rep.Groups = append(rep.Groups, report.Group{ID: "h", Name: "main.sale", Kind: report.KindHTTP1, Count: served, Bands: []report.Band{{Band: report.BandAll, Count: served}}})
		got := findAll(t, &Input{Report: rep}, rulesByCode(report.RuleLockConvoy))
		check.True(t, len(got) == 1 && got[0].Severity == want, "%d requests: %+v", served, got)
	}
}

// TestLimiterAdvice: a limiter that has no waiters for part of the time needs a larger burst, and a higher rate if that is little
// more than its calls. If it always has some, it needs a higher rate, for each call of a request. The advice names the options of
// the library that the service uses.
func TestLimiterAdvice(t *testing.T) {
	take, throttle := site("golang.org/x/time/rate.(*Limiter).wait@286"), site("golang.org/x/time/rate.(*Limiter).wait@286")
	throttle.CalledFrom = &report.Caller{Func: "main.get", Calls: "k8s.io/client-go/rest.(*Request).Do"}
	for _, c := range []struct {
		limiter                  queues.Limiter
		title, fix, change, call string
	}{
		{queues.Limiter{Site: take, MaxWaiters: 7, QueuedShare: 0.5}, "a rate limiter at", "at least in bursts", "", ""},
		{queues.Limiter{Site: take, Rate: 60, MaxWaiters: 7, QueuedShare: 0.5, WaitsPerRequest: 0.5, BurstDeficit: 9}, "a rate limiter of 60/s", "raise the second argument of rate.NewLimiter by 9 or more, if what is behind it can take that: 50 requests arrive per second, and up to 7 wait at once", "if no request queued", ""},
		{queues.Limiter{Site: throttle, Rate: 60, MaxWaiters: 7, QueuedShare: 0.5, WaitsPerRequest: 1, BurstDeficit: 9}, "a rate limiter of 60/s", "raise Burst of rest.Config (10 unless set) by 9 or more, and QPS of rest.Config (5 unless set) from 60/s to 75/s or more, if", "if no request queued", ""},
		{queues.Limiter{Site: take, Rate: 52, MaxWaiters: 7, QueuedShare: 1, WaitsPerRequest: 1}, "a rate limiter of 52/s", "rate.NewLimiter from 52/s to 78/s or more, if what is behind it can take that: 52 or more calls arrive per second", "", ""},
		{queues.Limiter{Site: throttle, Rate: 52, MaxWaiters: 7, QueuedShare: 1, WaitsPerRequest: 3}, "a rate limiter of 52/s", "raise QPS of rest.Config (5 unless set) from 52/s to 225/s or more", "", ""},
		{queues.Limiter{Site: take, Rate: 5, MaxWaiters: 7, QueuedShare: 1, WaitsPerRequest: 1}, "a rate limiter at", "in jwkset: lower RateLimitWaitMax of keyfunc.Override", "if no request queued", "github.com/MicahParks/jwkset.httpClient.KeyRead"},
	} {
		rep := oneGroup(report.Cause{Cause: "sleep", Site: c.limiter.Site, Call: c.call, TotalNS: ms(3000), Requests: 100})
		rep.Groups[0].Count, rep.Input.DurationNS = 100, 2e9
		for _, v := range rulesByCode(report.RulePoolTooSmall)[0].Run(&Input{Report: rep, Limiters: []queues.Limiter{c.limiter}}) {
			check.True(t, strings.Contains(v.Title, c.title) && strings.Contains(strings.ReplaceAll(v.Fix, remedyEnd, ""), c.fix), "%+v: %s: %s", c.limiter, v.Title, v.Fix)
			check.Equal(t, v.ChangeText, c.change, "change")
			check.Equal(t, len(v.Changes) > 0, c.change != "", "%+v: changes %v", c.limiter, v.Changes)
		}
	}
}
