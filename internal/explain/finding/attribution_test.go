package finding

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// site returns a site of package main from "f@12". A name with a dot is a whole function.
func site(s string) *report.Site {
	fn, line, _ := strings.Cut(s, "@")
	n := 0
	fmt.Sscan(line, &n)
	if !strings.Contains(fn, ".") {
		fn = "main." + fn
	}
	return &report.Site{Func: fn, File: "/src/main.go", Line: n}
}

// inModule returns a site in a module.
func inModule(s, module string) *report.Site {
	out := site(s)
	out.Module = module
	return out
}

// via returns a chain of waits, each written as "wait site call".
func via(waits ...string) []report.Via {
	out := []report.Via{}
	for _, w := range waits {
		rest, sends := strings.CutPrefix(w, "chan send ")
		f := strings.SplitN(rest, " ", 3)
		if sends {
			f = append([]string{"chan send"}, f...)
		}
		v := report.Via{Wait: report.WaitKind(f[0]), Site: site(f[1])}
		if len(f) > 2 {
			v.Call = f[2]
		}
		out = append(out, v)
	}
	return out
}

func ms(n int64) int64 { return n * 1e6 }

// oneGroup returns a report of one group of 100 requests with these causes.
func oneGroup(causes ...report.Cause) *report.Report {
	var total int64
	for _, c := range causes {
		total += c.TotalNS
	}
	for i := range causes {
		c := &causes[i]
		c.Share = float64(c.TotalNS) / float64(total)
		if c.Requests == 0 {
			c.Requests = 100
		}
		if c.Via == nil {
			c.Via = []report.Via{}
		}
	}
	return &report.Report{
		Input:  report.Input{DurationNS: 1e9, GOMAXPROCS: 2},
		Groups: []report.Group{{ID: "g", Name: "main.handle", Named: true, Count: 100, TotalNS: total, Bands: []report.Band{{Band: report.BandAll, Count: 100, Causes: causes}}}},
	}
}

// rulesWithPrefix returns the rules whose codes have a prefix.
func rulesWithPrefix(prefix string) []Rule {
	return slices.DeleteFunc(All(), func(r Rule) bool { return !strings.HasPrefix(string(r.Code), prefix) })
}

// rulesByCode returns the rules with these codes.
func rulesByCode(codes ...report.RuleCode) []Rule {
	return slices.DeleteFunc(All(), func(r Rule) bool { return !slices.Contains(codes, r.Code) })
}

// findingTexts returns findings as "code site share".
func findingTexts(found []report.Finding) []string {
	out := []string{}
	for i := range found {
		f := &found[i]
		s := string(f.Code)
		if f.Site != nil {
			s += " " + strings.TrimPrefix(f.Site.Func, "main.") + fmt.Sprintf("@%d", f.Site.Line)
		}
		out = append(out, fmt.Sprintf("%s %.2f", s, f.Share))
	}
	return out
}

// TestHedgedCall: requests make the same call again when a wheel of timers ends their wait. That time is the first answer's.
func TestHedgedCall(t *testing.T) {
	causes := []report.Cause{
		{Cause: "network", Kind: "outbound", Site: site("ask@5"), Via: via("select free@3"), TotalNS: ms(1000)},
		{Cause: "sleep", Site: site("turn@9"), Via: via("select free@3"), TotalNS: ms(900)}}
	for _, c := range []struct{ waitsAt, want string }{{"free@3", "[WL2005 ask@5 1.00]"}, {"other@3", "[WL2001 turn@9 0.47 WL2005 ask@5 0.53]"}} {
		in := &Input{Report: oneGroup(slices.Clone(causes)...)}
		in.PeerCalls = map[string][]queues.PeerCalls{"g": {{Site: site("ask@5"), Hedges: queues.Hedges{Requests: 5, Calls: 5, Pause: site(c.waitsAt)}}}}
		check.Equal(t, fmt.Sprint(findingTexts(findAll(t, in, rulesWithPrefix("WL2")))), c.want, "a call again after the wait at %s", c.waitsAt)
	}
}

// TestWaitForOwnTask: a worker that several requests wait for has begun the task of one that waits for its end. Those before it queue elsewhere.
func TestWaitForOwnTask(t *testing.T) {
	for _, c := range []struct {
		beforeNS int64
		want     string
	}{{0, "[WL2005 ask@5 1.00]"}, {ms(2000), "[WL2003 ask@5 1.00]"}} {
		in := &Input{Report: oneGroup(report.Cause{Cause: "network", Site: site("ask@5"), Via: via("chan price@4"), TotalNS: ms(3000)})}
		in.Services = []queues.ServiceStats{{Cause: "network", Site: site("ask@5"), WaitersPerServer: 2.7, BatchSize: 1, ServerWroteShare: 1, Servers: 2, MaxServers: 2, ServiceNS: 10e6, Requests: 100}}
		in.TaskWaits = []queues.TaskWaits{{Wait: report.WaitChan, Site: site("price@4"), Waits: 100, KnownNS: ms(3000), WaitNS: ms(3000), BeforeNS: c.beforeNS, Workers: 2}}
		check.Equal(t, fmt.Sprint(findingTexts(findAll(t, in, rulesWithPrefix("WL2")))), c.want, "%d ns before the tasks", c.beforeNS)
	}
}

// TestWaitForTasksOfGroup: a request that waits in a WaitGroup for its tasks queues if the workers of a pool do others first.
func TestWaitForTasksOfGroup(t *testing.T) {
	for _, c := range []struct {
		otherNS int64
		want    string
	}{{0, "[WL2005 ask@5 1.00]"}, {ms(2500), "[WL2003 tell@7 1.00]"}} {
		in := &Input{Report: oneGroup(report.Cause{Cause: "network", Site: site("ask@5"), Via: via("waitgroup price@4"), TotalNS: ms(3000)})}
		in.TaskWaits = []queues.TaskWaits{{Wait: report.WaitGroup, Site: site("price@4"), Waits: 100, Queued: 70, WaitNS: ms(3000), OtherNS: c.otherNS, Workers: 12, Task: site("tell@7")}}
		check.Equal(t, fmt.Sprint(findingTexts(findAll(t, in, rulesWithPrefix("WL2")))), c.want, "%d ns of other tasks", c.otherNS)
	}
}

