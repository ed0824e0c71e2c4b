// Package action_test runs the scripts of the GitHub Action and the GitLab template as a runner would, with a fake of the
// host's API.
package action_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
)

// A job is a checkout on a runner.
type job struct {
	t    *testing.T
	dir  string
	path string // a directory that comes first on PATH
}

func newJob(t *testing.T) *job {
	for _, tool := range []string{"bash", "jq", "curl", "unzip"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the scripts need %s: %v", tool, err)
		}
	}
	return &job{t, t.TempDir(), t.TempDir()}
}

// whylate puts the tool on PATH.
func (j *job) whylate() *job {
	if err := os.Symlink(testprog.Build(j.t, "cmd/whylate"), filepath.Join(j.path, "whylate")); err != nil {
		j.t.Fatal(err)
	}
	return j
}

func (j *job) write(name, text string) {
	j.t.Helper()
	path := filepath.Join(j.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		j.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		j.t.Fatal(err)
	}
}

func (j *job) read(name string) string {
	j.t.Helper()
	text, err := os.ReadFile(filepath.Join(j.dir, name))
	if err != nil {
		j.t.Fatal(err)
	}
	return string(text)
}

// run runs a script and returns its exit status and output.
func (j *job) run(script string, env ...string) (status int, stdout, stderr string) {
	j.t.Helper()
	scripts, err := filepath.Abs("../../action")
	if err != nil {
		j.t.Fatal(err)
	}
	cmd := exec.Command("bash", filepath.Join(scripts, script))
	cmd.Dir = j.dir
	cmd.Env = append([]string{"PATH=" + j.path + ":" + os.Getenv("PATH"), "HOME=" + j.dir, "GITHUB_OUTPUT=" + filepath.Join(j.dir, "output"), "GITHUB_STEP_SUMMARY=" + filepath.Join(j.dir, "step")}, env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			j.t.Fatal(err)
		}
		status = exit.ExitCode()
	}
	return status, out.String(), errs.String()
}

func TestRun(t *testing.T) {
	j := newJob(t).whylate()
	trace := testprog.Recording(t, "truth/jobs.trace")
	command := "WHYLATE_RUN=cp " + trace + ` "$WHYLATE_TRACE"`

	status, out, errs := j.run("run.sh", command, "GITHUB_ACTIONS=true", "WHYLATE_BUDGETS=p50=1ns\n\nmax=1h")
	must.True(t, status == 1 && strings.Contains(out, "::error"), "status %d, %q\n%s", status, out, errs)
	var sarif struct {
		Runs []struct{ Results []any }
	}
	if err := json.Unmarshal([]byte(j.read("whylate-ci/whylate.sarif")), &sarif); err != nil || len(sarif.Runs) != 1 {
		t.Fatal(err)
	}
	lines := strings.Count(j.read("whylate-ci/check.txt"), "\n")
	check.True(t, lines != 0 && len(sarif.Runs[0].Results) == lines, "%d results in SARIF, %d lines", len(sarif.Runs[0].Results), lines)
	check.Equal(t, j.read("output"), "sarif=whylate-ci/whylate.sarif\n", "output")
	summary := j.read("whylate-ci/summary.md")
	if !strings.Contains(summary, fmt.Sprintf("**Violations: %d.**", lines)) || !strings.Contains(summary, "no baseline") || j.read("step") != summary {
		t.Errorf("summary:\n%s", summary)
	}

	// The same recording is not slower than itself.
	j.write("whylate-ci/old.json", j.read("whylate-ci/baseline.json"))
	if status, out, errs := j.run("run.sh", command); status != 0 || out != "" {
		t.Fatalf("status %d, %q\n%s", status, out, errs)
	}
	if summary := j.read("whylate-ci/summary.md"); !strings.Contains(summary, "All budgets are kept") || !strings.Contains(summary, "Compared with the main branch") {
		t.Errorf("summary:\n%s", summary)
	}

	// The command may be code of a stranger's pull request.
	if status, out, errs := j.run("run.sh", `WHYLATE_RUN=printenv WHYLATE_TOKEN || echo none; echo x >"$WHYLATE_TRACE"`, "WHYLATE_TOKEN=s3cret"); status != 3 || out != "none\n" {
		t.Errorf("the command has the token: %q\n%s", out, errs)
	}

	for _, c := range []struct{ env, says string }{
		{"WHYLATE_RUN=exit 7", "ended with status 7"},
		{"WHYLATE_RUN=true", "wrote no trace"},
		{`WHYLATE_RUN=echo hello >"$WHYLATE_TRACE"`, "could not be explained"},
	} {
		status, _, errs := j.run("run.sh", c.env, "WHYLATE_BUDGETS=p50=1h")
		check.True(t, status == 3 && strings.Contains(errs, c.says) && strings.Contains(j.read("whylate-ci/summary.md"), c.says),
			"%s: status %d\n%s", c.env, status, errs)
		if _, err := os.Stat(filepath.Join(j.dir, "whylate-ci/baseline.json")); err == nil {
			t.Errorf("%s: a run without an answer left a baseline", c.env)
		}
	}
	if status, _, errs := j.run("run.sh", command, "WHYLATE_BUDGETS=p50=soon"); status != 3 {
		t.Errorf("a budget that cannot be read: status %d\n%s", status, errs)
	}
}

