package verdict

import (
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestCauseKinds checks that sums distinguish C code from the kernel, a deadline from a sleep, a client from a peer,
// and the wait for a slot or a lock from the work behind it.
func TestCauseKinds(t *testing.T) {
	site := func(fn string) *report.Site { return &report.Site{Func: "main." + fn, File: "/s/main.go", Line: 7} }
	via := func(wait report.WaitKind, fn string) []report.Via {
		return []report.Via{{Wait: wait, Site: site(fn)}}
	}
	pool := &report.Queue{For: "a connection", Waits: via(report.WaitSelect, "get")}
	worker := &report.Queue{For: "a worker", Waits: via(report.WaitChan, "ask"), OwnNS: 10}
	for _, c := range []struct {
		name   string
		causes []report.Cause
		queue  *report.Queue
		want   []string
	}{
		{"C and the kernel", []report.Cause{
			{Cause: "syscall", Kind: report.InC, Site: site("_Cfunc_f"), TotalNS: 600, Share: 0.6},
			{Cause: "syscall", Site: site("save"), TotalNS: 400, Share: 0.4}}, nil,
			[]string{"60% in C code, through main._Cfunc_f main.go:7", "40% in the kernel, called from main.save main.go:7"}},
		{"sleeps", []report.Cause{
			{Cause: "sleep", Call: "time.Sleep", Site: site("a"), TotalNS: 400, Share: 0.4},
			{Cause: "sleep", Call: "context.(*timerCtx).cancel", Site: site("b"), TotalNS: 300, Share: 0.3},
			{Cause: "sleep", Call: "runtime.selectgo", Site: site("c"), TotalNS: 200, Share: 0.2},
			{Cause: "sleep", Call: "runtime.selectgo", Site: &report.Site{Func: "golang.org/x/time/rate.(*Limiter).wait"}, TotalNS: 100, Share: 0.1}}, nil,
			[]string{"40% asleep in main.a main.go:7", "30% waiting for a deadline in main.b main.go:7", "20% waiting for a timer or ticker in main.c main.go:7",
				"10% waiting for a rate limiter in rate.(*Limiter).wait"}},
		{"a client and a peer", []report.Cause{
			{Cause: "network", Kind: "inbound", Site: site("read"), TotalNS: 300, Share: 0.3},
			{Cause: "network", Kind: "outbound", Site: site("ask"), TotalNS: 300, Share: 0.3},
			{Cause: "cpu", Site: site("run"), TotalNS: 400, Share: 0.4}}, nil,
			[]string{"40% computing in main.run main.go:7", "30% waiting for the client in main.read main.go:7", "30% waiting for a peer on the network in main.ask main.go:7"}},
		{"another request", []report.Cause{
			{Cause: "network", Kind: "inbound", Call: "bufio.(*Reader).Peek", Site: &report.Site{Func: "net/http.(*conn).serve"}, TotalNS: 500, Share: 0.5, Via: via(report.WaitSelect, "watch")},
			{Cause: "network", Kind: "inbound", Call: "net/http.(*Server).Serve", Site: site("run"), TotalNS: 300, Share: 0.3, Via: via(report.WaitSelect, "watch")},
			{Cause: "network", Kind: "inbound", Call: "bufio.(*Reader).Peek", Site: &report.Site{Func: "net/http.(*conn).serve"}, TotalNS: 200, Share: 0.2}}, nil,
			[]string{"80% waiting until another request comes in main.watch main.go:7", "20% waiting for the client in http.(*conn).serve"}},
		{"another request that frees a slot", []report.Cause{
			{Cause: "network", Kind: "inbound", Call: "bufio.(*Reader).Peek", Site: &report.Site{Func: "net/http.(*conn).serve"}, TotalNS: 700, Share: 0.7, Routes: []report.Route{{Via: via(report.WaitSelect, "get"), TotalNS: 500}, {TotalNS: 200}}},
			{Cause: "cpu", Site: site("run"), TotalNS: 300, Share: 0.3}}, pool,
			[]string{"50% queueing for a connection at main.get main.go:7, behind others that are waiting for the client in http.(*conn).serve",
				"30% computing in main.run main.go:7", "20% waiting for the client in http.(*conn).serve"}},
		{"a slot of a pool", []report.Cause{
			{Cause: "network", Kind: "outbound", Site: site("ask"), TotalNS: 700, Share: 0.7, Routes: []report.Route{{Via: via(report.WaitSelect, "get"), TotalNS: 500}, {TotalNS: 200}}},
			{Cause: "cpu", Site: site("run"), TotalNS: 300, Share: 0.3}}, pool,
			[]string{"50% queueing for a connection at main.get main.go:7, behind others that are waiting for a peer on the network in main.ask main.go:7",
				"30% computing in main.run main.go:7", "20% waiting for a peer on the network in main.ask main.go:7"}},
		{"a queue and its service time together come first", []report.Cause{
			{Cause: "network", Kind: "outbound", Site: site("ask"), TotalNS: 600, Share: 0.6, Routes: []report.Route{{Via: via(report.WaitSelect, "get"), TotalNS: 300}, {TotalNS: 300}}},
			{Cause: "cpu", Site: site("run"), TotalNS: 400, Share: 0.4}}, pool,
			[]string{"30% queueing for a connection at main.get main.go:7, behind others that are waiting for a peer on the network in main.ask main.go:7",
				"40% computing in main.run main.go:7", "30% waiting for a peer on the network in main.ask main.go:7"}},
		{"system calls of one kind", []report.Cause{
			{Cause: "syscall", Call: "os.(*Process).Wait", Site: site("convert"), TotalNS: 950, Share: 0.95}, {Cause: "syscall", Call: "os.(*File).Read", Site: site("convert"), TotalNS: 50, Share: 0.05}}, nil,
			[]string{"100% waiting for a child process, called from main.convert main.go:7"}},
		{"writes of a log", []report.Cause{
			{Cause: "syscall", Call: "os.(*File).Write", Site: site("log"), TotalNS: 1000, Share: 1}}, nil,
			[]string{"100% writing to a file or pipe, called from main.log main.go:7"}},
		{"a wait at the named line", []report.Cause{
			{Cause: "sleep", Site: site("work"), Via: via(report.WaitChan, "work"), TotalNS: 1000, Share: 1, Requests: 20}}, nil,
			[]string{"100% asleep in main.work main.go:7"}},
		{"waits of a part", []report.Cause{
			{Cause: "sleep", Site: site("work"), Routes: []report.Route{{Via: via(report.WaitLock, "ask"), TotalNS: 700}, {TotalNS: 300}}, TotalNS: 1000, Share: 1, Requests: 20}}, nil,
			[]string{"100% asleep in main.work main.go:7, mostly behind a lock at main.ask main.go:7"}},
		{"the own service time of a worker", []report.Cause{
			{Cause: "sleep", Site: site("work"), Via: via(report.WaitChan, "ask"), TotalNS: 1000, Share: 1, Requests: 20}}, worker,
			[]string{"80% queueing for a worker at main.ask main.go:7, behind others that are asleep in main.work main.go:7", "20% asleep in main.work main.go:7, awaited at main.ask main.go:7"}},
	} {
		g := report.Group{ID: "g", Name: "main.handle", Count: 20, TotalNS: 1000, Bands: []report.Band{{Band: report.BandAll, Count: 20, Causes: c.causes}}}
		r := &report.Report{Groups: []report.Group{g}}
		if c.queue != nil {
			r.Findings = []report.Finding{{Code: report.RulePoolTooSmall, Group: "g", Queue: c.queue}, {Code: report.RulePoolTooSmall, Group: "other", Queue: &report.Queue{Waits: via(report.WaitSelect, "")}}}
		}
		var got []string
		var ns int64
		for _, v := range Verdicts(r)[0].Causes {
			got = append(got, words.Percent(v.Share)+" "+v.Text)
			ns += v.TotalNS
		}
		check.True(t, slices.Equal(got, c.want) && ns == 1000, "%s, %d ns:\n%q, want\n%q", c.name, ns, got, c.want)
	}
}

// TestOpenedConnections: if the first finding is that connections are not kept, the sentence separates the waits in which they are
// opened, and names their purpose instead of the peer.
func TestOpenedConnections(t *testing.T) {
	rows := []report.Cause{
		{Cause: "network", Kind: "outbound", Call: "net.(*Resolver).exchange", Site: &report.Site{Func: "main.find"}, TotalNS: 400, Share: 0.4},
		{Cause: "network", Kind: "outbound", Site: &report.Site{Func: "main.ask"}, TotalNS: 300, Share: 0.3},
		{Cause: "network", Kind: "outbound", Site: &report.Site{Func: "crypto/tls.(*Conn).HandshakeContext"}, TotalNS: 300, Share: 0.3},
	}
	r := &report.Report{Groups: []report.Group{{ID: "g", Name: "main.handle", Count: 20, TotalNS: 1000, Bands: []report.Band{{Band: report.BandAll, Count: 20, Causes: rows}}}}}
	for change, want := range map[report.Change][]string{
		{Kind: report.ChangeReuse, Site: "crypto/tls.(*Conn).HandshakeContext:1516"}: {"opening connections", "waiting for a peer on the network"},
		{Kind: report.ChangeReuse, Site: "net.(*Resolver).exchange:9"}:               {"waiting for a peer on the network", "waiting for a name server"},
		{Kind: report.ChangeTime}: {"waiting for a peer on the network", "waiting for a name server"},
	} {
		r.Findings = []report.Finding{{Code: report.RuleSlowPeer, Group: "g", Changes: []report.Change{change}}}
		var got []string
		for _, c := range Verdicts(r)[0].Causes {
			got = append(got, c.Words)
		}
		check.True(t, slices.Equal(got, want), "%+v: %q, want %q", change, got, want)
	}
}
