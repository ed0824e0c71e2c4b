// Command recordings records the programs of the lab for tests: a trace of each scenario of lab/traceprog and of each service
// of lab/truth, with its truth. The recordings are in this directory, so that tests that compare a diagnosis with the truth
// need no clock and have exact results.
//
//	go run ./lab/recordings              all, on an otherwise idle machine: about five minutes
//	go run ./lab/recordings -only '^h2'  those with a matching name
//	go run ./lab/recordings -truth       only the truths of the services, from today's catalog
//	go run ./lab/recordings -pack x.whylate >lab/recordings/cases/x.whylate.xz, and the reverse: -unpack
//
// Each NAME.trace.xz has a NAME.json with the program and its arguments, Go version, machine, date, and the truth. A run
// during which the machine was not quiet is repeated, up to three times. A test needs a recording that is diagnosed rightly,
// so a recording with another result is repeated by hand: recordings only ensure that a right answer stays right. The live
// runs of .ci/full measure how often answers are right (internal/acceptance/testdata/rates.md).
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/whylate/whylate/internal/testing/testprog"
)

func main() {
	filter := flag.String("only", "", "record those whose name matches `regexp`")
	truth := flag.Bool("truth", false, "record nothing; rewrite the truths of the services")
	pack := flag.String("pack", "", "record nothing; write the recording `FILE`, packed, to the standard output")
	unpack := flag.String("unpack", "", "the reverse of -pack")
	flag.Parse()
	var err error
	switch {
	case *pack != "":
		err = convert(*pack, testprog.Pack)
	case *unpack != "":
		err = convert(*unpack, testprog.Unpack)
	default:
		err = recordAll(*filter, *truth)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "recordings:", err)
		os.Exit(1)
	}
}

// convert writes a packed or unpacked file to the standard output.
func convert(file string, f func([]byte) ([]byte, error)) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if data, err = f(data); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	_, err = os.Stdout.Write(data)
	return err
}

