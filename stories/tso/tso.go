// Package tso is the story of a database client that fetches timestamps over the network, and of the delay when unrelated
// goroutines of its process tick or compute: one goroutine sends for all, and it runs late.
package tso

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/whylate/whylate/internal/experiment/freeport"
	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/stories/stage"
)

// PD's commit is in v8.1.0; the client's is the newest of June 2026.
const (
	pdModule      = "github.com/tikv/pd"
	pdVersion     = "v1.1.0-beta.0.20240407022249-7179657d129b"
	clientVersion = "v0.0.0-20260609141937-b01426f6b08b"
)

// published describes the delay of the incident's hub.
const published = "Published: the factor is of the message's delay to the round trip that was expected; the goroutine that reads the answer ran 4.4 ms after its message could be read, 19 ms at worst."

type arm struct {
	name     string
	args     []string
	expected stage.Place
	long     bool // only in full runs
	env      []string
}

// Run runs the client alone, with tickers, with computing loops, with both, and with bounded computing; then with separate
// CPUs for server and client, and over a network that loses segments.
func Run(ctx context.Context, s *stage.Stage) (*stage.Result, error) {
	program, err := s.BuildPackage(ctx, pdModule, pdVersion, pdModule+"/cmd/pd-server", "-tags", "without_dashboard")
	if err != nil {
		return nil, err
	}
	client, err := s.Build(ctx, "tso/client")
	if err != nil {
		return nil, err
	}
	server, err := startPD(ctx, s, program, nil, nil)
	if err != nil {
		return nil, err
	}
	r := &stage.Result{
		Story: "tso", Published: 4.368 / 0.5, Versions: map[string]string{"pd": pdVersion, "pd/client": clientVersion},
		Notes: []string{published},
	}
	hub := stage.Place{Code: "WL1001", Site: `http2\.readFrameHeader|transport\.|tso\.`}
	loops := stage.Place{Code: "WL1002", Site: `main\.\(\*beside\)\.(compute|loop)`}
	loopsAndTickers := []string{"-loops", "8", "-tickers", "10000"}
	// Two loops of 20 ms without a call: they could not be interrupted at the time of the incident.
	tight := []string{"-loops", "2", "-tight"}
	// Both are right: the goroutines wait for a CPU, or for the hub, which waits for one.
	busy := stage.Place{Code: "WL1001|WL1002", Site: hub.Site + "|" + loops.Site}
	arms := []arm{
		{name: "quiet"},
		{name: "1,000 tickers", args: []string{"-tickers", "1000"}, long: true},
		// Ten thousand simultaneous ticks delay the slowest 1 % by two milliseconds with today's Go: no finding of medium
		// severity.
		{name: "10,000 tickers", args: []string{"-tickers", "10000"}, long: true},
		{name: "loops", args: []string{"-loops", "8"}, expected: busy, long: true},
		{name: "two loops", args: tight, expected: busy, long: true},
		{name: "two loops, no preemption", args: tight, env: []string{"GODEBUG=asyncpreemptoff=1"}, expected: busy, long: true},
		{name: "before", args: loopsAndTickers, expected: hub},
		{name: "after", args: append([]string{"-bounded"}, loopsAndTickers...)},
	}
	var rows []row
	addArm := func(server *pdServer, a arm, cpus []int) error {
		got, row, err := runArm(ctx, s, client, server, a, cpus)
		if err != nil {
			return err
		}
		r.Arms, rows = append(r.Arms, got), append(rows, row)
		return nil
	}
	for _, a := range arms {
		if s.Healthy && a.name == "before" {
			a.args = nil
		}
		if !s.Wants(a.name, a.long) {
			continue
		}
		if err := addArm(server, a, nil); err != nil {
			return nil, err
		}
	}
	if err := server.Stop(); err != nil {
		return nil, err
	}
	if n := runtime.NumCPU(); n > 1 && s.Wants("own CPUs", true) {
		var rest []int
		for c := range n - 1 {
			rest = append(rest, c)
		}
		if server, err = startPD(ctx, s, program, []int{n - 1}, nil); err != nil {
			return nil, err
		}
		if err := addArm(server, arm{name: "own CPUs", args: loopsAndTickers, expected: hub}, rest); err != nil {
			return nil, err
		}
		if err := server.Stop(); err != nil {
			return nil, err
		}
	}
	r.Compare("before", "after", stage.P50)
	r.Table = tableOf(rows)
	if !s.Wants("lost segments", false) {
		return r, nil
	}
	net, err := s.Net(lossPercent)
	var missing *stage.Missing
	switch {
	case errors.As(err, &missing):
		r.Notes = append(r.Notes, "Without the arm that loses segments: "+err.Error())
	case err != nil:
		return nil, err
	default:
		if server, err = startPD(ctx, s, program, nil, net); err != nil {
			return nil, err
		}
		if err := addArm(server, arm{name: "lost segments", expected: stage.Place{Code: "WL2008", Only: true}}, nil); err != nil {
			return nil, err
		}
	}
	r.Table = tableOf(rows)
	return r, nil
}

