package knowledge

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestActivity checks in the source of net/http that each function makes the calls that are described. It detects
// a misspelt name and a name that the library no longer has, so that its description is never used.
func TestActivity(t *testing.T) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skipf("go does not say where its library is: %v", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(root)), "src", "net", "http")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("there is no source of the standard library here")
	}
	calls := map[string]map[string]bool{} // by function or method, the names that it calls
	for _, name := range []string{"server.go", "transport.go"} {
		f := must.Have(parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, 0))(t)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			callees := calls[fn.Name.Name]
			if callees == nil {
				callees = map[string]bool{}
				calls[fn.Name.Name] = callees
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectStmt:
					callees["selectgo"] = true
				case *ast.SendStmt:
					callees["chansend1"] = true
				case *ast.CallExpr:
					switch f := n.Fun.(type) {
					case *ast.SelectorExpr:
						callees[f.Sel.Name] = true
					case *ast.Ident:
						callees[f.Name] = true
					}
				}
				return true
			})
		}
	}
	last := func(fn string) string { return fn[strings.LastIndexByte(fn, '.')+1:] }
	for fn, callees := range activities() {
		for callee := range callees {
			check.True(t, calls[last(fn)][last(callee)], "%s does not call %s", fn, callee)
		}
	}
	check.Equal(t, Activity("net/http.(*conn).serve", "crypto/tls.(*Conn).HandshakeContext"), "TLS handshake",
		"a handshake is described as")
	check.Equal(t, Activity("net/http.(*conn).serve", "runtime.gopark"), "", "an unknown call is described as")
}