func TestWaitingRules(t *testing.T) {
	// service describes goroutines at a site: the share of their time in other requests, the requests that wait for one, and
	// those it serves at once.
	service := func(cause, siteText string, takenShare, waiting, perInstant float64) queues.ServiceStats {
		return queues.ServiceStats{Cause: cause, Site: site(siteText), WaitersPerServer: waiting, BatchSize: perInstant, OtherRequestShare: takenShare, Servers: 2, MaxServers: 2, ServiceNS: 10e6, Requests: 100}
	}
	flushService := service("sleep", "flush@9", 0, 4, 4)
	flushService.PeriodNS, flushService.WaitedSleepNS, flushService.BegunEarlyShare = 50e6, 25e6, 0.5
	jobService := service("sleep", "job@9", 0, 1, 1)
	jobService.PeriodNS, jobService.WaitedSleepNS, jobService.Requests, jobService.Servers = 20e6, 20e6, 100, 1
	behindLock := service("sleep", "work@5", 0, 2.7, 1)
	behindLock.BehindLockShare = 2. / 3
	asker := service("network", "read@5", 0, 3, 1)
	asker.ServerWroteShare = 1
	lookup := service("network", "lookup@5", 0, 2, 1.5)
	lookup.ServerWroteShare, lookup.AlreadyRunningShare, lookup.Servers, lookup.Requests = 1, 0.5, 66, 100
	groupCommit := service("syscall", "sync@5", 0, 1.6, 1.1)
	groupCommit.IsBatcher = true
	for _, c := range []struct {
		name     string
		causes   []report.Cause
		services []queues.ServiceStats
		want     []string
	}{
		{"a sleep of the request's own goroutine", []report.Cause{{Cause: "sleep", Site: site("retry@5"), Call: "time.Sleep", TotalNS: ms(900)}, {Cause: "cpu", Site: site("f@1"), TotalNS: ms(100)}},
			nil, []string{"WL2001 retry@5 0.90"}},
		{"two sleeps on another goroutine", []report.Cause{
			{Cause: "sleep", Site: site("fetch@48"), Via: via("chan sub@7"), TotalNS: ms(670)}, {Cause: "sleep", Site: site("release@52"), Via: via("chan sub@9"), TotalNS: ms(330)}},
			nil, []string{"WL2001 fetch@48 0.67", "WL2001 release@52 0.33"}},
		{"too short to matter", []report.Cause{{Cause: "sleep", Site: site("retry@5"), TotalNS: ms(4)}, {Cause: "cpu", Site: site("f@1"), TotalNS: ms(996)}}, nil, []string{}},
		{"a lock held over a call", []report.Cause{
			{Cause: "network", Site: site("ask@3"), TotalNS: ms(1000), Via: via("lock get@2 sync.(*Mutex).Lock"), Routes: []report.Route{{Via: via("lock get@2 sync.(*Mutex).Lock"), TotalNS: ms(750)}, {TotalNS: ms(250)}}}},
			nil, []string{"WL2002 ask@3 1.00"}},
		{"a call that is rarely made under a lock", []report.Cause{
			{Cause: "network", Site: site("ask@3"), TotalNS: ms(1000), Routes: []report.Route{{TotalNS: ms(900)}, {Via: via("lock get@2 sync.(*Mutex).Lock"), TotalNS: ms(100)}}}},
			nil, []string{"WL2005 ask@3 1.00"}},
		{"a lock behind a lock", []report.Cause{
			{Cause: "sleep", Site: site("hold@3"), TotalNS: ms(1000), Routes: []report.Route{{Via: via("lock a@1", "lock b@2"), TotalNS: ms(600)}, {Via: via("lock b@2"), TotalNS: ms(400)}}}},
			nil, []string{"WL2002 hold@3 1.00"}},
		{"a finding for each work of the holders that takes much time", []report.Cause{
			{Cause: "syscall", Site: site("sync@3"), Call: "os.(*File).Sync", Via: via("lock w@1"), TotalNS: ms(450)}, {Cause: "cpu", Site: site("encode@4"), Via: via("lock w@1"), TotalNS: ms(200)},
			{Cause: "cpu", Site: site("check@5"), Via: via("lock w@1"), TotalNS: ms(150)}, {Cause: "sleep", Site: site("pause@6"), Via: via("lock w@1"), TotalNS: ms(100)}, {Cause: "cpu", Site: site("other@4"), TotalNS: ms(100)}},
			nil, []string{"WL2002 sync@3 0.55", "WL2002 encode@4 0.35"}},
		{"a holder that waits for a P belongs to the scheduler's rules", []report.Cause{
			{Cause: "sched", Site: site("sync@3"), Via: via("lock w@1"), TotalNS: ms(900)}, {Cause: "cpu", Site: site("other@4"), TotalNS: ms(100)}}, nil, []string{}},
		{"requests that join a call have no queue", []report.Cause{{Cause: "network", Kind: "outbound", Site: site("lookup@5"), Via: via("select get@4"), TotalNS: ms(4000)}},
			[]queues.ServiceStats{lookup}, []string{"WL2005 lookup@5 1.00"}},
		{"a semaphore", []report.Cause{
			{Cause: "sleep", Site: site("use@5"), TotalNS: ms(4000), Routes: []report.Route{{Via: via("chan use@4"), TotalNS: ms(3000)}, {TotalNS: ms(1000)}}}},
			[]queues.ServiceStats{service("sleep", "use@5", 1, 2.7, 1)}, []string{"WL2003 use@5 1.00"}},
		{"too few workers", []report.Cause{{Cause: "sleep", Site: site("work@5"), Via: via("chan ask@4"), TotalNS: ms(3000)}},
			[]queues.ServiceStats{service("sleep", "work@5", 0, 2.7, 1)}, []string{"WL2003 work@5 1.00"}},
		{"the holder of a lock waits for a worker", []report.Cause{{Cause: "sleep", Site: site("work@5"), TotalNS: ms(3000), Routes: []report.Route{{Via: via("lock in@3", "chan ask@4"), TotalNS: ms(2000)}, {Via: via("chan ask@4"), TotalNS: ms(1000)}}}},
			[]queues.ServiceStats{behindLock}, []string{"WL2002 ask@4 1.00"}},
		{"one worker that computes", []report.Cause{{Cause: "cpu", Site: site("work@5"), Via: via("chan ask@4"), TotalNS: ms(3000)}},
			[]queues.ServiceStats{service("cpu", "ask@4", 0, 2.7, 1)}, []string{"WL2003 work@5 1.00"}},
		{"a goroutine for each request", []report.Cause{{Cause: "sleep", Site: site("work@5"), Via: via("chan ask@4"), TotalNS: ms(3000)}},
			[]queues.ServiceStats{service("sleep", "work@5", 0, 1, 1)}, []string{"WL2001 work@5 1.00"}},
		{"one goroutine serves many requests at once", []report.Cause{{Cause: "sleep", Site: site("load@5"), Via: via("chan get@4"), TotalNS: ms(3000)}},
			[]queues.ServiceStats{service("sleep", "load@5", 0, 3, 3)}, []string{"WL2001 load@5 1.00"}},
		{"a batcher that mostly has one request to serve", []report.Cause{{Cause: "syscall", Site: site("sync@5"), Call: "syscall.Fsync", Via: via("chan put@4"), TotalNS: ms(3000)}},
			[]queues.ServiceStats{groupCommit}, []string{"WL2007 sync@5 1.00"}},
		{"a connection that many requests share", []report.Cause{{Cause: "network", Site: site("read@5"), Via: via("select call@4"), TotalNS: ms(3000)}},
			[]queues.ServiceStats{service("network", "read@5", 0, 3, 1)}, []string{"WL2005 read@5 1.00"}},
		{"workers that ask a peer, one answer at a time", []report.Cause{{Cause: "network", Site: site("read@5"), Via: via("chan call@4"), TotalNS: ms(3000)}},
			[]queues.ServiceStats{asker}, []string{"WL2003 read@5 1.00"}},
		{"a database pool", []report.Cause{{Cause: "network", Site: site("read@5"), TotalNS: ms(3000), Routes: []report.Route{{Via: via("select q@4 database/sql.(*DB).conn"), TotalNS: ms(2000)}, {TotalNS: ms(1000)}}}},
			[]queues.ServiceStats{service("network", "read@5", 0.99, 1.6, 1.1)}, []string{"WL2003 read@5 1.00"}},
		{"a rate limiter", []report.Cause{{Cause: "sleep", Site: site("golang.org/x/time/rate.(*Limiter).wait@286"), TotalNS: ms(3000)}},
			nil, []string{"WL2003 golang.org/x/time/rate.(*Limiter).wait@286 1.00"}},
		{"a flush", []report.Cause{{Cause: "sleep", Site: site("flush@9"), Via: via("chan add@4"), TotalNS: ms(3000)}}, []queues.ServiceStats{flushService}, []string{"WL2004 flush@9 1.00"}},
		{"a pause of a ticker's own work", []report.Cause{{Cause: "sleep", Site: site("flush@9"), Call: "time.Sleep", TotalNS: ms(3000)}}, []queues.ServiceStats{flushService}, []string{"WL2001 flush@9 1.00"}},
		{"a flush, and requests that join the batch during the wait", []report.Cause{
			{Cause: "network", Kind: "inbound", Site: site("net/http.(*conn).serve@2103"), Via: via("chan add@4", "select flush@9"), TotalNS: ms(2000)},
			{Cause: "sleep", Site: site("flush@9"), Via: via("chan add@4"), TotalNS: ms(1000)}}, []queues.ServiceStats{flushService}, []string{"WL2004 flush@9 1.00"}},
		{"another connection's client is idle", []report.Cause{
			{Cause: "network", Kind: "inbound", Site: site("net/http.(*conn).serve@2103"), Via: via("chan add@4", "select flush@9"), TotalNS: ms(2000)}}, nil, []string{}},
		{"another connection's client is idle, and its goroutine does what the request waits for", []report.Cause{
			{Cause: "network", Kind: "inbound", Site: site("net/http.(*conn).serve@2103"), Via: via("chan add@4"), TotalNS: ms(2000)}}, nil, []string{}},
		{"a sleep for each job of one client", []report.Cause{{Cause: "sleep", Site: site("job@9"), Call: "time.Sleep", Via: via("chan add@4"), TotalNS: ms(3000)}},
			[]queues.ServiceStats{jobService}, []string{"WL2001 job@9 1.00"}},
		{"a line of the standard library is not named", []report.Cause{
			{Cause: "network", Site: site("net/http.(*persistConn).readLoop@2330"), Kind: "outbound", Via: via("select call@4 net/http.(*persistConn).roundTrip"), TotalNS: ms(3000)}},
			nil, []string{"WL2005 call@4 1.00"}},
		{"a peer that does not read", []report.Cause{{Cause: "network", Site: site("send@4"), Kind: "outbound", Call: "net.(*conn).Write", TotalNS: ms(3000)}}, nil, []string{"WL2005 send@4 1.00"}},
		{"a slow client", []report.Cause{{Cause: "network", Site: site("take@4"), Kind: "inbound", Call: "net/http.(*body).Read", TotalNS: ms(3000)}}, nil, []string{"WL2006 take@4 1.00"}},
		{"a WebSocket's next message", []report.Cause{
			{Cause: "network", Site: site("github.com/gorilla/websocket.(*Conn).read@371"), Kind: "inbound", TotalNS: ms(2000)},
			{Cause: "network", Site: site("github.com/gorilla/websocket.(*Conn).write@400"), Kind: "inbound", TotalNS: ms(1000)}},
			nil, []string{"WL2006 github.com/gorilla/websocket.(*Conn).write@400 0.33"}},
		{"a pipe, and the file's own lock", []report.Cause{
			{Cause: "network", Site: site("note@4"), Call: "os.(*File).Write", TotalNS: ms(3000), Routes: []report.Route{{Via: via("lock note@4 os.(*File).Write"), TotalNS: ms(2000)}, {TotalNS: ms(1000)}}}},
			nil, []string{"WL2007 note@4 1.00"}},
		{"a pipe, and the lock of a handler of log/slog", []report.Cause{
			{Cause: "network", Site: site("note@4"), Call: "os.(*File).Write", TotalNS: ms(3000), Routes: []report.Route{{Via: via("lock note@4 log/slog.(*Logger).Info"), TotalNS: ms(2000)}, {TotalNS: ms(1000)}}}},
			nil, []string{"WL2002 note@4 1.00"}},
		{"a pipe, and the lock of a log.Logger", []report.Cause{
			{Cause: "network", Site: site("note@4"), Call: "os.(*File).Write", TotalNS: ms(3000), Routes: []report.Route{{Via: via("lock note@4 log.(*Logger).Println"), TotalNS: ms(2000)}, {TotalNS: ms(1000)}}}},
			nil, []string{"WL2007 note@4 1.00"}},
		{"a semaphore whose slot is held during a call that other goroutines serve", []report.Cause{
			{Cause: "network", Site: site("ask@4"), TotalNS: ms(3000), Routes: []report.Route{{Via: via("select golang.org/x/sync/semaphore.(*Weighted).Acquire@80", "select ask@4"), TotalNS: ms(1500)}, {Via: via("select ask@4"), TotalNS: ms(1500)}}}},
			[]queues.ServiceStats{service("network", "ask@4", 0, 1, 1)}, []string{"WL2003 ask@4 1.00"}},
		{"a child process", []report.Cause{{Cause: "syscall", Site: site("convert@4"), Call: "os/exec.(*Cmd).Wait", TotalNS: ms(3000)}}, nil, []string{"WL2007 convert@4 1.00"}},
		{"the lock of a file", []report.Cause{{Cause: "syscall", Site: site("claim@4"), Call: "syscall.Flock", TotalNS: ms(3000)}}, nil, []string{"WL2007 claim@4 1.00"}},
		{"an errgroup with a limit", []report.Cause{
			{Cause: "sleep", Site: site("fetch@5"), TotalNS: ms(4000), Routes: []report.Route{{Via: via("chan send golang.org/x/sync/errgroup.(*Group).Go@74"), TotalNS: ms(3000)}, {Via: via("waitgroup gather@9"), TotalNS: ms(1000)}}}},
			[]queues.ServiceStats{service("sleep", "fetch@5", 0, 1, 1)}, []string{"WL2003 fetch@5 1.00"}},
		{"a socket never blocks", []report.Cause{{Cause: "syscall", Site: site("send@4"), Call: "net.(*netFD).Write", TotalNS: ms(3000)}}, nil, []string{}},
	} {
		rep := oneGroup(c.causes...)
		found := findWithBounds(t, &Input{Report: rep, Services: c.services, Process: &process.Stats{}}, rulesWithPrefix("WL2"))
		if got := findingTexts(found); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		for i := range found {
			if f := &found[i]; f.Title == "" || f.Fix == "" || len(f.Evidence) == 0 || f.Confidence <= 0 || f.Confidence > 1 {
				t.Errorf("%s: %s lacks a title, a fix, evidence or a confidence: %+v", c.name, f.Code, f)
			}
		}
	}
}

