package testprog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
)

// Dir is the directory of recordings, relative to the repository's root. It belongs to the lab's
// module, so that users who install the tool do not download it.
const Dir = "lab/recordings"

// Metadata is the content of the JSON file next to a recording.
type Metadata struct {
	Program string          `json:"program"` // directory of the program
	Args    []string        `json:"args"`
	Go      string          `json:"go"`
	Machine string          `json:"machine"` // system, architecture, number of CPUs
	Date    string          `json:"date"`
	Facts   *Facts          `json:"facts,omitempty"` // of a scenario of lab/traceprog
	Truth   json.RawMessage `json:"truth,omitempty"` // truth.json of a run of lab/truth
}

// Facts are the counts that a trace program kept of its actions during its trace.
type Facts struct {
	Scenario string           `json:"scenario"`
	Go       string           `json:"go"`
	Procs    int              `json:"gomaxprocs"`
	Bytes    int64            `json:"bytes"`
	Facts    map[string]int64 `json:"facts"`
}

// runTimeout bounds one run of a program. It is far longer than any scenario takes on a fully loaded
// machine.
const runTimeout = 2 * time.Minute

// Record returns the trace of a program of Programs and the program's counts: from the recording, or
// with testfull.IsEnabled from a new run. A program that fails, fails the test.
func Record(t testing.TB, name string) ([]byte, Facts) {
	t.Helper()
	all := Programs()
	i := slices.IndexFunc(all, func(p Program) bool { return p.Name == name })
	must.True(t, i >= 0, "testprog.Programs has no %q", name)
	if !testfull.IsEnabled() {
		trace, metadata := readRecording(t, "programs", name)
		must.True(t, metadata.Facts != nil, "the recording of %s does not say what the program did", name)
		return trace, *metadata.Facts
	}
	p := &all[i]
	path := filepath.Join(t.TempDir(), name+".trace")
	stdout := must.Have(run(Build(t, p.Package()), append(slices.Clone(p.Args), "-o", path)...))(t)
	var facts Facts
	if err := json.Unmarshal(stdout, &facts); err != nil {
		t.Fatalf("reading what %s did: %v", name, err)
	}
	data, err := os.ReadFile(path)
	must.True(t, err == nil, "reading the trace of %s: %v", name, err)
	return data, facts
}

// Trace is Record without the counts.
func Trace(t testing.TB, name string) []byte {
	t.Helper()
	data, _ := Record(t, name)
	return data
}

// A Recorded is the recording of a run of lab/truth.
type Recorded struct {
	Trace  []byte
	Host   []byte // host samples; nil for most services
	Truth  []byte // truth.json: the service's properties and measurements
	Client []byte // client.json: the client's measurement of each request; nil if not stored
}

// Service returns the recording of a service of lab/truth, or of one of Runs, by name. A missing one fails the test.
func Service(t testing.TB, name string) *Recorded {
	t.Helper()
	trace, metadata := readRecording(t, "truth", name)
	dir := RecordingsDir(t)
	return &Recorded{
		Trace: trace, Truth: metadata.Truth,
		Host:   readPacked(t, filepath.Join(dir, "truth", name+".host.jsonl"), true),
		Client: readPacked(t, filepath.Join(dir, "truth", name+".client.json"), true),
	}
}

// Services returns the names of all recordings of lab/truth.
func Services(t testing.TB) (names []string) {
	t.Helper()
	files := must.Have(filepath.Glob(filepath.Join(RecordingsDir(t), "truth", "*.trace"+Packed)))(t)
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".trace"+Packed))
	}
	return names
}

// RunService runs a service of lab/truth and its load in separate processes, whatever
// testfull.IsEnabled returns. args are those of "truth run": the service, then flags.
func RunService(t testing.TB, args ...string) (*Recorded, error) {
	t.Helper()
	dir := t.TempDir()
	if _, err := run(Build(t, "lab/truth"), append([]string{"run", args[0], "-o", dir}, args[1:]...)...); err != nil {
		return nil, err
	}
	var r Recorded
	for file, target := range map[string]*[]byte{args[0] + ".trace": &r.Trace, args[0] + ".host.jsonl": &r.Host, "truth.json": &r.Truth, "client.json": &r.Client} {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil && !(errors.Is(err, fs.ErrNotExist) && target != &r.Truth) {
			return nil, err
		}
		*target = b
	}
	return &r, nil
}

// run runs a program, for runTimeout at most, and returns its standard output; the error has its standard error.
func run(prog string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, prog, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running %s %q: %w\n%s", filepath.Base(prog), args, err, stderr.Bytes())
	}
	return out, nil
}

// RecordingsDir returns the directory of all recordings. It skips the test if only the tool's module
// is present.
func RecordingsDir(t testing.TB) string {
	t.Helper()
	root, err := findRoot()
	if err != nil {
		t.Skip(err)
	}
	return filepath.Join(root, filepath.FromSlash(Dir))
}

// Recording returns the path of an unpacked recording, given its path below Dir without Packed. It
// skips the test if there are no recordings.
func Recording(t testing.TB, name string) string {
	t.Helper()
	return must.Have(unpackedPath(filepath.Join(RecordingsDir(t), filepath.FromSlash(name))))(t)
}

// readRecording returns the trace and the metadata of a recording; kind is its directory, such as "truth". A missing one fails the test.
func readRecording(t testing.TB, kind, name string) (trace []byte, metadata Metadata) {
	t.Helper()
	dir := filepath.Join(RecordingsDir(t), kind)
	text, err := os.ReadFile(filepath.Join(dir, name+".json"))
	must.True(t, err == nil, "%v: go run ./%s makes it", err, Dir)
	if err := json.Unmarshal(text, &metadata); err != nil {
		t.Fatalf("reading %s.json: %v", name, err)
	}
	return readPacked(t, filepath.Join(dir, name+".trace"), false), metadata
}

// readPacked reads a packed file, given its path without Packed. With mayLack it returns nil if the
// file does not exist.
func readPacked(t testing.TB, path string, mayLack bool) []byte {
	t.Helper()
	file, err := unpackedPath(path)
	if mayLack && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	must.Do(t, err)
	return must.Have(os.ReadFile(file))(t)
}
