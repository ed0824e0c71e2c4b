package hostjoin

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

const ms = int64(1e6)

// A recording is the text of samples, one each 20 ms from 1 s on the monotonic clock and 1000 s on the wall clock.
type recording struct {
	b bytes.Buffer
}

func (x *recording) line(l host.Line) {
	b, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	x.b.Write(append(b, '\n'))
}

func sampleTime(i int64) (mono, wall int64) { return 1e9 + i*20*ms, 1000e9 + i*20*ms }

func (x *recording) begin() {
	l := host.Line{Kind: host.KindStart, Schema: host.Schema, PID: 7, IntervalNS: 20 * ms, Facts: &bundle.Host{PID: 7, Kernel: "6.1", QuotaCPUs: 0.5, QuotaPeriodNS: 100 * ms}}
	l.MonoNS, l.WallNS = sampleTime(0)
	x.line(l)
}

func (x *recording) sample(i int64, set func(*host.Line)) {
	l := host.Line{Kind: host.KindSample}
	l.MonoNS, l.WallNS = sampleTime(i)
	set(&l)
	x.line(l)
}

func pointer(v int64) *int64 { return &v }

func window(from, to int64) Window {
	start, wall := sampleTime(from)
	end, _ := sampleTime(to)
	// The trace's clock has another origin.
	return Window{Start: start + 5e12, End: end + 5e12, SnapshotTime: start + 5e12, Snapshot: &tracefmt.ClockSnapshot{Mono: uint64(start), UnixSec: uint64(wall / 1e9), UnixNsec: uint64(wall % 1e9)}}
}

func summarize(t *testing.T, x *recording, w Window, rep *report.Report) *report.Host {
	t.Helper()
	s := must.Have(host.Read(bytes.NewReader(x.b.Bytes())))(t)
	if rep == nil {
		rep = &report.Report{}
	}
	return must.Have(Summarize(s, w, rep))(t)
}

// TestOffCPU checks half a second of throttling, which all threads wait for, and another half in which three threads
// are ready and one CPU is available: the throttled time is not counted as time without a CPU in the other half.
func TestOffCPU(t *testing.T) {
	var x recording
	x.begin()
	var throttled, periods, delay, run int64
	for i := range int64(101) {
		switch {
		case i > 0 && i <= 50:
			throttled, delay, run = throttled+10*ms, delay+30*ms, run+5*ms
			periods = i / 5
		case i > 55:
			delay, run = delay+20*ms, run+10*ms
		}
		x.sample(i, func(l *host.Line) {
			l.Periods, l.ThrottledPeriods, l.ThrottledNS, l.LocalThrottledNS = pointer(i/5), &periods, &throttled, pointer(throttled)
			l.AncestorThrottledNS, l.AncestorThrottledPeriods, l.AncestorsComplete = pointer(0), pointer(0), true
			l.RunNS, l.RunDelayNS, l.RSSBytes = &run, &delay, pointer(i)
		})
	}
	running := [][2]int64{{0, 4000}, {500 * ms, 0}, {550 * ms, 3000}}
	rep := &report.Report{Input: report.Input{DurationNS: 2e9}, Runtime: report.Runtime{Series: &report.Series{StepNS: 1e9, Running: running}}}
	l := summarize(t, &x, window(0, 100), rep).Lost
	must.True(t, l.OffCPUNS != nil && *l.OffCPUNS >= 890*ms && *l.OffCPUNS <= 910*ms,
		"off %v, want 900 ms of 450 ms with three threads and one CPU", l.OffCPUNS)
	if got, ok := l.WithoutCPU(); !ok || got != float64(*l.OffCPUNS)/float64(*l.BusyNS) {
		t.Errorf("without a CPU: %v, %v", got, ok)
	}
}

