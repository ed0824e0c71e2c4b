package modules

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestIsOwn checks which code belongs to the service, for each source of information. It detects a dependency that
// counts as the service (the report would then advise to change its lines), and the reverse (the report would then
// name none of the service's lines).
func TestIsOwn(t *testing.T) {
	build := &Build{Main: Module{Path: "example.org/shop"}, Deps: []Module{
		{"github.com/jackc/pgx/v5", "v5.7.0"}, {"example.org/shop/client", "v1.2.0"}, {"example.org/tools", ""},
	}}
	for _, c := range []struct {
		name     string
		opts     Options
		main     string
		fn, file string
		want     bool
	}{
		{"the main package", Options{Build: build}, "", "main.run", "/src/x.go", true},
		{"the main module", Options{Build: build}, "", "example.org/shop/cart.(*Cart).Sum", "/home/u/shop/cart/x.go", true},
		{"a path that only begins like the module's", Options{Build: build}, "", "example.org/shopping.F", "/home/u/x.go", false},
		{"a dependency", Options{Build: build}, "", "github.com/jackc/pgx/v5/pgconn.(*PgConn).Exec", "/home/u/go/pkg/mod/x.go", false},
		{"another module inside the main one", Options{Build: build}, "", "example.org/shop/client.Do", "/home/u/x.go", false},
		{"a local directory", Options{Build: build}, "", "example.org/tools/rig.Run", "/home/u/tools/x.go", true},
		{"the standard library", Options{Build: build}, "", "net/http.(*conn).serve", "/usr/lib/go/x.go", false},
		{"a literal of a dependency's function that main inlines", Options{Build: build}, "", "main.load.(*Conn).Query.func1", "/home/u/go/pkg/mod/github.com/jackc/pgx/v5@v5.7.0/conn.go", false},
		{"main in the module cache", Options{Build: build}, "", "main.load", "/home/u/go/pkg/mod/example.org/shop@v1.0.0/main.go", true},
		{"named paths have priority", Options{Build: build, OwnPaths: []string{"github.com/jackc/pgx/v5/"}}, "", "github.com/jackc/pgx/v5.Connect", "x.go", true},
		{"only named paths belong to the service", Options{OwnPaths: []string{"example.org/shop"}}, "", "example.org/other.F", "/home/u/other/x.go", false},
		{"a module inside, by its file", Options{OwnPaths: []string{"example.org/shop"}}, "", "example.org/shop/client.Do", "/m/example.org/shop/client@v1.0.0/x.go", false},
		{"a program installed at a version", Options{OwnPaths: []string{"example.org/shop"}}, "", "example.org/shop/cart.Sum", "/m/example.org/shop@v1.0.0/cart/x.go", true},

		{"by its file", Options{}, "", "example.org/shop/cart.Sum", "/home/u/shop/cart/x.go", true},
		{"a dependency by its file", Options{}, "", "github.com/lib/pq.Open", "github.com/lib/pq@v1.10.0/x.go", false},
		{"a vendored one", Options{}, "", "github.com/lib/pq.Open", "/home/u/shop/vendor/github.com/lib/pq/x.go", false},
		{"Bazel's", Options{}, "", "github.com/lib/pq.Open", "external/com_github_lib_pq/x.go", false},
		{"main has a version", Options{}, "/m/example.org/shop@v1.0.0/cmd/shop/main.go", "example.org/shop/cart.Sum", "/m/example.org/shop@v1.0.0/cart/x.go", true},
		{"main has a version, dependency", Options{}, "/m/example.org/shop@v1.0.0/cmd/shop/main.go", "github.com/lib/pq.Open", "/m/github.com/lib/pq@v1.10.0/x.go", false},
		{"a distribution's", Options{}, "/build/src/github.com/u/shop/cmd/shop/main.go", "github.com/u/shop/cart.Sum", "/build/src/github.com/u/shop/cart/x.go", true},
		{"a distribution's dependency", Options{}, "/build/src/github.com/u/shop/cmd/shop/main.go", "github.com/lib/pq.Open", "/build/src/github.com/lib/pq/x.go", false},
		{"sources in such a tree without its path", Options{}, "/home/u/src/github.com/u/shop/main.go", "example.org/shop/cart.Sum", "/home/u/src/github.com/u/shop/cart/x.go", true},
	} {
		s := New(c.opts)
		if c.main != "" {
			s.SetMainFile(c.main)
		}
		check.Equal(t, s.IsOwn(c.fn, c.file), c.want, "%s", c.name)
	}
}

// TestModuleOf checks the module and version of dependencies. It detects a path that is cut at the wrong element, and
// escapes of the module cache or the linker that remain.
func TestModuleOf(t *testing.T) {
	s := New(Options{Build: &Build{Main: Module{Path: "example.org/shop"}, Deps: []Module{{"github.com/a/b", "v1.0.0"}, {"github.com/a/b/v2", "v2.1.0"}}}})
	for _, c := range []struct{ fn, file, path, version string }{
		{"github.com/a/b/v2/x.F", "/m/x.go", "github.com/a/b/v2", "v2.1.0"},
		{"github.com/a/b/x.F", "/m/x.go", "github.com/a/b", "v1.0.0"},
		{"github.com/jackc/pgx/v5/pgconn.(*PgConn).Exec", "/root/go/pkg/mod/github.com/jackc/pgx/v5@v5.5.0/pgconn/pgconn.go", "github.com/jackc/pgx/v5", "v5.5.0"},
		{"google.golang.org/grpc.(*Server).handleStream", "google.golang.org/grpc@v1.85.0/server.go", "google.golang.org/grpc", "v1.85.0"},
		{"github.com/Shopify/sarama.New", "/m/github.com/!shopify/sarama@v1.38.1/x.go", "github.com/Shopify/sarama", "v1.38.1"},
		{"gopkg.in/yaml%2ev3.Unmarshal", "/m/gopkg.in/yaml.v3@v3.0.1/decode.go", "gopkg.in/yaml.v3", "v3.0.1"},
		{"github.com/lib/pq.Open", "/home/u/vendor/github.com/lib/pq/x.go", "", ""},
		{"other.org/x.F", "/m/github.com/lib/pq@v1.0.0/x.go", "", ""},
		{"main.load.F.func1", "/m/github.com/a/b@v1.0.0/x.go", "github.com/a/b", "v1.0.0"},
		{"net/http.Get", "/usr/lib/go/x@v1/y.go", "", ""},
		{"main.main", "/m/example.org/shop@v1.0.0/main.go", "", ""},
	} {
		if got := s.ModuleOf(c.fn, c.file); got != (Module{c.path, c.version}) {
			t.Errorf("%s in %s: %+v, want %s %s", c.fn, c.file, got, c.path, c.version)
		}
	}
}
