package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

type prover struct {
	dir    string
	length time.Duration
	tries  int
}

// A row is a case that was run.
type row struct {
	provableChange
	before, after figures // the client's clock
	p50, p99      estimate
	check         *check // nil: too few requests for a check
	noise         noise
	isVoid        bool
	tailProven    bool // both runs have enough requests for a 99th percentile
}

type figures struct {
	count    int
	p50, p99 time.Duration
}

type estimate struct{ Est, Low, High time.Duration }

// A check compares the prediction with requests of the trace before the change.
type check struct {
	Requests int
	P50NS    time.Duration
	Agrees   bool
}

// prove runs a case until the machine was quiet, and returns the quietest run.
func (p *prover) prove(ctx context.Context, c provableChange) (row, error) {
	var best row
	var failed error
	done := false
	for range p.tries {
		r, err := p.runOnce(ctx, c)
		if err != nil {
			failed = err
			continue
		}
		if !done || r.noise.compare(best.noise) < 0 {
			best, done = r, true
		}
		if !best.isVoid {
			break
		}
	}
	if !done {
		return row{}, failed
	}
	return best, nil
}

func (p *prover) runOnce(ctx context.Context, c provableChange) (row, error) {
	r := row{provableChange: c}
	dir := filepath.Join(p.dir, c.service)
	r.noise = r.noise.maxOf(measureNoise())
	before, err := p.runService(ctx, c.service, dir, "-fix=false")
	if err != nil {
		return r, err
	}
	r.noise = r.noise.maxOf(measureNoise())
	changed := c.setting
	if changed == nil {
		changed = []string{"-fix=true"}
	}
	after, err := p.runService(ctx, c.service, dir+"-fixed", changed...)
	if err != nil {
		return r, err
	}
	r.noise = r.noise.maxOf(measureNoise())
	r.isVoid = r.noise.isVoid()
	r.before, r.after = before.figures(), after.figures()
	r.tailProven = before.Traced.Count >= 100 && r.after.count >= 100
	predicted, err := p.predict(ctx, c, filepath.Join(dir, c.service+".trace"), before)
	r.p50, r.p99, r.check = predicted.P50NS, predicted.P99NS, predicted.Check
	return r, err
}

// An outcome is the used part of truth.json.
type outcome struct {
	Service struct {
		Truth struct {
			Kind, Group string
		}
	}
	Client, Traced struct {
		Count int
		P50NS int64 `json:"p50_ns"`
		P99NS int64 `json:"p99_ns"`
	}
}

func (o *outcome) figures() figures {
	return figures{o.Client.Count, time.Duration(o.Client.P50NS), time.Duration(o.Client.P99NS)}
}

func (p *prover) runService(ctx context.Context, service, dir string, flags ...string) (*outcome, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(p.dir, "truth"), append([]string{"run", service, "-o", dir, "-d", p.length.String()}, flags...)...)
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("running the service: %w\n%.500s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "truth.json"))
	if err != nil {
		return nil, fmt.Errorf("reading what the run measured: %w", err)
	}
	o := new(outcome)
	if err := json.Unmarshal(b, o); err != nil {
		return nil, fmt.Errorf("reading truth.json: %w", err)
	}
	return o, nil
}

// A predicted is whylate's answer for a group.
type predicted struct {
	P50NS, P99NS estimate
	Check        *check
}

// predict returns whylate's prediction for the slow group.
func (p *prover) predict(ctx context.Context, c provableChange, trace string, o *outcome) (predicted, error) {
	args := []string{"explain", "--json"}
	for _, change := range c.changes {
		args = append(args, "--what-if", change)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(p.dir, "whylate"), append(args, trace)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return predicted{}, fmt.Errorf("running whylate: %w\n%.500s", err, stderr.Bytes())
	}
	var rep struct {
		Groups []struct {
			ID, Kind string
			Entry    *struct{ Func string }
		}
		WhatIf []struct {
			Group     string
			Predicted predicted
		} `json:"what_if"`
	}
	// The keys p50_ns and p99_ns do not match the fields' names.
	out = bytes.ReplaceAll(bytes.ReplaceAll(out, []byte(`"p50_ns"`), []byte(`"P50NS"`)), []byte(`"p99_ns"`), []byte(`"P99NS"`))
	if err := json.Unmarshal(out, &rep); err != nil {
		return predicted{}, fmt.Errorf("reading whylate's answer: %w", err)
	}
	for _, w := range rep.WhatIf {
		for _, g := range rep.Groups {
			if g.ID == w.Group && g.Kind == o.Service.Truth.Kind && (g.Entry != nil && g.Entry.Func == o.Service.Truth.Group || o.Service.Truth.Group == "") {
				return w.Predicted, nil
			}
		}
	}
	return predicted{}, errors.New("whylate predicts nothing for the slow group")
}

// Noise is the load of the machine by other processes, as an idle process measures it.
type noise struct {
	timerDelay    time.Duration // 90th percentile
	runQueueShare float64       // share of the wall time for which it waited for a processor
}

// An idle machine stays below these limits. The kernel counts waking up as waiting, too: on an idle virtual machine 0.1 ms of
// each round of 1.3 ms.
const (
	quietLate  = 2 * time.Millisecond
	quietQueue = 0.20
)

func (n noise) isVoid() bool { return n.timerDelay > quietLate || n.runQueueShare > quietQueue }

func (n noise) maxOf(o noise) noise {
	return noise{max(n.timerDelay, o.timerDelay), max(n.runQueueShare, o.runQueueShare)}
}

// compare orders by noise.
func (n noise) compare(o noise) int {
	a, b := float64(n.timerDelay)/float64(quietLate)+n.runQueueShare/quietQueue, float64(o.timerDelay)/float64(quietLate)+o.runQueueShare/quietQueue
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// measureNoise measures the noise for a while.
func measureNoise() noise {
	var late []time.Duration
	waited, start := schedstat(), time.Now()
	for range 100 {
		t := time.Now()
		time.Sleep(time.Millisecond)
		for end := time.Now().Add(200 * time.Microsecond); time.Now().Before(end); { // something to wait for a processor with
		}
		late = append(late, time.Since(t)-1200*time.Microsecond)
	}
	took := time.Since(start)
	slices.Sort(late)
	return noise{timerDelay: late[len(late)*9/10], runQueueShare: float64(schedstat()-waited) / float64(took)}
}

// schedstat returns how long all threads of this process waited for a processor, in ns; 0 if the kernel does not count it.
func schedstat() (waited int64) {
	files, err := filepath.Glob("/proc/self/task/*/schedstat")
	if err != nil {
		return 0
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(b))
		if len(fields) < 2 {
			continue
		}
		if w, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
			waited += w
		}
	}
	return waited
}
