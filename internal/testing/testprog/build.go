// Package testprog provides tests with the programs under lab/: with recordings of their runs, and
// with built programs to run. A test cannot import these programs, because they belong to another
// module, and it needs real processes.
package testprog

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"
)

// Explaining hundreds of recordings produces mostly garbage, and collecting it took a fifth of the
// tests' time. A GOGC in the environment takes precedence.
func init() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// builds caches the programs that this test process has built. It is a package variable because tests
// share nothing else.
var builds sync.Map // package path -> func() (string, error)

// Build returns the path of the built program of the directory pkg, given relative to the repository's
// root ("lab/traceprog"). Each process builds a program at most once, through go.work, whatever the
// module flags of the tests are. Without a C compiler it skips tests of a program that needs cgo;
// without a go tool or go.work it skips the test with the reason. A build error fails the test.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	buildOnce, _ := builds.LoadOrStore(pkg, sync.OnceValues(func() (string, error) { return build(pkg) }))
	path, err := buildOnce.(func() (string, error))()
	var missing *missingError
	switch {
	case errors.As(err, &missing):
		t.Skipf("%s cannot be built here: %v", pkg, missing)
	case err != nil:
		t.Fatal(err)
	}
	return path
}

// A missingError names a tool that this machine lacks.
type missingError struct{ text string }

func (e *missingError) Error() string { return e.text }

// build builds a program and returns its path. The error is a *missingError if a tool is missing.
func build(pkg string) (string, error) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		return "", &missingError{"the go tool is not on the PATH"}
	}
	root, err := findRoot()
	if err != nil {
		return "", err
	}
	env := append(os.Environ(), "GOWORK="+filepath.Join(root, "go.work"), "GOFLAGS=-buildvcs=false")
	lab := strings.HasPrefix(filepath.ToSlash(pkg), "lab/") // others are built as tests are, whose packages are compiled already
	if cgo, _ := filepath.Match("lab/*/cgo", filepath.ToSlash(pkg)); lab && !cgo {
		env = append(env, "CGO_ENABLED=0")
	} else if cgo {
		env = append(env, "CGO_ENABLED=1")
		if err := findCC(goTool, env); err != nil {
			return "", err
		}
	}
	dir, err := sharedDir()
	if err != nil {
		return "", err
	}
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
	return storeProgram(dir, exe, pkg)
}

// sharedDir returns the directory in which test processes share programs and unpacked recordings.
var sharedDir = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("whylate-testprog-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("creating the directory that tests share: %w", err)
	}
	removeOld(dir)
	return dir, nil
})

// storeProgram moves the built program exe to a name in dir that is derived from its content, and returns that path. So concurrent test processes do
// not disturb each other, and equal programs are stored once.
func storeProgram(dir, exe, pkg string) (string, error) {
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
		accessed := time.Now()
		os.Chtimes(final, accessed, accessed) // still in use; after an error it is deleted earlier
		return final, nil
	}
	if err := os.Rename(exe, final); err != nil {
		if _, statErr := os.Stat(final); statErr != nil {
			return "", fmt.Errorf("keeping the built %s: %w", pkg, err)
		}
	}
	return final, nil
}

// removeOld deletes files that no test has used for a day. It ignores errors, because the next run
// tries again.
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

// findRoot returns the closest directory with the lab above the working directory, which in a test is
// the directory of its package.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository's root: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "lab", "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", &missingError{"no lab above the working directory: it is only there in the repository itself"}
		}
		dir = up
	}
}

// findCC returns a *missingError if there is no C compiler.
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
