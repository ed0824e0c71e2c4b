package cli

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/testprog"
)

// TestNextRuns: the command that explain proposes runs as printed, and gives the proposed answer: one group, a band, a change.
// It detects a name's pattern that is not quoted, a pattern of several groups, an invalid change, and a command that is cut
// because its file has a long name.
func TestNextRuns(t *testing.T) {
	for _, c := range []struct{ name, answer string }{
		{"etcd-puts", "share of time in"}, {"nats-publish", "share of time in"}, {"kafka-commit", "From p90 to p99"}, {"chi-lock", "what if"},
		{"cron-lock", "what if"}, {"sql-pool", "what if"}, {"websocket-broadcast", "what if"},
		{"caddy-gzip", "each  requests"}, {"rate-limit", "each  requests"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := testprog.Recording(t, "field/"+c.name+".whylate")
			// A command that is too long for two lines is not proposed, and the directory of unpacked files may have any name.
			t.Chdir(filepath.Dir(path))
			path = filepath.Base(path)
			var out, errs bytes.Buffer
			if status := Run(t.Context(), []string{"explain", "--full", path}, strings.NewReader(""), &out, &errs); status != 0 {
				t.Fatalf("status %d, %s", status, errs.String())
			}
			_, next, ok := strings.Cut(out.String(), "\nnext ")
			if !ok {
				t.Error("nothing is proposed")
				return
			}
			args := slices.DeleteFunc(shellWords(strings.TrimSpace(strings.ReplaceAll(next, "\\\n", ""))), func(s string) bool { return s == "" })
			out.Reset()
			if status := Run(t.Context(), args[1:], strings.NewReader(""), &out, &errs); status != 0 || !strings.Contains(strings.ReplaceAll(out.String(), "\n", " "), c.answer) {
				first, _, _ := strings.Cut(out.String(), "\n")
				t.Errorf("%q: status %d, %s; it begins %q and does not say %q", next, status, errs.String(), first, c.answer)
			}
		})
	}
}

// shellWords divides a line as a shell does, with single quotes only.
func shellWords(line string) []string {
	var out []string
	word, quoted := "", false
	for _, r := range line {
		switch {
		case r == '\'':
			quoted = !quoted
		case r == ' ' && !quoted:
			out, word = append(out, word), ""
		default:
			word += string(r)
		}
	}
	return append(out, word)
}
