package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"

	"golang.org/x/exp/trace"

	"github.com/whylate/whylate/internal/cli"
	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/explain/groups"
	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// runChild measures one operation on one file, or records a trace, in a child process, and prints the result.
func runChild(c config, args []string, out io.Writer) error {
	switch {
	case len(args) == 2 && slices.Contains(kinds[3:], c.child):
		return recordOwnTrace(c.child, args[0], args[1])
	case c.child == "serve":
		return runServer(args)
	case c.child == "load":
		return sendRequests(args)
	case c.child == "streams":
		return sendStreams(args)
	case c.child == "backend":
		return runBackend()
	}
	if c.child == "stages" {
		return recordStages(args, out)
	}
	if len(args) != 1 && c.child != "command" {
		return fmt.Errorf("a child that measures takes one file, not %q", args)
	}
	f, err := os.Open(args[0])
	if err != nil {
		return fmt.Errorf("opening the trace: %w", err)
	}
	defer f.Close()
	if c.cpu != "" {
		p, err := os.Create(c.cpu)
		if err != nil {
			return fmt.Errorf("creating the profile: %w", err)
		}
		defer p.Close()
		if err := pprof.StartCPUProfile(p); err != nil {
			return fmt.Errorf("profiling: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	work := map[string]func(io.Reader) (int64, error){
		"timelines":  func(r io.Reader) (int64, error) { return decodeTimelines(r, runtime.GOMAXPROCS(0)) },
		"one worker": func(r io.Reader) (int64, error) { runtime.GOMAXPROCS(1); return decodeTimelines(r, 1) },
		"reference":  readReference,
		"command":    func(io.Reader) (int64, error) { return runExplain(args) },
		"explain":    func(r io.Reader) (int64, error) { return explainAll(r, explain.Options{}) },
		"exact":      func(r io.Reader) (int64, error) { return explainAll(r, explain.Options{Exact: true}) },
		"groups":     sumGroups,
	}[c.child]
	if work == nil {
		return fmt.Errorf("nothing to measure is called %q", c.child)
	}
	begin := time.Now()
	events, err := work(f)
	took := time.Since(begin)
	if err != nil {
		return fmt.Errorf("%s: %w", c.child, err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return json.NewEncoder(out).Encode(result{Time: took, Events: events, Mallocs: m.Mallocs, Alloc: m.TotalAlloc, Collections: m.NumGC})
}

// runExplain runs "whylate explain --json", which sets its own memory limit.
func runExplain(files []string) (events int64, err error) {
	var stderr bytes.Buffer
	if status := cli.Run(context.Background(), slices.Concat([]string{"explain", "--json"}, files), nil, io.Discard, &stderr); status != cli.ExitOK {
		return 0, fmt.Errorf("exit status %d: %s", status, stderr.String())
	}
	return 0, nil
}

// decodeTimelines decodes all generations with a window of two.
func decodeTimelines(r io.Reader, workers int) (events int64, err error) {
	rd, err := tracefmt.NewReader(r, tracefmt.Options{})
	if err != nil {
		return 0, err
	}
	dec := timeline.NewDecoder(rd, workers)
	defer dec.Close()
	var window []*timeline.Gen
	for {
		g, err := dec.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		events += g.Events
		if window = append(window, g); len(window) > 2 {
			dec.Recycle(window[0])
			window = append(window[:0], window[1:]...)
		}
	}
}

// readReference reads the trace with golang.org/x/exp/trace. It does not count the events that this reader adds (syncs and
// samples), so that the number is comparable with ours.
func readReference(r io.Reader) (events int64, err error) {
	rd, err := trace.NewReader(bufio.NewReaderSize(r, 1<<20))
	if err != nil {
		return 0, err
	}
	for {
		ev, err := rd.ReadEvent()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		if k := ev.Kind(); k != trace.EventSync && k != trace.EventStackSample {
			events++
		}
	}
}

// sumGroups follows all requests and sums them by group, and nothing else.
func sumGroups(r io.Reader) (events int64, err error) {
	rd, err := tracefmt.NewReader(r, tracefmt.Options{})
	if err != nil {
		return 0, err
	}
	p := pass.New(pass.Options{})
	p.Sums = []pass.Sum{groups.New()}
	err = p.Run(context.Background(), rd)
	return p.Events, err
}

func explainAll(r io.Reader, opts explain.Options) (events int64, err error) {
	rep, err := explain.Explain(context.Background(), r, opts)
	if err != nil {
		return 0, err
	}
	return rep.Input.Events, nil
}
