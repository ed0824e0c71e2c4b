// Package tso is the story of a database's client that fetches timestamps over the network, and of how late they come when
// unrelated goroutines of its process tick or compute: one goroutine sends for all, and it runs late.
package tso

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/experiment/freeport"
	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/stories/stage"
)

// PD's commit is contained in v8.1.0; the client's is the newest that there was in June 2026.
const (
	pdModule      = "github.com/tikv/pd"
	pdVersion     = "v1.1.0-beta.0.20240407022249-7179657d129b"
	clientVersion = "v0.0.0-20260609141937-b01426f6b08b"
)

// published says how late the incident's hub ran.
const published = "Published: the factor is of the message's delay to the round trip that was expected; the goroutine that reads the answer ran 4.4 ms after its message could be read, 19 ms at worst."

type arm struct {
	name     string
	args     []string
	expected stage.Place
}

// Run tells the story: quiet, beside tickers, beside loops, beside both, and with what computes bounded.
func Run(ctx context.Context, s *stage.Stage) (*stage.Result, error) {
	server, err := s.BuildPackage(ctx, pdModule, pdVersion, pdModule+"/cmd/pd-server", "-tags", "without_dashboard")
	if err != nil {
		return nil, err
	}
	client, err := s.Build(ctx, "tso/client")
	if err != nil {
		return nil, err
	}
	dir, err := s.Temp("pd")
	if err != nil {
		return nil, err
	}
	ports, err := freeport.Find(2)
	if err != nil {
		return nil, err
	}
	pd := "http://127.0.0.1:" + ports[0]
	if _, err := s.Start(ctx, stage.Program{
		Name: "PD " + pdVersion, Ready: pd + "/pd/api/v1/health",
		// Its etcd registers a pattern that ServeMux refuses since Go 1.22.
		Env: []string{"GODEBUG=httpmuxgo121=1"},
		// A host of its own, as far as one machine can stand for two: it need not wait for the client's CPUs.
		Args: []string{"nice", "-n", "-15", server, "--name=pd1", "--data-dir=" + filepath.Join(dir, "data"), "--log-file=" + filepath.Join(dir, "log"),
			"--client-urls=" + pd, "--peer-urls=http://127.0.0.1:" + ports[1]},
	}); err != nil {
		return nil, err
	}
	loops := stage.Place{Code: "WL1002", Site: `main\.\(\*beside\)\.(compute|loop)`}
	arms := []arm{
		{"quiet", nil, stage.Place{}},
		{"1,000 tickers", []string{"-tickers", "1000"}, stage.Place{}},
		{"10,000 tickers", []string{"-tickers", "10000"}, stage.Place{Code: "WL1004", Site: `main\.\(\*beside\)`}},
		{"loops", []string{"-loops", "8"}, loops},
		{"before", []string{"-loops", "8", "-tickers", "10000"}, stage.Place{Code: "WL1001", Site: `http2\.readFrameHeader|transport\.|tso\.`}},
		{"after", []string{"-loops", "8", "-tickers", "10000", "-bounded"}, stage.Place{}},
	}
	r := &stage.Result{
		Story: "tso", Published: 4.368 / 0.5, Machine: stage.Machine(), Versions: map[string]string{"pd": pdVersion, "pd/client": clientVersion},
		Notes: []string{published},
	}
	for _, a := range arms {
		if s.Short && a.name != "quiet" && a.name != "before" && a.name != "after" {
			continue
		}
		got, err := one(ctx, s, client, pd, a)
		if err != nil {
			return nil, err
		}
		r.Arms = append(r.Arms, got)
	}
	r.Compare("before", "after", stage.P50)
	return r, nil
}

// one runs the client in one way, under transactions at a fixed rate.
func one(ctx context.Context, s *stage.Stage, client, pd string, a arm) (stage.Arm, error) {
	ports, err := freeport.Find(1)
	if err != nil {
		return stage.Arm{}, err
	}
	address := "127.0.0.1:" + ports[0]
	service, err := s.Start(ctx, stage.Program{
		Name: "the client, " + a.name, Ready: "http://" + address + "/ready",
		Args: append([]string{client, "-listen", address, "-pd", pd}, a.args...),
	})
	if err != nil {
		return stage.Arm{}, err
	}
	defer service.Stop()
	long := 10 * time.Second
	if s.Short {
		long = 4 * time.Second
	}
	o := load.Options{
		Targets: []load.Target{{URL: "http://" + address + "/txn"}},
		Phases:  []load.Phase{{From: perSecond, To: perSecond, Duration: long + 2*time.Second}},
		Warmup:  2 * time.Second, Seed: 1,
	}
	var file string
	measured, err := stage.While(ctx, o, func() (err error) {
		time.Sleep(o.Warmup)
		file, err = s.Record(ctx, "tso-"+strings.NewReplacer(" ", "-", ",", "").Replace(a.name), address, long)
		return err
	})
	if err != nil {
		return stage.Arm{}, err
	}
	if err := service.Stop(); err != nil {
		return stage.Arm{}, err
	}
	got, err := s.Judge(ctx, a.name, file, a.expected)
	got.Measure(measured)
	if measured.Errors > 0 {
		s.Say("%d of %d requests failed: %s", measured.Errors, measured.Requests, measured.Reasons[0].Text)
	}
	return got, err
}

// perSecond is how many transactions begin, at random.
const perSecond = 300
