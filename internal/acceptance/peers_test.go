package acceptance_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/cli"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// TestNoPeersByChance: one service of lab/truth calls itself, because its clients are in its process. Many others wait for
// peers while requests of their own overlap these waits by chance. The report must not name a peer because two groups work at
// the same time.
func TestNoPeersByChance(t *testing.T) {
	for _, name := range testprog.Services(t) {
		rep := explainService(t, name)
		for i := range rep.Groups {
			g := &rep.Groups[i]
			switch callsItself := name == "load-inside" && strings.HasSuffix(g.Name, ".visit"); {
			case callsItself && (!g.Peer.Followed() || !strings.HasSuffix(g.Peer.Name, ".ask")):
				t.Errorf("%s: %s waits for %+v", name, g.Name, g.Peer)
			case !callsItself && g.Peer != nil:
				t.Errorf("%s: %s is reported as waiting for its own %s: %+v", name, g.Name, g.Peer.Name, g.Peer)
			}
		}
	}
}

// TestEtcdCallsItself: etcd's gateway calls its own gRPC server over loopback, as its source shows. The answer must not end at
// the network as if another process were slow.
func TestEtcdCallsItself(t *testing.T) {
	for name, serves := range map[string]string{"etcd-puts": "(*quotaKVServer).Put", "etcd-reads": "(*kvServer).Range", "etcd-reads-neighbours": "(*kvServer).Range"} {
		rep := explainFile(t, testprog.Recording(t, "field/"+name+".whylate"))
		checkPeer(t, rep, "(*accessController).ServeHTTP", serves)
		for _, f := range rep.Findings {
			check.False(t, f.Code == report.RuleSlowPeer && f.Severity.IsMajor(),
				"%s: a slow peer is found, but the peer is this process: %s", name, f.Title)
		}
	}
}

// TestPeerInSameProcess: the gateway's own service sleeps for 12 ms of each call in main.refresh, as its source shows. The
// report has the fault once, at that line, for both the gateway and the service. It must not end at the socket, find a slow
// peer in addition, predict nothing for the callers, or depend on how the trace is read.
func TestPeerInSameProcess(t *testing.T) {
	file := testprog.Recording(t, "field/grpc-same-process.whylate")
	rep := explainFile(t, file)
	g := &rep.Groups[slices.IndexFunc(rep.Groups, func(g report.Group) bool { return strings.HasSuffix(g.Name, "(*gateway).ServeHTTP") })]
	price := &rep.Groups[slices.IndexFunc(rep.Groups, func(g report.Group) bool { return strings.HasSuffix(g.Name, "(*prices).Price") })]
	must.True(t, g.Peer.Followed() && g.Peer.Group == price.ID && g.Peer.AsLong, "its peer is %+v", g.Peer)
	slept := func(g *report.Group) (ns int64) {
		for i := range g.All().Causes {
			if c := &g.All().Causes[i]; c.Cause == report.CauseSleep && c.Site.Func == "main.refresh" {
				ns += c.TotalNS
			}
		}
		return ns
	}
	// The service slept only for the gateway.
	if gatewaySleep, serviceSleep := slept(g), slept(price); gatewaySleep < serviceSleep*99/100 || gatewaySleep > serviceSleep {
		t.Errorf("the gateway's requests have %d ns of the %d that the service slept", gatewaySleep, serviceSleep)
	}
	v := rep.Verdict[0]
	if v.Group != g.ID || v.Causes[0].Cause != report.CauseSleep || !strings.Contains(v.Text, "asleep in main.refresh main.go:45, in this process's own main.(*prices).Price, asked over the network") {
		t.Errorf("the verdict is: %s", v.Text)
	}
	f := rep.Findings[0]
	must.True(t, f.Code == report.RuleSleep && f.Group == price.ID && len(f.AskedBy) == 1 && f.AskedBy[0].Group == g.ID,
		"the first finding is %+v", f)
	// Half of 12 ms per call: the gain is the same for both.
	caller := f.AskedBy[0]
	must.True(t, caller.Share >= 0.9 && caller.Predicted != nil, "the calling group: %+v", caller)
	if callerGain, serviceGain := *g.LatencyNS.P50-caller.Predicted.P50NS.Est, *price.LatencyNS.P50-f.Predicted.P50NS.Est; callerGain < serviceGain*95/100 || callerGain > serviceGain*105/100 {
		t.Errorf("half of the sleep gains %d ns for the service and %d ns for its callers", serviceGain, callerGain)
	}
	for _, o := range rep.Findings {
		if o.Code == report.RuleSlowPeer || o.Code == report.RulePoolTooSmall || o.Group == g.ID && o.Code == report.RuleSleep {
			t.Errorf("the same fault is found again: %s %s", o.Code, o.Title)
		}
	}
	// With --group gateway, the finding is about the gateway.
	if gatewayOnly := explainFile(t, file, "--group", "gateway"); gatewayOnly.Findings[0].Code != report.RuleSleep || gatewayOnly.Findings[0].Group != g.ID {
		t.Errorf("with --group gateway, the first finding is %s %s", gatewayOnly.Findings[0].Code, gatewayOnly.Findings[0].Title)
	}
}

