package freeport

import (
	"net"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
)

// TestFind: the ports differ and can be used. A listener that stays open, or one that is closed before the next port is asked
// for, fails.
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
