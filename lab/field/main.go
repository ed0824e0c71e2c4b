// Command field records real programs under load, as their users meet them. It makes the corpus: recordings
// of a second or two, of healthy programs and of programs with a known fault, each with its truth, which TestField judges and
// docs/internals/accuracy.md sums up:
//
//	go run ./lab/field -corpus                    # all; builds for half an hour the first time
//	go run ./lab/field -corpus -only '^etcd'      # those with a matching name
//	go run ./lab/field -corpus -truth             # only write the truths of the tables below
//	go run ./lab/field -corpus -held -out DIR     # the held-out entries (entries_held.go), which no rule was written with
//	go run ./lab/field -corpus -stories DIR       # arms of the stories (entries_stories.go), cut from a full run of them:
//	                                              # cd stories && go run . all --html DIR --json DIR/all.json
//
// A recording is an entry in a table (entries.go) with program, arguments, load and truth. A program is a module at a fixed
// version, or a small program in lab/field/programs that uses a module's packages. The directories there are modules
// outside of go.work.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"

	"github.com/whylate/whylate/internal/testing/testprog"
)

func main() {
	out := flag.String("out", testprog.FieldDir, "directory of the recordings")
	nameFilter := flag.String("only", "", "only recordings whose name matches this regular expression")
	makeCorpus := flag.Bool("corpus", false, "record the corpus, replacing existing recordings")
	truths := flag.Bool("truth", false, "with -corpus: record nothing; write the table's truths to existing recordings")
	heldOut := flag.Bool("held", false, "with -corpus: record the held-out entries instead; not into "+testprog.FieldDir)
	build := flag.Bool("build", false, "with -corpus: only build the programs")
	stories := flag.String("stories", "", "with -corpus: store arms of the stories, from a full run that wrote recordings and "+resultsFile+" in this directory")
	busy := flag.Bool("spin", false, "use a CPU for half a minute")
	flag.Parse()
	if *busy {
		useCPU()
		return
	}
	if !*makeCorpus || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	verb := func() error { return runCorpus(*out, *nameFilter, *truths, *build, *heldOut) }
	if *stories != "" {
		verb = func() error { return runArms(*stories, *out, *nameFilter) }
	}
	if err := verb(); err != nil {
		fmt.Fprintln(os.Stderr, "field:", err)
		os.Exit(1)
	}
}

func runCorpus(dir, nameFilter string, truths, build, heldOut bool) error {
	match, err := regexp.Compile(nameFilter)
	if err != nil {
		return err
	}
	table := entries
	switch {
	case heldOut && dir == testprog.FieldDir && !build:
		return errors.New("held-out recordings do not belong to the corpus: name a directory with -out")
	case heldOut:
		table = heldOutEntries
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch {
	case truths:
		return rewriteTruths(table, dir, match)
	case build:
		return buildAll(ctx, table, match)
	}
	return recordEntries(ctx, table, dir, match)
}

func runArms(run, dir, nameFilter string) error {
	match, err := regexp.Compile(nameFilter)
	if err != nil {
		return err
	}
	return storeArms(run, dir, match)
}

// prepareDirs creates the directory for results and a temporary one, which the caller removes, and builds whylate there.
func prepareDirs(ctx context.Context, out string) (tmp, whylate string, err error) {
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

// runCommand runs a program and forwards its output.
func runCommand(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stderr, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	return cmd.Run()
}