// TestFindingTextsOfWaits: title and advice follow from the holder that requests wait for.
func TestFindingTextsOfWaits(t *testing.T) {
	for _, c := range []struct {
		name       string
		cause      report.Cause
		title, fix string
	}{
		{"a reader keeps readers out through a writer",
			report.Cause{Cause: "cpu", Site: site("report@3"), Via: via("lock get@1 sync.(*RWMutex).RLock", "lock beat@2 sync.(*RWMutex).Lock"), TotalNS: ms(3000)},
			"behind a writer that waits for a reader that computes in main.report", "although it only reads"},
		{"a writer keeps readers out",
			report.Cause{Cause: "cpu", Site: site("rebuild@3"), Via: via("lock get@1 sync.(*RWMutex).RLock"), TotalNS: ms(3000)},
			"for an RWMutex (to read) behind a writer that computes in main.rebuild", "lock only to put its result in place"},
		{"a writer waits for a holder of unknown kind",
			report.Cause{Cause: "cpu", Site: site("report@3"), Via: via("lock post@1 sync.(*RWMutex).Lock"), TotalNS: ms(3000)},
			"for an RWMutex (to write) while its holder computes in main.report", "a reader takes a copy"},
		{"a full channel", report.Cause{Cause: "sleep", Site: site("fetch@5"), Call: "time.Sleep", Via: via("chan send gather@7"), TotalNS: ms(3000)},
			"another goroutine sleeps at main.fetch", "or do not wait for it at main.gather (main.go:7)"},
		{"the lock of a file", report.Cause{Cause: "syscall", Site: site("claim@4"), Call: "syscall.Flock", TotalNS: ms(3000)},
			"wait at main.claim (main.go:4) for the lock of a file that another process holds", "find the process that holds the lock"},
		{"a library's lock of a file", report.Cause{Cause: "syscall", Site: site("golang.org/x/sys/unix.FcntlFlock@30"), TotalNS: ms(3000)},
			"for the lock of a file that another process holds", "find the process that holds the lock"},
		{"names of a directory", report.Cause{Cause: "syscall", Site: site("list@4"), Call: "path/filepath.Glob", TotalNS: ms(3000)},
			"reads a directory in path/filepath.Glob", "keep an index of the names, or a directory for each key"},
		{"a message of a library that waits for its subscribers", report.Cause{Cause: "network", Kind: "outbound", Site: site("confirm@9"),
			Via: []report.Via{{Wait: report.WaitLock, Call: "sync.(*Mutex).Lock", Site: inModule("github.com/ThreeDotsLabs/watermill/pubsub/gochannel.(*GoChannel).Publish@108", "github.com/ThreeDotsLabs/watermill")}}, TotalNS: ms(3000)},
			"for watermill's lock while its holder waits for the network at main.confirm", "leave BlockPublishUntilSubscriberAck of gochannel.Config unset"},
		{"a library's sync", report.Cause{Cause: "syscall", Site: site("golang.org/x/sys/unix.Fdatasync@747"), TotalNS: ms(3000)},
			"syncs to disk", "group commit"},
		{"a client's handshake", report.Cause{Cause: "network", Kind: "inbound", Site: site("crypto/tls.(*Conn).HandshakeContext@1516"), Call: "crypto/tls.(*Conn).HandshakeContext", TotalNS: ms(3000)},
			"its client's part of a TLS handshake", "resume sessions"},
		{"the window of HTTP/2", report.Cause{Cause: "network", Kind: "inbound", Site: site("net/http.(*http2serverConn).readFrames@4837"), Call: "net/http.(*http2Framer).ReadFrame",
			Via: via("select download@20 net/http.(*http2responseWriter).Write", "select net/http.(*conn).serve@1980"), TotalNS: ms(3000)}, "its client to read the answer", "release what they need"},
		{"a client that does not read delays others", report.Cause{Cause: "network", Kind: "inbound", Site: site("send@9"), Call: "net/http.(*response).Write", Via: via("chan send publish@5 runtime.chansend1"), TotalNS: ms(3000)},
			"wait at main.publish (main.go:5) behind another client, which reads slowly what is written at main.send (main.go:9)", "do not wait for one client at main.publish (main.go:5)"},
		{"a body in HTTP/2", report.Cause{Cause: "network", Kind: "inbound", Site: site("net/http.(*http2serverConn).readFrames@4837"), Call: "net/http.(*http2Framer).ReadFrame",
			Via: via("cond upload@20 net/http.(*http2requestBody).Read"), TotalNS: ms(3000)}, "its client to send", "read the body"},
		{"a pipe under a lock", report.Cause{Cause: "network", Site: site("note@4"), Call: "os.(*File).Write", Via: via("lock note@4 sync.(*Mutex).Lock"), TotalNS: ms(3000)},
			"for a Mutex while its holder waits for a pipe", "through a bounded buffer"},
		{"a place in a channel that each waiter needs as well", report.Cause{Cause: "network", Kind: "inbound", Site: site("client@9"), TotalNS: ms(3500), Routes: []report.Route{
			{Via: via("lock publish@4 sync.(*Mutex).Lock", "chan send publish@5 runtime.chansend1"), TotalNS: ms(3000)}, {Via: via("chan send publish@5 runtime.chansend1"), TotalNS: ms(500)}}},
			"for a Mutex while its holder, at main.publish (main.go:5), waits for a place in a channel", "do not wait for a receiver at main.publish (main.go:5)"},
		{"a place in a channel that only the holder needs", report.Cause{Cause: "network", Site: site("client@9"), Via: via("lock publish@4 sync.(*Mutex).Lock", "chan send refresh@5 runtime.chansend1"), TotalNS: ms(3000)},
			"for a Mutex while its holder, at main.refresh (main.go:5), waits for a place in a channel", "before the lock is taken"},
		{"a library that writes a file under its lock", report.Cause{Cause: "syscall", Site: inModule("go.uber.org/zap/zapcore.(*lockedWriteSyncer).Write@66", "go.uber.org/zap"), Call: "os.(*File).Write",
			Via: []report.Via{{Wait: report.WaitLock, Call: "sync.(*Mutex).Lock", Site: inModule("go.uber.org/zap/zapcore.(*lockedWriteSyncer).Write@65", "go.uber.org/zap")}}, TotalNS: ms(3000)},
			"for zap's lock while its holder writes to a file or pipe", "in zap: write through a zapcore.BufferedWriteSyncer"},
		{"a semaphore without a number of slots", report.Cause{Cause: "network", Site: site("ask@4"), Via: via("select golang.org/x/sync/semaphore.(*Weighted).Acquire@80", "select ask@4"), TotalNS: ms(3000)},
			"requests queue for a golang.org/x/sync/semaphore", "return it before the work at main.ask"},
		{"an errgroup", report.Cause{Cause: "sleep", Site: site("fetch@5"), Call: "time.Sleep", Via: via("chan send golang.org/x/sync/errgroup.(*Group).Go@74"), TotalNS: ms(3000)},
			"requests cannot run all their goroutines at once: an errgroup admits too few, while one sleeps at main.fetch", "SetLimit"},
	} {
		found := findAll(t, &Input{Report: oneGroup(c.cause), Process: &process.Stats{}}, rulesWithPrefix("WL2"))
		check.True(t, len(found) == 1 && strings.Contains(found[0].Title, c.title) && strings.Contains(found[0].Fix, c.fix),
			"%s: %d findings: %+v", c.name, len(found), found)
	}
}

