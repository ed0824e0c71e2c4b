package wire_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
)

// knownReaders lists the code of the tool that could read without a bound: file, function, and what
// bounds it.
var knownReaders = map[string]string{
	"internal/experiment/load/http1.go net.Dialer":               "answers are read by wire.Reader, bodies thrown away",
	"internal/experiment/load/http1.go tls.Client":               "the same connection; crypto/tls bounds handshakes",
	"internal/experiment/load/http.go net.Dialer":                "for a transport of wire.Client",
	"internal/capture/record/client.go net.Dialer":               "for a transport of wire.Transport",
	"internal/experiment/sweep/service_linux.go net.DialTimeout": "checks whether a process listens and reads nothing",
	"fleet/internal/enginetest/enginetest.go net.DialTimeout":    "checks whether an engine of a test listens and reads nothing",
	"fleet/internal/outgoing/outgoing.go net.Dialer":             "for a transport of wire.Client",
	"fleet/internal/server/viewer.go net.Dialer":                 "for a transport of wire.Transport",
	"kube/internal/kubetest/kubelet.go net.Dial":                 "a kubelet for tests that forwards what it reads",
	"internal/experiment/demo/service.go net.Dial":               "the demo's own service, in its own process",
	"internal/capture/bundle/reader.go io.ReadAll":               "the stream of an entry ends at its bound",
}

// wireOnly lists functions and types that only package wire may use, except as arguments of its
// functions.
var wireOnly = []string{
	"http.Client", "http.Transport", "http.ReadResponse", "http.DefaultClient", "http.DefaultTransport", "http.Get", "http.Head", "http.Post", "http.PostForm",
	"textproto.NewReader", "textproto.NewConn", "httputil.NewClientConn",
}

// readerFunctions lists functions and types that only the files in knownReaders may use.
var readerFunctions = []string{"net.Dial", "net.DialTimeout", "net.DialTCP", "net.DialUnix", "net.DialUDP", "net.DialIP", "net.Dialer", "tls.Dial", "tls.DialWithDialer", "tls.Dialer", "tls.Client", "io.ReadAll"}

// TestReaders checks the tool's source: code that connects to a peer uses package wire, or is in
// knownReaders.
func TestReaders(t *testing.T) {
	const root = "../../.."
	found := map[string]bool{}
	files := 0
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, name)
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			switch {
			case rel == "internal/testing", rel == "internal/capture/wire", d.Name() == "testdata", d.Name() != ".." && rel != "." && strings.HasPrefix(d.Name(), "."):
				return filepath.SkipDir
			case rel == "service", rel == "adapters", rel == "lab", rel == "stories", rel == "tools": // not a part of the tool
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		files++
		uses, wrong, err := readerUses(name)
		if err != nil {
			return err
		}
		for _, w := range wrong {
			t.Errorf("%s: %s", rel, w)
		}
		for _, u := range uses {
			found[rel+" "+u] = true
		}
		return nil
	})
	must.Do(t, err)
	for _, use := range slices.Sorted(maps.Keys(found)) {
		check.True(t, knownReaders[use] != "", "%s: what bounds it? Read by package wire (or io.LimitReader), and list it", use)
	}
	absent := must.Have(testprog.AbsentModules(root))(t)
	for use := range knownReaders {
		check.False(t, !found[use] && !testprog.IsBelow(use, absent), "%s is listed, but there is no such reader", use)
	}
	check.True(t, files >= 200, "only %d files were read", files)
}

// readerUses returns the readerFunctions that a file uses, and as wrong its uses of wireOnly.
func readerUses(name string) (uses, wrong []string, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	allowed := map[ast.Node]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if allowed[n] {
			return false
		}
		switch n := n.(type) {
		case *ast.StarExpr: // a pointer to a client from elsewhere
			if s := selector(n.X); s == "http.Client" || s == "http.Transport" {
				return false
			}
		case *ast.CallExpr:
			switch selector(n.Fun) {
			case "wire.Client", "wire.Transport":
				// &http.Transport{...}: the fields of the literal are still checked.
				if u, ok := n.Args[0].(*ast.UnaryExpr); ok && u.Op == token.AND {
					if lit, ok := u.X.(*ast.CompositeLit); ok {
						allowed[lit.Type] = true
					}
				}
			case "io.ReadAll":
				if c, ok := n.Args[0].(*ast.CallExpr); ok && selector(c.Fun) == "io.LimitReader" {
					allowed[n.Fun] = true
				}
			}
		case *ast.SelectorExpr:
			s := selector(n)
			if slices.Contains(wireOnly, s) {
				wrong = append(wrong, fmt.Sprintf("line %d uses %s: let package wire make clients and read answers", set.Position(n.Pos()).Line, s))
			}
			if slices.Contains(readerFunctions, s) {
				uses = append(uses, s)
			}
		}
		return true
	})
	return uses, wrong, nil
}

// selector returns a qualified name as it is written, "" for any other expression.
func selector(e ast.Expr) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, ok := s.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return x.Name + "." + s.Sel.Name
}
