//go:build !race

package scrape

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
)

// TestDNS: services that DNS names by address records and by SRV records are recorded. Discovery uses the resolvers of
// /etc/resolv.conf at port 53, so the test runs in a mount namespace where this file names its resolver.
func TestDNS(t *testing.T) {
	testfull.Need(t, "root, for another /etc/resolv.conf")
	const resolver = "127.0.0.77"
	if os.Getenv("WHYLATE_DNS") == "" {
		c := exec.Command("unshare", "-m", "sh", "-c", `mount --bind "$1" /etc/resolv.conf && exec "$0" -test.run '^TestDNS$' -test.v`, os.Args[0], writeFile(t, "resolv.conf", "nameserver "+resolver+"\n"))
		c.Env = append(os.Environ(), "WHYLATE_DNS=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	_, port, err := net.SplitHostPort(newProfiledServer(t).Listener.Addr().String())
	must.Do(t, err)
	listener, err := net.ListenPacket("udp", resolver+":53")
	must.Do(t, err)
	server := &dns.Server{PacketConn: listener, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		answer := new(dns.Msg).SetReply(q)
		for _, record := range []string{"by-address.test. 1 IN A 127.0.0.1", "pod.test. 1 IN A 127.0.0.1", "_pprof._tcp.by-host.test. 1 IN SRV 1 1 " + port + " pod.test."} {
			r, err := dns.NewRR(record)
			if err != nil {
				t.Error(err)
			} else if question := q.Question[0]; strings.EqualFold(r.Header().Name, question.Name) && r.Header().Rrtype == question.Qtype {
				answer.Answer = append(answer.Answer, r)
			}
		}
		_ = w.WriteMsg(answer)
	})}
	go func() { _ = server.ActivateAndServe() }()
	defer func() { _ = server.Shutdown() }()
	s := newScraper(t, fmt.Sprintf(`
scrape_configs:
  - {job_name: by-address, dns_sd_configs: [{names: [by-address.test], type: A, port: %s}]}
  - {job_name: by-host, dns_sd_configs: [{names: [_pprof._tcp.by-host.test]}]}
`, port))
	accepted := make(chan string, 100)
	s.Accept = func(_ context.Context, service string, _ io.Reader) (string, error) {
		accepted <- service
		return "id", nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	for missing := map[string]bool{"by-address": true, "by-host": true}; len(missing) > 0; {
		delete(missing, <-accepted)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
