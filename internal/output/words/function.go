package words

import (
	"strconv"
	"strings"
)

// FuncName removes the directories of a function's package: the rest identifies the function for a reader who knows the
// program. It keeps the last directory if the package's name alone would be a version, as in bar/v2.F. A name with a space,
// such as the route GET /orders/{id}, is no function and is returned unchanged.
func FuncName(f string) string {
	head := f
	if i := strings.IndexAny(f, "[("); i >= 0 {
		head = f[:i] // type arguments and receivers may contain slashes
	}
	if strings.Contains(head, " ") {
		return f
	}
	start := strings.LastIndexByte(head, '/') + 1
	if start > 0 && isVersion(head[start:]) {
		start = strings.LastIndexByte(head[:start-1], '/') + 1
	}
	// The linker escapes dots in the last directory's name: gopkg.in/yaml%2ev3.
	return strings.ReplaceAll(f[start:], "%2e", ".")
}

// isVersion reports whether a package's qualified name begins with a major version, "v2.".
func isVersion(s string) bool {
	v, _, ok := strings.Cut(s, ".")
	if !ok || len(v) < 2 || v[0] != 'v' {
		return false
	}
	_, err := strconv.ParseUint(v[1:], 10, 32)
	return err == nil
}

// IsClosure reports whether a function is a closure: its last name is func1, or a number.
func IsClosure(fn string) bool {
	last := strings.TrimPrefix(fn[strings.LastIndexByte(fn, '.')+1:], "func")
	_, err := strconv.ParseUint(last, 10, 32)
	return err == nil
}