// TestParallelCallsAreNotPeers: a page makes four parallel calls that take equally long: two to a backend in another process,
// one to this process, one sleeps (lab/peers/page.go). The report must not say that requests wait for each other because they
// overlap, but must find the call to this process.
func TestParallelCallsAreNotPeers(t *testing.T) {
	rep := explainFile(t, testprog.Recording(t, "peers/page.trace"))
	group := func(name string) *report.Group {
		return &rep.Groups[slices.IndexFunc(rep.Groups, func(g report.Group) bool { return strings.HasPrefix(name, g.Name) })]
	}
	for _, name := range []string{"main.page.func2 page.go:50", "main.page.func3 page.go:51"} {
		g := group(name)
		check.True(t, g.Peer == nil, "%s waits for %+v", name, g.Peer)
		if !slices.ContainsFunc(rep.Findings, func(f report.Finding) bool {
			return f.Group == g.ID && f.Code == report.RuleSlowPeer && f.Severity != report.SeverityInfo // it takes as long for all requests, so the severity is low
		}) {
			t.Errorf("%s: there is no finding about its backend", name)
		}
	}
	if g := group("main.page.func4 page.go:52"); !g.Peer.Followed() || !strings.HasPrefix(g.Peer.Name, "main.page.func5") {
		t.Errorf("the call to this process waits for %+v", g.Peer)
	}
	for _, f := range rep.Findings {
		if len(f.AskedBy) > 0 && slices.ContainsFunc(f.AskedBy, func(a report.AskedBy) bool { return !strings.HasPrefix(a.Name, "main.page.func4") }) {
			t.Errorf("%s of %s is asked by %+v", f.Code, f.Group, f.AskedBy)
		}
	}
}

