// Command release makes a release of every module of the repository: a commit whose go.mod files require that version of
// each other, its tags, and the files that a module proxy serves.
//
//	go -C tools run ./release -o DIR v0.1.0            rehearse: only the proxy's files, in DIR
//	go -C tools run ./release -o DIR -tag v0.1.0       leave the commit and its tags in this repository
//
// It works in a clone, on what is committed. Modules are packed in the order in which they need each other: one that
// requires another has that one's checksum in its go.sum. Pushing the tags, as it prints, publishes them; the tool's own comes
// last and alone, because it starts the workflow that makes the packages (docs/internals/release.md), and GitHub starts
// none for more than three tags at once.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/zip"
)

const (
	root    = "github.com/whylate/whylate"
	service = root + "/service"
)

// released are the directories of the modules that others may require, those first that the next ones require. The lab
// is not among them.
var released = []string{"service", ".", "adapters/grpc", "adapters/otel", "adapters/prometheus", "kube", "mcp", "fleet"}

func main() {
	out := flag.String("o", "", "write what a module proxy serves to `directory`")
	tag := flag.Bool("tag", false, "leave the commit and its tags in this repository")
	flag.Parse()
	if err := run(flag.Arg(0), *out, *tag); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(version, out string, tag bool) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version || out == "" {
		return errors.New("usage: release -o DIR [-tag] vMAJOR.MINOR.PATCH")
	}
	repo, err := output(".", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if dirty, err := output(repo, nil, "git", "status", "--porcelain"); err != nil || dirty != "" && tag {
		return errors.Join(err, errors.New("there are changes that are not committed"))
	}
	tmp, err := os.MkdirTemp("", "whylate-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	r := &release{version: version, dir: filepath.Join(tmp, "clone"), out: out, time: time.Now().UTC()}
	if _, err := output(repo, nil, "git", "clone", "-q", "--no-hardlinks", repo, r.dir); err != nil {
		return err
	}
	if r.revision, err = output(r.dir, nil, "git", "rev-parse", "HEAD"); err != nil {
		return err
	}
	if err := r.environment(tmp); err != nil {
		return err
	}
	if err := r.stamp(); err != nil {
		return err
	}
	for _, m := range released {
		if err := r.pack(m); err != nil {
			return fmt.Errorf("%s: %w", r.path(m), err)
		}
		fmt.Println(r.path(m), version)
	}
	if !tag {
		return nil
	}
	return r.tag(repo)
}

type release struct {
	version, revision string
	dir, out          string
	time              time.Time
	env               []string
}

func (r *release) path(m string) string {
	if m == "." {
		return root
	}
	return root + "/" + m
}

// environment makes go commands find the modules packed so far, keep them out of the user's module cache, and take all
// others from that cache first.
func (r *release) environment(tmp string) error {
	cache, err := output(r.dir, nil, "go", "env", "GOMODCACHE")
	if err != nil {
		return err
	}
	proxy, err := output(r.dir, nil, "go", "env", "GOPROXY")
	if err != nil {
		return err
	}
	r.env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -modcacherw", "GOMODCACHE="+filepath.Join(tmp, "mod"), "GONOSUMDB="+root+","+root+"/*",
		"GOPROXY=file://"+r.out+",file://"+filepath.Join(cache, "cache", "download")+","+proxy)
	return nil
}

// stamp writes what a release says of itself into the source: its revision, since a program that is installed from a proxy
// knows its version only, and the version that the job template for GitLab installs.
func (r *release) stamp() error {
	for _, s := range []struct{ file, text, value string }{
		{"internal/cli/released.go", `const releasedFrom = "`, r.revision},
		{"action/gitlab.yml", `WHYLATE_VERSION: "`, r.version},
	} {
		file := filepath.Join(r.dir, filepath.FromSlash(s.file))
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		empty := []byte(s.text + `"`)
		if bytes.Count(text, empty) != 1 {
			return fmt.Errorf("%s does not say %s once", file, empty)
		}
		if err := os.WriteFile(file, bytes.Replace(text, empty, []byte(s.text+s.value+`"`), 1), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// pack makes a module require the released versions of others and writes what a proxy serves of it
// (https://go.dev/ref/mod#goproxy-protocol).
func (r *release) pack(m string) error {
	dir := filepath.Join(r.dir, filepath.FromSlash(m))
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	edit := []string{"go", "mod", "edit"}
	for _, other := range released {
		if bytes.Contains(text, []byte(r.path(other)+" v0.0.0")) {
			edit = append(edit, "-require="+r.path(other)+"@"+r.version)
		}
	}
	if len(edit) > 3 {
		if _, err := output(dir, r.env, edit...); err != nil {
			return err
		}
		if _, err := output(dir, r.env, "go", "mod", "tidy"); err != nil {
			return err
		}
		if text, err = os.ReadFile(filepath.Join(dir, "go.mod")); err != nil {
			return err
		}
	}
	if bytes.Contains(text, []byte("replace ")) || bytes.Contains(text, []byte(" v0.0.0\n")) {
		return errors.New("its go.mod has a replacement, or requires what is not released")
	}
	v := module.Version{Path: r.path(m), Version: r.version}
	at := filepath.Join(r.out, filepath.FromSlash(v.Path), "@v")
	if err := os.MkdirAll(at, 0o777); err != nil {
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": r.version, "Time": r.time.Truncate(time.Second)})
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	if err := zip.CreateFromDir(&packed, v, dir); err != nil {
		return err
	}
	for name, data := range map[string][]byte{"list": []byte(r.version + "\n"), r.version + ".info": info, r.version + ".mod": text, r.version + ".zip": packed.Bytes()} {
		if err := os.WriteFile(filepath.Join(at, name), data, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// tag commits what pack changed and brings the commit, with a tag for each module, into the repository. go.work points at
// the directories for the released version too; modules that are not released go on requiring v0.0.0.
func (r *release) tag(repo string) error {
	steps := [][]string{
		{"go", "work", "edit", "-replace=" + service + "@" + r.version + "=./service", "-replace=" + root + "@" + r.version + "=."},
		{"git", "commit", "-q", "-a", "-m", "release " + r.version},
	}
	var tags []string
	for _, m := range released {
		name := r.version
		if m != "." {
			name = m + "/" + r.version
		}
		tags = append(tags, name)
		steps = append(steps, []string{"git", "tag", "-m", r.path(m) + " " + r.version, name})
	}
	for _, s := range steps {
		if _, err := output(r.dir, append(os.Environ(), "GOWORK="), s...); err != nil {
			return err
		}
	}
	args := []string{"git", "fetch", "-q", r.dir}
	for _, t := range tags {
		args = append(args, "refs/tags/"+t+":refs/tags/"+t)
	}
	if _, err := output(repo, nil, args...); err != nil {
		return err
	}
	fmt.Println("git push origin", strings.Join(slices.DeleteFunc(tags, func(t string) bool { return t == r.version }), " "))
	fmt.Println("git push origin", r.version)
	return nil
}

func output(dir string, env []string, args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}
