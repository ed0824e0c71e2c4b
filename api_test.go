package whylate_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

const module = "github.com/whylate/whylate"

var update = flag.Bool("update", false, "rewrite docs/internals/api.txt")

// TestPublicAPI compares the exported names of the tool's and the service's packages with docs/internals/api.txt, as Go's
// cmd/api does. -update writes the file: an added line is a feature for the next minor version, a removed line breaks users'
// programs.
func TestPublicAPI(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("docs/internals/api.txt has the API for Linux")
	}
	// By path, because package service is in a module that may be missing in this tree.
	got := must.Have(publicAPI(module, module+"/report/...", module+"/service/..."))(t)
	file := filepath.Join("docs", "internals", "api.txt")
	if *update {
		must.Do(t, os.WriteFile(file, got, 0o644))
	}
	want := must.Have(os.ReadFile(file))(t)
	missing, added := linesNotIn(want, got), linesNotIn(got, want)
	check.True(t, len(missing)+len(added) == 0,
		"the public API differs from %s (-update writes it)\nremoved:\n%s\nadded:\n%s", file, strings.Join(missing, "\n"), strings.Join(added, "\n"))
}

// linesNotIn returns the lines of a that b does not have.
func linesNotIn(a, b []byte) []string {
	present := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		present[line] = true
	}
	return slices.DeleteFunc(strings.SplitAfter(string(a), "\n"), func(line string) bool { return line == "" || present[line] })
}

// publicAPI returns a line for each exported name, field and method of the packages that other modules can import.
func publicAPI(patterns ...string) ([]byte, error) {
	list := exec.Command("go", append([]string{"list", "-deps", "-export", "-json=ImportPath,Export,DepOnly,Name"}, patterns...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	exports := map[string]string{}
	var paths []string
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Export, Name string
			DepOnly                  bool
		}
		if err := in.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly && p.Name != "main" && !strings.Contains(p.ImportPath, "/internal/") {
			paths = append(paths, p.ImportPath)
		}
	}
	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var b bytes.Buffer
	for _, path := range slices.Sorted(slices.Values(paths)) {
		pkg, err := imp.Import(path)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		for _, name := range pkg.Scope().Names() {
			if o := pkg.Scope().Lookup(name); o.Exported() {
				writeObject(&b, strings.TrimPrefix(cmp.Or(strings.TrimPrefix(path, module), "/whylate"), "/"), o)
			}
		}
	}
	return b.Bytes(), nil
}

// writeObject writes a line for an exported object of a package and, for a type, one for each exported field and method.
func writeObject(b *bytes.Buffer, pkg string, o types.Object) {
	short := types.Qualifier((*types.Package).Name)
	writeLine := func(format string, args ...any) {
		fmt.Fprintln(b, strings.TrimRight(pkg+": "+fmt.Sprintf(format, args...), " "))
	}
	typeText := func(t types.Type) string { return types.TypeString(t, short) }
	switch o := o.(type) {
	case *types.Const:
		writeLine("const %s %s = %s", o.Name(), typeText(o.Type()), o.Val().ExactString())
		return
	case *types.TypeName:
		name, underlying := o.Name(), o.Type().Underlying()
		s, isStruct := underlying.(*types.Struct)
		switch {
		case o.IsAlias():
			writeLine("type %s = %s", name, typeText(types.Unalias(o.Type())))
			return
		case !isStruct:
			writeLine("type %s %s", name, typeText(underlying))
		default:
			writeLine("type %s struct", name)
			for i := range s.NumFields() {
				if f := s.Field(i); f.Exported() {
					writeLine("field %s.%s %s %s", name, f.Name(), typeText(f.Type()), reflect.StructTag(s.Tag(i)).Get("json"))
				}
			}
		}
		for m := range types.NewMethodSet(types.NewPointer(o.Type())).Methods() {
			if f := m.Obj(); f.Exported() && !types.IsInterface(o.Type()) {
				writeLine("method %s.%s%s", name, f.Name(), strings.TrimPrefix(typeText(f.Type()), "func"))
			}
		}
		return
	}
	writeLine("%s", types.ObjectString(o, short))
}
