package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestStagesNameFunctions: every name in stages is that of a function or package in today's source. A stage whose functions were
// renamed would get no samples.
func TestStagesNameFunctions(t *testing.T) {
	names := functionNames(t, "../../internal/explain", "../../internal/trace", "../../report")
	exists := func(prefix string) bool {
		prefix = strings.TrimPrefix(prefix, module)
		return strings.HasPrefix(prefix, "runtime.") || slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, prefix) })
	}
	for _, s := range stages {
		for _, name := range s.functions {
			check.True(t, exists(name), "stage %s: no function is named %s", s.name, name)
		}
	}
	check.True(t, exists(strings.TrimSuffix(decoderFunc, ".func1")), "no function is named %s", decoderFunc)
}

// functionNames returns the functions below some directories, named as in stages.
func functionNames(t *testing.T, dirs ...string) (names []string) {
	t.Helper()
	for _, dir := range dirs {
		must.Do(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			pkg := strings.TrimPrefix(strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../../"), "internal/")
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					names = append(names, pkg+"."+receiver(f)+f.Name.Name)
				}
			}
			return nil
		}))
	}
	return names
}

// receiver returns "T." or "(*T)." for a method, "" for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	switch r := f.Recv.List[0].Type.(type) {
	case *ast.StarExpr:
		if name, ok := r.X.(*ast.Ident); ok {
			return "(*" + name.Name + ")."
		}
	case *ast.Ident:
		return r.Name + "."
	}
	return "generic."
}
