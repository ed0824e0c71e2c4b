package action_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// steps returns the texts of a workflow's or an action's steps.
func steps(t *testing.T, file string) []string {
	t.Helper()
	text := must.Have(os.ReadFile(file))(t)
	parts := regexp.MustCompile(`(?m)^ +(?:# .*\n +)?- `).Split(string(text), -1)
	must.True(t, len(parts) >= 2, "%s has no steps", file)
	return parts[1:]
}

func workflows(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	must.True(t, err == nil && len(files) >= 2, "%v, %v", files, err)
	return files
}

// TestToken: only the steps that read the baseline and write the comment have the token.
func TestToken(t *testing.T) {
	var token []string
	for _, step := range steps(t, "../../action/action.yml") {
		if strings.Contains(step, "inputs.token") || strings.Contains(step, "github.token") {
			token = append(token, regexp.MustCompile(`\w+\.sh`).FindString(step))
		}
	}
	if want := []string{"baseline.sh", "comment.sh"}; !slices.Equal(token, want) {
		t.Errorf("the token is in the steps of %v, want %v", token, want)
	}
}

// TestPinned: what a workflow or the action runs of others is a commit, with its version as a comment for readers and Dependabot.
func TestPinned(t *testing.T) {
	pinned := regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	uses := regexp.MustCompile(`(?m)^\s*(?:- )?uses:\s*(.*)$`)
	for _, file := range append(workflows(t), "../../action/action.yml") {
		text := must.Have(os.ReadFile(file))(t)
		for _, m := range uses.FindAllStringSubmatch(string(text), -1) {
			if !pinned.MatchString(m[1]) && !strings.HasPrefix(m[1], "./") {
				t.Errorf("%s uses %s", file, m[1])
			}
		}
	}
}

// TestNothingLatest: who pins the action or the template has pinned the tool.
func TestNothingLatest(t *testing.T) {
	for _, file := range []string{"action.yml", "gitlab.yml", "install.sh"} {
		text := must.Have(os.ReadFile(filepath.Join("../../action", file)))(t)
		check.False(t, strings.Contains(string(text), "latest"), "%s installs the latest of something", file)
	}
}

// TestInstall: without a version, the tool is built from the commit of the action.
func TestInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("links the tool")
	}
	j := newJob(t)
	bin := filepath.Join(j.dir, "bin")
	env := []string{"GOBIN=" + bin, "GITHUB_PATH=" + filepath.Join(j.dir, "path")}
	names := []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY"}
	out := must.Have(exec.Command("go", append([]string{"env"}, names...)...).Output())(t)
	for i, value := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		env = append(env, names[i]+"="+value)
	}
	if status, _, errs := j.run("install.sh", env...); status != 0 {
		t.Fatalf("status %d\n%s", status, errs)
	}
	check.Equal(t, j.read("path"), bin+"\n", "on the PATH")
	if info, err := os.Stat(filepath.Join(bin, "whylate")); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("%v, %v", info, err)
	}
	// A version is that of the module proxy.
	fake := "#!/bin/bash\n[ \"$1\" = env ] || echo \"$*\" >asked\n"
	must.Do(t, os.WriteFile(filepath.Join(j.path, "go"), []byte(fake), 0o755))
	if status, _, errs := j.run("install.sh", "WHYLATE_VERSION=v0.1.0"); status != 0 || j.read("asked") != "install github.com/whylate/whylate/cmd/whylate@v0.1.0\n" {
		t.Errorf("status %d, %q\n%s", status, j.read("asked"), errs)
	}
}