// TestLostTimeParts checks how lost time is divided, with synthetic counters: two CPUs throttled for 50 ms in each of
// ten periods, four threads behind that quota, and 30 ms of waiting for another process outside all throttled
// intervals.
func TestLostTimeParts(t *testing.T) {
	var x recording
	x.begin()
	var throttled, periods, delay, run int64
	for i := range int64(101) {
		if i > 0 && i <= 50 && i%5 == 0 {
			throttled += 100 * ms
			periods++
			delay += 200 * ms
		}
		if i == 80 {
			delay += 30 * ms
		}
		if i > 0 {
			run += 10 * ms
		}
		x.sample(i, func(lost *host.Line) {
			lost.Periods, lost.ThrottledPeriods, lost.ThrottledNS, lost.LocalThrottledNS = pointer(i/5), &periods, &throttled, pointer(throttled)
			lost.AncestorThrottledNS, lost.AncestorThrottledPeriods, lost.AncestorsComplete = pointer(0), pointer(0), true
			lost.RunNS, lost.RunDelayNS, lost.RSSBytes = &run, &delay, pointer(i)
		})
	}
	rep := &report.Report{Input: report.Input{DurationNS: 2e9}, Runtime: report.Runtime{Series: &report.Series{StepNS: 1e9, Running: [][2]int64{{0, 3000}, {1e9, 500}}}}}
	host := summarize(t, &x, window(0, 100), rep)
	lost := host.Lost
	for _, c := range []struct {
		name string
		got  *int64
		want int64
	}{
		{"quota", lost.QuotaNS, 1000 * ms}, {"run queue", lost.RunQueueNS, 30 * ms}, {"unsplit", lost.UnsplitNS, 1000 * ms}, {"cpu", lost.CPUNS, 1000 * ms},
		{"delay", lost.RunDelayNS, 2030 * ms}, {"busy", lost.BusyNS, 3500 * ms}, {"unexplained", lost.UnexplainedNS, 470 * ms},
	} {
		check.True(t, c.got != nil && *c.got == c.want, "%s: %v, want %d", c.name, c.got, c.want)
	}
	if host.Quota.Verdict != "own" || host.Quota.OwnNS != 1000*ms || host.Quota.ThrottledPeriods != 10 || host.Clock != "monotonic" || host.Coverage != 1 {
		t.Errorf("%+v, clock %s, coverage %v", host.Quota, host.Clock, host.Coverage)
	}
	sum := int64(0)
	for _, v := range host.Series.ThrottledNS {
		sum += v[1]
	}
	check.Equal(t, sum, 1000*ms, "the series adds up to")
	// Outside the throttled intervals goroutines ran longer than the threads, but never for longer than the threads waited.
	check.True(t, lost.OffCPUNS != nil && *lost.OffCPUNS >= 0 && *lost.OffCPUNS <= 30*ms,
		"without a CPU: %v, want at most the threads' waiting time", lost.OffCPUNS)
	// The second half alone: nothing was throttled.
	if host := summarize(t, &x, window(60, 100), nil); host.Quota.Verdict != "none" || *host.Lost.QuotaNS != 0 || *host.Lost.RunQueueNS != 30*ms || host.Lost.BusyNS != nil || host.Lost.UnexplainedNS != nil {
		t.Errorf("second half: %+v %+v", host.Quota, host.Lost)
	}
	rep.Host = host
	rep.Runtime.Throttle = report.Throttle{Verdict: "unknown", Text: "freezes", LostWallNS: 480 * ms, LostCPUNS: 950 * ms, Confidence: 0.6}
	ReplaceThrottle(rep)
	if got := rep.Runtime.Throttle; got != (report.Throttle{Verdict: "own", Text: "host samples", PeriodNS: 100 * ms, LostWallNS: 480 * ms, LostCPUNS: 1000 * ms, Confidence: 1}) {
		t.Errorf("verdict %+v", got)
	}
	check.True(t, host.Freezes != nil && host.Freezes.LostCPUNS == 950*ms, "freezes %+v", host.Freezes)
}

