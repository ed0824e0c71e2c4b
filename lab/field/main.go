// Field records traces of real programs under load, as somebody meets them who
// has a slow service that he did not write:
//
//	go run ./lab/field -out /tmp/field                # etcd and nats-server
//	go run ./lab/field -out /tmp/field -only etcd -d 10s
//	go run ./lab/field -out /tmp/field -only prometheus   # builds for minutes
//
// It builds each program from its Go module at a fixed version (into the
// user's cache directory, so that only the first run takes long), starts it on
// loopback addresses with data in a temporary directory, puts load on it,
// runs `whylate record` and then `whylate explain` on the result, and stops
// it. DIR gets NAME.whylate, NAME.txt (the explanation) and NAME.load.json:
// what the load's clients measured meanwhile, which is what an explanation has
// to agree with.
//
// docs/field-notes.md holds what came of it, checked against the programs'
// sources.
//
// It also makes the corpus: recordings of a second or two of real programs,
// healthy ones and ones with a known fault, each with its truth, which
// TestField judges and docs/accuracy.md sums up:
//
//	go run ./lab/field -corpus                    # all of them; builds for half an hour the first time
//	go run ./lab/field -corpus -only '^etcd'      # those of a matching name
//	go run ./lab/field -corpus -truth             # only the truths, as the tables below say them now
//	go run ./lab/field -corpus -marks             # those that can mark their requests, with and without marks, as a table
//	go run ./lab/field -corpus -held -out DIR     # those that are held out (entries_held.go), which no rule was made with
//
// A recording is an entry in a table (entries.go): program, arguments, load,
// and what must be said of it. Programs are modules at a fixed version as they
// are, or small mains around a module's packages in lab/field/programs, which
// is a module of its own, outside of go.work.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/testing/testprog"
)

func main() {
	out := flag.String("out", "", "directory for results (required)")
	only := flag.String("only", "", "programs to run, by name, separated by commas (etcd,nats if empty): "+strings.Join(names(), ", "))
	duration := flag.Duration("d", 5*time.Second, "length of a recording")
	workers := flag.Int("c", 16, "concurrent clients")
	makeCorpus := flag.Bool("corpus", false, "make the recordings of the corpus whose name matches -only, a regular expression, in -out or "+testprog.FieldDir)
	truths := flag.Bool("truth", false, "with -corpus: record nothing; write the table's truths beside the recordings that are there")
	held := flag.Bool("held", false, "with -corpus: the entries that are held out of the corpus instead; -out is required")
	build := flag.Bool("build", false, "with -corpus: only build the programs")
	marks := flag.Bool("marks", false, "with -corpus: record programs of ours with their requests marked, and print how what is said of them with and without marks agrees with the log that they wrote")
	spins := flag.Bool("spin", false, "be a busy neighbour for half a minute")
	flag.Parse()
	if *spins {
		spin()
		return
	}
	if *makeCorpus && flag.NArg() == 0 {
		do := func() error { return runCorpus(*out, *only, *truths, *build, *held) }
		if *marks {
			do = func() error { return runMarks(*only) }
		}
		if err := do(); err != nil {
			fmt.Fprintln(os.Stderr, "field:", err)
			os.Exit(1)
		}
		return
	}
	if *only == "" {
		*only = "etcd,nats"
	}
	if *out == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *out, strings.Split(*only, ","), *duration, *workers); err != nil {
		fmt.Fprintln(os.Stderr, "field:", err)
		os.Exit(1)
	}
}

func runCorpus(dir, only string, truths, build, held bool) error {
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	table := entries
	switch {
	case held && dir == "" && !build:
		return errors.New("what is held out is not kept beside the corpus: name a directory by -out")
	case held:
		table = heldEntries
	case dir == "":
		dir = testprog.FieldDir
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch {
	case truths:
		return retruth(table, dir, match)
	case build:
		return buildAll(ctx, table, match)
	}
	return corpus(ctx, table, dir, match)
}

// prepare makes the directory for results and a temporary one, which the caller removes, and builds whylate there.
func prepare(ctx context.Context, out string) (tmp, whylate string, err error) {
	if err := os.MkdirAll(out, 0o777); err != nil {
		return "", "", err
	}
	if tmp, err = os.MkdirTemp("", "field"); err != nil {
		return "", "", err
	}
	if whylate, err = buildTool(ctx, tmp); err != nil {
		os.RemoveAll(tmp)
		return "", "", err
	}
	return tmp, whylate, nil
}

func run(ctx context.Context, out string, only []string, duration time.Duration, workers int) error {
	tmp, whylate, err := prepare(ctx, out)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	for _, name := range only {
		p, ok := find(name)
		if !ok {
			return fmt.Errorf("no program %q: there are %s", name, strings.Join(names(), ", "))
		}
		if err := field(ctx, p, whylate, out, filepath.Join(tmp, p.name), duration, workers); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// field does one program.
func field(ctx context.Context, p program, whylate, out, data string, duration time.Duration, workers int) error {
	binary, err := p.build(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(data, 0o777); err != nil {
		return err
	}
	s, err := p.start(ctx, binary, data, nil, nil)
	if err != nil {
		return err
	}
	defer s.stop()

	load, cancel := context.WithCancel(ctx)
	defer cancel()
	measured := make(chan measurement, 1)
	begun := make(chan struct{})
	go func() { measured <- p.load(load, s, workers, begun) }()
	// The first seconds of a server are of another kind than the rest.
	select {
	case m := <-measured:
		return fmt.Errorf("loading it: %w", m.err)
	case <-begun:
	case <-ctx.Done():
		return ctx.Err()
	}
	time.Sleep(2 * time.Second)

	recording := filepath.Join(out, p.name+".whylate")
	record := exec.CommandContext(ctx, whylate, "record", "--json", "--proxy", "none", "-d", duration.String(), "-o", recording, s.pprof)
	record.Stderr = os.Stderr
	said, err := record.Output()
	if err != nil {
		return fmt.Errorf("recording: %w", err)
	}
	cancel()
	m := <-measured
	if m.err != nil {
		return fmt.Errorf("loading it: %w", m.err)
	}
	var recorded struct {
		Recordings []struct {
			Start    time.Time
			WindowNS time.Duration `json:"window_ns"`
		}
	}
	if err := json.Unmarshal(said, &recorded); err != nil || len(recorded.Recordings) != 1 {
		return fmt.Errorf("reading what record said: %w: %s", err, said)
	}
	r := recorded.Recordings[0]
	clients, err := json.MarshalIndent(m.during(r.Start, r.Start.Add(r.WindowNS)), "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, p.name+".load.json"), append(clients, '\n'), 0o666); err != nil {
		return err
	}
	fmt.Printf("%s %s: meanwhile the clients measured\n%s\n", p.name, p.version, clients)

	explained, err := exec.CommandContext(ctx, whylate, "explain", recording).CombinedOutput()
	if err != nil {
		return fmt.Errorf("explaining: %w: %s", err, explained)
	}
	fmt.Printf("%s\n", explained)
	return os.WriteFile(filepath.Join(out, p.name+".txt"), explained, 0o666)
}

// command runs a program with its output to ours.
func command(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stderr, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	return cmd.Run()
}
