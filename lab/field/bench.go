package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/testprog"
)

// recordTest records a benchmark as "go test -bench -trace -cpuprofile" does, and joins the trace and the profile in one file.
func (e *entry) recordTest(ctx context.Context, p program, binary, dir, data string) (*testprog.FieldCase, error) {
	began := time.Now()
	trace, cpu := filepath.Join(data, "trace"), filepath.Join(data, "cpu")
	cmd := exec.CommandContext(ctx, binary, "-test.run", "-", "-test.bench", "^Benchmark"+e.benchmark+"$", "-test.benchtime", "150x", "-test.trace", trace, "-test.cpuprofile", cpu)
	cmd.Dir = data
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	took := time.Since(began)
	raw := filepath.Join(data, e.name+".whylate")
	if err := joinRecording(raw, trace, cpu, bundle.Meta{URL: "go test -bench " + e.benchmark, Start: began, RequestedNS: int64(took), WindowNS: int64(took), ReceivedNS: int64(took)}); err != nil {
		return nil, err
	}
	f := e.newCase(p, 1, "")
	if err := storePacked(f, raw, dir); err != nil {
		return nil, err
	}
	var all sampleLog
	readSamples(bytes.NewReader(out), &all)
	f.Client = all.summary(began, began.Add(took))
	f.Client.Kind = e.loads[0].kind
	return f, nil
}

// joinRecording writes a recording of an existing trace and CPU profile.
func joinRecording(to, trace, cpu string, m bundle.Meta) error {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	w, err := bundle.NewWriter(f, m.Start)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(trace)
	if err != nil {
		return err
	}
	if _, err := w.Write(b); err != nil {
		return err
	}
	if b, err = os.ReadFile(cpu); err != nil {
		return err
	}
	if err := w.Add(bundle.NameCPU, b); err != nil {
		return err
	}
	if err := w.Close(m); err != nil {
		return err
	}
	return f.Close()
}
