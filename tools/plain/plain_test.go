package main

import (
	"go/parser"
	"go/token"
	"maps"
	"testing"
)

const sample = `// Package p tells somebody about
// a thing that goes
// on.
package p

// kept has a noun in none of its names but one.
type kept struct {
	of, count int
	by        map[string]bool
}

func through(at int) (own error) {
	left, right := at, 2
	_ = left + right
	return nil
}

func main() {}
`

// TestMeasure: every kind of name is counted, and a phrase is found across the end of a line.
func TestMeasure(t *testing.T) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "sample.go", sample, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var m measure
	m.add(files, file)
	want := measure{functions: ratio{1, 1}, types: ratio{1, 1}, fields: ratio{2, 3}, locals: ratio{3, 4}, comments: ratio{3, 21}}
	if m.functions != want.functions || m.types != want.types || m.fields != want.fields || m.locals != want.locals || m.comments != want.comments {
		t.Errorf("measured %+v, want %+v", m, want)
	}
}

// TestLimitsOnlyFall: an update lowers limits and never raises one.
func TestLimitsOnlyFall(t *testing.T) {
	old := limits{"program.types": 1, "program.fields": 2}
	got := old.lower([]figure{{name: "program.types", value: 3}, {name: "program.fields", value: 1.5}, {name: "tests.types", value: 4}})
	if want := (limits{"program.types": 1, "program.fields": 1.5, "tests.types": 4}); !maps.Equal(got, want) {
		t.Errorf("limits are %v, want %v", got, want)
	}
}