// TestFileLock: where requests do more than wait for a file's lock, they may hold it themselves.
func TestFileLock(t *testing.T) {
	rep := oneGroup(report.Cause{Cause: "syscall", Site: site("claim@4"), Call: "syscall.Flock", TotalNS: ms(3000)}, report.Cause{Cause: "network", Site: site("send@9"), TotalNS: ms(100)})
	found := findAll(t, &Input{Report: rep, Process: &process.Stats{}}, rulesByCode(report.RuleBlockingSyscall))
	check.True(t, len(found) == 1 && strings.Contains(found[0].Fix, "its holder opened the file separately"), "%+v", found)
}

// TestFewReceivers: requests that wait until one of few goroutines receives what they send need more receivers; a larger buffer runs
// nothing at the same time. Where the receivers are many, the advice does not count them.
func TestFewReceivers(t *testing.T) {
	rep := oneGroup(report.Cause{Cause: "sleep", Site: site("store@5"), Call: "time.Sleep", Via: via("chan send read@7"), TotalNS: ms(3000)})
	for _, c := range []struct {
		name    string
		service queues.ServiceStats
		fix     string
	}{
		{"one goroutine receives", queues.ServiceStats{MaxServers: 1, BatchSize: 1}, "receive from the channel sent to at main.read (main.go:7) in 2 goroutines or more instead of 1"},
		{"each request has its own", queues.ServiceStats{MaxServers: 40, BatchSize: 1}, "do not wait for it at main.read (main.go:7)"},
	} {
		c.service.Cause, c.service.Site, c.service.Requests = "sleep", site("store@5"), 100
		c.service.WaitersPerServer = 1
		found := findAll(t, &Input{Report: rep, Process: &process.Stats{}, Services: []queues.ServiceStats{c.service}}, rulesByCode(report.RuleSleep))
		check.True(t, len(found) == 1 && strings.Contains(found[0].Fix, c.fix) && !strings.Contains(found[0].Fix, "buffer"), "%s: %+v", c.name, found)
	}
}

// TestLongPollOrFlush: requests that hand nothing over before they wait for the next tick of an interval read news, or join a
// batch under a lock. The finding is at most low, unless work follows the interval or a hand-over was seen. The test fails if
// an interval alone makes a wait a batch.
func TestLongPollOrFlush(t *testing.T) {
	for _, c := range []struct {
		name, wait string
		gave       float64
		work       int64
		want       report.RuleCode
		severity   report.Severity
	}{
		{"a select that another event may end", "select", 0, 0, report.RuleSleep, report.SeverityInfo},
		{"no other event can end the wait", "chan", 0, 0, report.RuleSleep, report.SeverityLow},
		{"work behind the interval", "chan", 0, 300, report.RuleFlushInterval, report.SeverityHigh},
		{"handed over", "select", 1, 0, report.RuleFlushInterval, report.SeverityHigh},
	} {
		rep := oneGroup(report.Cause{Cause: "sleep", Site: site("tick@5"), Via: via(c.wait + " ask@4"), TotalNS: ms(4000 - c.work)},
			report.Cause{Cause: "network", Site: site("store@9"), Via: via(c.wait + " ask@4"), TotalNS: ms(c.work)})
		rep.Groups[0].Kind = report.KindHTTP1
		found := findWithBounds(t, &Input{
			Report: rep, Process: &process.Stats{},
			Services:  []queues.ServiceStats{{Cause: "sleep", Site: site("tick@5"), PeriodNS: 80e6, WaitedSleepNS: 40e6, Requests: 100, Servers: 1, BatchSize: 3, BegunEarlyShare: 1}},
			LongWaits: []queues.LongWaits{{Site: site("ask@4"), WokenShare: 1, HandoverShare: c.gave}},
		}, rulesWithPrefix("WL2"))
		check.True(t, len(found) != 0 && found[0].Code == c.want && found[0].Severity == c.severity,
			"%s: %+v, want %s %s", c.name, found, c.want, c.severity)
	}
}

// TestLongPollOrBatchTimer: a select that a timer of a library ends (the time for which it collects a batch) is no long poll, although
// one that a timer of the service ends is.
func TestLongPollOrBatchTimer(t *testing.T) {
	for module, want := range map[string]report.Severity{"": report.SeverityInfo, "dep.org/queue": report.SeverityHigh} {
		rep := oneGroup(report.Cause{Cause: "sleep", Site: inModule("dep.org/queue.(*batch).send@5", module), Via: via("select ask@4"), TotalNS: ms(4000)})
		rep.Groups[0].Kind = report.KindHTTP1
		found := findAll(t, &Input{
			Report: rep, Process: &process.Stats{}, LongWaits: []queues.LongWaits{{Site: site("ask@4"), WokenShare: 1}},
			SlotWaits: []queues.SlotWaits{{Wait: report.WaitSelect, Site: site("ask@4"), Waits: 100}},
		}, rulesByCode(report.RuleSleep))
		check.True(t, len(found) == 1 && found[0].Severity == want, "module %q: %+v, want %s", module, found, want)
	}
}

// TestLongPollOfRequests: other requests bring the events, and many requests end without one. A slot is released by a goroutine that has waited for it.
// A loop that reads requests of several kinds also serves some that do not wait.
func TestLongPollOfRequests(t *testing.T) {
	for _, c := range []struct {
		timeouts     int
		formerWaiter float64
		kind         report.Kind
		computesNS   int64
		timeShare    float64
		isLoud       bool
	}{
		{30, 0, report.KindHTTP1, 0, 1, false}, {3, 0, report.KindHTTP1, 0, 1, true}, {30, 0.5, report.KindHTTP1, 0, 1, true},
		{30, 0, report.KindHTTP1, ms(9000), 1, true}, {30, 0, report.KindLoop, ms(9000), 1, false}, {30, 0, report.KindLoop, ms(9000), 0.8, true},
	} {
		rep := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: site("translate@100"), Via: via("select ask@4"), TotalNS: ms(2000)},
			report.Cause{Cause: "sleep", Call: "runtime.selectgo", Site: site("ask@4"), TotalNS: ms(60_000), Requests: c.timeouts},
			report.Cause{Cause: "cpu", Site: site("sum@9"), TotalNS: c.computesNS})
		rep.Groups[0].Kind = c.kind
		found := findAll(t, &Input{
			Report: rep, Process: &process.Stats{}, AcceptsConnections: true, LongWaits: []queues.LongWaits{{Site: site("ask@4"), WokenShare: 0.7, TimeShare: c.timeShare}},
			SlotWaits: []queues.SlotWaits{{Wait: report.WaitSelect, Site: site("ask@4"), Waits: 100, OtherRequestShare: 1, FormerWaiterShare: c.formerWaiter}},
		}, rulesByCode(report.RuleSleep))
		check.True(t, len(found) == 1 && found[0].Severity.IsMajor() == c.isLoud, "%+v: %+v", c, found)
	}
}

