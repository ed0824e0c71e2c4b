package main

import (
	"os"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("GOWORK", "off")
	for name, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"a.go":   "package m\n\nimport \"syscall\"\n\nfunc kill() error { return syscall.Kill(1, 2) }\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir("empty", 0o755); err != nil {
		t.Fatal(err)
	}
	var c checker
	for _, test := range []struct{ system, pattern, problem string }{
		{"linux/arm64", "./...", ""},
		{"windows/amd64", "./...", "1 errors"},
		{"linux/arm64", "./empty/...", "no packages match ./empty/..."},
		{"linux", "./...", "GOOS/GOARCH"},
	} {
		count, err := c.check(test.system, []string{test.pattern})
		if test.problem == "" && (err != nil || count != 1) {
			t.Errorf("%s: %d packages, %v; 1 expected", test.system, count, err)
		}
		if test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)) {
			t.Errorf("%s %s: error %v, expected one with %q", test.system, test.pattern, err, test.problem)
		}
	}
}
