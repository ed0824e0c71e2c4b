package finding

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/report"
)

// TestEndsOfLoss: the other end is named, whoever sent again, and no network where none lies between.
func TestEndsOfLoss(t *testing.T) {
	for _, c := range []struct {
		sockets []string
		names   string
		here    bool
	}{
		{[]string{"10.0.0.1:40000 -> 10.0.0.2:5432"}, "to 10.0.0.2:5432", false},
		{[]string{"10.0.0.1:40000 <- 10.0.0.2:5432"}, "from 10.0.0.2:5432", false},
		{[]string{"127.0.0.1:40000 -> 127.0.0.1:5432", "[::1]:4 -> [::1]:6379"}, "to 127.0.0.1:5432 and to [::1]:6379", true},
		{[]string{"127.0.0.1:40000 -> 127.0.0.1:5432", "10.0.0.1:4 -> 10.0.0.3:6379"}, "to 127.0.0.1:5432 and to 10.0.0.3:6379", false},
		{nil, "of its peers", false},
	} {
		met := []*report.HostWait{{Sockets: c.sockets}}
		if names, here := remotes(met), onThisHost(met); names != c.names || here != c.here {
			t.Errorf("%s: %q, on this host %v", strings.Join(c.sockets, ", "), names, here)
		}
	}
}
