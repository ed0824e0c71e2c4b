package main

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
)

// The test program is the command, too.
func TestMain(m *testing.M) {
	if os.Getenv("WHYLATE_MCP_TEST") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

var update = flag.Bool("update", false, "rewrite testdata/help.txt")

// TestUsage: a user who asks for help sees testdata/help.txt; an error names its reason.
func TestUsage(t *testing.T) {
	run := func(env, arg string) string {
		cmd := exec.Command(os.Args[0], strings.Fields(arg)...)
		cmd.Env = append(os.Environ(), "WHYLATE_MCP_TEST=1", env)
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	help := run("WHYLATE_FLEET=http://fleet", "-h")
	must.Golden(t, *update, "testdata/help.txt", []byte(help))
	for arg, want := range map[string]string{"-max-file=x": "\nwhylate-mcp: invalid value", "explain": `whylate-mcp: unknown argument "explain"`, "-root /none": "whylate-mcp: -root /none: ", "-http 0.0.0.0:0": "whylate-mcp: 0.0.0.0:0 is not a loopback address"} {
		check.True(t, strings.Contains(run("", arg), want), "%s: %s, want %q", arg, run("", arg), want)
	}
	check.True(t, strings.Contains(run("WHYLATE_FLEET=fleet", ""), "-fleet fleet is no address"), "the fleet of the environment is not asked")
}

// TestWorkedExamples replays the calls of docs/assistants.md against the program over standard input and output.
func TestWorkedExamples(t *testing.T) {
	text, err := os.ReadFile("../../../docs/assistants.md")
	if err != nil {
		t.Skip(err)
	}
	dir, _ := testprog.Corpus(t)
	root := t.TempDir()
	for _, name := range []string{"sql-pool", "coredns-erratic", "chi-lock"} {
		data := must.Have(os.ReadFile(testprog.FieldRecording(t, dir, name)))(t)
		must.Do(t, os.WriteFile(filepath.Join(root, name+".whylate"), data, 0o600))
	}
	cmd := exec.Command(os.Args[0], "-root", root)
	cmd.Env = append(os.Environ(), "WHYLATE_MCP_TEST=1")
	cmd.Stderr = t.Output()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	must.Do(t, err)
	defer s.Close()
	calls, report, answer := 0, "", ""
	blocks := strings.Split(string(text), "```call\n")
	for _, block := range blocks[1:] {
		block, _, _ = strings.Cut(block, "```")
		for line := range strings.Lines(block) {
			line = strings.TrimSuffix(line, "\n")
			word, rest, _ := strings.Cut(line, " ")
			if word == "answer" {
				check.True(t, strings.Contains(answer, rest), "the answer does not hold %q:\n%s", rest, answer)
				continue
			}
			calls++
			args := strings.ReplaceAll(rest, "REPORT", report)
			res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: word, Arguments: json.RawMessage(args)})
			must.Do(t, err, line)
			answer = res.Content[0].(*mcp.TextContent).Text
			var id struct {
				Report string `json:"report"`
			}
			if json.Unmarshal([]byte(answer), &id) == nil && id.Report != "" {
				report = id.Report
			}
		}
	}
	check.True(t, len(blocks) == 4 && calls == 8, "%d examples with %d calls", len(blocks)-1, calls)
}