// TestQuotaVerdicts checks whose quota throttled the process, and when that is unknown.
func TestQuotaVerdicts(t *testing.T) {
	for _, c := range []struct {
		name     string
		set      func(i int64, l *host.Line)
		want     report.ThrottleVerdict
		measured bool
	}{
		{"nothing throttled", func(_ int64, l *host.Line) {
			l.ThrottledNS, l.Periods, l.LocalThrottledNS = pointer(5), pointer(9), pointer(5)
		}, "none", true},
		{"own", func(i int64, l *host.Line) { l.ThrottledNS, l.Periods = pointer(i*ms), pointer(i) }, "own", true},
		{"ancestor, by cpu.stat.local", func(i int64, l *host.Line) {
			l.ThrottledNS, l.Periods, l.LocalThrottledNS = pointer(0), pointer(0), pointer(i*ms)
		}, "ancestor", true},
		{"ancestor, seen", func(i int64, l *host.Line) {
			l.ThrottledNS, l.Periods, l.AncestorThrottledNS = pointer(0), pointer(0), pointer(i*ms)
		}, "ancestor", true},
		{"ancestor groups are not visible", func(_ int64, l *host.Line) { l.ThrottledNS, l.Periods = pointer(0), pointer(0) }, "unknown", false},
		{"no counters", func(int64, *host.Line) {}, "unknown", false},
		{"the group was replaced", func(i int64, l *host.Line) { l.ThrottledNS, l.Periods = pointer((20-i)*ms), pointer(20-i) }, "unknown", false},
		{"another group", func(i int64, l *host.Line) {
			l.ThrottledNS, l.Periods, l.GroupIndex = pointer(i*ms), pointer(i), int(i/10)
		}, "unknown", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var x recording
			x.begin()
			for i := range int64(20) {
				x.sample(i, func(l *host.Line) { c.set(i, l) })
			}
			h := summarize(t, &x, window(0, 19), nil)
			check.True(t, h.Quota.Verdict == c.want && h.Quota.Text != "", "verdict %q: %s, want %q", h.Quota.Verdict, h.Quota.Text, c.want)
			check.True(t, (h.Lost.QuotaNS != nil) == c.measured, "quota %v, measured %v", h.Lost.QuotaNS, c.measured)
			rep := &report.Report{Host: h, Runtime: report.Runtime{Throttle: report.Throttle{Verdict: "own", Text: "freezes"}}}
			if ReplaceThrottle(rep); c.want == "unknown" && rep.Runtime.Throttle.Text != "freezes" {
				t.Errorf("insufficient samples replaced the trace's verdict: %+v", rep.Runtime.Throttle)
			}
		})
	}
}

func TestClocks(t *testing.T) {
	var x recording
	x.begin()
	for i := range int64(51) {
		x.sample(i, func(l *host.Line) { l.RunNS = pointer(i * ms) })
	}
	w := window(0, 50)
	w.Snapshot.Mono += 3600e9 // a time namespace: only the wall clocks agree
	if h := summarize(t, &x, w, nil); h.Clock != "wall" || h.FromNS != 0 || *h.Lost.CPUNS != 50*ms {
		t.Errorf("clock %s, from %d, cpu %d", h.Clock, h.FromNS, *h.Lost.CPUNS)
	}
	w = window(0, 50)
	w.Snapshot = nil // Go before 1.25
	s := must.Have(host.Read(bytes.NewReader(x.b.Bytes())))(t)
	if _, err := Summarize(s, w, &report.Report{}); !errors.Is(err, host.ErrFormat) {
		t.Errorf("without any clock: %v", err)
	}
	mono, wall := sampleTime(10)
	x.line(host.Line{Kind: host.KindTrace, Sample: host.Sample{MonoNS: mono, WallNS: wall}})
	if h := summarize(t, &x, w, nil); h.Clock != "asked" || h.FromNS != 0 || *h.Lost.CPUNS != 40*ms {
		t.Errorf("clock %s, from %d, cpu %d", h.Clock, h.FromNS, *h.Lost.CPUNS)
	}
	s = must.Have(host.Read(bytes.NewReader(x.b.Bytes())))(t)
	if _, err := Summarize(s, window(60, 90), &report.Report{}); err == nil || !strings.Contains(err.Error(), "of the trace's time") {
		t.Errorf("another time: %v", err)
	}
}

