package service_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

// TestOtherVersions builds a service that uses all of these packages with the oldest Go that they are for and with
// a newer one than they were written with, each by its own tools, and runs it. The development branch has no
// toolchain at the module proxy, so it is not among them.
func TestOtherVersions(t *testing.T) {
	if os.Getenv("WHYLATE_FULL") != "1" {
		t.Skip("fetches Go toolchains: only with WHYLATE_FULL=1 (.ci/full)")
	}
	directory := must.Have(filepath.Abs("."))(t)
	source := must.Have(os.ReadFile("testdata/all.go.txt"))(t)
	for version, says := range map[string]string{
		"go1.24.0": "recorder false built with a Go version before 1.25, which has no flight recorder",
		"go1.27.4": "recorder true",
	} {
		t.Run(version, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{
				"go.mod":  "module example.com/svc\n\ngo 1.24\n\nrequire github.com/whylate/whylate/service v0.0.0\n\nreplace github.com/whylate/whylate/service => " + directory + "\n",
				"main.go": string(source),
			} {
				must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			run := func(name string, args ...string) (string, error) {
				cmd := exec.CommandContext(ctx, name, args...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "GOTOOLCHAIN="+version, "GOWORK=off", "GOFLAGS=-mod=mod")
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			if out, err := run("go", "version"); err != nil {
				t.Skipf("there is no %s here: %v %s", version, err, out)
			}
			if out, err := run("go", "build", "-o", "svc", "."); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			out, err := run(filepath.Join(dir, "svc"), filepath.Join(dir, "flight"))
			check.True(t, err == nil && strings.Contains(out, version+"\n") && strings.Contains(out, says) && strings.HasSuffix(out, "all is well\n"),
				"%v: %s", err, out)
		})
	}
}
