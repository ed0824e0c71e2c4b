package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/lab/internal/oneline"
)

const source = `package p

const (
	least   = 0.1
	pause   = 20 * ms
	maxKept = 64
	room    = 1 << 6
	unused  = 5
	name    = "x"
	first   = iota
	scaled, beside = 3, 4
)

func f(a int, b float64) bool {
	if a > maxKept || len(name) > room || first < a {
		return b > least*2
	}
	if b >= 0.25 || a < 1 {
		return a-1 < min(pause, 7)
	}
	return float64(scaled) < b && a == beside
}
`

const otherSource = `package q

func g(a int) bool { return a < p.unused }
`

// TestThresholdsUsedElsewhere: a constant that another package compares with is a threshold.
func TestThresholdsUsedElsewhere(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"p/p.go": source, "q/q.go": otherSource} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	all, _, err := findThresholds(".")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(all, func(t threshold) bool { return t.name == "p.unused" }) {
		t.Errorf("p.unused is not among %d", len(all))
	}
}

func TestThresholds(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p.go"), []byte(source), 0o666); err != nil {
		t.Fatal(err)
	}
	files, err := oneline.Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	all, bare := thresholdsIn(files)
	var deciding, bounds []string
	for i := range all {
		if all[i].isBound() {
			bounds = append(bounds, all[i].name+"="+all[i].Old)
		} else {
			deciding = append(deciding, all[i].name+"="+all[i].Old)
		}
	}
	if want := []string{"p.least=0.1", "p.pause=20 * ms", "p.scaled=3"}; !slices.Equal(deciding, want) {
		t.Errorf("deciding %q, want %q", deciding, want)
	}
	if want := []string{"p.maxKept=64", "p.room=1 << 6"}; !slices.Equal(bounds, want) {
		t.Errorf("bounds %q, want %q", bounds, want)
	}
	if bare != 1 { // 0.25; numbers in min are operands of no comparison
		t.Errorf("%d comparisons with a number, want 1", bare)
	}
	if _, err := all[0].Write(dir, "(0.1) / 2"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "changed.go")); err != nil || !strings.Contains(string(got), "least   = (0.1) / 2\n") {
		t.Errorf("%s, %v", got, err)
	}
}

// TestNames: names of other code count in conditions and in tables; other strings, and names in documentation and imports, do
// not.
func TestNames(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "finding"), 0o700); err != nil {
		t.Fatal(err)
	}
	src := `package finding

import "net/http"

var rule = Rule{Doc: Doc{Before: "db.SetMaxOpenConns(2)"}, Name: "pool-too-small"}
var known = []string{"database/sql.", "Mutex).Lock", "net/http.(*Server).…"}

func is(fn string) bool { return fn == "net/http.(*conn).serve" || fn == "main. is a text" || fn == "websocket" }
`
	if err := os.WriteFile(filepath.Join(dir, "finding", "a.go"), []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := countCodeNames(dir); n != 4 || err != nil {
		t.Errorf("%d places, %v; want 4", n, err)
	}
}
