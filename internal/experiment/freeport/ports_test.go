package freeport

import (
	"net"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
)

// TestFind: the ports differ and are usable. It fails if a listener stays open, or if one is closed
// before the next port is chosen.
func TestFind(t *testing.T) {
	ports, err := Find(20)
	if err != nil || len(ports) != 20 {
		t.Fatal(ports, err)
	}
	for _, p := range ports {
		l := must.Have(net.Listen("tcp", "127.0.0.1:"+p))(t)
		defer l.Close()
	}
}
