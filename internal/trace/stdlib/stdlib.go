// Package stdlib decides by a list which functions belong to the standard library. Neither a module path without a
// dot nor an "internal" in a path proves that.
package stdlib

import (
	_ "embed"
	"strings"
)

//go:generate sh -c "go list std | grep -v ^vendor/ >packages.txt"

//go:embed packages.txt
var packageList string

// packages are the import paths that "go list std" prints (go1.26).
var packages = func() map[string]bool {
	set := map[string]bool{}
	for p := range strings.Lines(packageList) {
		set[strings.TrimSpace(p)] = true
	}
	return set
}()

// Package returns the import path of a function's package; the function is named as by the runtime: "net/http" for
// "net/http.(*conn).serve". A name without a package is returned as it is.
func Package(fn string) string {
	// Type arguments may contain slashes and dots.
	if i := strings.IndexByte(fn, '['); i >= 0 {
		fn = fn[:i]
	}
	slash := strings.LastIndexByte(fn, '/')
	dot := strings.IndexByte(fn[slash+1:], '.')
	if dot < 0 {
		return fn
	}
	return fn[:slash+1+dot]
}

// Contains reports whether a function belongs to the standard library or the runtime, including vendored packages.
// Functions without a package (C and assembly stubs such as "_cgo_...") count as the runtime's.
func Contains(fn string) bool {
	p := Package(fn)
	if p == markPackage {
		return true // like net/http, it is between a service and its requests
	}
	if packages[p] {
		return true
	}
	// Other releases have internal packages that are not in the list, but their parents are.
	if strings.HasPrefix(p, "vendor/") || strings.HasPrefix(p, "runtime/") || strings.HasPrefix(p, "internal/runtime/") {
		return true
	}
	if parent, _, ok := strings.Cut(p, "/internal/"); ok && packages[parent] {
		return true
	}
	return p == fn && !strings.Contains(fn, "/") && !strings.Contains(fn, ".")
}

const markPackage = "github.com/whylate/whylate/service/mark"
