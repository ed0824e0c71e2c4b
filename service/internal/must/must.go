// Package must ends a test at an error in its preparation, or at a failed check without which the rest of the test has no meaning. It
// is a copy of the tool's internal/testing/must, which this module may not import.
package must

import (
	"os"
	"testing"

	"github.com/whylate/whylate/service/internal/check"
)

// Do ends the test if err is not nil. The context says what failed.
func Do(t testing.TB, err error, context ...any) {
	t.Helper()
	if err != nil {
		t.Fatal(append(context, err)...)
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

// Equal is check.Equal, and ends the test if got and want differ.
func Equal[T comparable](t testing.TB, got, want T, format string, args ...any) {
	t.Helper()
	if !check.Equal(t, got, want, format, args...) {
		t.FailNow()
	}
}

// True ends the test if ok is false.
func True(t testing.TB, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Fatalf(format, args...)
	}
}

// False ends the test if isWrong is true.
func False(t testing.TB, isWrong bool, format string, args ...any) {
	t.Helper()
	True(t, !isWrong, format, args...)
}

// Golden compares got with a golden file. With update it writes the file first.
func Golden(t testing.TB, update bool, file string, got []byte) {
	t.Helper()
	if update {
		Do(t, os.WriteFile(file, got, 0o644))
	}
	if want, err := os.ReadFile(file); err != nil {
		t.Errorf("%s (-update writes it): %v", file, err)
	} else {
		check.Equal(t, string(got), string(want), "%s (-update writes it)", file)
	}
}
