package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/capture/kernelprobe"
	capture "github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/lab/internal/child"
)

// pythonRequests is the number of requests in the recording of a peer in Python.
const pythonRequests = 8

// recordPython records, with the kernel's events, a gateway whose peer is phases.py. All requests but the first, which opens the connection,
// are in the recording, so that their sums are those of the peer's log.
func recordPython(dir string) error {
	log := filepath.Join(dir, "phases.log")
	peer := exec.Command("python3", "lab/peers/phases.py", log)
	peer.Stderr = os.Stderr
	out, err := peer.StdoutPipe()
	if err != nil {
		return err
	}
	if err := peer.Start(); err != nil {
		return fmt.Errorf("starting the peer: %w", err)
	}
	defer func() { _ = peer.Process.Kill(); _ = peer.Wait() }()
	var url string
	if _, err := fmt.Fscanln(out, &url); err != nil {
		return err
	}
	gateway, end, err := child.Start("-serve", url, "-takes", "0s")
	if err != nil {
		return err
	}
	defer end()
	if err := ask(context.Background(), gateway); err != nil {
		return err
	}
	asked := make(chan error)
	go func() {
		time.Sleep(700 * time.Millisecond) // the kernel's programs are attached then, and the trace has begun
		var err error
		for range pythonRequests {
			err = errors.Join(err, ask(context.Background(), gateway))
			time.Sleep(2 * time.Millisecond)
		}
		asked <- err
	}()
	opts := capture.Options{Duration: time.Second, NoCPU: true, NoAllocs: true, Proxy: "none", Kernel: func(pid int) (capture.KernelProbe, error) { return kernelprobe.Start(pid) }}
	if _, err := capture.Save(context.Background(), gateway, opts, filepath.Join(dir, "python.whylate"), "(devel)", nil); err != nil {
		return err
	}
	if err := <-asked; err != nil {
		return err
	}
	text, err := os.ReadFile(log)
	if err != nil {
		return err
	}
	sums := map[string]int64{}
	for line := range strings.Lines(string(text[strings.IndexByte(string(text), '\n')+1:])) {
		var begin, end, cpu, slept, locked, synced int64
		if _, err := fmt.Sscan(line, &begin, &end, &cpu, &slept, &locked, &synced); err != nil {
			return err
		}
		for name, ns := range map[string]int64{"answers": 1, "wall_ns": end - begin, "cpu_ns": cpu, "sleep_ns": slept, "lock_ns": locked, "sync_ns": synced} {
			sums[name] += ns
		}
	}
	b, err := json.MarshalIndent(sums, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "python.json"), append(b, '\n'), 0o666)
}
