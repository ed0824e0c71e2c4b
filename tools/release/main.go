// Command release releases every module of the repository. It creates a commit whose go.mod files require the released version
// of each other, the tags of that commit, and the files that a module proxy serves.
//
//	go -C tools run ./release -o DIR v0.1.0            rehearse: only write the proxy's files to DIR
//	go -C tools run ./release -o DIR -tag v0.1.0       also add the commit and its tags to this repository
//
// It works in a clone, on the committed files. It packs a module after the modules that it requires, because their checksums
// go into its go.sum. It prints the commands that push the tags and so publish the modules. The tool's own tag comes last and
// in a separate push: it starts the workflow that builds the packages (docs/internals/release.md), and GitHub starts no
// workflow for more than three tags at once.
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

// releasedModules are the directories of the modules that other modules may require, each after those that it requires. The
// lab is not released.
var releasedModules = []string{"service", ".", "adapters/grpc", "adapters/otel", "adapters/prometheus", "kube", "mcp", "fleet"}

// main makes a release of the version in its argument.
func main() {
	out := flag.String("o", "", "write what a module proxy serves to `directory`")
	tag := flag.Bool("tag", false, "leave the commit and its tags in this repository")
	flag.Parse()
	if err := makeRelease(flag.Arg(0), *out, *tag); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// makeRelease writes the modules of this repository's commit as a version to the directory out, as a module proxy serves them.
// With tag it also leaves the commit and its tags in the repository, which must have no changes then.
func makeRelease(version, out string, tag bool) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version || out == "" {
		return errors.New("usage: release -o DIR [-tag] vMAJOR.MINOR.PATCH")
	}
	repo, err := runCommand(".", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if dirty, err := runCommand(repo, nil, "git", "status", "--porcelain"); err != nil || dirty != "" && tag {
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
	if _, err := runCommand(repo, nil, "git", "clone", "-q", "--no-hardlinks", repo, r.dir); err != nil {
		return err
	}
	if r.revision, err = runCommand(r.dir, nil, "git", "rev-parse", "HEAD"); err != nil {
		return err
	}
	if err := r.setEnvironment(tmp); err != nil {
		return err
	}
	if err := r.stampVersion(); err != nil {
		return err
	}
	for _, m := range releasedModules {
		if err := r.pack(m); err != nil {
			return fmt.Errorf("%s: %w", r.modulePath(m), err)
		}
		fmt.Println(r.modulePath(m), version)
	}
	if !tag {
		return nil
	}
	return r.commitAndTag(repo)
}

type release struct {
	version, revision string
	dir, out          string
	time              time.Time
	env               []string
}

// modulePath returns the path of the module in directory m of the repository.
func (r *release) modulePath(m string) string {
	if m == "." {
		return root
	}
	return root + "/" + m
}

// setEnvironment lets go commands find the modules packed so far, keeps these out of the user's module cache, and takes all
// other modules from that cache first.
func (r *release) setEnvironment(tmp string) error {
	cache, err := runCommand(r.dir, nil, "go", "env", "GOMODCACHE")
	if err != nil {
		return err
	}
	proxy, err := runCommand(r.dir, nil, "go", "env", "GOPROXY")
	if err != nil {
		return err
	}
	r.env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -modcacherw", "GOMODCACHE="+filepath.Join(tmp, "mod"), "GONOSUMDB="+root+","+root+"/*",
		"GOPROXY=file://"+r.out+",file://"+filepath.Join(cache, "cache", "download")+","+proxy)
	return nil
}

// stampVersion writes the revision into the source, because a program installed from a proxy knows only its version, and the
// version into the job template for GitLab.
func (r *release) stampVersion() error {
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
			return fmt.Errorf("%s does not contain %s exactly once", file, empty)
		}
		if err := os.WriteFile(file, bytes.Replace(text, empty, []byte(s.text+s.value+`"`), 1), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// pack lets a module require the released versions of others and writes the files that a proxy serves for it
// (https://go.dev/ref/mod#goproxy-protocol).
func (r *release) pack(m string) error {
	dir := filepath.Join(r.dir, filepath.FromSlash(m))
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	edit := []string{"go", "mod", "edit"}
	for _, dependency := range releasedModules {
		if bytes.Contains(text, []byte(r.modulePath(dependency)+" v0.0.0")) {
			edit = append(edit, "-require="+r.modulePath(dependency)+"@"+r.version)
		}
	}
	if len(edit) > 3 {
		if _, err := runCommand(dir, r.env, edit...); err != nil {
			return err
		}
		if _, err := runCommand(dir, r.env, "go", "mod", "tidy"); err != nil {
			return err
		}
		if text, err = os.ReadFile(filepath.Join(dir, "go.mod")); err != nil {
			return err
		}
	}
	if bytes.Contains(text, []byte("replace ")) || bytes.Contains(text, []byte(" v0.0.0\n")) {
		return errors.New("its go.mod has a replacement or requires a module that is not released")
	}
	v := module.Version{Path: r.modulePath(m), Version: r.version}
	versionDir := filepath.Join(r.out, filepath.FromSlash(v.Path), "@v")
	if err := os.MkdirAll(versionDir, 0o777); err != nil {
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
		if err := os.WriteFile(filepath.Join(versionDir, name), data, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// commitAndTag commits the changes of pack and brings the commit, with a tag for each module, into the repository. go.work
// maps the released version to the directories, too; modules that are not released still require v0.0.0.
func (r *release) commitAndTag(repo string) error {
	steps := [][]string{
		{"go", "work", "edit", "-replace=" + service + "@" + r.version + "=./service", "-replace=" + root + "@" + r.version + "=."},
		{"git", "commit", "-q", "-a", "-m", "release " + r.version},
	}
	var tags []string
	for _, m := range releasedModules {
		name := r.version
		if m != "." {
			name = m + "/" + r.version
		}
		tags = append(tags, name)
		steps = append(steps, []string{"git", "tag", "-m", r.modulePath(m) + " " + r.version, name})
	}
	for _, s := range steps {
		if _, err := runCommand(r.dir, append(os.Environ(), "GOWORK="), s...); err != nil {
			return err
		}
	}
	args := []string{"git", "fetch", "-q", r.dir}
	for _, t := range tags {
		args = append(args, "refs/tags/"+t+":refs/tags/"+t)
	}
	if _, err := runCommand(repo, nil, args...); err != nil {
		return err
	}
	fmt.Println("git push origin", strings.Join(slices.DeleteFunc(tags, func(t string) bool { return t == r.version }), " "))
	fmt.Println("git push origin", r.version)
	return nil
}

// runCommand runs a command in dir and returns its output without space around it. env, if not nil, replaces the environment.
// An error quotes the command and its standard error.
func runCommand(dir string, env []string, args ...string) (string, error) {
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
