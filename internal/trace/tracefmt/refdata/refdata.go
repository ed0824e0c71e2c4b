// Package refdata finds the test traces and the fuzz corpus of the reference reader, golang.org/x/exp/trace, in
// the module cache. Only tests use it.
package refdata

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// A Trace is one test trace of the reference reader.
type Trace struct {
	Name string
	Text []byte // the text form, see package tracetext
	// FailurePattern matches the error that the reference reader returns; empty for none.
	FailurePattern string
}

// Dir returns the source directory of the reference reader.
func Dir() (string, error) {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/exp")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("looking for golang.org/x/exp in the module cache: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "trace"), nil
}

// Traces returns the test traces of format v2.
func Traces() ([]Trace, error) {
	dir, err := Dir()
	if err != nil {
		return nil, err
	}
	names, err := filepath.Glob(filepath.Join(dir, "testdata", "tests", "*.test"))
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("no test traces of the reference reader in %s", dir)
	}
	var traces []Trace
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading a test trace: %w", err)
		}
		t := Trace{Name: strings.TrimSuffix(filepath.Base(name), ".test")}
		_, rest, ok1 := bytes.Cut(data, []byte("-- expect --\n"))
		expect, text, ok2 := bytes.Cut(rest, []byte("-- trace --\n"))
		if !ok1 || !ok2 {
			return nil, fmt.Errorf("reading the test trace %s: no expect and trace parts", name)
		}
		t.Text = text
		if pattern, ok := bytes.CutPrefix(bytes.TrimSpace(expect), []byte("FAILURE ")); ok {
			if t.FailurePattern, err = strconv.Unquote(string(pattern)); err != nil {
				return nil, fmt.Errorf("reading the test trace %s: %w", name, err)
			}
		}
		traces = append(traces, t)
	}
	return traces, nil
}

// Seeds returns the inputs of the reference reader's fuzz corpus by name.
func Seeds() (map[string][]byte, error) {
	dir, err := Dir()
	if err != nil {
		return nil, err
	}
	names, err := filepath.Glob(filepath.Join(dir, "testdata", "fuzz", "FuzzReader", "*"))
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("no fuzz corpus of the reference reader in %s", dir)
	}
	seeds := make(map[string][]byte)
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading a fuzz seed: %w", err)
		}
		_, rest, _ := strings.Cut(string(data), "[]byte(")
		quoted, _, ok := strings.Cut(rest, ")\n")
		if !ok {
			quoted = strings.TrimSuffix(strings.TrimSpace(rest), ")")
		}
		seed, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("reading the fuzz seed %s: %w", name, err)
		}
		seeds[filepath.Base(name)] = []byte(seed)
	}
	return seeds, nil
}

// FuzzInputs returns seeds for fuzz targets that read whole traces: the reference reader's seeds and its small
// test traces.
func FuzzInputs() ([][]byte, error) {
	seeds, err := Seeds()
	if err != nil {
		return nil, err
	}
	inputs := slices.Collect(maps.Values(seeds))
	traces, err := Traces()
	if err != nil {
		return nil, err
	}
	for _, tr := range traces {
		data, err := tracetext.Assemble(tr.Text)
		if err != nil {
			return nil, fmt.Errorf("assembling %s: %w", tr.Name, err)
		}
		if len(data) < 10000 {
			inputs = append(inputs, data)
		}
	}
	return inputs, nil
}
