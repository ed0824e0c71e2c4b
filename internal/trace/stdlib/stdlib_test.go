package stdlib

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

func TestPackage(t *testing.T) {
	for _, c := range []struct {
		fn, pkg string
		std     bool
	}{
		{"net/http.(*conn).serve", "net/http", true},
		{"main.main", "main", false},
		{"main.handle[go.shape.struct { a/b.C }].func1", "main", false},
		{"github.com/x/y.(*T).M", "github.com/x/y", false},
		{"gopkg.in/yaml%2ev3.Unmarshal", "gopkg.in/yaml%2ev3", false},
		{"sort/mine.F", "sort/mine", false},
		{"internal/poll.(*FD).Read", "internal/poll", true},
		{"myapp/internal/store.Get", "myapp/internal/store", false},
		{"net/http/internal/http2.(*serverConn).runHandler", "net/http/internal/http2", true},
		{"vendor/golang.org/x/net/http2/hpack.Encode", "vendor/golang.org/x/net/http2/hpack", true},
		{"golang.org/x/net/http2.(*serverConn).runHandler", "golang.org/x/net/http2", false},
		{"slices.SortFunc[go.shape.[]int,go.shape.int]", "slices", true},
		{"_cgo_sys_thread_start", "_cgo_sys_thread_start", true},
		{"iter.Pull[...].func1", "iter", true},
		{"", "", true},
	} {
		check.Equal(t, Package(c.fn), c.pkg, "Package(%q)", c.fn)
		check.Equal(t, Contains(c.fn), c.std, "Is(%q)", c.fn)
	}
}