// TestLongPollUntilTimer: a timer's function that ends waits may be a time-out, so they take a second in a long poll.
func TestLongPollUntilTimer(t *testing.T) {
	for longest, isLoud := range map[int64]bool{1200: false, 600: true} {
		rep := oneGroup(report.Cause{Cause: "sleep", Call: "runtime.selectgo", Site: site("serve.func1@122"), Via: via("select ask@4"), TotalNS: ms(60_000)})
		rep.Groups[0].Kind = report.KindHTTP1
		rep.Groups[0].Slowest = []report.Request{{LatencyNS: ms(longest), Segments: []report.Segment{{Cause: "sleep", Site: site("serve.func1@122"), Via: via("select ask@4"), DurationNS: ms(longest)}}}}
		found := findAll(t, &Input{
			Report: rep, Process: &process.Stats{}, LongWaits: []queues.LongWaits{{Site: site("ask@4")}},
			SlotWaits: []queues.SlotWaits{{Wait: report.WaitSelect, Site: site("ask@4"), Waits: 100}},
		}, rulesByCode(report.RuleSleep))
		check.True(t, len(found) == 1 && found[0].Severity.IsMajor() == isLoud, "%d ms: %+v", longest, found)
	}
}

// TestNextRequest: requests that hand work over and then wait until another request comes wait for no event of their own. Those that
// hand nothing over have a long poll.
func TestNextRequest(t *testing.T) {
	for gave, want := range map[float64]string{
		0: "requests wait at main.ask (main.go:4) until something arrives: a long poll",
		1: "requests wait at main.ask (main.go:4) until another request comes",
	} {
		rep := oneGroup(report.Cause{Cause: "network", Kind: "inbound", Call: "bufio.(*Reader).Peek", Site: site("net/http.(*conn).serve@2103"), Via: via("select ask@4"), TotalNS: ms(3000)},
			report.Cause{Cause: "sleep", Call: "runtime.selectgo", Site: site("tick@9"), Via: via("select ask@4"), TotalNS: ms(1000)})
		rep.Groups[0].Kind = report.KindHTTP1
		found := findAll(t, &Input{Report: rep, Process: &process.Stats{}, LongWaits: []queues.LongWaits{{Site: site("ask@4"), WokenShare: 1, HandoverShare: gave}},
			SlotWaits: []queues.SlotWaits{{Wait: report.WaitSelect, Site: site("ask@4"), Waits: 100}}}, rulesByCode(report.RuleSleep))
		check.True(t, len(found) == 1 && found[0].Title == want && found[0].Severity.IsMajor() == (gave == 1), "handed over %g: %+v", gave, found)
	}
}

// TestFileWriteAdvice: only a write that a dependency makes is to be changed by the dependency's options, and none that has no
// site.
func TestFileWriteAdvice(t *testing.T) {
	for _, c := range []struct {
		name, module, advice string
	}{
		{"the service's own line", "", "write from a separate goroutine"},
		{"a dependency's", "dep.org/store", "where the library's options allow it (dep.org/store)"},
	} {
		got := findAll(t, &Input{Report: oneGroup(report.Cause{Cause: "syscall", Site: inModule("dep.org/store.(*Log).append@4", c.module), Call: "os.(*File).Write", TotalNS: ms(3000)})}, rulesByCode(report.RuleBlockingSyscall))
		check.True(t, len(got) == 1 && strings.Contains(got[0].Fix, c.advice), "%s: %+v", c.name, got)
	}
}

// TestPacedStream: a request that writes to its client between the waits for its own limiter sends a stream, and queues for
// nothing.
func TestPacedStream(t *testing.T) {
	limiter := site("golang.org/x/time/rate.(*Limiter).wait@286")
	rep := oneGroup(report.Cause{Cause: "sleep", Site: limiter, TotalNS: ms(3000)})
	for _, c := range []struct {
		wrote float64
		loud  bool
	}{{1, false}, {0.2, false}, {0.1, true}} {
		found := findAll(t, &Input{Report: rep, Streams: []queues.Stream{{Site: limiter, WriteShare: c.wrote}}, Process: &process.Stats{}}, rulesWithPrefix("WL2"))
		check.True(t, len(found) == 1 && found[0].Severity.IsMajor() == c.loud,
			"a write follows a share of %g of the waits: %+v", c.wrote, found)
	}
	// Another goroutine paces the stream, and its iterations are a group: only requests are reported.
	pace := report.Cause{Cause: "sleep", Site: site("play@5"), Via: via("select read@4"), TotalNS: ms(3000)}
	rep = oneGroup(pace)
	pace.Via = nil
	loop := oneGroup(pace).Groups[0]
	loop.ID, loop.Kind = "loop", report.KindLoop
	rep.Groups = append(rep.Groups, loop)
	found := findAll(t, &Input{Report: rep, Streams: []queues.Stream{{Site: site("read@4"), WriteShare: 1}}, Process: &process.Stats{}}, rulesWithPrefix("WL2"))
	check.True(t, len(found) == 1 && found[0].Severity == report.SeverityInfo, "paced by a loop: %+v", found)
}

// TestPoolSize compares the advice with arithmetic done by hand: 100 requests in a second wait 30 ms each for a slot that they
// hold for 10 ms.
func TestPoolSize(t *testing.T) {
	rep := oneGroup(report.Cause{Cause: "sleep", Site: site("use@5"), TotalNS: ms(4000), Routes: []report.Route{{Via: via("chan use@4"), TotalNS: ms(3000)}, {TotalNS: ms(1000)}}})
	in := &Input{Report: rep, Services: []queues.ServiceStats{{Cause: "sleep", Site: site("use@5"), WaitersPerServer: 2.7, BatchSize: 1, OtherRequestShare: 1, Servers: 4, MaxServers: 4, ServiceNS: 10e6, Requests: 100}}}
	got := map[string]float64{}
	for _, v := range rulesByCode(report.RulePoolTooSmall)[0].Run(in) {
		for _, e := range v.Evidence {
			got[e.Text] = e.Value
		}
		check.True(t, v.Gain.TotalNS == ms(3000),
			"a larger pool would save %d ns, not the time that requests waited for it", v.Gain.TotalNS)
	}
	for text, want := range map[string]float64{
		"requests that need a slot": 100, "mean wait for it, at main.use (main.go:4)": 30e6, "mean time for which it is held": 10e6,
		"mean number waiting (rate x wait)": 3, "mean number in use": 1, "slots sufficient at this load": 4,
	} {
		check.Equal(t, got[text], want, "%s", text)
	}
	// Four requests come together, in a tenth of the time: one goroutine is enough for the mean load, but not for those four.
	rep = oneGroup(report.Cause{Cause: "sleep", Site: site("use@5"), Via: via("chan use@4"), TotalNS: ms(2000)})
	in = &Input{Report: rep, Services: []queues.ServiceStats{{Cause: "sleep", Site: site("use@5"), WaitersPerServer: 2.5, BatchSize: 1, Servers: 1, MaxServers: 1, ServiceNS: 1e6, Requests: 100}}}
	in.Report.Input.DurationNS = 10e9
	for _, v := range rulesByCode(report.RulePoolTooSmall)[0].Run(in) {
		if e := v.Evidence[len(v.Evidence)-2]; e.Value != 2 || !strings.Contains(v.Fix, "from 1 to 2") {
			t.Errorf("%s: %g; %s", e.Text, e.Value, v.Fix)
		}
	}
	// The number of goroutines that held a connection is not the number of connections of the pool.
	conns := []report.Via{{Wait: "select", Call: "database/sql.(*DB).conn", Site: site("use@4")}}
	rep = oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: site("use@5"), TotalNS: ms(4000), Routes: []report.Route{{Via: conns, TotalNS: ms(3000)}, {TotalNS: ms(1000)}}})
	in = &Input{Report: rep, Services: []queues.ServiceStats{{Cause: "network", Site: site("use@5"), WaitersPerServer: 2.7, BatchSize: 1, Servers: 8, MaxServers: 8, ServiceNS: 10e6, Requests: 100}}}
	for _, v := range rulesByCode(report.RulePoolTooSmall)[0].Run(in) {
		check.True(t, strings.Contains(v.Fix, "from about 1 (in use now) to 4"), "a pool of connections: %s", v.Fix)
	}
	// 200 requests wait for the only slot, whose holder computes: with two Ps no more than two slots help.
	for procs, want := range map[int]string{2: "the capacity (main.go:4)|, or", 0: "from about 25 (in use now) to 35"} {
		rep = oneGroup(report.Cause{Cause: "cpu", Site: site("use@5"), TotalNS: ms(4000), Routes: []report.Route{{Via: via("chan use@4"), TotalNS: ms(3000)}, {TotalNS: ms(1000)}}})
		rep.Input.GOMAXPROCS, rep.Input.DurationNS = procs, 40e6
		in = &Input{Report: rep, Services: []queues.ServiceStats{{Cause: "cpu", Site: site("use@4"), WaitersPerServer: 100, BatchSize: 1, OtherRequestShare: 1, Servers: 1, MaxServers: 1, ServiceNS: 10e6, Requests: 100}}}
		vs := rulesByCode(report.RulePoolTooSmall)[0].Run(in)
		check.True(t, len(vs) == 1 && strings.Contains(vs[0].Fix, want), "a holder that computes, %d Ps: %+v", procs, vs)
	}
}

