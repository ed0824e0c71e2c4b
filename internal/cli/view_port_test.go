package cli

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestViewPort: a file has the same port each time, and two views of it have different ports.
func TestViewPort(t *testing.T) {
	v := viewFlags{listen: "127.0.0.1:0"}
	first, err := v.listenForFile("some.trace")
	must.Do(t, err)
	defer first.Close()
	second, err := v.listenForFile("some.trace")
	must.Do(t, err, "a second view of a file")
	defer second.Close()
	check.True(t, first.Addr().String() != second.Addr().String(), "two views share %s", first.Addr())
	address := first.Addr().String()
	first.Close()
	again, err := v.listenForFile("some.trace")
	must.Do(t, err)
	defer again.Close()
	if again.Addr().String() != address {
		t.Skipf("%s was taken by another program: at first, or in between", address)
	}
}

// TestSocket: --listen may name a Unix socket, which other machines cannot reach.
func TestSocket(t *testing.T) {
	dir := must.Have(os.MkdirTemp("", ""))(t) // t.TempDir may be longer than the path of a socket
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	v := viewFlags{listen: socketPrefix + path}
	must.Do(t, v.checkAddress(newView(&streams{})))
	l := must.Have(v.listenForFile("some.trace"))(t)
	defer l.Close()
	conn := must.Have(net.Dial("unix", path))(t)
	must.Do(t, conn.Close())
}
