package words

import (
	"strconv"
	"strings"
)

// FuncName drops the directories of a function's package: what is left names the function to a reader who knows the
// program. The last directory stays if the package's name alone would be a version, as in bar/v2.F. A name with a space, such as
// the route GET /orders/{id}, is no function's and stays as it is.
func FuncName(f string) string {
	head := f
	if i := strings.IndexAny(f, "[("); i >= 0 {
		head = f[:i] // type arguments and receivers have slashes of their own
	}
	if strings.Contains(head, " ") {
		return f
	}
	start := strings.LastIndexByte(head, '/') + 1
	if start > 0 && isVersion(head[start:]) {
		start = strings.LastIndexByte(head[:start-1], '/') + 1
	}
	// The linker writes dots in the last directory's name so: gopkg.in/yaml%2ev3.
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

// IsClosure reports whether a function has no name of its own: its last one is func1, or a number.
func IsClosure(fn string) bool {
	last := strings.TrimPrefix(fn[strings.LastIndexByte(fn, '.')+1:], "func")
	_, err := strconv.ParseUint(last, 10, 32)
	return err == nil
}
