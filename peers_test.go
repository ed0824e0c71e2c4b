package whylate_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testprog"
	"github.com/whylate/whylate/report"
)

// TestNoPeers: no service of lab/truth asks itself, and many wait for peers of which requests of their own could lie in the
// waits by chance. It would catch a peer told of because two groups have work at the same time.
func TestNoPeers(t *testing.T) {
	for _, name := range testprog.Services(t) {
		rep := explainBytes(t, testprog.Service(t, name).Trace, whylate.Options{Name: name})
		for i := range rep.Groups {
			if g := &rep.Groups[i]; g.Peer != nil {
				t.Errorf("%s: %s waits for its own %s: %+v", name, g.Name, g.Peer.Name, g.Peer)
			}
		}
	}
}

// TestPeers: etcd's gateway asks its own gRPC server over loopback, which its source says. It would catch an answer that ends at
// the network, as if somebody else had it.
func TestPeers(t *testing.T) {
	for name, serves := range map[string]string{"etcd-puts": "(*quotaKVServer).Put", "etcd-reads": "(*kvServer).Range", "etcd-reads-neighbours": "(*kvServer).Range"} {
		rep := explainFile(t, filepath.Join(testprog.FieldDir, name+".whylate"))
		judgePeer(t, rep, "(*accessController).ServeHTTP", serves)
		for _, f := range rep.Findings {
			if f.Code == report.RuleSlowPeer && (f.Severity == report.SeverityHigh || f.Severity == report.SeverityMedium) {
				t.Errorf("%s: a peer is blamed that is this process: %s", name, f.Title)
			}
		}
	}
}

// judgePeer holds a report against which group serves what the requests of another one wait for.
func judgePeer(t *testing.T, rep *report.Report, asks, serves string) {
	t.Helper()
	for i := range rep.Groups {
		g := &rep.Groups[i]
		if !strings.HasSuffix(g.Name, asks) {
			continue
		}
		p := g.Peer
		if p == nil || !strings.HasSuffix(p.Name, serves) || p.Confidence < 0.8 || p.ServedNS > p.WaitNS || p.ByChance > 0.3 {
			t.Errorf("%s waits for %+v, want %s", g.Name, p, serves)
		}
		if v := rep.Verdict[0].Text; !strings.Contains(v, "this process's own") {
			t.Errorf("the verdict does not say whose answer is waited for: %s", v)
		}
		return
	}
	t.Errorf("no group is %s", asks)
}
