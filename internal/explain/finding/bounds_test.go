package finding

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/report"
)

// TestBounds: of one input for each rule that other tests run without its neighbours, all that the findings say, and where they change.
func TestBounds(t *testing.T) {
	lib := func(fn string, line int, calls string) *report.Site {
		return &report.Site{Func: "dep.org/db." + fn, File: "db.go", Line: 5, Module: "dep.org/db", CalledFrom: &report.Caller{Func: "main.load", File: "/src/main.go", Line: line, Calls: calls}}
	}
	httpGroup := func(causes ...report.Cause) *report.Report {
		r := oneGroup(causes...)
		r.Groups[0].Kind, r.Groups[0].Entry = report.KindHTTP1, site("handle@1")
		return r
	}
	outbound := func(line string, ns int64) report.Cause {
		return report.Cause{Cause: "network", Kind: "outbound", Call: "net.(*conn).Read", Site: site(line), TotalNS: ns}
	}
	predicted := func(_ string, changes []predict.Change) *report.Predicted {
		medianNS := int64(50e6)
		return &report.Predicted{P50NS: report.Estimate{Est: int64(len(changes)) * 10e6}, WasP50NS: &medianNS}
	}
	// outliers adds a band of outliers to the only group.
	outliers := func(r *report.Report, count int, causes ...report.Cause) *report.Report {
		g := &r.Groups[0]
		g.Bands = append(g.Bands, report.Band{Band: report.Band9099, Count: 10, Causes: g.Bands[0].Causes}, report.Band{Band: report.BandOutliers, Count: count, Causes: causes})
		return r
	}
	shared := func(c report.Cause, share float64) report.Cause {
		c.Share, c.Requests = share, 12
		return c
	}
	locked := []report.Via{{Wait: "lock", Call: "sync.(*Mutex).Lock", Site: site("get@2")}}
	for _, in := range []*Input{
		{ // a hub runs late behind a herd
			Report: httpGroup(report.Cause{Cause: "sched", Site: site("receive@3"), Via: via("chan handle@9"), TotalNS: ms(3000)}, report.Cause{Cause: "sched", Site: site("handle@4"), TotalNS: ms(900), RanMeanwhile: []report.Share{ranAt("main.tick", 0.9), ranAt("main.other", 0.1)}}, outbound("ask@5", ms(100))),
			Process: &process.Stats{SpanNS: 1e9, Procs: 2, BusyNS: 18e8, RunningTimes: []process.RunningTime{{Start: "main.ticks", Site: siteOf("main.tick"), NS: 8e8, Count: 1e4}, {Start: "main.other", Site: siteOf("main.other"), NS: 1e8, Count: 9}},
				Herds: []process.Herd{{Start: "main.ticks", Site: siteOf("main.tick"), Times: 50, Wakes: 1e5, Largest: 2000, WithinNS: 1e6, LateNS: 3e6, Empty: 500, RanNS: 79e7, ClearNS: 2e8}}},
			Hubs: []queues.Hub{{G: 9, Start: "main.hub", Sites: []*report.Site{site("receive@3")}, LateRuns: 100, DelayedRequests: 300, LateNS: 6e8, PollGapNS: 9e7, MaxNS: 4e7,
				RanInstead: []report.Share{ranAt("main.tick", 0.6), ranAt("main.other", 0.2), ranAt("main.third", 0.15)}}},
		},
		{ // hanging requests behind a lock, with a request that perhaps holds it
			Report: func() *report.Report {
				r := httpGroup(outbound("ask@5", ms(500)))
				g := &r.Groups[0]
				r.Input.DurationNS = 4e9
				g.LatencyNS = report.Latency{P99: ptr(int64(6e6)), Max: ptr(int64(8e6))}
				g.Open = report.Open{Count: 9, OldestNS: 3e9, Waits: []report.OpenWait{
					{Cause: "lock", Call: "sync.(*Mutex).Lock", Site: site("get@2"), Count: 6, OldestNS: 2e9, StuckNS: []int64{19e8, 15e8}, AgesNS: []int64{2e9, 16e8}},
					{Cause: "chan", Call: "runtime.chanrecv1", Site: site("await@3"), Count: 2, OldestNS: 21e8, StuckNS: []int64{195e7}, AgesNS: []int64{21e8}},
					{Cause: "network", Kind: "outbound", Call: "net.(*conn).Read", Site: site("ask@5"), Count: 1, OldestNS: 9e8, StuckNS: []int64{2e8}, AgesNS: []int64{9e8}}}}
				return r
			}(),
			FindHolder: func(_ string, minNS int64) (*report.Site, string, int64) {
				if minNS < 1e9 {
					return nil, "", 0
				}
				return site("flush@8"), "chan receive", minNS + 5e6
			},
		},
		{ // messages queue for the goroutines of a loop
			Report: func() *report.Report {
				r := oneGroup(report.Cause{Cause: "cpu", Site: lib("decode", 7, "dep.org/db.Decode"), TotalNS: ms(600)}, outbound("store@8", ms(400)))
				r.Runtime.Sched.PsIdle = 0.7
				g := &r.Groups[0]
				g.Kind = report.KindLoop
				g.Backlog = &report.Backlog{Site: site("consume@4"), From: "main.receive", Messages: 100, Queued: 60, Consumers: 1, Load: 0.8, Sufficient: 3, HandlingNS: 10e6,
					WaitNS: report.Latency{Mean: ptr(int64(15e6)), P90: ptr(int64(30e6)), P99: ptr(int64(50e6)), Max: ptr(int64(60e6))}, Slow: report.BacklogBand{Band: report.Band9099, WaitNS: 40e6, HandlingNS: 12e6}}
				return r
			}(),
		},
		{ // a message queue that is read at the socket
			Report: func() *report.Report {
				r := oneGroup(report.Cause{Cause: "sleep", Call: "time.Sleep", Site: site("nap@7"), TotalNS: ms(900)})
				r.Groups[0].Backlog = &report.Backlog{Site: site("consume@4"), Messages: 100, Queued: 60, Consumers: 2, Load: 0.8, Sufficient: 3, HandlingNS: 10e6, WaitNS: report.Latency{Mean: ptr(int64(15e6))}, Slow: report.BacklogBand{WaitNS: 40e6, HandlingNS: 12e6}}
				return r
			}(),
		},
		{ // consumers that always have a next message, and whose next one takes long to fetch
			Report: func() *report.Report {
				r := oneGroup(report.Cause{Cause: "cpu", Site: site("handle@7"), TotalNS: ms(900)})
				r.Groups[0].Saturated = &report.Saturated{Site: site("consume@4"), From: "main.receive", BlockedShare: 0.6, Consumers: 1, PerSecond: 99.5, EachNS: 10e6, AskNS: 2e6}
				r.Runtime.Sched.PsIdle = 0.7
				return r
			}(),
		},
		{ // answers that a ticker writes
			Report:      httpGroup(report.Cause{Cause: "cpu", Site: site("handle@7"), TotalNS: ms(100)}),
			HeldAnswers: map[string]*queues.HeldAnswers{"g": {Messages: 100, Writes: 90, WriteSite: site("flush@9"), PeriodNS: 50e6, HasIdle: true}},
		},
		{ // a stopped process
			Report: func() *report.Report {
				r := httpGroup(outbound("ask@5", ms(500)))
				r.Groups[0].TotalNS = 5e8
				r.Runtime.Stops = &report.Stops{State: "stopped", Text: "3 gaps", TotalNS: 3e8, During: 4, After: 40, Requests: 100, Confidence: 0.95, Count: 3}
				return r
			}(),
		},
		{ // a limiter of a library
			Report:   httpGroup(report.Cause{Cause: "sleep", Site: &report.Site{Func: "golang.org/x/time/rate.(*Limiter).wait", File: "rate.go", Line: 286, Module: "golang.org/x/time"}, TotalNS: ms(3000)}),
			Limiters: []queues.Limiter{{Site: &report.Site{Func: "golang.org/x/time/rate.(*Limiter).wait", File: "rate.go", Line: 286, Module: "golang.org/x/time"}, Rate: 60, MaxWaiters: 7, QueuedShare: 0.5, BurstDeficit: 9}},
		},
		{ // a peer that the kernel's events show, and outliers in few moments
			Report: outliers(httpGroup(func() report.Cause {
				c := outbound("ask@5", ms(2000))
				c.PeerStates = []report.PeerState{{Process: "db (pid 7)", State: report.PeerLock, TotalNS: ms(1300)}, {Process: "db (pid 7)", State: report.PeerRunning, TotalNS: ms(300)}, {Process: "db (pid 7)", State: report.PeerDisk, TotalNS: ms(120)}}
				return c
			}()), 12, shared(outbound("ask@5", ms(2400)), 0.9)),
			OutlierMoments: map[string]int{"g": 3},
			PeerCalls:      map[string][]queues.PeerCalls{"g": {{Site: site("ask@5"), Requests: 100, Calls: 100, AnswerNS: 19e8, TotalNS: 2e9, LongestNS: 19e8}, {Site: site("other@6"), Requests: 60, Calls: 60, AnswerNS: 6e8, TotalNS: 6e8}}},
		},
		{ // answers of which some take far longer than usual
			Report: func() *report.Report {
				r := oneGroup(outbound("ask@5", ms(3000)))
				g := &r.Groups[0]
				usual, slow := outbound("ask@5", ms(400)), outbound("ask@5", ms(1500))
				usual.Requests, usual.Share, slow.Requests, slow.Share = 40, 0.9, 10, 0.9
				g.Bands = append(g.Bands, report.Band{Band: report.Band5090, Count: 40, Causes: []report.Cause{usual}}, report.Band{Band: report.Band9099, Count: 10, Causes: []report.Cause{slow}})
				return r
			}(),
			Predict: predicted,
		},
		{ // a lock with two kinds of work under it, siblings that hold it, and what its holders do
			Report: httpGroup(report.Cause{Cause: "network", Kind: "outbound", Call: "net.(*conn).Read", Site: site("fetch@5"), TotalNS: ms(2000), Routes: []report.Route{{Via: locked, TotalNS: ms(1500)}, {TotalNS: ms(500)}}},
				report.Cause{Cause: "cpu", Site: site("count@6"), TotalNS: ms(1000), Via: locked}, report.Cause{Cause: "lock", Site: site("get@2"), TotalNS: ms(200), Via: locked}),
			HolderLines: []queues.HolderLine{{WaitSite: site("get@2"), HolderSite: site("fetch@5"), Line: site("get@3"), Work: site("load@4")}},
			Services:    []queues.ServiceStats{{Cause: "network", Site: site("fetch@5"), WaitersPerServer: 3, Requests: 100, Servers: 1, MaxServers: 1}},
			WorkShare:   func(string, predict.Change) (predict.WorkShare, bool) { return predict.WorkShare{Repeating: 0.1}, true },
			Predict:     predicted,
		},
		{ // a database that a transaction locks
			Report: httpGroup(report.Cause{Cause: "sleep", Call: "time.Sleep", Site: &report.Site{Func: "modernc.org/sqlite.busyHandler", File: "busy.go", Line: 82, Module: "modernc.org/sqlite", CalledFrom: &report.Caller{Func: "main.add", File: "/src/main.go", Line: 35}}, TotalNS: ms(3000)},
				report.Cause{Cause: "cpu", Site: site("add@48"), TotalNS: ms(500)}),
			LockedWaits: []queues.LockedWait{{Site: &report.Site{Func: "modernc.org/sqlite.busyHandler", File: "busy.go", Line: 82, Module: "modernc.org/sqlite", CalledFrom: &report.Caller{Func: "main.add", File: "/src/main.go", Line: 35}},
				Begin: site("add@35"), Share: 0.6, Work: site("check@60"), Line: site("add@50"), WorkShare: 0.55}},
		},
		{ // a poll, with a goroutine that shares its sleeps
			Report:   httpGroup(report.Cause{Cause: "sleep", Call: "time.Sleep", Site: site("poll@5"), Via: via("chan get@4"), TotalNS: ms(3000)}, report.Cause{Cause: "sleep", Call: "time.Sleep", Site: site("pause@5"), TotalNS: ms(300)}),
			Services: []queues.ServiceStats{{Cause: "sleep", Site: site("poll@5"), WaitersPerServer: 1, BatchSize: 2, Sleeps: 80, SleepNS: 9e6, Servers: 90, MaxServers: 9, Requests: 100}},
			Pauses: func(string, []predict.Change) *predict.Pauses {
				return &predict.Pauses{Number: 3, EachNS: 10e6, TotalNS: 30e6, IsPoll: true}
			},
		},
		{ // a long poll with a time-out
			Report: func() *report.Report {
				r := httpGroup(report.Cause{Cause: "sleep", Call: "runtime.selectgo", Site: site("wait@4"), TotalNS: ms(90_000)}, report.Cause{Cause: "chan", Site: site("publish@8"), Via: via("select wait@4"), TotalNS: ms(60_000)})
				r.Groups[0].Slowest = []report.Request{{ID: "x", LatencyNS: 15e8, Segments: []report.Segment{{Cause: "sleep", Site: site("wait@4"), DurationNS: 14e8}, {Cause: "cpu", Site: site("wait@4"), DurationNS: 1e8}}}}
				return r
			}(),
			LongWaits: []queues.LongWaits{{Site: site("wait@4"), WokenShare: 0.4, HandoverShare: 0.05}},
			SlotWaits: []queues.SlotWaits{{Wait: "select", Site: site("wait@4"), Waits: 40, BatchSize: 1, OtherRequestShare: 0.2}},
		},
		{ // a quota that freezes the process, with the series of what ran
			Report: func() *report.Report {
				r := frozenReport("own", 0.5, 4, hostSpan(hostWith(4, 2e9, 1e8, 5e8), 1e9))
				r.Host.Facts.QuotaCPUs, r.Host.Facts.QuotaFrom, r.Host.Quota = 0.5, "/sys/fs/cgroup/cpu.max", report.HostQuota{Verdict: "own", Periods: 10, ThrottledPeriods: 4}
				r.Runtime.Series = &report.Series{StepNS: 10e6, Freezes: [][2]int64{{125e6, 75e6}, {225e6, 75e6}, {325e6, 75e6}, {425e6, 75e6}, {525e6, 75e6}, {725e6, 75e6}}}
				return r
			}(),
		},
		{ // the same of a trace alone
			Report: func() *report.Report {
				r := frozenReport("own", 0.5, 4, nil)
				r.Runtime.Series = &report.Series{StepNS: 10e6, Running: [][2]int64{{100e6, 2000}, {110e6, 1500}, {120e6, 1000}, {200e6, 2000}, {210e6, 2000}, {220e6, 500}}, Freezes: [][2]int64{{20e6, 30e6}, {125e6, 75e6}, {225e6, 75e6}}}
				return r
			}(),
		},
		{ // stops of the world for collections, during which code stops slowly
			Report: httpGroup(report.Cause{Cause: "stw", Kind: "GC mark termination", Site: site("fill@7"), TotalNS: ms(900)}, report.Cause{Cause: "cpu", Site: site("f@1"), TotalNS: ms(600)}),
			Process: func() *process.Stats {
				stats := statsWithCycles(2, 0, 100*mib, 200*mib, 0.01)
				stats.Stops = []process.Stop{{Kind: "GC mark termination", Site: site("fill@7"), Count: 10, TotalNS: 100e6, MaxNS: 20e6, ExaminedNS: 100e6, StoppingNS: 50e6, SlowStoppers: []report.Share{{Site: site("copy@5"), Share: 0.8}, {Site: site("sort@6"), Share: 0.1}}},
					{Kind: "GC mark termination", Site: site("other@7"), Count: 5, TotalNS: 10e6, MaxNS: 25e6, ExaminedNS: 10e6, StoppingNS: 5e6}, {Kind: "GOMAXPROCS", Count: 1, TotalNS: 1e6, MaxNS: 1e6}}
				return stats
			}(),
		},
		{ // gateways that wait for a server in the same process
			Report: func() *report.Report {
				hop := report.Via{Wait: report.WaitPeer, Site: site("call@9")}
				nap := func(via ...report.Via) report.Cause {
					return report.Cause{Cause: "sleep", Call: "time.Sleep", Site: site("nap@7"), Via: via, TotalNS: ms(1900), Share: 0.95, Requests: 100}
				}
				r := oneGroup(nap(hop))
				r.Groups[0].Name, r.Groups[0].Peer = "main.gateway", &report.Peer{Group: "s", Name: "main.serve", Joined: true, Waits: 100, Held: 98, ByChance: 0.1, WaitNS: 20e6, ServedNS: 19e6, Confidence: 0.95}
				server := oneGroup(nap()).Groups[0]
				server.ID, server.Name = "s", "main.serve"
				r.Groups = append(r.Groups, server)
				return r
			}(),
			Predict: predicted,
		},
		{ // other processes use the CPUs, by the kernel's events
			Report: func() *report.Report {
				r := httpGroup(report.Cause{Cause: report.CauseCPUWait, Kind: "batch", Site: site("handle@4"), TotalNS: ms(2000)}, report.Cause{Cause: report.CauseCPUWait, Kind: report.OwnThreads, Site: site("handle@4"), TotalNS: ms(500)}, report.Cause{Cause: "cpu", Site: site("handle@4"), TotalNS: ms(500)})
				r.Kernel = &report.Kernel{Coverage: 1, RunningNS: 10e9, CPUNS: 6e9, CPUWaitNS: 4e9, Processes: []report.ProcessShare{{Process: "batch", Share: 0.75}, {Process: report.OwnThreads, Share: 0.25}}}
				r.Host = hostWith(2, 6e9, 4e9, 6e9)
				return r
			}(),
			Process: &process.Stats{SpanNS: 1e9, Procs: 4, BusyNS: 10e8},
		},
		{ // a client that reads slowly holds up others
			Report: httpGroup(report.Cause{Cause: "network", Kind: "inbound", Call: "net/http.(*response).Write", Site: site("send@8"), Via: via("chan send publish@4 runtime.chansend1"), TotalNS: ms(3000)}, report.Cause{Cause: "network", Kind: "inbound", Call: "net/http.(*body).Read", Site: site("read@3"), TotalNS: ms(900)}),
		},
	} {
		if in.Process == nil {
			in.Process = &process.Stats{}
		}
		findWithBounds(t, in, All())
	}
}
