// Package must ends a test at an error in its preparation. It is a copy of the tool's internal/testing/must, which this module
// may not import.
package must

import (
	"os"
	"testing"
)

// Do ends the test if err is not nil.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Have returns v, or ends the test if err is not nil: data := must.Have(os.ReadFile(name))(t).
func Have[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Do(t, err)
		return v
	}
}

// Golden compares got with a golden file, which it writes before if the test was called with -update.
func Golden(t testing.TB, update bool, file string, got []byte) {
	t.Helper()
	if update {
		Do(t, os.WriteFile(file, got, 0o644))
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != string(got) {
		t.Errorf("%s (-update writes it): %v\n%s", file, err, got)
	}
}
