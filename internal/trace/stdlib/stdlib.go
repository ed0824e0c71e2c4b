// Package stdlib tells the standard library's functions from everybody
// else's, by list: a module path without a dot, or "internal" in a path,
// proves nothing.
package stdlib

import (
	_ "embed"
	"strings"
)

//go:generate sh -c "go list std | grep -v ^vendor/ >packages.txt"

//go:embed packages.txt
var packageList string

// packages are the import paths of "go list std" (go1.26).
var packages = func() map[string]bool {
	set := map[string]bool{}
	for p := range strings.Lines(packageList) {
		set[strings.TrimSpace(p)] = true
	}
	return set
}()

// Package returns the import path of the package that a function, named as
// the runtime does, belongs to: "net/http" for "net/http.(*conn).serve".
func Package(fn string) string {
	// Type arguments may hold slashes and dots of their own.
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

// Contains reports whether a function belongs to the standard library or the
// runtime, packages vendored there included. Functions without a package (C
// and assembly stubs such as "_cgo_...") count as the runtime's.
func Contains(fn string) bool {
	p := Package(fn)
	if p == markPackage {
		return true // it stands where net/http does, between a service and its requests
	}
	if packages[p] {
		return true
	}
	// Newer or older releases have internal packages that the list lacks; their
	// parents are known.
	if strings.HasPrefix(p, "vendor/") || strings.HasPrefix(p, "runtime/") || strings.HasPrefix(p, "internal/runtime/") {
		return true
	}
	if parent, _, ok := strings.Cut(p, "/internal/"); ok && packages[parent] {
		return true
	}
	return p == fn && !strings.Contains(fn, "/") && !strings.Contains(fn, ".")
}

const markPackage = "github.com/whylate/whylate/service/mark"

// IsMutex reports whether a function is a method of sync.Mutex or sync.RWMutex.
func IsMutex(fn string) bool {
	return strings.HasPrefix(fn, "sync.(*Mutex).") || strings.HasPrefix(fn, "sync.(*RWMutex).") || strings.HasPrefix(fn, "internal/sync.(*Mutex).")
}

// IsPassThroughHandler reports whether a function is one of net/http's handlers that only
// pass requests on to others: what they call is the handler.
func IsPassThroughHandler(fn string) bool {
	switch fn {
	case "net/http.serverHandler.ServeHTTP", "net/http.(*ServeMux).ServeHTTP", "net/http.HandlerFunc.ServeHTTP",
		"net/http.(*timeoutHandler).ServeHTTP", "net/http.initALPNRequest.ServeHTTP", "net/http.globalOptionsHandler.ServeHTTP":
		return true
	}
	return Package(fn) == markPackage
}

// The runtime's functions that mark for the garbage collector: a worker, and a goroutine that helps it.
const (
	MarkWorker = "runtime.gcBgMarkWorker"
	MarkAssist = "runtime.gcAssistAlloc"
)

// IsGCMark reports whether a function is one of them.
func IsGCMark(fn string) bool { return fn == MarkWorker || fn == MarkAssist }
