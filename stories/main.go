//go:build linux

// Command stories repeats published incidents with real servers: it starts the servers of a story, reproduces the slow
// requests, records them, lets whylate explain the recording without a hint, makes the fix, measures again, and prints the
// results next to the published figures. README.md describes the stories.
//
//	go run . STORY...          pubsub, or all
//	go run . --short all       under a minute each, once everything is built
//
// On its first run a story fetches and builds its programs into the user's cache directory.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/stories/container"
	"github.com/whylate/whylate/stories/healthcheck"
	"github.com/whylate/whylate/stories/pool"
	"github.com/whylate/whylate/stories/pubsub"
	"github.com/whylate/whylate/stories/stage"
	"github.com/whylate/whylate/stories/tso"
)

type story struct {
	name string
	// need checks for the requirements that the story cannot fetch.
	need func() error
	run  func(context.Context, *stage.Stage) (*stage.Result, error)
}

var stories = []story{
	{"container", stage.NeedQuota, container.Run},
	{"healthcheck", stage.NeedQuota, healthcheck.Run},
	{"pool", stage.NeedQuota, pool.Run},
	{"pubsub", pubsub.Need, pubsub.Run},
	{"tso", func() error { return nil }, tso.Run}, // without packet loss it leaves out an arm
}

func main() {
	stage.Helper()
	short := flag.Bool("short", false, "under a minute a story, once everything is built")
	html := flag.String("html", "", "write recordings, reports as pages, and index.html to this folder")
	arms := flag.String("arms", "", "run only the arms that match this regular expression")
	out := flag.String("json", "", "write the results to this file, a JSON array")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: go run . [flags] STORY...\n\nStories: %s, all\n\n", strings.Join(names(), ", "))
		flag.PrintDefaults()
	}
	var wanted []string
	for flag.Parse(); flag.NArg() > 0; { // flags may come after a story's name
		wanted = append(wanted, flag.Arg(0))
		_ = flag.CommandLine.Parse(flag.Args()[1:]) // it exits on an error
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := runStories(ctx, wanted, stage.Options{Short: *short, Keep: *html, Arms: *arms, Log: os.Stderr}, *out); err != nil {
		fmt.Fprintln(os.Stderr, "stories:", err)
		os.Exit(1)
	}
}

func names() (all []string) {
	for _, s := range stories {
		all = append(all, s.name)
	}
	return all
}

func runStories(ctx context.Context, wanted []string, o stage.Options, out string) error {
	if slices.Equal(wanted, []string{"all"}) {
		wanted = names()
	}
	if len(wanted) == 0 {
		return fmt.Errorf("which story? %s, or all", strings.Join(names(), ", "))
	}
	for _, name := range wanted {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("no story %q: there are %s", name, strings.Join(names(), ", "))
		}
	}
	results := []*stage.Result{}
	var errs, missing []error
	var runnable []story
	for _, s := range stories {
		if !slices.Contains(wanted, s.name) {
			continue
		}
		if err := s.need(); err != nil {
			missing = append(missing, fmt.Errorf("%s: %w", s.name, err))
			continue
		}
		runnable = append(runnable, s)
	}
	if len(runnable) > 0 {
		for _, err := range missing { // now, because the other stories take minutes
			fmt.Fprintln(o.Log, err)
		}
	}
	errs = append(errs, missing...)
	for _, s := range runnable {
		r, err := runStory(ctx, s.run, o)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
			if ctx.Err() != nil {
				break
			}
			continue
		}
		results = append(results, r)
		if err := r.WriteText(os.Stdout); err != nil {
			return err
		}
		for _, a := range r.Arms {
			if !a.Right {
				errs = append(errs, fmt.Errorf("%s: the first finding of the arm %s is not the expected one", s.name, a.Name))
			}
		}
	}
	if o.Keep != "" && len(results) > 0 {
		var page bytes.Buffer
		err := stage.WriteHTML(&page, results)
		if err == nil {
			err = write(filepath.Join(o.Keep, "index.html"), page.Bytes())
		}
		errs = append(errs, err)
	}
	if out != "" {
		b, err := json.MarshalIndent(results, "", "  ")
		if err == nil {
			err = write(out, append(b, '\n'))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func runStory(ctx context.Context, story func(context.Context, *stage.Stage) (*stage.Result, error), o stage.Options) (r *stage.Result, err error) {
	s, err := stage.New(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	// Built before the load starts, because a build would disturb the measurement.
	if _, err := s.Whylate(ctx); err != nil {
		return nil, err
	}
	r, err = story(ctx, s)
	if err != nil {
		return nil, err
	}
	r.Date, r.Short, r.Machine = time.Now().UTC().Format(time.DateOnly), o.Short, stage.Machine()
	return r, nil
}

func write(name string, b []byte) error {
	f, err := atomicfile.Create(name)
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Commit()
}
