package auto

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

// TestImportChangesNothingElse builds a service whose go.mod says go 1.24,
// with this module from a module proxy, as a user would: go get, go build.
// Afterwards its go.mod may have one more line: the requirement.
func TestImportChangesNothingElse(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command: ", err)
	}
	const version = "v0.1.0"
	proxy := t.TempDir()
	writeProxy(t, proxy, "github.com/whylate/whylate/service", version)

	dir := t.TempDir()
	const before = "module example.com/service\n\ngo 1.24\n"
	write(t, filepath.Join(dir, "go.mod"), before)
	write(t, filepath.Join(dir, "main.go"), `package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"

	_ "github.com/whylate/whylate/service/auto"
)

// signal is called for each record that was written.
type signal struct {
	slog.Handler
	written chan bool
}

func (s signal) Handle(ctx context.Context, r slog.Record) error {
	defer func() { s.written <- true }()
	return s.Handler.Handle(ctx, r)
}

func main() {
	s := signal{slog.NewJSONHandler(os.Stderr, nil), make(chan bool, 9)}
	slog.SetDefault(slog.New(s))
	<-s.written
	fmt.Println(runtime.GOMAXPROCS(0))
}
`)
	run := func(args ...string) (stdout, stderr string) {
		t.Helper()
		cmd := exec.Command(goTool, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOPROXY=file://"+filepath.ToSlash(proxy), "GOSUMDB=off", "GONOSUMDB=*", "GOPRIVATE=",
			"GOWORK=off", "GOFLAGS=-modcacherw", "GOTOOLCHAIN=local", "GOMODCACHE="+filepath.Join(proxy, "cache"), "WHYLATE_GOMAXPROCS=observe")
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("go %s: %v\n%s%s", strings.Join(args, " "), err, out.Bytes(), errs.Bytes())
		}
		return out.String(), errs.String()
	}
	run("get", "github.com/whylate/whylate/service@"+version)
	run("mod", "tidy")
	out, logged := run("run", ".")
	check.True(t, regexp.MustCompile(`^[1-9][0-9]*\n$`).MatchString(out), "the service printed %q", out)
	check.True(t, strings.Count(logged, "whylate: ") == 1 && strings.Contains(logged, `{"time":`),
		"the service logged, instead of one line of JSON:\n%s", logged)
	after := must.Have(os.ReadFile(filepath.Join(dir, "go.mod")))(t)
	want := before + "\nrequire github.com/whylate/whylate/service " + version + "\n"
	check.True(t, string(after) == want, "go.mod became\n%s\nwant\n%s", after, want)
}

// writeProxy lays this module out as a module proxy serves it
// (go.dev/ref/mod#goproxy-protocol).
func writeProxy(t *testing.T, dir, module, version string) {
	t.Helper()
	root := must.Have(filepath.Abs(".."))(t)
	versionDir := filepath.Join(dir, filepath.FromSlash(module), "@v")
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	must.Do(t, err)
	write(t, filepath.Join(versionDir, "list"), version+"\n")
	write(t, filepath.Join(versionDir, version+".info"), `{"Version":"`+version+`"}`)
	write(t, filepath.Join(versionDir, version+".mod"), string(mod))
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel != "." {
				if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
					return fs.SkipDir // a separate module
				}
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		w, err := z.Create(module + "@" + version + "/" + filepath.ToSlash(rel))
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	})
	must.Do(t, err)
	must.Do(t, z.Close())
	write(t, filepath.Join(versionDir, version+".zip"), buf.String())
}

func write(t *testing.T, name, text string) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(name), 0o755))
	must.Do(t, os.WriteFile(name, []byte(text), 0o644))
}