// lossPercent is the share of segments with data, in percent, that the lossy network drops.
const lossPercent = 3

// A pdServer is a running PD server.
type pdServer struct {
	*stage.Server
	address string
}

// startPD starts a PD server, in its own network namespace if net is not nil.
func startPD(ctx context.Context, s *stage.Stage, program string, cpus []int, net *stage.Net) (*pdServer, error) {
	dir, err := s.Temp("pd")
	if err != nil {
		return nil, err
	}
	ports, err := freeport.Find(2)
	if err != nil {
		return nil, err
	}
	host := "127.0.0.1"
	if net != nil {
		host = net.ProgramAddr
	}
	address := host + ":" + ports[0]
	server, err := s.Start(ctx, stage.Program{
		Name: "PD " + pdVersion, Ready: "http://" + address + "/pd/api/v1/health", CPUs: cpus, Net: net,
		// Its etcd registers a pattern that ServeMux refuses since Go 1.22.
		Env: []string{"GODEBUG=httpmuxgo121=1"},
		// Like a separate host, as far as possible on one machine: it need not wait for the client's CPUs.
		Args: []string{"nice", "-n", "-15", program, "--name=pd1", "--data-dir=" + filepath.Join(dir, "data"), "--log-file=" + filepath.Join(dir, "log"),
			"--client-urls=http://" + address, "--peer-urls=http://" + host + ":" + ports[1]},
	})
	return &pdServer{server, address}, err
}

// A row has the measurements of an arm in addition to its latency. Times are ns.
type row struct {
	arm                 string
	p50, p80, p99, p999 int64
	hub                 string // delay of the reading goroutine after its message was readable
	network             string // the parts of the network and the server
}

func tableOf(rows []row) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "arm\tp50\tp80\tp99\tp99.9\tthe hub, after its message was readable\t")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t\n", r.arm, words.Duration(r.p50), words.Duration(r.p80), words.Duration(r.p99), words.Duration(r.p999), r.hub)
	}
	t.Flush()
	fmt.Fprintln(&b, "\nWith PD's own recording beside:")
	for _, r := range rows {
		fmt.Fprintf(&b, "%s: %s\n", r.arm, r.network)
	}
	return b.String()
}