// A file that code scanning would refuse is not offered to it.
func TestSARIFLimits(t *testing.T) {
	for violations, want := range map[int]string{25000: "sarif=whylate-ci/whylate.sarif\n", 25001: "sarif=\n"} {
		j := newJob(t)
		script := fmt.Sprintf("#!/bin/bash\ncase \"$*\" in *sarif*) echo '{}' >whylate-ci/whylate.sarif; exit 1 ;; check*) yes violation | head -n %d; exit 1 ;; *) echo '{}' ;; esac\n", violations)
		must.Do(t, os.WriteFile(filepath.Join(j.path, "whylate"), []byte(script), 0o755))
		if status, _, errs := j.run("run.sh", `WHYLATE_RUN=echo x >"$WHYLATE_TRACE"`, "WHYLATE_BUDGETS=p50=1h"); status != 1 {
			t.Fatalf("status %d\n%s", status, errs)
		}
		check.Equal(t, j.read("output"), want, "%d violations", violations)
		if n := len(j.read("whylate-ci/summary.md")); n > 60000 {
			t.Errorf("a summary of %d bytes", n)
		}
	}
}

func TestSummaryOfHostileNames(t *testing.T) {
	j := newJob(t)
	j.write("check.txt", "budget </pre><img src=x onerror=alert(1)> &amp; ``` \x1b[31m \xff\n")
	j.write("diff.txt", strings.Repeat("<", 9000)+"é\n")
	scripts := must.Have(filepath.Abs("../../action/summary.sh"))(t)
	out := must.Have(exec.Command("bash", scripts, j.dir).Output())(t)
	text := string(out)
	if strings.Count(text, "</pre>") != 2 || strings.Contains(text, "<img") || strings.Contains(text, "\x1b") || strings.Contains(text, "\xff") || !strings.Contains(text, "&amp;amp;") || !strings.Contains(text, "cut here") {
		t.Errorf("%.2000s", text)
	}
}