// TestLittleLaw: rate, wait and numbers by L = rate * time; nothing is known without requests or without time.
func TestLittleLaw(t *testing.T) {
	for _, c := range []struct {
		requests             int
		durationNS, queuedNS int64
		want                 littleLaw
	}{
		{0, 1e9, 5e6, littleLaw{}}, {5, 0, 5e6, littleLaw{}}, {5, -1, 5e6, littleLaw{}},
		{1, 1e9, 5e8, littleLaw{rate: 1, waitNS: 5e8, holdNS: 4e8, waiting: 0.5, inUse: 0.4}},
		{8, 2e9, 16e8, littleLaw{rate: 4, waitNS: 2e8, holdNS: 4e8, waiting: 0.8, inUse: 1.6}},
	} {
		check.Equal(t, newLittleLaw(c.requests, c.durationNS, c.queuedNS, 4e8), c.want, "%d requests in %d ns", c.requests, c.durationNS)
	}
}

// TestPoolAt: predictions assume the slots that were counted, else the servers, else the slots in use.
func TestPoolAt(t *testing.T) {
	for _, c := range []struct {
		slots, servers int // -1: unknown
		inUse          float64
		want           int
	}{{1, 3, 2.5, 1}, {2, -1, 0.5, 2}, {0, 3, 2.5, 3}, {-1, 3, 2.5, 3}, {0, -1, 2.5, 3}, {-1, -1, 2.05, 2}, {-1, -1, 2.06, 3}, {-1, -1, 0, 1}} {
		facts := poolFacts{littleLaw: littleLaw{inUse: c.inUse}, hasServers: c.servers >= 0, service: &queues.ServiceStats{MaxServers: c.servers}}
		if c.slots >= 0 {
			facts.slots = &queues.SlotWaits{Slots: c.slots}
		}
		check.Equal(t, facts.poolAt(nil).Slots, c.want, "%+v", c)
	}
}

// TestPoolUse: the advised size is for the requests that arrive, by what all holders of slots show, and is larger than the pool.
func TestPoolUse(t *testing.T) {
	for _, c := range []struct {
		name            string
		slots           queues.SlotWaits
		rate, holdNS    float64
		ended, open     int
		inUse           float64
		minimum, enough int
	}{
		{"a backlog does not matter", queues.SlotWaits{Slots: 2, QueuedShare: 0.8}, 72, 23.6e6, 72, 0, 1.7, 5, 5},
		{"requests that still wait have arrived", queues.SlotWaits{Slots: 2, QueuedShare: 1}, 72, 23.6e6, 72, 72, 3.4, 8, 8},
		{"while requests queue, all are in use", queues.SlotWaits{Slots: 4, QueuedShare: 0.9}, 100, 1e5, 100, 0, 3.6, 7, 9},
		{"goroutines in the background hold them", queues.SlotWaits{Slots: 10, QueuedShare: 0.9, BackgroundShare: 0.9, BackgroundHolders: 10}, 25, 550e6, 50, 0, 9, 15, 17},
	} {
		facts := &poolFacts{slots: &c.slots, littleLaw: newLittleLaw(c.ended, int64(float64(c.ended)/c.rate*1e9), 0, c.holdNS)}
		if facts.setSlotsInUse(c.ended, c.open); math.Abs(facts.inUse-c.inUse) > 0.1 || facts.sufficient < c.minimum || facts.sufficient > c.enough {
			t.Errorf("%s: %.2f in use, %d are enough; want %+v", c.name, facts.inUse, facts.sufficient, c)
		}
	}
}

// TestIsSizeKnown: one kind of evidence suffices for a pool's size, and without any the size is unknown while requests queue.
func TestIsSizeKnown(t *testing.T) {
	for _, c := range []struct {
		name  string
		facts poolFacts
		want  bool
	}{
		{"its workers are known", poolFacts{hasServers: true, littleLaw: littleLaw{waiting: 5}}, true},
		{"its slots are counted", poolFacts{slots: &queues.SlotWaits{Slots: 4}, littleLaw: littleLaw{waiting: 5}}, true},
		{"how long slots are held is known", poolFacts{slots: &queues.SlotWaits{HoldNS: 1e6}, littleLaw: littleLaw{waiting: 5}}, true},
		{"half a slot is in use", poolFacts{littleLaw: littleLaw{inUse: 0.5, waiting: 5}}, true},
		{"hardly a request queues", poolFacts{littleLaw: littleLaw{waiting: 0.9}}, true},
		{"many queue although the slots seem free", poolFacts{slots: &queues.SlotWaits{}, littleLaw: littleLaw{inUse: 0.4, waiting: 1}}, false},
	} {
		check.Equal(t, c.facts.isSizeKnown(), c.want, "%s", c.name)
	}
}

// TestSlotsOrNotification: the goroutines that end the waits decide, not the goroutine whose time it is. Goroutines that had
// waited there themselves release a slot. Goroutines that never waited there send news, and more slots do not help. Goroutines
// that the request started do its own work. The test fails if a long poll is reported as a pool, and if a pool is not found
// because its holders work on other goroutines.
func TestSlotsOrNotification(t *testing.T) {
	heldByOthers := queues.ServiceStats{Cause: "sleep", Site: site("use@5"), WaitersPerServer: 1, BatchSize: 1, OtherRequestShare: 1, Servers: 4, MaxServers: 4, ServiceNS: 10e6, Requests: 100}
	servedByWorkers := heldByOthers
	servedByWorkers.OtherRequestShare = 0
	slots := func(p queues.SlotWaits) queues.SlotWaits {
		p.Wait, p.Site, p.Waits, p.BatchSize = "chan", site("use@4"), 80, 1
		return p
	}
	for _, c := range []struct {
		name        string
		service     queues.ServiceStats
		slots       queues.SlotWaits
		title       string // of the pool's finding; "" if there is none
		holdShorter bool   // the advice is to hold the slot for less time
	}{
		{"other requests hold the slots", heldByOthers, slots(queues.SlotWaits{FormerWaiterShare: 0.8, OtherRequestShare: 1, Slots: 3, MaxWaiters: 5, HoldNS: 10e6}), "requests queue for one of 3 slots at main.use (main.go:4), held by a goroutine that sleeps at main.use (main.go:5)", false},
		{"holders work on other goroutines", servedByWorkers, slots(queues.SlotWaits{FormerWaiterShare: 0.8, Slots: 1, MaxWaiters: 5, HoldNS: 10e6}), "requests queue for the only slot at main.use (main.go:4), held by a goroutine that sleeps at main.use (main.go:5)", true},
		{"the number of slots is unknown", heldByOthers, slots(queues.SlotWaits{FormerWaiterShare: 0.8, OtherRequestShare: 1}), "requests queue for a slot, held by a goroutine that sleeps at main.use (main.go:5)", false},
		{"news", heldByOthers, slots(queues.SlotWaits{OtherRequestShare: 1}), "", false},
		{"goroutines of the request", heldByOthers, slots(queues.SlotWaits{ChildShare: 1, WaitsPerChild: 1}), "", false},
	} {
		rep := oneGroup(report.Cause{Cause: "sleep", Site: site("use@5"), TotalNS: ms(4000), Routes: []report.Route{{Via: via("chan use@4"), TotalNS: ms(3000)}, {TotalNS: ms(1000)}}})
		title := ""
		for _, v := range rulesByCode(report.RulePoolTooSmall)[0].Run(&Input{Report: rep, Services: []queues.ServiceStats{c.service}, SlotWaits: []queues.SlotWaits{c.slots}}) {
			title = v.Title
			if got := strings.Contains(v.Fix, "if the slot guards data") && strings.Contains(v.Fix, "do the work at main.use (main.go:5) before it is taken"); got != c.holdShorter {
				t.Errorf("%s: %s", c.name, v.Fix)
			}
		}
		check.Equal(t, title, c.title, "%s", c.name)
	}
}

