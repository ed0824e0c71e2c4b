// Resolver answers DNS questions from a cache, by miekg/dns, and asks an
// upstream server for what is not in it. Prometheus scrapes it. A request is a
// question.
//
// Faults: lock (the cache is locked while the upstream server is asked, which
// takes 15 ms), upstream (it takes 15 ms, and nothing is locked meanwhile).
package main

import (
	"fmt"
	"log"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"shop.example/shops/internal/run"
)

type resolver struct {
	mu        sync.Mutex
	cache     map[string]dns.RR
	questions atomic.Int64
}

// lookup returns the address of a name.
func (r *resolver) lookup(q dns.Question) (dns.RR, error) {
	r.mu.Lock()
	rr, ok := r.cache[q.Name]
	if ok {
		r.mu.Unlock()
		return rr, nil
	}
	if run.Fault("lock") {
		defer r.mu.Unlock()
		rr, err := upstream(q)
		if err == nil {
			r.cache[q.Name] = rr
		}
		return rr, err
	}
	r.mu.Unlock()
	rr, err := upstream(q)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cache[q.Name] = rr
	return rr, nil
}

// upstream asks the other server.
func upstream(q dns.Question) (dns.RR, error) {
	m := new(dns.Msg)
	m.SetQuestion(q.Name, q.Qtype)
	answer, err := dns.Exchange(m, *run.Peer)
	if err != nil {
		return nil, err
	}
	if len(answer.Answer) == 0 {
		return nil, fmt.Errorf("no answer for %s", q.Name)
	}
	return answer.Answer[0], nil
}

func (r *resolver) ServeDNS(w dns.ResponseWriter, m *dns.Msg) {
	r.questions.Add(1)
	answer := new(dns.Msg)
	answer.SetReply(m)
	if rr, err := r.lookup(m.Question[0]); err == nil {
		answer.Answer = []dns.RR{rr}
	} else {
		answer.Rcode = dns.RcodeServerFailure
	}
	w.WriteMsg(answer)
}

func (r *resolver) metrics(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, "# TYPE questions_total counter\nquestions_total %d\n", r.questions.Load())
}

// slow is the upstream server, which may be slow.
func slow(w dns.ResponseWriter, m *dns.Msg) {
	if run.Fault("lock") || run.Fault("upstream") {
		time.Sleep(15 * time.Millisecond)
	}
	answer := new(dns.Msg)
	answer.SetReply(m)
	rr := run.Must(dns.NewRR(m.Question[0].Name + " 300 IN A 192.0.2.1"))
	answer.Answer = []dns.RR{rr}
	w.WriteMsg(answer)
}

// ask asks for one of 100 names, in one case of 25 for one that nobody has asked for.
func ask(addr string) error {
	name := fmt.Sprintf("host%d.shop.example.", rand.IntN(100))
	if rand.IntN(25) == 0 {
		name = strings.ToLower(fmt.Sprintf("new%x.shop.example.", rand.Int64()))
	}
	m := new(dns.Msg)
	m.SetQuestion(name, dns.TypeA)
	answer, err := dns.Exchange(m, addr)
	if err == nil && answer.Rcode != dns.RcodeSuccess {
		err = fmt.Errorf("%s: %s", name, dns.RcodeToString[answer.Rcode])
	}
	return err
}

func main() {
	run.Parse("lock", "upstream")
	if *run.Load != "" {
		run.Clients(10, 15*time.Millisecond, func(int) error { return ask(*run.Load) })
	}
	if *run.AsPeer {
		log.Fatal(dns.ListenAndServe(*run.Listen, "udp", dns.HandlerFunc(slow)))
	}
	r := &resolver{cache: map[string]dns.RR{}}
	http.HandleFunc("/metrics", r.metrics)
	run.Profiles()
	go func() { log.Fatal(http.ListenAndServe(*run.Listen, nil)) }()
	log.Fatal(dns.ListenAndServe(*run.Listen, "udp", r))
}