// FuzzRead checks that no input causes a panic, and that all results are numbers that the report's schema allows.
func FuzzRead(f *testing.F) {
	var x recording
	x.begin()
	for i := range int64(6) {
		x.sample(i, func(l *host.Line) {
			l.ThrottledNS, l.Periods, l.ThrottledPeriods, l.LocalThrottledNS, l.RunNS, l.RunDelayNS, l.RSSBytes, l.Retransmitted = pointer(i*ms), pointer(i), pointer(i), pointer(i*ms), pointer(i*ms), pointer(2*i*ms), pointer(i), pointer(i)
		})
	}
	mono, wall := sampleTime(5)
	x.line(host.Line{Kind: host.KindSecond, Sample: host.Sample{MonoNS: mono, WallNS: wall, StealNS: pointer(1), MemoryBytes: pointer(2), Levels: []host.Level{{Depth: 0, GroupPath: "/a", Periods: 1, ThrottledPeriods: 1, ThrottledNS: 1}}}})
	x.line(host.Line{Kind: host.KindSockets, Sample: host.Sample{MonoNS: mono, WallNS: wall}, ListsAll: true, SocketCount: 1, Sockets: []host.Socket{{Local: "127.0.0.1:1", Remote: "[::1]:2", Retransmitted: 3, OutOfOrder: 1, RTTNS: 5}}})
	x.line(host.Line{Kind: host.KindTrace, Sample: host.Sample{MonoNS: mono, WallNS: wall}})
	x.line(host.Line{Kind: host.KindEnd, Sample: host.Sample{MonoNS: mono, WallNS: wall}, Warnings: []bundle.Warning{{Code: "a", Text: "b"}}})
	f.Add(x.b.Bytes())
	rep := &report.Report{Input: report.Input{DurationNS: 1e9}, Runtime: report.Runtime{Series: &report.Series{StepNS: 1e7, Running: [][2]int64{{0, 1000}}}},
		Groups: []report.Group{{ID: "g", Bands: []report.Band{{Band: "all", Count: 20, Causes: []report.Cause{{Cause: "network", Share: 1}}}},
			Slowest: []report.Request{{ID: "r", Segments: []report.Segment{{Cause: "network", StartNS: 0, DurationNS: 1e9}}}}}}}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := host.Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		for _, w := range []Window{window(0, 50), {Start: 0, End: 1e9}, {Start: 1, End: 1 << 62, SnapshotTime: 5, Snapshot: &tracefmt.ClockSnapshot{Mono: 1 << 63, UnixSec: 1 << 63, UnixNsec: 1 << 63}}} {
			h, err := Summarize(s, w, rep)
			if err != nil {
				continue
			}
			q, n := h.Quota, h.Network
			for i, v := range []int64{h.FromNS, h.ToNS, q.OwnNS, q.AncestorNS, q.Periods, q.ThrottledPeriods, n.Retransmitted, n.PeerRetransmitted, n.OutOfOrder, h.Memory.RSSMaxBytes} {
				must.True(t, v >= 0, "value %d is %d", i, v)
			}
			for _, v := range []*int64{h.Lost.QuotaNS, h.Lost.RunQueueNS, h.Lost.UnsplitNS, h.Lost.UnexplainedNS, h.Lost.CPUNS, h.Lost.RunDelayNS, h.Lost.StealNS, n.AllRetransmitted} {
				must.False(t, v != nil && *v < 0, "lost time %+v", h.Lost)
			}
			must.True(t, h.Coverage >= 0 && h.Coverage <= 1 && len(h.Series.ThrottledNS) <= 2*maxSeries && len(n.Sockets) <= maxHostSockets,
				"coverage %v, %d points, %d sockets", h.Coverage, len(h.Series.ThrottledNS), len(n.Sockets))
			rep := report.Report{Host: h}
			ReplaceThrottle(&rep)
		}
	})
}