func recordAll(filter string, truth bool) error {
	match, err := regexp.Compile(filter)
	if err != nil {
		return err
	}
	if _, err := os.Stat("go.work"); err != nil {
		return errors.New("run this in the repository's root")
	}
	r := recorder{match: match}
	if r.tmp, err = os.MkdirTemp("", "whylate-recordings-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.tmp)
	if truth {
		return r.rewriteTruths()
	}
	if err := r.recordPrograms(); err != nil {
		return err
	}
	return r.recordServices()
}

type recorder struct {
	match *regexp.Regexp
	tmp   string
}

// build builds a program without paths of this machine.
func (r *recorder) build(pkg string) (string, error) {
	exe := filepath.Join(r.tmp, filepath.Base(pkg)+"-prog")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", exe, "./"+pkg)
	if pkg != "lab/traceprog/cgo" {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return exe, nil
}

func (r *recorder) recordPrograms() error {
	built := map[string]string{}
	for _, p := range testprog.Programs() {
		if !r.match.MatchString(p.Name) {
			continue
		}
		if built[p.Package()] == "" {
			exe, err := r.build(p.Package())
			if err != nil {
				return err
			}
			built[p.Package()] = exe
		}
		file := filepath.Join(r.tmp, "x.trace")
		out, err := runProgram(built[p.Package()], append(slices.Clone(p.Args), "-o", file)...)
		if err != nil {
			return err
		}
		metadata := describe(p.Package(), p.Args)
		metadata.Facts = new(testprog.Facts)
		if err := json.Unmarshal(out, metadata.Facts); err != nil {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := store("programs", p.Name, metadata, map[string][]byte{".trace": data}); err != nil {
			return err
		}
	}
	return nil
}

// listServices returns the services of the catalog, unchanged.
func (r *recorder) listServices() (exe string, services []json.RawMessage, err error) {
	if exe, err = r.build("lab/truth"); err != nil {
		return "", nil, err
	}
	out, err := runProgram(exe, "list", "-json")
	if err != nil {
		return "", nil, err
	}
	return exe, services, json.Unmarshal(out, &services)
}

func nameOf(service json.RawMessage) string {
	var s struct{ Name string }
	json.Unmarshal(service, &s)
	return s.Name
}

func (r *recorder) recordServices() error {
	exe, services, err := r.listServices()
	if err != nil {
		return err
	}
	var runs []testprog.Run
	for _, s := range services {
		runs = append(runs, testprog.RunFor(nameOf(s)))
	}
	for _, run := range append(runs, testprog.Runs()...) {
		if r.match.MatchString(run.Name) {
			if err := r.recordService(exe, &run); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxTimerDelay is the 99th percentile of timer delays up to which a machine must give right shares and latencies.
const maxTimerDelay = 3 * time.Millisecond

func (r *recorder) recordService(exe string, run *testprog.Run) error {
	service := run.Args[0]
	dir := filepath.Join(r.tmp, "run")
	files := map[string][]byte{}
	metadata := describe("lab/truth", append([]string{"run"}, run.Args...))
	for range 3 {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		if _, err := runProgram(exe, append([]string{"run", service, "-o", dir}, run.Args[1:]...)...); err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, "truth.json"))
		if err != nil {
			return err
		}
		metadata.Truth = text
		var o struct {
			Lateness struct {
				P99NS int64 `json:"p99_ns"`
			}
		}
		if err := json.Unmarshal(text, &o); err != nil {
			return err
		}
		if o.Lateness.P99NS < int64(maxTimerDelay) {
			break
		}
	}
	names := map[string]string{".trace": service + ".trace", ".host.jsonl": service + ".host.jsonl"}
	if run.Client {
		names[".client.json"] = "client.json"
	}
	for ext, file := range names {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) && ext == ".host.jsonl" {
			continue
		}
		if err != nil {
			return err
		}
		if ext == ".client.json" { // without indentation
			var b bytes.Buffer
			if err := json.Compact(&b, data); err != nil {
				return err
			}
			data = b.Bytes()
		}
		files[ext] = data
	}
	return store("truth", run.Name, metadata, files)
}

// rewriteTruths replaces the recorded truth of each service by that of today's catalog. Lines stay: they are those of the
// recorded program.
func (r *recorder) rewriteTruths() error {
	_, services, err := r.listServices()
	if err != nil {
		return err
	}
	current := map[string]json.RawMessage{}
	for _, s := range services {
		current[nameOf(s)] = s
	}
	files, err := filepath.Glob(filepath.Join(filepath.FromSlash(testprog.Dir), "truth", "*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var metadata testprog.Metadata
		if err := json.Unmarshal(text, &metadata); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if metadata.Truth, err = testprog.WithService(metadata.Truth, current[metadata.Args[1]]); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := writeJSON(file, metadata); err != nil {
			return err
		}
	}
	return nil
}

func describe(program string, args []string) *testprog.Metadata {
	return &testprog.Metadata{
		Program: program, Args: args, Go: runtime.Version(), Date: time.Now().UTC().Format("2006-01-02"),
		Machine: fmt.Sprintf("%s/%s, %d CPUs", runtime.GOOS, runtime.GOARCH, runtime.NumCPU()),
	}
}

func runProgram(exe string, args ...string) ([]byte, error) {
	cmd := exec.Command(exe, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w\n%s", filepath.Base(exe), args, err, stderr.Bytes())
	}
	return out, nil
}

func store(kind, name string, metadata *testprog.Metadata, files map[string][]byte) error {
	base := filepath.Join(filepath.FromSlash(testprog.Dir), kind, name)
	if err := os.MkdirAll(filepath.Dir(base), 0o777); err != nil {
		return err
	}
	size := 0
	for ext, data := range files {
		packed, err := testprog.Pack(data)
		if err != nil {
			return err
		}
		size += len(packed)
		if err := os.WriteFile(base+ext+testprog.Packed, packed, 0o666); err != nil {
			return err
		}
	}
	fmt.Printf("%7d bytes  %s/%s\n", size, kind, name)
	return writeJSON(base+".json", metadata)
}

func writeJSON(file string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o666)
}
