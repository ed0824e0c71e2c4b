// Command proof compares whylate's predictions with measurements after the change:
//
//	go run ./lab/proof                     # every case, about six minutes
//	go run ./lab/proof -only waitgroup,hub
//	go run ./lab/proof -markdown           # as a Markdown table
//
// For each service of lab/truth in cases.go it records a trace of the faulty service under load and lets `whylate explain
// --what-if` predict the effect of the change that -fix makes. Then it makes the change and measures the latencies by the
// clock of the client, which is another process. Both runs have the same load, an open or a closed loop.
//
// A run on a busy machine proves nothing. An idle process measures, before and after each run, how late timers fire and how
// long threads wait for a processor. Of up to three runs the quietest counts; if none was quiet, the row is void and does not
// count in the sums.
//
// The exit status is 1 if a case could not be run, or if fewer medians are predicted rightly than the published rate leaves to
// chance; 3 if all rows are void.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := runCases(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, errNotProved) {
			fmt.Println("not proved:", err)
			os.Exit(3)
		}
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(1)
	}
}

func runCases(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("proof", flag.ContinueOnError)
	fs.SetOutput(stderr)
	services := fs.String("only", "", "cases to run, by service, separated by commas")
	length := fs.Duration("d", 3*time.Second, "length of each run")
	tries := fs.Int("tries", 3, "runs of a case until the machine was quiet in one")
	markdown := fs.Bool("markdown", false, "write the table for the documentation")
	if err := fs.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "proof")
	if err != nil {
		return fmt.Errorf("creating a directory for results: %w", err)
	}
	defer os.RemoveAll(dir)
	p := &prover{dir: dir, length: *length, tries: *tries}
	if err := p.build(ctx); err != nil {
		return err
	}
	var rows []row
	failed := 0
	for _, c := range cases() {
		if *services != "" && !slices.Contains(strings.Split(*services, ","), c.service) {
			continue
		}
		r, err := p.prove(ctx, c)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed++
			fmt.Fprintf(stderr, "%s: %v\n", c.service, err)
			continue
		}
		rows = append(rows, r)
		fmt.Fprintln(stderr, r.line())
	}
	writeTable(stdout, rows, *markdown)
	if failed > 0 {
		return fmt.Errorf("%d cases could not be run", failed)
	}
	return judge(stdout, rows)
}

// build builds the two programs.
func (p *prover) build(ctx context.Context) error {
	for name, pkg := range map[string]string{"truth": "github.com/whylate/whylate/lab/truth", "whylate": "github.com/whylate/whylate/cmd/whylate"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(p.dir, name), pkg)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", pkg, err, out)
		}
	}
	return nil
}