// runArm runs the client as an arm, under transactions at a fixed rate.
func runArm(ctx context.Context, s *stage.Stage, client string, server *pdServer, a arm, cpus []int) (stage.Arm, row, error) {
	result := row{arm: a.name}
	ports, err := freeport.Find(1)
	if err != nil {
		return stage.Arm{}, result, err
	}
	address := "127.0.0.1:" + ports[0]
	service, err := s.Start(ctx, stage.Program{
		Name: "the client, " + a.name, Ready: "http://" + address + "/ready", CPUs: cpus, Env: a.env,
		Args: append([]string{client, "-listen", address, "-pd", "http://" + server.address}, a.args...),
	})
	if err != nil {
		return stage.Arm{}, result, err
	}
	defer service.Stop()
	duration := 10 * time.Second
	if s.Short {
		duration = 4 * time.Second
	}
	var mu sync.Mutex
	var times []time.Duration
	o := load.Options{
		Targets: []load.Target{{URL: "http://" + address + "/txn"}},
		Phases:  []load.Phase{{StartRate: perSecond, EndRate: perSecond, Duration: duration + 2*time.Second}},
		Warmup:  2 * time.Second, Seed: 1,
		Observe: func(t load.Sample) {
			mu.Lock()
			defer mu.Unlock()
			times = append(times, time.Duration(t.End-t.Due))
		},
	}
	name := "tso-" + strings.NewReplacer(" ", "-", ",", "").Replace(a.name)
	var file, side string
	measured, err := stage.RunUnderLoad(ctx, o, func() error {
		time.Sleep(o.Warmup)
		pdDone := make(chan error, 1)
		go func() (err error) {
			defer func() { pdDone <- err }()
			side, err = s.Record(ctx, name+"-pd", server.address, duration, "--pid", strconv.Itoa(server.PID()))
			return err
		}()
		var err error
		file, err = s.Record(ctx, name, address, duration)
		return errors.Join(err, <-pdDone)
	})
	if err != nil {
		return stage.Arm{}, result, err
	}
	if err := service.Stop(); err != nil {
		return stage.Arm{}, result, err
	}
	got, err := s.Judge(ctx, a.name, file, a.expected)
	if err != nil {
		return stage.Arm{}, result, err
	}
	got.Measure(measured)
	if measured.Errors > 0 {
		s.Say("%d of %d requests failed: %s", measured.Errors, measured.Requests, measured.Reasons[0].Text)
	}
	slices.Sort(times)
	result.p50, result.p99, result.p999 = measured.Intended.P50, measured.Intended.P99, measured.Intended.P999
	result.p80 = int64(times[len(times)*8/10])
	clientReport, err := s.Explain(ctx, file)
	if err != nil {
		return stage.Arm{}, result, err
	}
	both, err := s.Explain(ctx, file, "pd="+side)
	if err != nil {
		return stage.Arm{}, result, err
	}
	result.hub, result.network = hubText(clientReport.Report), networkText(clientReport.Report, both.Report)
	return got, result, nil
}

// hubText returns the delays of the goroutine that all requests wait for.
func hubText(r *report.Report) string {
	for _, f := range r.Findings {
		if f.Code != "WL1001" {
			continue
		}
		late, _ := stage.Evidence(&f, "from when the message was readable")
		longest, _ := stage.Evidence(&f, "longest delay")
		gap, _ := stage.Evidence(&f, "no P polled")
		n, _ := stage.Evidence(&f, "late runs")
		perRun, _ := stage.Evidence(&f, "held up by each")
		return fmt.Sprintf("%s on average (%s of it unread), %s at worst; %.0f times, %.0f requests each", words.Duration(int64(late)), words.Duration(int64(gap)), words.Duration(int64(longest)), n, perRun)
	}
	return "not late"
}

// networkText returns the network's and PD's parts of the client's waits for PD: by the client's own connections, and by both
// recordings.
func networkText(client, both *report.Report) string {
	text := "the network is not judged"
	if h := client.Host; h != nil {
		text = fmt.Sprintf("network %s, %d segments sent again", h.Network.Verdict, h.Network.Retransmitted+h.Network.PeerRetransmitted)
	}
	for _, g := range both.Groups {
		if p := g.Peer; p != nil && p.Recording == "pd" {
			text += fmt.Sprintf("; a message to PD and its answer take %s on average, %s of it in PD", words.Duration(p.WaitNS), words.Duration(p.ServedNS))
		}
		l := g.LatencyNS
		if g.Name == "tso" && l.P50 != nil && l.Max != nil { // the server's own task: one message
			text += fmt.Sprintf("; PD handled %d messages in %s each (at most %s)", g.Count, words.Duration(*l.P50), words.Duration(*l.Max))
		}
	}
	return text
}

// perSecond is the rate of transactions, which start at random.
const perSecond = 300
