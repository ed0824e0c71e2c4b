// Signup takes addresses of people, and asks the DNS each time whether there is
// anybody who takes mail for them.
//
// Faults: slow (the DNS server, which is miekg/dns in the other process, takes
// 9 ms for an answer).
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/miekg/dns"

	"shop.example/shops/internal/run"
)

type signup struct{ resolver *net.Resolver }

func (s *signup) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.check(r.Context(), r.FormValue("mail")); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprintln(w, "welcome")
}

// check looks for who takes mail for an address.
func (s *signup) check(ctx context.Context, address string) error {
	_, domain, ok := strings.Cut(address, "@")
	if !ok {
		return fmt.Errorf("%q is no address", address)
	}
	mx, err := s.resolver.LookupMX(ctx, domain+".")
	if err == nil && len(mx) == 0 {
		err = fmt.Errorf("nobody takes mail for %s", domain)
	}
	return err
}

func answer(w dns.ResponseWriter, q *dns.Msg) {
	if run.Fault("slow") {
		time.Sleep(9 * time.Millisecond)
	}
	m := new(dns.Msg).SetReply(q)
	m.Answer = append(m.Answer, &dns.MX{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeMX, Class: dns.ClassINET, Ttl: 60}, Preference: 10, Mx: "mail.example."})
	w.WriteMsg(m)
}

func main() {
	run.Parse("slow")
	if *run.AsPeer {
		// Over TCP is who asks whether this is here already.
		go func() { log.Fatal(dns.ListenAndServe(*run.Listen, "tcp", dns.HandlerFunc(answer))) }()
		log.Fatal(dns.ListenAndServe(*run.Listen, "udp", dns.HandlerFunc(answer)))
	}
	s := &signup{&net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, *run.Peer)
	}}}
	run.ServePath("/signup", s)
}
