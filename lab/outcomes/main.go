// Command outcomes reads what go test -json prints and writes what a person has to know of it: packages with their times, the
// output of tests that failed, tests that took long, and the tests that were skipped, as lines that .ci/full counts:
//
//	go test -json ./... | go run ./lab/outcomes
//	go test -json ./... | go run ./lab/outcomes -v    the output of all tests, as they write it
//	not proved: whylate/internal/cli.TestDiskFull: only root can mount
//
// The exit status is 1 if a test failed or a package could not be tested.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// longTest is the time in seconds from which a test is named.
const longTest = 20

func main() {
	s := summary{w: os.Stdout, output: map[testName]string{}}
	flag.BoolVar(&s.isVerbose, "v", false, "write the output of all tests")
	flag.Parse()
	if err := s.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "outcomes:", err)
		os.Exit(1)
	}
	if s.hasFailed {
		os.Exit(1)
	}
}

// An event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// testName is a test of a package.
type testName struct{ pkg, test string }

func (n testName) String() string {
	return strings.TrimPrefix(n.pkg, "github.com/whylate/") + "." + n.test
}

// A summary is written while events are read.
type summary struct {
	w         io.Writer
	isVerbose bool
	output    map[testName]string // of tests that have not ended
	hasFailed bool
}

func (s *summary) read(in io.Reader) error {
	for events := json.NewDecoder(bufio.NewReader(in)); ; {
		var e event
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading an event: %w", err)
		}
		if e.Action == "fail" {
			s.hasFailed = true
		}
		if e.Test == "" {
			s.addPackageEvent(e)
		} else {
			s.addTestEvent(e)
		}
	}
}

func (s *summary) addPackageEvent(e event) {
	switch e.Action {
	case "output", "build-output":
		if e.Output != "PASS\n" {
			io.WriteString(s.w, e.Output)
		}
	case "fail": // also of tests that did not end, because of a panic or the time limit
		names := slices.SortedFunc(maps.Keys(s.output), func(a, b testName) int { return strings.Compare(a.String(), b.String()) })
		for _, n := range names {
			if n.pkg == e.Package && !s.isVerbose {
				io.WriteString(s.w, s.output[n])
			}
		}
	}
}

var (
	frameLine   = regexp.MustCompile(`^ *(===|---) (PASS|RUN|PAUSE|CONT|NAME)`)
	messageLine = regexp.MustCompile(`(?m)^ +[\w.]+\.go:\d+: (.*)$`)
)

func (s *summary) addTestEvent(e event) {
	name := testName{e.Package, e.Test}
	switch e.Action {
	case "output":
		if frameLine.MatchString(e.Output) {
			return
		}
		s.output[name] += e.Output
		if s.isVerbose {
			io.WriteString(s.w, e.Output)
		}
		return
	case "fail":
		if !s.isVerbose {
			io.WriteString(s.w, s.output[name])
		}
	case "skip":
		reason := "no reason"
		if found := messageLine.FindAllStringSubmatch(s.output[name], -1); len(found) > 0 {
			reason = found[len(found)-1][1] // that of its skip
		}
		fmt.Fprintf(s.w, "not proved: %v: %s\n", name, reason)
	case "pass":
	default:
		return
	}
	delete(s.output, name)
	if e.Elapsed >= longTest && !strings.Contains(e.Test, "/") {
		fmt.Fprintf(s.w, "      %v takes %.0f s\n", name, e.Elapsed)
	}
}
