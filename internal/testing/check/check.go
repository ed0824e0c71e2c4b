// Package check reports failed expectations of a test, which continues. Package must ends the test instead.
package check

import (
	"fmt"
	"strings"
	"testing"
)

// Equal reports got and want if they differ. The format with its arguments names the compared value. Like all functions of this
// package, it returns whether the check passed.
func Equal[T comparable](t testing.TB, got, want T, format string, args ...any) bool {
	if got != want {
		t.Helper()
		t.Errorf("%s: %s", fmt.Sprintf(format, args...), difference(got, want))
	}
	return got == want
}

// difference returns got and want as text: strings of several lines below each other, others in quotes.
func difference(got, want any) string {
	text, isString := got.(string)
	switch {
	case !isString:
		return fmt.Sprintf("%v, want %v", got, want)
	case strings.Contains(text, "\n"):
		return fmt.Sprintf("got\n%s\nwant\n%s", got, want)
	default:
		return fmt.Sprintf("%q, want %q", got, want)
	}
}

// True reports the format with its arguments if ok is false.
func True(t testing.TB, ok bool, format string, args ...any) bool {
	if !ok {
		t.Helper()
		t.Errorf(format, args...)
	}
	return ok
}

// False reports the format with its arguments if isWrong is true.
func False(t testing.TB, isWrong bool, format string, args ...any) bool {
	if isWrong {
		t.Helper()
		t.Errorf(format, args...)
	}
	return !isWrong
}

// Error reports that err is nil. The format with its arguments names the call that should have failed.
func Error(t testing.TB, err error, format string, args ...any) bool {
	if err == nil {
		t.Helper()
		t.Errorf("no error: "+format, args...)
	}
	return err != nil
}
