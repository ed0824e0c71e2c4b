// Package must ends a test at an error of what it only prepares or reads, as the tool's internal/testing/must does: this module
// may not import that.
package must

import "testing"

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
