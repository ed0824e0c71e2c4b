package outgoing

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/must"
)

// TestCheck: addresses that are not publicly routable are refused in all their spellings, unless they are listed.
func TestCheck(t *testing.T) {
	for _, ip := range []string{"127.0.0.1", "::1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "::", "224.0.0.1", "255.255.255.255",
		"fe80::1%eth0", "fc00::1", "fd00:ec2::254", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "198.18.0.1", "ff02::1"} {
		if err := AllowedRanges(nil).Check(netip.MustParseAddr(ip)); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", ip, err)
		}
	}
	for _, ip := range []string{"1.1.1.1", "8.8.8.8", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8"} {
		if err := AllowedRanges(nil).Check(netip.MustParseAddr(ip)); err != nil {
			t.Errorf("%s: %v", ip, err)
		}
	}
	a := must.Have(ParseRanges("10.2.0.0/16, ::1/128,"))(t)
	for ip, ok := range map[string]bool{"10.2.3.4": true, "::ffff:10.2.3.4": true, "::1": true, "10.3.0.0": false, "127.0.0.1": false} {
		if err := a.Check(netip.MustParseAddr(ip)); (err == nil) != ok {
			t.Errorf("%s: %v", ip, err)
		}
	}
	if _, err := ParseRanges("10.0.0.0"); err == nil {
		t.Error("an address is no range")
	}
}

// TestClient: a name that resolves to a private address is refused at the connection, and a redirect is not followed.
func TestClient(t *testing.T) {
	requests := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	defer s.Close()
	if _, err := AllowedRanges(nil).Client(time.Minute).Get(s.URL); !errors.Is(err, ErrRefused) || requests != 0 {
		t.Errorf("%v, asked %d times", err, requests)
	}
	a, err := ParseRanges("127.0.0.0/8")
	must.Do(t, err)
	res, err := a.Client(time.Minute).Get(s.URL)
	must.Do(t, err)
	if _ = res.Body.Close(); res.StatusCode != http.StatusFound || requests != 1 {
		t.Errorf("%s, asked %d times", res.Status, requests)
	}
}
