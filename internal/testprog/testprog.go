// Package testprog builds and runs the programs under lab/ for tests. They
// live in a module of their own because of what they depend on, so a test
// cannot import them; and they are real processes, which is the point.
package testprog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// builds remembers what this test process has built. It is the one piece of
// package state here: every test of a process shall share one build, and tests
// share nothing but packages.
var builds sync.Map // package path -> func() (string, error)

// Build returns the path of the program in the directory pkg, given relative to
// the repository's root ("lab/traceprog"). It is built at most once a process,
// through go.work, whatever the tests' own module flags are. A program that
// needs cgo is skipped where there is no C compiler; a missing go tool or
// go.work skips as well, with the reason; a failing build fails the test.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	once, _ := builds.LoadOrStore(pkg, sync.OnceValues(func() (string, error) { return build(pkg) }))
	path, err := once.(func() (string, error))()
	var missing *missingError
	switch {
	case errors.As(err, &missing):
		t.Skipf("%s cannot be built here: %v", pkg, missing)
	case err != nil:
		t.Fatal(err)
	}
	return path
}

// missingError says what this machine lacks.
type missingError struct{ what string }

func (e *missingError) Error() string { return e.what }

func build(pkg string) (string, error) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		return "", &missingError{"the go tool is not on the PATH"}
	}
	root, err := findRoot()
	if err != nil {
		return "", err
	}
	env := append(os.Environ(), "GOWORK="+filepath.Join(root, "go.work"), "GOFLAGS=-buildvcs=false", "CGO_ENABLED=0")
	if cgo, _ := filepath.Match("lab/*/cgo", filepath.ToSlash(pkg)); cgo {
		env[len(env)-1] = "CGO_ENABLED=1"
		if err := findCC(goTool, env); err != nil {
			return "", err
		}
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("whylate-testprog-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("creating the directory for test programs: %w", err)
	}
	removeOld(dir)
	tmp, err := os.MkdirTemp(dir, "build")
	if err != nil {
		return "", fmt.Errorf("creating the directory for test programs: %w", err)
	}
	defer os.RemoveAll(tmp)
	exe := filepath.Join(tmp, "prog")
	cmd := exec.Command(goTool, "build", "-o", exe, "./"+filepath.ToSlash(pkg))
	cmd.Dir, cmd.Env = root, env
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return keep(dir, exe, pkg)
}

// keep moves a fresh program to a name made from its content, so that test
// processes running at the same time neither disturb each other nor leave a
// copy each.
func keep(dir, exe, pkg string) (string, error) {
	f, err := os.Open(exe)
	if err != nil {
		return "", fmt.Errorf("reading the built %s: %w", pkg, err)
	}
	h := sha256.New()
	_, err = io.Copy(h, f)
	f.Close()
	if err != nil {
		return "", fmt.Errorf("reading the built %s: %w", pkg, err)
	}
	name := fmt.Sprintf("%s-%x", strings.ReplaceAll(filepath.ToSlash(pkg), "/", "-"), h.Sum(nil)[:8])
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	final := filepath.Join(dir, name)
	if _, err := os.Stat(final); err == nil {
		now := time.Now()
		os.Chtimes(final, now, now) // still in use; failing only makes it go earlier
		return final, nil
	}
	if err := os.Rename(exe, final); err != nil {
		if _, statErr := os.Stat(final); statErr != nil {
			return "", fmt.Errorf("keeping the built %s: %w", pkg, err)
		}
	}
	return final, nil
}

// removeOld deletes programs that no test has asked for in a day. Errors are of
// no consequence: the next run tries again.
func removeOld(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

// findRoot walks up from the working directory, which in a test is that of the
// package under test, to the directory with go.work.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository's root: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", &missingError{"no go.work above the working directory: the lab is only there in the repository itself"}
		}
		dir = up
	}
}

func findCC(goTool string, env []string) error {
	cmd := exec.Command(goTool, "env", "CC")
	cmd.Env = env
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("asking go for the C compiler: %w", err)
	}
	cc := strings.Fields(string(out))
	if len(cc) == 0 {
		return &missingError{"go names no C compiler"}
	}
	if _, err := exec.LookPath(cc[0]); err != nil {
		return &missingError{"the C compiler " + cc[0] + " is not on the PATH"}
	}
	return nil
}

// Facts is what a trace program did inside its trace, by its own count.
type Facts struct {
	Scenario string           `json:"scenario"`
	Go       string           `json:"go"`
	Procs    int              `json:"gomaxprocs"`
	Bytes    int64            `json:"bytes"`
	Facts    map[string]int64 `json:"facts"`
}

// limit bounds one run of a trace program: far above what any scenario takes on
// a machine that is fully loaded otherwise.
const limit = 2 * time.Minute