func TestComment(t *testing.T) {
	for _, host := range []string{"github", "gitlab"} {
		t.Run(host, func(t *testing.T) {
			list, one, update := "/repos/acme/shop/issues/12/comments", "/repos/acme/shop/issues/comments/", "PATCH"
			auth, ours := "Bearer secret", `{"data":{"viewer":{"databaseId":7}}}`
			if host == "gitlab" {
				list, one, update, auth, ours = "/projects/5/merge_requests/12/notes", "/projects/5/merge_requests/12/notes/", "PUT", "secret", `{"id":7}`
			}
			type user struct {
				ID int `json:"id"`
			}
			type comment struct {
				ID     int    `json:"id"`
				Body   string `json:"body"`
				User   user   `json:"user"`
				Author user   `json:"author"`
			}
			// A comment of another user is not ours, whatever it says.
			var comments []comment
			for i := range 150 {
				body := "looks good <!-- whylate -->"
				if i%50 == 20 {
					body = "<!-- whylate -->\nAll budgets are kept."
				}
				comments = append(comments, comment{i, body, user{8}, user{8}})
			}
			strangers := slices.Clone(comments)
			forbidden, unknown := false, false
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				check.Equal(t, r.Header.Get("Authorization")+r.Header.Get("Private-Token"), auth, "token")
				var c comment
				body, _ := io.ReadAll(r.Body)
				if r.URL.Path == "/graphql" && bytes.Contains(body, []byte("databaseId")) || r.URL.Path == "/user" && host == "gitlab" {
					if unknown {
						w.WriteHeader(http.StatusUnauthorized)
					}
					io.WriteString(w, ours)
					return
				}
				if r.Method != "GET" {
					if forbidden {
						w.WriteHeader(http.StatusForbidden)
						return
					}
					if err := json.Unmarshal(body, &c); err != nil {
						t.Error(err)
					}
				}
				switch {
				case r.Method == "GET" && r.URL.Path == list:
					from, to := 0, 100
					if r.URL.Query().Get("page") != "1" {
						from, to = 100, len(comments)
					}
					json.NewEncoder(w).Encode(comments[from:to])
				case r.Method == "POST" && r.URL.Path == list:
					comments = append(comments, comment{len(comments), c.Body, user{7}, user{7}})
				case r.Method == update && r.URL.Path == one+"150":
					comments[150].Body = c.Body
				default:
					t.Errorf("%s %s", r.Method, r.URL)
					w.WriteHeader(http.StatusNotFound)
				}
			}))
			defer api.Close()
			env := []string{"WHYLATE_TOKEN=secret", "WHYLATE_PULL=12", "GITHUB_API_URL=" + api.URL, "GITHUB_GRAPHQL_URL=" + api.URL + "/graphql", "GITHUB_REPOSITORY=acme/shop"}
			if host == "gitlab" {
				env = []string{"GITLAB_CI=true", "WHYLATE_TOKEN=secret", "CI_API_V4_URL=" + api.URL, "CI_PROJECT_ID=5", "CI_MERGE_REQUEST_IID=12"}
			}
			j := newJob(t)
			for _, text := range []string{"first", "second"} {
				j.write("whylate-ci/summary.md", text)
				if status, _, errs := j.run("comment.sh", env...); status != 0 || errs != "" {
					t.Fatalf("status %d\n%s", status, errs)
				}
				must.True(t, len(comments) == 151 && comments[150].Body == "<!-- whylate -->\n"+text,
					"%d comments, the last is %q", len(comments), comments[len(comments)-1].Body)
			}
			forbidden = true
			if status, _, errs := j.run("comment.sh", env...); status != 0 || !strings.Contains(errs, "may not write") || strings.Contains(errs, "secret") {
				t.Errorf("a token that may not write: status %d\n%s", status, errs)
			}
			unknown = true
			if status, _, errs := j.run("comment.sh", env...); status != 0 || !strings.Contains(errs, "the token's user could not be read") {
				t.Errorf("a token of no user: status %d\n%s", status, errs)
			}
			check.True(t, slices.Equal(comments[:150], strangers) && len(comments) == 151, "a comment of another user was changed")
		})
	}
}

func TestBaseline(t *testing.T) {
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	f, err := z.Create("baseline.json")
	must.Do(t, err)
	io.WriteString(f, `{"schema":"whylate.report/v1"}`)
	z.Close()

	var artifacts []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/repos/acme/shop/actions/artifacts":
			fmt.Fprintf(w, `{"artifacts":[%s]}`, strings.Join(artifacts, ","))
		case "/good":
			w.Write(packed.Bytes())
		default:
			w.Write([]byte("no archive"))
		}
	}))
	defer api.Close()
	artifact := func(path, branch string, repository int, created string, expired bool) string {
		return fmt.Sprintf(`{"archive_download_url":%q,"created_at":%q,"expired":%v,"workflow_run":{"head_branch":%q,"head_repository_id":%d,"repository_id":1}}`, api.URL+path, created, expired, branch, repository)
	}
	good := artifact("/good", "main", 1, "2026-03-02T00:00:00Z", false)
	for _, c := range []struct {
		name, ref string
		artifacts []string
		found     bool
	}{
		{"none", "12/merge", nil, false},
		{"main itself", "main", []string{good}, false},
		{"of main", "12/merge", []string{good}, true},
		{"older, expired, other branches and forks are left alone", "12/merge", []string{
			artifact("/old", "main", 1, "2026-03-01T00:00:00Z", false), artifact("/expired", "main", 1, "2026-03-09T00:00:00Z", true),
			artifact("/branch", "evil", 1, "2026-03-09T00:00:00Z", false), artifact("/fork", "main", 2, "2026-03-09T00:00:00Z", false), good}, true},
		{"no archive", "12/merge", []string{artifact("/broken", "main", 1, "2026-03-02T00:00:00Z", false)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			artifacts = c.artifacts
			j := newJob(t)
			status, _, errs := j.run("baseline.sh", "WHYLATE_TOKEN=secret", "WHYLATE_MAIN=main", "GITHUB_API_URL="+api.URL, "GITHUB_REPOSITORY=acme/shop", "GITHUB_REF_NAME="+c.ref)
			_, err := os.Stat(filepath.Join(j.dir, "whylate-ci/old.json"))
			check.True(t, status == 0 && (err == nil) == c.found && c.found != strings.Contains(errs, "no baseline"), "status %d, %v\n%s", status, err, errs)
		})
	}
}