// TestNeedlessIsNoLoss checks that segments that the peer reports as duplicates were not lost, even if it reports them
// one sample later, and that the others were. A retransmission to a client is no cause of a wait for a peer.
func TestNeedlessIsNoLoss(t *testing.T) {
	network := func(kind string) *report.Report {
		return &report.Report{Input: report.Input{DurationNS: 1e9}, Groups: []report.Group{{ID: "g", Bands: []report.Band{{Band: "all", Count: 20, Causes: []report.Cause{{Cause: "network", Share: 1}}}},
			Slowest: []report.Request{{ID: "r", Segments: []report.Segment{{Cause: "network", Kind: kind, StartNS: 0, DurationNS: 1e9}}}}}}}
	}
	const ours, peer, client, listener = "10.0.0.1:40000", "10.0.0.2:5432", "10.0.0.9:33000", "10.0.0.1:80"
	for _, c := range []struct {
		name           string
		polls          [][]host.Socket
		lost, needless int64
		verdict        report.NetworkVerdict
		direction      string
	}{
		{"lost", [][]host.Socket{{{Local: ours, Remote: peer, Retransmitted: 2}}}, 2, 0, "lost", ours + " -> " + peer},
		{"all had arrived", [][]host.Socket{{{Local: ours, Remote: peer, Retransmitted: 2, Spurious: 2}}}, 0, 2, "cleared", ""},
		{"reported later", [][]host.Socket{{{Local: ours, Remote: peer, Retransmitted: 2}}, {{Local: ours, Remote: peer, Retransmitted: 2, Spurious: 2}}}, 0, 2, "cleared", ""},
		{"one of two", [][]host.Socket{{{Local: ours, Remote: peer, Retransmitted: 2}}, {{Local: ours, Remote: peer, Retransmitted: 2, Spurious: 1}}}, 1, 1, "lost", ours + " -> " + peer},
		{"another connection's", [][]host.Socket{{{Local: ours, Remote: peer, Retransmitted: 1}}, {{Local: "10.0.0.1:40001", Remote: peer, Spurious: 3}}}, 1, 0, "lost", ours + " -> " + peer},
		{"the other end's", [][]host.Socket{{{Local: peer, Remote: ours, Peer: true, Retransmitted: 1}}}, 1, 0, "lost", ours + " <- " + peer},
		{"a client's", [][]host.Socket{{{Local: listener, Remote: client, Retransmitted: 1}, {Local: listener, Remote: "10.0.0.9:33001"}}}, 1, 0, "unknown", ""},
	} {
		var x recording
		x.begin()
		x.line(host.Line{Kind: host.KindSockets, Sample: host.Sample{MonoNS: 1e9, WallNS: 1000e9}, ListsAll: true})
		for i := range int64(10) {
			x.sample(i, func(l *host.Line) { l.RunNS, l.Retransmitted = pointer(i*ms), pointer(0) })
			if int(i) >= 2 && int(i)-2 < len(c.polls) {
				mono, wall := sampleTime(i)
				x.line(host.Line{Kind: host.KindSockets, Sample: host.Sample{MonoNS: mono, WallNS: wall}, SinceNS: mono - 20*ms, SocketCount: 1, Sockets: c.polls[i-2]})
			}
		}
		n := summarize(t, &x, window(0, 9), network("outbound")).Network
		direction := ""
		if len(n.Requests) > 0 {
			// All ten samples are inside the wait. The third or fourth shows the retransmission.
			if w := n.Requests[0]; w.AgainNS < 0 || w.AgainNS > w.DurationNS || c.name == "lost" && w.AgainNS != 2*20*ms {
				t.Errorf("%s: retransmitted %d ns after the start of a wait of %d", c.name, w.AgainNS, w.DurationNS)
			}
			direction = strings.Join(n.Requests[0].Sockets, ", ")
		}
		check.True(t, n.Retransmitted+n.PeerRetransmitted == c.lost && n.Needless == c.needless && n.Verdict == c.verdict && direction == c.direction,
			"%s: %d lost, %d needless, %s %q: %s", c.name, n.Retransmitted+n.PeerRetransmitted, n.Needless, n.Verdict, direction, n.Text)
	}
}

// TestPeers: connections that clients opened, or that lead to the process itself, lead to no peer. Older recordings do not show which
// these are.
func TestPeers(t *testing.T) {
	const listener, ours, peer = "10.0.0.1:80", "10.0.0.1:40000", "10.0.0.2:5432"
	for _, knowsListeners := range []bool{true, false} {
		l := host.Line{Kind: host.KindSockets, ListsAll: true, ListenAddrs: []string{"[::]:80", "broken"}, Sockets: []host.Socket{
			{Local: ours, Remote: peer}, {Local: "10.0.0.1:40001", Remote: peer}, {Local: peer, Remote: ours, Peer: true}, {Local: listener, Remote: "10.0.0.9:33000"},
			{Local: "10.0.0.1:40002", Remote: listener}, {Local: listener, Remote: "10.0.0.1:40002"}}}
		l.MonoNS, l.WallNS = sampleTime(0)
		var want []string
		if knowsListeners {
			l.SelfSockets, want = new(int), []string{peer}
		}
		var x recording
		x.begin()
		x.line(l)
		for i := range int64(5) {
			x.sample(i, func(l *host.Line) { l.RunNS = pointer(i * ms) })
		}
		if got := summarize(t, &x, window(0, 4), nil).Network.Peers; !slices.Equal(got, want) {
			t.Errorf("%v: %q, want %q", knowsListeners, got, want)
		}
	}
}

// TestLateSample checks that a retransmission happened after the previous sample: late on a busy machine, the sample
// leaves more time for it; missing in a long recording, it does not.
func TestLateSample(t *testing.T) {
	for _, c := range []struct{ previousSample, lastPoll, want int64 }{
		{980, 0, 960},   // on time
		{910, 0, 910},   // late
		{100, 0, 800},   // missing
		{910, 950, 950}, // the connections were sampled later
	} {
		s := &host.Samples{IntervalNS: 20 * ms, Points: []host.Sample{{MonoNS: c.previousSample * ms}, {MonoNS: 1000 * ms}, {MonoNS: 1020 * ms}}}
		if got := earliestTime(s, &host.Event{PreviousPoll: c.lastPoll * ms, Poll: 1000 * ms}); got != c.want*ms {
			t.Errorf("%+v: from %d ms", c, got/ms)
		}
	}
}
