// Package stage runs the programs of stories: it fetches and builds them into a cache, starts servers on free loopback ports
// and always stops them, and records and explains services with the whylate command.
package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/report"
)

// A Stage is the environment of one run of one story. Its methods are for one goroutine. Close stops everything on it.
type Stage struct {
	Short bool // under a minute, for tests
	// Healthy runs the arm with the fault like the one after the fix, to check that the answer about the fault disappears.
	Healthy bool

	dir    string // temporary
	cache  string // fetched and built files, for later runs
	keep   string // directory for recordings and reports; "" for none
	source string // the stories' folder
	arms   *regexp.Regexp
	log    io.Writer
	nets   int // network namespaces so far
	ends   []func() error
}

// Options of a stage.
type Options struct {
	Short bool
	// Healthy disables the fault, see Stage.
	Healthy bool
	Keep    string    // a directory for recordings and pages; "" for none
	Arms    string    // regular expression for the arms to run; "" for all
	Log     io.Writer // progress, a line each
}

// New returns a stage. The caller must close it.
func New(o Options) (*Stage, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return nil, errors.New("the stories' folder is not known: run them with go run . in that folder, without -trimpath")
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	s := &Stage{Short: o.Short, Healthy: o.Healthy, cache: cache, keep: o.Keep, source: filepath.Dir(filepath.Dir(file)), log: o.Log}
	if s.arms, err = regexp.Compile(o.Arms); err != nil {
		return nil, fmt.Errorf("which arms: %w", err)
	}
	if err := os.MkdirAll(s.cache, 0o777); err != nil {
		return nil, err
	}
	if s.keep != "" {
		if s.keep, err = filepath.Abs(s.keep); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(s.keep, 0o777); err != nil {
			return nil, err
		}
	}
	if err := s.makeTempDir(); err != nil {
		return nil, err
	}
	return s, nil
}

// cacheDir returns the directory of fetched and built files.
func cacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache directory: %w", err)
	}
	return filepath.Join(cache, "whylate-stories"), nil
}

// Say prints a line of progress.
func (s *Stage) Say(format string, args ...any) { fmt.Fprintf(s.log, format+"\n", args...) }

// Wants reports whether an arm is to be run; full marks arms that short runs leave out.
func (s *Stage) Wants(arm string, full bool) bool {
	return !(full && s.Short) && (s.arms == nil || s.arms.MatchString(arm))
}

// Temp returns a new directory that lasts as long as the stage.
func (s *Stage) Temp(name string) (string, error) { return os.MkdirTemp(s.dir, name+"-") }

// Close stops everything that was started, in reverse order, and removes the temporary directory.
func (s *Stage) Close() error {
	var errs []error
	for len(s.ends) > 0 {
		end := s.ends[len(s.ends)-1]
		s.ends = s.ends[:len(s.ends)-1]
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// A Missing is a requirement that this machine lacks: the story cannot run here, others can.
type Missing struct{ Name, Remedy string }

func (m *Missing) Error() string { return "no " + m.Name + " here: " + m.Remedy }

// Need checks for a program that a story cannot fetch.
func Need(program, do string) error {
	if _, err := exec.LookPath(program); err != nil {
		return &Missing{program, do}
	}
	return nil
}

// An Explained is a recording with whylate's answer without a hint.
type Explained struct {
	File   string
	Report *report.Report
	Text   string // the terminal output
}

// Record records a service for d, rounded up to seconds, while load runs. Address is host:port of its net/http/pprof. The
// recording goes to the output directory, if there is one.
func (s *Stage) Record(ctx context.Context, name, address string, d time.Duration, flags ...string) (string, error) {
	whylate, err := s.Whylate(ctx)
	if err != nil {
		return "", err
	}
	dir := s.keep
	if dir == "" {
		dir = s.dir
	}
	file := filepath.Join(dir, name+".whylate")
	args := append([]string{"record", "--proxy", "none", "-d", d.String(), "-o", file}, flags...)
	if _, err := s.output(ctx, whylate, append(args, address)...); err != nil {
		return "", fmt.Errorf("recording %s: %w", name, err)
	}
	return file, nil
}

// Explain explains a recording with "whylate explain" and further arguments.
func (s *Stage) Explain(ctx context.Context, file string, args ...string) (*Explained, error) {
	whylate, err := s.Whylate(ctx)
	if err != nil {
		return nil, err
	}
	e := &Explained{File: file}
	out, err := s.output(ctx, whylate, append([]string{"explain", "--json", file}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("explaining %s: %w", file, err)
	}
	e.Report = new(report.Report)
	if err := json.Unmarshal(out, e.Report); err != nil {
		return nil, fmt.Errorf("reading the report of %s: %w", file, err)
	}
	textArgs := append([]string{"explain", "--color", "never", file}, args...)
	if s.keep != "" {
		textArgs = append(textArgs, "--html", pageOf(file))
	}
	text, err := s.output(ctx, whylate, textArgs...)
	if err != nil {
		return nil, fmt.Errorf("explaining %s: %w", file, err)
	}
	e.Text = string(text)
	return e, nil
}

// pageOf returns the page of a recording's report.
func pageOf(file string) string { return strings.TrimSuffix(file, ".whylate") + ".html" }

// output runs a program and returns its standard output; the error contains its standard error.
func (s *Stage) output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = 5 * time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

// RunUnderLoad runs f under load and returns the clients' measurements. The load must be long enough; it ends when f does.
func RunUnderLoad(ctx context.Context, o load.Options, f func() error) (*load.Result, error) {
	loading, stop := context.WithCancel(ctx)
	defer stop()
	type outcome struct {
		res *load.Result
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		res, err := load.Run(loading, o)
		done <- outcome{res, err}
	}()
	err := f()
	out := <-done
	if err == nil {
		err = out.err
	}
	return out.res, err
}
