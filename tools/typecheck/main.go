// Command typecheck reports what does not compile on other systems: it checks the types of the packages in the current directory's
// workspace, for each system that is named. No code is generated: with an empty cache that takes go build most of its time, once a
// system.
//
//	typecheck linux/arm64,darwin/arm64,windows/amd64 ./... ./service/...
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: typecheck GOOS/GOARCH,... PACKAGE...")
		os.Exit(2)
	}
	failed := false
	for system := range strings.SplitSeq(os.Args[1], ",") {
		count, err := check(system, os.Args[2:])
		if err != nil {
			fmt.Fprintf(os.Stderr, "typecheck %s: %v\n", system, err)
			failed = true
			continue
		}
		fmt.Printf("%s: %d packages\n", system, count)
	}
	if failed {
		os.Exit(1)
	}
}

// check checks packages for a system written as GOOS/GOARCH, without cgo, prints their errors, and returns how many packages there
// are. None is an error: a pattern that matches nothing would pass.
func check(system string, patterns []string) (count int, err error) {
	goos, goarch, ok := strings.Cut(system, "/")
	if !ok {
		return 0, fmt.Errorf("write it as GOOS/GOARCH")
	}
	loaded, err := packages.Load(&packages.Config{
		// Of dependencies, declarations only are checked.
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedTypesSizes,
		Env:  append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
	}, patterns...)
	if err != nil {
		return 0, err
	}
	if n := packages.PrintErrors(loaded); n > 0 {
		return 0, fmt.Errorf("%d errors", n)
	}
	if len(loaded) == 0 {
		return 0, fmt.Errorf("no packages match %s", strings.Join(patterns, " "))
	}
	return len(loaded), nil
}
