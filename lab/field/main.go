// Field records real programs under load, as somebody meets them who has a slow
// service that he did not write. It makes the corpus: recordings of a second or
// two of real programs, healthy ones and ones with a known fault, each with its
// truth, which TestField judges and docs/internals/accuracy.md sums up:
//
//	go run ./lab/field -corpus                    # all of them; builds for half an hour the first time
//	go run ./lab/field -corpus -only '^etcd'      # those of a matching name
//	go run ./lab/field -corpus -truth             # only the truths, as the tables below say them now
//	go run ./lab/field -corpus -marks             # those that can mark their requests, with and without marks, as a table
//	go run ./lab/field -corpus -held -out DIR     # those that are held out (entries_held.go), which no rule was made with
//	go run ./lab/field -corpus -stories DIR       # arms of the stories (entries_stories.go), cut out of a full run of them:
//	                                              # cd stories && go run . all --html DIR --json DIR/all.json
//
// A recording is an entry in a table (entries.go): program, arguments, load,
// and what must be said of it. Programs are modules at a fixed version as they
// are, or small mains around a module's packages in lab/field/programs, which
// is a module of its own, outside of go.work.
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
	nameFilter := flag.String("only", "", "those whose name matches this regular expression")
	makeCorpus := flag.Bool("corpus", false, "make the recordings of the corpus, over those that are there")
	truths := flag.Bool("truth", false, "with -corpus: record nothing; write the table's truths beside the recordings that are there")
	heldOut := flag.Bool("held", false, "with -corpus: the entries that are held out of the corpus instead; not into "+testprog.FieldDir)
	build := flag.Bool("build", false, "with -corpus: only build the programs")
	stories := flag.String("stories", "", "with -corpus: keep the arms of the stories, of a full run that left recordings and "+resultsFile+" in this directory")
	marks := flag.Bool("marks", false, "with -corpus: record programs of ours with their requests marked, and print how what is said of them with and without marks agrees with the log that they wrote")
	busy := flag.Bool("spin", false, "be a busy neighbour for half a minute")
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
	switch {
	case *stories != "":
		verb = func() error { return runArms(*stories, *out, *nameFilter) }
	case *marks:
		verb = func() error { return runMarks(*nameFilter) }
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
		return errors.New("what is held out is not kept beside the corpus: name a directory by -out")
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

// prepareDirs makes the directory for results and a temporary one, which the caller removes, and builds whylate there.
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

// runCommand runs a program with its output to ours.
func runCommand(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stderr, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	return cmd.Run()
}
