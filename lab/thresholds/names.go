package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// decidingPackages are the packages that decide answers.
var decidingPackages = []string{"finding", "verdict", "queues", "hostjoin", "request"}

// codeName matches a string that names a function, a type or a package: net/http.(*conn).serve, database/sql., Mutex).Lock.
var codeName = regexp.MustCompile(`^[\w.*()/-]*(\w\.[\w(]|\)\.|\w\.$)[\w.*()/-]*$`)

// countCodeNames counts the places below a directory at which the deciding packages name other code: each is a special case.
// Tests, imports, tags and rules' documentation do not count. "…" stands for anything in a name.
func countCodeNames(dir string) (n int, err error) {
	for _, pkg := range decidingPackages {
		files, err := filepath.Glob(filepath.Join(dir, pkg, "*.go"))
		if err != nil {
			return 0, err
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				return 0, err
			}
			ast.Inspect(f, func(x ast.Node) bool {
				switch x := x.(type) {
				case *ast.ImportSpec, *ast.StructType:
					return false
				case *ast.KeyValueExpr:
					key, ok := x.Key.(*ast.Ident)
					return !ok || key.Name != "Doc"
				case *ast.BasicLit:
					if s, err := strconv.Unquote(x.Value); x.Kind == token.STRING && err == nil && codeName.MatchString(strings.ReplaceAll(s, "…", "x")) {
						n++
					}
				}
				return true
			})
		}
	}
	return n, nil
}
