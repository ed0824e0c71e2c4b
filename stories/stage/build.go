package stage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Whylate builds the command from this repository.
func (s *Stage) Whylate(ctx context.Context) (string, error) {
	out := filepath.Join(s.dir, "whylate")
	if _, err := os.Stat(out); err == nil {
		return out, nil
	}
	s.Say("building whylate")
	if err := s.runCommand(ctx, filepath.Dir(s.source), nil, "go", "build", "-o", out, "./cmd/whylate"); err != nil {
		return "", fmt.Errorf("building whylate: %w", err)
	}
	return out, nil
}

// Build builds the Go module in a directory below the stories', with exactly the versions of its go.sum, and returns the
// binary. It builds once for the same sources, module files and version of Go.
func (s *Stage) Build(ctx context.Context, folder string) (string, error) {
	dir := filepath.Join(s.source, filepath.FromSlash(folder))
	sum, err := hashModule(dir)
	if err != nil {
		return "", err
	}
	out := filepath.Join(s.cache, strings.ReplaceAll(folder, "/", "-")+"-"+runtime.Version()+"-"+sum)
	if _, err := os.Stat(out); err == nil {
		return out, nil
	}
	s.Say("building %s (the first time it fetches its modules)", folder)
	// A separate workspace, so that other modules do not change the versions of its dependencies; module service is this
	// repository's.
	service := filepath.Join(filepath.Dir(s.source), "service")
	work := filepath.Join(s.dir, "go.work")
	text := fmt.Sprintf("go 1.26.0\n\nuse %q\n\nuse %q\n\nreplace github.com/whylate/whylate/service v0.0.0 => %q\n", dir, service, service)
	if err := os.WriteFile(work, []byte(text), 0o666); err != nil {
		return "", err
	}
	if err := s.runCommand(ctx, dir, []string{"GOWORK=" + work}, "go", "build", "-o", out+".new", "."); err != nil {
		return "", fmt.Errorf("building %s: %w", folder, err)
	}
	return out, os.Rename(out+".new", out)
}

// BuildHere builds a package of the stories' own module.
func (s *Stage) BuildHere(ctx context.Context, folder string) (string, error) {
	out := filepath.Join(s.dir, strings.ReplaceAll(folder, "/", "-"))
	s.Say("building %s", folder)
	if err := s.runCommand(ctx, s.source, nil, "go", "build", "-o", out, "./"+folder); err != nil {
		return "", fmt.Errorf("building %s: %w", folder, err)
	}
	return out, nil
}

// BuildPackage builds a package of a module at an exact version and returns the binary.
func (s *Stage) BuildPackage(ctx context.Context, module, version, pkg string, flags ...string) (string, error) {
	dir := filepath.Join(s.cache, strings.NewReplacer("/", "_", "@", "_").Replace(pkg+"@"+version)+"-"+runtime.Version())
	out := filepath.Join(dir, "program")
	if _, err := os.Stat(out); err == nil {
		return out, nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	mod := fmt.Sprintf("module story\n\ngo 1.26\n\nrequire %s %s\n", module, version)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o666); err != nil {
		return "", err
	}
	s.Say("building %s@%s (the first time it fetches its modules)", pkg, version)
	args := append(append([]string{"build"}, flags...), "-o", out+".new", pkg)
	if err := s.runCommand(ctx, dir, []string{"GOWORK=off", "GOFLAGS=-mod=mod"}, "go", args...); err != nil {
		return "", fmt.Errorf("building %s@%s: %w", pkg, version, err)
	}
	return out, os.Rename(out+".new", out)
}

// NeedJars checks the requirements of Jars: Java to run them, and Maven if they are not fetched yet.
func NeedJars(folder string, properties ...string) error {
	if err := Need("java", "apt-get install openjdk-17-jre-headless"); err != nil {
		return err
	}
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	if _, err := os.Stat(jarsIn(cache, folder, properties)); err == nil {
		return nil
	}
	return Need("mvn", "apt-get install maven")
}

func jarsIn(cache, folder string, properties []string) string {
	return filepath.Join(cache, strings.Join(append([]string{strings.ReplaceAll(folder, "/", "-")}, properties...), "-"))
}

// Jars fetches the artifacts of a directory's pom.xml from Maven's repositories and returns the directory of jars.
func (s *Stage) Jars(ctx context.Context, folder string, properties ...string) (string, error) {
	out := jarsIn(s.cache, folder, properties)
	if _, err := os.Stat(out); err == nil {
		return out, nil
	}
	tmp, err := s.Temp("jars")
	if err != nil {
		return "", err
	}
	s.Say("fetching the jars of %s", folder)
	args := []string{"-q", "-B", "-f", filepath.Join(s.source, filepath.FromSlash(folder), "pom.xml"), "dependency:copy-dependencies", "-DoutputDirectory=" + tmp}
	for _, p := range properties {
		args = append(args, "-D"+p)
	}
	if err := s.runCommand(ctx, tmp, nil, "mvn", args...); err != nil {
		return "", fmt.Errorf("fetching the jars of %s: %w", folder, err)
	}
	// The temporary folder may be on another file system.
	if err := os.CopyFS(out+".new", os.DirFS(tmp)); err != nil {
		return "", err
	}
	return out, os.Rename(out+".new", out)
}

// hashModule returns a hash of all files of a module.
func hashModule(dir string) (string, error) {
	h := sha256.New()
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %d\n", path, len(b))
		h.Write(b)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", dir, err)
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// runCommand runs a program; its output is in the error.
func (s *Stage) runCommand(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		if len(out) > 2000 {
			out = out[len(out)-2000:]
		}
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