// TestServices explains the recording of a gateway together with that of its server: nearly all exchanges are joined, and the duration
// of a wait and the server's part of it agree with the clocks of the two programs. It fails if the clocks are aligned wrongly or
// transport time counts as the server's. A recording of another time, and one of a server that no process calls, join nothing.
func TestServices(t *testing.T) {
	dir := t.TempDir()
	explainArgs := func(args ...string) *report.Report {
		t.Helper()
		var out, stderr bytes.Buffer
		if status := cli.Run(t.Context(), append([]string{"explain", "--json"}, args...), strings.NewReader(""), &out, &stderr); status != 0 {
			t.Fatalf("%v: status %d: %s", args, status, &stderr)
		}
		return must.Have(report.ReadJSON(&out))(t)
	}
	server, gateway := testprog.Sides(t)
	for name, s := range map[string]testprog.Side{"server": server, "gateway": gateway} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name+".trace"), s.Trace, 0o600))
	}
	gatewayFile, serverFile := filepath.Join(dir, "gateway.trace"), filepath.Join(dir, "server.trace")
	for _, args := range [][]string{{"shop=" + gatewayFile, "server=" + serverFile}, {"server=" + serverFile, "shop=" + gatewayFile}, {"--peer", "server=" + serverFile, "shop=" + gatewayFile}} {
		rep := explainArgs(args...)
		if len(rep.Services) != 2 || rep.Services[0].Name != "shop" || len(rep.Services[0].Calls) != 1 || rep.Services[0].Calls[0].Joined < 185 || len(rep.Services[1].Calls) != 0 {
			t.Fatalf("%v: services %+v", args, rep.Services)
		}
		g := &rep.Groups[0]
		p := g.Peer
		must.True(t, g.Service == "shop" && p != nil && p.Recording == "server" && p.Group == rep.Groups[1].ID && p.ThereNS != nil && p.BackNS != nil,
			"%v: group of %q, its peer is %+v", args, g.Service, p)
		handlerNS, callNS := float64(server.NS)/float64(server.Count), float64(gateway.NS)/float64(gateway.Count)
		t.Logf("%+v; the server's handler took %.0f ns, the gateway's call %.0f ns", p, handlerNS, callNS)
		if got := float64(p.ServedNS); got < 0.95*handlerNS || got > 1.1*handlerNS {
			t.Errorf("the server's part of a wait is %.0f ns, by its own clock its handler took %.0f", got, handlerNS)
		}
		if got := float64(p.WaitNS); got < 0.9*callNS || got > 1.05*callNS {
			t.Errorf("a wait takes %.0f ns, by the gateway's clock a call takes %.0f", got, callNS)
		}
		// The server's handler sleeps and computes, as its source shows. Its time is in the gateway's requests as in its own.
		sleep := g.All().Causes[slices.IndexFunc(g.All().Causes, func(c report.Cause) bool { return c.Cause == report.CauseSleep })]
		inner := rep.Groups[1].All().Causes[slices.IndexFunc(rep.Groups[1].All().Causes, func(c report.Cause) bool { return c.Cause == report.CauseSleep })]
		if sleep.Service != "server" || sleep.Site.Func != "main.answer" || sleep.Site.Service != "server" || float64(sleep.TotalNS) < 0.95*float64(inner.TotalNS) || sleep.TotalNS > inner.TotalNS {
			t.Errorf("the server sleeps for %d ns in the gateway's requests, for %d ns in its own: %+v", sleep.TotalNS, inner.TotalNS, sleep)
		}
		if v := sleep.Via[len(sleep.Via)-1]; v.Wait != report.WaitPeer || v.Service != "server" || v.Site.OwnLine().Func != "main.ask" {
			t.Errorf("the way to the server is %+v", v)
		}
		var bandNS int64
		for _, c := range g.All().Causes {
			bandNS += c.TotalNS
		}
		check.True(t, bandNS == g.TotalNS, "the causes add up to %d ns, the requests to %d", bandNS, g.TotalNS)
		i := slices.IndexFunc(rep.Findings, func(f report.Finding) bool { return f.Code == report.RuleSleep })
		check.True(t, i == 0 && rep.Findings[0].Service == "server" && len(rep.Findings[0].AskedBy) == 1 && rep.Findings[0].AskedBy[0].Group == g.ID,
			"the first finding is %+v", rep.Findings[0])
		check.False(t, slices.ContainsFunc(rep.Findings, func(f report.Finding) bool { return f.Service == "shop" && f.Code == report.RuleSlowPeer }),
			"the server's time is reported as a wait of the gateway, too")
	}
	for _, file := range []string{"field/etcd-reads.whylate", "truth/reverse-proxy.trace"} {
		other := filepath.Join(dir, filepath.Base(file))
		must.Do(t, os.WriteFile(other, must.Have(os.ReadFile(testprog.Recording(t, file)))(t), 0o600))
		rep := explainArgs("other="+other, "server="+serverFile)
		for i := range rep.Groups {
			if p := rep.Groups[i].Peer; p != nil && p.Recording != "" {
				t.Errorf("%v: %+v", file, p)
			}
		}
		check.True(t, slices.ContainsFunc(rep.Input.Warnings, func(w report.Warning) bool { return w.Code == "services" }),
			"%s: there is no warning: %v", file, rep.Input.Warnings)
	}
}