// Record runs a scenario of lab/traceprog, or of lab/traceprog/cgo if its name
// begins with "cgo-", and returns the trace and the program's own count of what
// it did. args are further flags of the program: "-d", "300ms". A scenario that
// fails, fails the test.
func Record(t testing.TB, name string, args ...string) ([]byte, Facts) {
	t.Helper()
	pkg := "lab/traceprog"
	if strings.HasPrefix(name, "cgo-") {
		pkg = "lab/traceprog/cgo"
	}
	prog := Build(t, pkg)
	path := filepath.Join(t.TempDir(), name+".trace")
	stdout := runLimited(t, prog, append([]string{name, "-o", path}, args...)...)
	var facts Facts
	if err := json.Unmarshal(stdout, &facts); err != nil {
		t.Fatalf("reading what %s %s did: %v", pkg, name, err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("reading the trace of %s %s: %v", pkg, name, err)
	}
	return data, facts
}

// Trace is Record without the count.
func Trace(t testing.TB, name string, args ...string) []byte {
	t.Helper()
	data, _ := Record(t, name, args...)
	return data
}

// What lab/truth reports; its packages catalog and load say what each field
// means.
type (
	// Site is a place in the source. File is relative to the repository's root;
	// a Line of 0 stands for the whole function.
	Site struct {
		Func string `json:"func"`
		File string `json:"file"`
		Line int    `json:"line"`
	}

	// Summary of the requests of the slow group.
	Summary struct {
		Count    int     `json:"count"`
		Failed   int     `json:"failed"`
		MeanNS   int64   `json:"mean_ns"`
		MinNS    int64   `json:"min_ns"`
		P10NS    int64   `json:"p10_ns"`
		P50NS    int64   `json:"p50_ns"`
		P90NS    int64   `json:"p90_ns"`
		P99NS    int64   `json:"p99_ns"`
		MaxNS    int64   `json:"max_ns"`
		DueP99NS int64   `json:"due_p99_ns"`
		Share    float64 `json:"share"`
	}

	// Service is an entry of the catalog.
	Service struct {
		Name  string `json:"name"`
		Proto string `json:"proto"`
		Truth struct {
			Kind       string   `json:"kind"`
			Group      string   `json:"group"`
			OrGroups   []string `json:"or_groups"`
			Cause      string   `json:"cause"`
			OrCauses   []string `json:"or_causes"`
			Site       Site     `json:"site"`
			OrSites    []Site   `json:"or_sites"`
			UserSite   *Site    `json:"user_site"`
			Second     *Site    `json:"second"`
			Via        []string `json:"via"`
			InjectedNS int64    `json:"injected_ns"`
			LeastNS    int64    `json:"least_ns"`
			Share      float64  `json:"share"`
			ShareMin   float64  `json:"share_min"`
			Unmeasured bool     `json:"unmeasured"`
			Doubt      string   `json:"doubt"`
		} `json:"truth"`
		FixAtMost float64 `json:"fix_at_most"`
		FixInTail bool    `json:"fix_in_tail"`
	}

	// Outcome is what one run measured, apart from any trace.
	Outcome struct {
		Service   Service   `json:"service"`
		Fixed     bool      `json:"fixed"`
		Client    Summary   `json:"client"` // of the whole run
		Traced    Summary   `json:"traced"` // of what lies inside the trace
		Met       Summary   `json:"met"`    // of Traced, those that the fault took at least 100 us of
		TraceFrom time.Time `json:"trace_from"`
		TraceTo   time.Time `json:"trace_to"`
		Share     *float64  `json:"share"` // of the injected fault in Met; nil: not measured
		Lateness  struct {  // of timers while it ran: how quiet the machine was
			P50NS int64 `json:"p50_ns"`
			P99NS int64 `json:"p99_ns"`
			MaxNS int64 `json:"max_ns"`
		} `json:"lateness"`
	}

	// Request is what the client saw of one request, in nanoseconds of its own
	// monotonic clock since Client.Start.
	Request struct {
		Name     string `json:"name"`
		Slow     bool   `json:"slow"`
		Due      int64  `json:"due_ns"`
		Start    int64  `json:"start_ns"`
		First    int64  `json:"first_ns"`
		End      int64  `json:"end_ns"`
		Status   int    `json:"status"`
		BlamedNS int64  `json:"blamed_ns"`
		Err      string `json:"err"`
	}

	// Client is the load generator's account.
	Client struct {
		Start    time.Time          `json:"start"`
		Proto    string             `json:"proto"`
		All      Summary            `json:"all"`
		Slow     Summary            `json:"slow"`
		ByName   map[string]Summary `json:"by_name"`
		Requests []Request          `json:"requests"`
	}
)

// Services returns the catalog of lab/truth.
func Services(t testing.TB) []Service {
	t.Helper()
	out := runLimited(t, Build(t, "lab/truth"), "list", "-json")
	var all []Service
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatalf("reading the catalog of lab/truth: %v", err)
	}
	return all
}

// Truth runs a service of lab/truth under its load, each a process of its own,
// and returns a trace of the service and what was measured beside it. args are
// further flags of "truth run": "-fix", "-d", "2s".
func Truth(t testing.TB, name string, args ...string) (trace []byte, out Outcome, client Client) {
	t.Helper()
	dir := t.TempDir()
	runLimited(t, Build(t, "lab/truth"), append([]string{"run", name, "-o", dir}, args...)...)
	read := func(file string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatalf("reading what lab/truth %s left: %v", name, err)
		}
		return b
	}
	if err := errors.Join(json.Unmarshal(read("truth.json"), &out), json.Unmarshal(read("client.json"), &client)); err != nil {
		t.Fatalf("reading what lab/truth %s left: %v", name, err)
	}
	return read(name + ".trace"), out, client
}

func runLimited(t testing.TB, prog string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, prog, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("running %s %q: %v\n%s", filepath.Base(prog), args, err, stderr.Bytes())
	}
	return out
}