// TestWorkToMoveOutOfLock: the advice names the call in the function that takes the lock, not a line further down where the
// holder waits, nor work under a library's own lock. The title names the service's line without the call in the standard
// library.
func TestWorkToMoveOutOfLock(t *testing.T) {
	read := report.Cause{Cause: "network", Kind: "outbound", Site: &report.Site{Func: "net/http.(*persistConn).readLoop", Line: 2330}, Call: "bufio.(*Reader).Peek", TotalNS: ms(4000)}
	dep := site("dep.org/x.(*Pool).Get@7")
	dep.Module = "dep.org/x"
	for _, c := range []struct {
		first string
		line  *report.Site
		says  string
	}{
		{"lock get@2 sync.(*Mutex).Lock", site("get@5"), "copy under the lock taken at main.go:2 what the call needs, unlock, then call at main.get (main.go:5)"},
		{"lock get@2 sync.(*Mutex).Lock", dep, "copy under the lock taken at main.go:2 what the call needs, unlock, then call at main.check (main.go:9)"},
		{"lock get@3 sync.(*Mutex).Lock", site("get@5"), "copy under the lock taken at main.go:3 what the call needs, unlock, then call at main.check (main.go:9)"},
		{"chan get@2", site("get@5"), "do the work at main.get (main.go:5) before it is taken"},
	} {
		read.Via = via(c.first, "select check@9 net/http.(*persistConn).roundTrip")
		got := findAll(t, &Input{
			Report: oneGroup(read), Process: &process.Stats{}, HolderLines: []queues.HolderLine{{WaitSite: site("get@2"), HolderSite: read.Site, Line: c.line}},
			SlotWaits: []queues.SlotWaits{{Wait: "chan", Site: site("get@2"), Waits: 80, BatchSize: 1, FormerWaiterShare: 0.8, Slots: 1, MaxWaiters: 5, HoldNS: 10e6}},
		}, rulesWithPrefix("WL2"))
		if len(got) != 1 || !strings.Contains(got[0].Fix, c.says) || !strings.HasSuffix(got[0].Title, "waits for the network at main.check (main.go:9)") {
			t.Errorf("%s, %s: %+v", c.first, c.line.Func, got)
		}
	}
}

// TestEvidenceOfSlowRequests: under a lock quick holders compute, and slow requests wait for one that sleeps. Title, shares and
// counts are those of the slow requests, as is the mean in the same finding.
func TestEvidenceOfSlowRequests(t *testing.T) {
	cause := func(cause report.CauseName, siteText string, ns int64, n int) report.Cause {
		return report.Cause{Cause: cause, Site: site(siteText), Call: map[report.CauseName]string{"sleep": "time.Sleep"}[cause], Via: via("lock get@2 sync.(*Mutex).Lock"), TotalNS: ns, Requests: n}
	}
	rep := oneGroup(cause("cpu", "count@5", ms(6000), 2000), cause("sleep", "report@9", ms(1200), 20))
	g := &rep.Groups[0]
	g.Count, g.Bands[0].Count = 2000, 2000
	g.Bands = append(g.Bands, report.Band{Band: report.Band99, Count: 20, Causes: []report.Cause{cause("sleep", "report@9", ms(1200), 20), cause("cpu", "count@5", ms(60), 20)}})
	for i := range g.Bands[1].Causes {
		g.Bands[1].Causes[i].Share = float64(g.Bands[1].Causes[i].TotalNS) / float64(ms(1260))
	}
	found := findAll(t, &Input{Report: rep, Process: &process.Stats{}}, rulesWithPrefix("WL2"))
	must.True(t, len(found) == 1 && found[0].Site.Func == "main.report" && strings.Contains(found[0].Title, "its holder sleeps"),
		"found %q", findingTexts(found))
	want := map[string]float64{
		"mean per slow request": float64(ms(63)),
		"share of it spent waiting for a Mutex at main.get (main.go:2)":               1,
		"share of the waiting in which the holder sleeps at main.report (main.go:9)":  1200.0 / 1260,
		"share of the waiting in which the holder computes in main.count (main.go:5)": 60.0 / 1260,
	}
	for _, e := range found[0].Evidence {
		if w, ok := want[e.Text]; ok && (e.Value < 0.99*w || e.Value > 1.01*w) {
			t.Errorf("%s: %g, want %g", e.Text, e.Value, w)
		}
		delete(want, e.Text)
	}
	check.True(t, len(want) == 0, "no evidence of %v in %+v", want, found[0].Evidence)

	// The count is that of slow requests with the sleep, not of all requests.
	rep = oneGroup(report.Cause{Cause: "sleep", Site: site("retry@5"), Call: "time.Sleep", TotalNS: ms(2000), Requests: 1500})
	g = &rep.Groups[0]
	g.Count, g.Bands[0].Count = 2000, 2000
	slow := g.Bands[0].Causes[0]
	slow.TotalNS, slow.Requests = ms(1000), 18
	g.Bands = append(g.Bands, report.Band{Band: report.Band99, Count: 20, Causes: []report.Cause{slow}})
	found = findAll(t, &Input{Report: rep, Process: &process.Stats{}}, rulesWithPrefix("WL2"))
	check.True(t, len(found) == 1 && found[0].Evidence[1].Text == "slow requests that have this wait, of 20" && found[0].Evidence[1].Value == 18,
		"18 of 20 slow requests slept: %+v", found[0].Evidence)
}

// TestSlowPeerSeverity: no fault are a database that all requests ask for 1 ms and that some of them find busy, and an upstream
// that one request in twenty-five needs for 2 ms. A fault is an upstream that makes these requests far slower than all others,
// and a peer that takes some requests far longer than others. Where a peer takes 15 ms for each request, no evidence says that
// it could be faster. Answers that were late in few moments count as few, however many requests they delayed. The test fails if
// the mean of the requests that waited passes for the usual wait, and if one stall counts once for each request.
func TestSlowPeerSeverity(t *testing.T) {
	cause := func(ns int64, n int) report.Cause {
		return report.Cause{Cause: report.CauseNetwork, Kind: "outbound", Site: site("ask@5"), Via: []report.Via{}, TotalNS: ns, Requests: n, Share: 0.9}
	}
	for _, c := range []struct {
		name      string
		all, slow report.Cause // of 1000 and 20 requests
		band      report.BandName
		moments   int // 0: not known
		want      report.Severity
	}{
		{"an upstream that few need, for 2 ms", cause(ms(40*2), 40), cause(ms(20*2), 20), report.Band99, 0, ""},
		{"an upstream that few need, for 15 ms", cause(ms(40*15), 40), cause(ms(20*15), 20), report.Band99, 0, report.SeverityMedium},
		{"far slower for it, 20 times", cause(ms(20*15), 20), cause(ms(20*15), 20), report.BandOutliers, 20, report.SeverityMedium},
		{"a peer that stood still in 3 moments", cause(ms(1000), 900), cause(ms(20*15), 20), report.BandOutliers, 3, report.SeverityLow},
		{"and for long", cause(ms(3000), 900), cause(ms(20*110), 20), report.BandOutliers, 3, report.SeverityHigh},
		{"and not known when", cause(ms(1000), 900), cause(ms(20*15), 20), report.BandOutliers, 0, report.SeverityMedium},
		{"a database that is busy now and then", cause(ms(1000), 1000), cause(ms(20*4), 20), report.Band99, 0, report.SeverityLow},
		{"one that every request waits for", cause(ms(15_000), 1000), cause(ms(20*18), 20), report.Band99, 0, report.SeverityLow},
		{"one that takes some far longer", cause(ms(2_000), 1000), cause(ms(20*60), 20), report.Band99, 0, report.SeverityHigh},
	} {
		rep := oneGroup(cause(1, 1))
		g := &rep.Groups[0]
		g.Count = 1000
		g.Bands = []report.Band{{Band: report.BandAll, Count: 1000, Causes: []report.Cause{c.all}}, {Band: c.band, Count: 20, Causes: []report.Cause{c.slow}}}
		in := &Input{Report: rep, Process: &process.Stats{}}
		if c.moments > 0 {
			in.OutlierMoments = map[string]int{g.ID: c.moments}
		}
		got := report.Severity("")
		if found := findAll(t, in, rulesWithPrefix("WL2005")); len(found) > 0 {
			got = found[0].Severity
		}
		check.Equal(t, got, c.want, "%s", c.name)
	}
}