// TestPeerStates: a peer in Python computes, while another process has its CPU for 2 of 5 ms, sleeps, waits for a lock and syncs a file in each
// answer (lab/peers/phases.py). The states of the wait for it agree with the peer's own clocks, also in a part of the recording and without names.
func TestPeerStates(t *testing.T) {
	file, dir := testprog.Recording(t, "peers/python.whylate"), t.TempDir()
	var truth struct {
		Answers int   `json:"answers"`
		WallNS  int64 `json:"wall_ns"`
		CPUNS   int64 `json:"cpu_ns"`
		SleepNS int64 `json:"sleep_ns"`
		LockNS  int64 `json:"lock_ns"`
		SyncNS  int64 `json:"sync_ns"`
	}
	must.Do(t, json.Unmarshal(must.Have(os.ReadFile(filepath.Join(testprog.RecordingsDir(t), "peers", "python.json")))(t), &truth))
	change := func(name string, args ...string) string {
		var stderr bytes.Buffer
		out := filepath.Join(dir, name+".whylate")
		if status := cli.Run(t.Context(), append(args, file, out), strings.NewReader(""), &stderr, &stderr); status != 0 {
			t.Fatalf("%v: status %d: %s", args, status, &stderr)
		}
		return out
	}
	for name, file := range map[string]string{"whole": file, "cut": change("cut", "cut", "--to", "600ms"), "redacted": change("redacted", "redact")} {
		rep := explainFile(t, file)
		wait := rep.Groups[0].All().Causes[0]
		sums := map[report.PeerStateName]int64{}
		for _, x := range wait.PeerStates {
			sums[x.State] += x.TotalNS
			check.Equal(t, strings.HasPrefix(x.Process, "python3 (pid "), name != "redacted", "%s: %+v", name, x)
			check.True(t, x.State != report.PeerCPUWait || x.TotalNS < wait.TotalNS/10 || strings.HasPrefix(x.Detail, "backup (pid ") == (name != "redacted"), "%s: %+v", name, x)
		}
		isBetween := func(state string, got, minimum, maximum int64) {
			check.True(t, minimum <= got && got <= maximum, "%s: %s is %d ns, by the peer's clock %d to %d", name, state, got, minimum, maximum)
		}
		n := int64(truth.Answers)
		check.True(t, rep.Groups[0].Count == truth.Answers && wait.Cause == report.CauseNetwork && wait.Observed, "%s: %d requests, %+v", name, rep.Groups[0].Count, wait)
		isBetween("computing", sums[report.PeerRunning], truth.CPUNS*98/100, truth.CPUNS*102/100)
		// The peer's clocks stop when it has a CPU again.
		isBetween("sleeping", sums[report.PeerTimer], n*10e6, truth.SleepNS)
		isBetween("waiting for the lock", sums[report.PeerLock], n*6e6, truth.LockNS)
		isBetween("waiting for the disk", sums[report.PeerDisk], truth.SyncNS*3/4, truth.SyncNS)
		cpuWaitNS := truth.WallNS - truth.CPUNS - sums[report.PeerTimer] - sums[report.PeerLock] - sums[report.PeerDisk]
		isBetween("waiting for a CPU", sums[report.PeerCPUWait], cpuWaitNS*98/100, cpuWaitNS+wait.TotalNS-truth.WallNS)
		if text := rep.Verdict[0].Text; !strings.Contains(text, "; 31% asleep until a timer, 22% waiting for a disk in fsync, 19% waiting for a lock or another of its threads) in main.ask main.go:") {
			t.Errorf("%s: the verdict is: %s", name, text)
		}
	}
}

// checkPeer checks that the group named caller waits for the group named server of the same process.
func checkPeer(t *testing.T, rep *report.Report, caller, server string) {
	t.Helper()
	for i := range rep.Groups {
		g := &rep.Groups[i]
		if !strings.HasSuffix(g.Name, caller) {
			continue
		}
		p := g.Peer
		check.True(t, p != nil && strings.HasSuffix(p.Name, server) && p.Confidence >= 0.8 && p.ServedNS <= p.WaitNS && p.ByChance <= 0.3,
			"%s waits for %+v, want %s", g.Name, p, server)
		if v := rep.Verdict[0].Text; !strings.Contains(v, "this process's own") {
			t.Errorf("the verdict does not name this process as the peer: %s", v)
		}
		return
	}
	t.Errorf("no group is %s", caller)
}