// TestHolderAndQueueInDifferentGroups: the holder of a lock and its waiters may be in different groups, and a queue may slow
// down only the slow requests. A rule that judges each group, or all of its requests, in isolation blames the holder's call.
func TestHolderAndQueueInDifferentGroups(t *testing.T) {
	const lock = "lock get@1 sync.(*RWMutex).Lock"
	save := func(queuedMS, ownMS int64) report.Cause {
		c := report.Cause{Cause: "sleep", Site: site("save@3"), Call: "time.Sleep", TotalNS: ms(queuedMS + ownMS), Requests: 100, Share: 1}
		if queuedMS > 0 {
			c.Routes = append(c.Routes, report.Route{Via: via(lock), TotalNS: ms(queuedMS)})
		}
		if ownMS > 0 {
			c.Routes = append(c.Routes, report.Route{Via: []report.Via{}, TotalNS: ms(ownMS)})
		}
		return c
	}
	group := func(id string, all report.Cause, slow ...report.Cause) report.Group {
		g := oneGroup(all).Groups[0]
		g.ID = id
		if len(slow) > 0 {
			g.Bands = append(g.Bands, report.Band{Band: report.Band9099, Count: 10, Causes: slow})
		}
		return g
	}
	for _, c := range []struct {
		name   string
		groups []report.Group
		want   []string
		says   bool // "the same fault as WL2002"
	}{
		{"no other group queues", []report.Group{group("order", save(100, 900))}, []string{"WL2001 save@3 1.00"}, false},
		{"another group queues", []report.Group{group("order", save(100, 900)), group("price", save(400, 0))}, []string{"WL2002 save@3 1.00", "WL2002 save@3 1.00"}, false},
		{"slow requests queue", []report.Group{group("order", save(100, 900), save(60, 60))}, []string{"WL2002 save@3 1.00"}, false},
		{"the holder's group never queues", []report.Group{group("order", save(0, 900)), group("price", save(1000, 0))}, []string{"WL2002 save@3 1.00", "WL2001 save@3 1.00"}, true},
	} {
		rep := oneGroup()
		rep.Groups = c.groups
		found := findAll(t, &Input{Report: rep, Process: &process.Stats{}}, rulesWithPrefix("WL2"))
		if got := findingTexts(found); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
			continue
		}
		last := found[len(found)-1].Evidence
		if says := strings.HasPrefix(last[len(last)-1].Text, "the same fault as WL2002"); says != c.says {
			t.Errorf("%s: says that it is one fault: %v, want %v: %+v", c.name, says, c.says, last)
		}
	}
}

// TestLockHeldBySiblings: goroutines of one request wait for a result, one of them under the lock that guards the result. Then
// the request waits for the result, not for the lock. If the time is behind the lock alone, it belongs to the lock.
func TestLockHeldBySiblings(t *testing.T) {
	for _, c := range []struct {
		name                string
		withoutLockMS, part float64
		want                string
	}{
		{"goroutines of one request", 300, 1, "WL2001 tick@9 1.00"},
		{"goroutines of other requests", 300, 0.5, "WL2002 load@2 1.00"},
		{"behind the lock alone", 0, 1, "WL2002 load@2 1.00"},
	} {
		rep := oneGroup(report.Cause{Cause: "sleep", Site: site("tick@9"), TotalNS: ms(1000), Requests: 100, Share: 1, Routes: []report.Route{{Via: via("lock get@1 sync.(*Mutex).Lock", "chan load@2"), TotalNS: ms(1000 - int64(c.withoutLockMS))}, {Via: via("chan load@2"), TotalNS: ms(int64(c.withoutLockMS))}}})
		found := findAll(t, &Input{Report: rep, Process: &process.Stats{}, SiblingShares: []queues.SiblingShare{{Site: site("get@1"), Share: c.part}}}, rulesWithPrefix("WL2"))
		if got := findingTexts(found); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestWaitOfUnknownKind: for a goroutine that waited since before the trace, the report has a lock without a site, only because
// another goroutine ended the wait. The time behind it belongs to the rule of its cause.
func TestWaitOfUnknownKind(t *testing.T) {
	for _, c := range []struct {
		lock *report.Site
		want report.RuleCode
	}{{site("take@9"), report.RuleLockConvoy}, {nil, report.RuleSlowPeer}} {
		r := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: site("ask@7"), TotalNS: ms(4000), Via: []report.Via{{Wait: report.WaitLock, Site: c.lock}}})
		if got := findAll(t, &Input{Report: r, Process: &process.Stats{}}, rulesWithPrefix("WL2")); len(got) != 1 || got[0].Code != c.want {
			t.Errorf("behind a lock at %v: %+v, want %s", c.lock, got, c.want)
		}
	}
}

// TestHolderIsLoop: work of a loop under a lock and the queue behind it are one fault. The loop's iterations are not a client's
// latency, so their finding is info where the queue's finding is as severe. A handler's finding keeps its severity.
func TestHolderIsLoop(t *testing.T) {
	spillSite := &report.Site{Func: "main.spill", File: "main.go", Line: 64}
	for _, c := range []struct {
		kind  report.Kind
		queue report.Severity
		want  report.Severity
	}{
		{report.KindLoop, report.SeverityHigh, report.SeverityInfo},
		{report.KindLoop, report.SeverityLow, report.SeverityHigh},
		{report.KindHTTP1, report.SeverityHigh, report.SeverityHigh},
	} {
		in := &Input{Report: &report.Report{Groups: []report.Group{{ID: "serve", Kind: report.KindHTTP1}, {ID: "sweep", Kind: c.kind}}}}
		all := []Verdict{
			{Finding: report.Finding{Code: report.RuleLockConvoy, Severity: c.queue, Cause: report.CauseSleep, Group: "serve", Site: spillSite}},
			{Finding: report.Finding{Code: report.RuleSleep, Severity: report.SeverityHigh, Cause: report.CauseSleep, Group: "sweep", Site: spillSite}},
		}
		linkHolderFindings(in, all)
		check.True(t, all[1].Severity == c.want && len(all[1].Evidence) == 1, "%s, a queue of severity %s: %+v", c.kind, c.queue, all[1].Finding)
	}
}

// TestIsFanOutLimit: a send that one of the request's own goroutines receives is a limited fan-out. If other requests started
// the goroutines, if each serves many sends, or if there is one slot only, requests queue for each other. The test fails if a
// part of the condition is left out.
func TestIsFanOutLimit(t *testing.T) {
	sendWait := func(fn string) waitKey { return waitKey{kind: report.WaitChanSend, site: report.SiteKey{Func: fn}} }
	receive := sendWait("main.fan")
	receive.kind = report.WaitChan
	ownGoroutines := queues.SlotWaits{ChildShare: 0.9, Slots: 4, WaitsPerChild: 1.2}
	for name, c := range map[string]struct {
		wait  waitKey
		slots *queues.SlotWaits
		want  bool
	}{
		"fan-out":                       {sendWait("main.fan"), &ownGoroutines, true},
		"errgroup":                      {sendWait("golang.org/x/sync/errgroup.(*Group).Go"), nil, true},
		"another wait of errgroup":      {waitKey{kind: report.WaitChan, site: report.SiteKey{Func: "golang.org/x/sync/errgroup.(*Group).Wait"}}, nil, false},
		"no slots seen":                 {sendWait("main.fan"), nil, false},
		"a receive":                     {receive, &ownGoroutines, false},
		"goroutines of others":          {sendWait("main.fan"), &queues.SlotWaits{ChildShare: 0.4, Slots: 4, WaitsPerChild: 1.2}, false},
		"half of them are own":          {sendWait("main.fan"), &queues.SlotWaits{ChildShare: 0.5, Slots: 4, WaitsPerChild: 1.2}, false},
		"one at a time":                 {sendWait("main.fan"), &queues.SlotWaits{ChildShare: 0.9, Slots: 1, WaitsPerChild: 1.2}, false},
		"workers that serve many sends": {sendWait("main.fan"), &queues.SlotWaits{ChildShare: 0.9, Slots: 4, WaitsPerChild: 2}, false},
	} {
		check.Equal(t, isFanOutLimit(c.wait, c.slots), c.want, "%s", name)
	}
}

// TestIsFlowControlWait: only a Write of an HTTP/2 handler that leads to its connection's reader waits for the flow-control
// window. The test fails if one of the signs suffices.
func TestIsFlowControlWait(t *testing.T) {
	reader := &report.Site{Func: "net/http.(*http2serverConn).readFrames"}
	write := []report.Via{{Wait: report.WaitSelect, Call: "net/http.(*http2responseWriter).Write"}}
	for name, c := range map[string]struct {
		site *report.Site
		via  []report.Via
		want bool
	}{
		"the window":       {reader, write, true},
		"golang.org/x/net": {&report.Site{Func: "golang.org/x/net/http2.(*serverConn).readFrames"}, []report.Via{{Wait: report.WaitSelect, Call: "golang.org/x/net/http2.(*responseWriter).Write"}}, true},
		"no site":          {nil, write, false},
		"gRPC, behind a goroutine that sends": {&report.Site{Func: "google.golang.org/grpc/internal/transport/readyreader.(*nonBlockingReader).ReadOnReady"}, []report.Via{{Wait: report.WaitChanSend, Call: "runtime.chansend1"},
			{Wait: report.WaitSelect, Call: "runtime.selectgo", Site: &report.Site{Func: "google.golang.org/grpc/internal/transport.(*writeQuota).get", CalledFrom: &report.Caller{Calls: "google.golang.org/grpc.(*serverStream).SendMsg"}}}}, true},
		"another reader":    {&report.Site{Func: "main.(*conn).read"}, write, false},
		"no wait before it": {reader, nil, false},
		"a body":            {reader, []report.Via{{Wait: report.WaitCond, Call: "net/http.(*http2responseWriter).Write"}}, false},
		"another call":      {reader, []report.Via{{Wait: report.WaitSelect, Call: "net/http.(*http2requestBody).Read"}}, false},
	} {
		check.Equal(t, isFlowControlWait(&causeRoute{Cause: &report.Cause{Site: c.site}, via: c.via}), c.want, "%s", name)
	}
}
