// Package outgoing connects to addresses that users of the fleet configure: targets of a scrape and receivers of webhooks. It
// refuses private addresses that the operator has not allowed: otherwise a user could reach servers that only this machine or
// its network can reach.
package outgoing

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/whylate/whylate/internal/capture/wire"
)

// ErrRefused is returned for a private address that no allowed range contains.
var ErrRefused = errors.New("the address is private and in no range of -allow-private")

// specialRanges are the ranges that are not publicly routable and that net/netip does not know. Source: the registries of IANA
// for special purposes (https://www.iana.org/assignments/iana-ipv4-special-registry, and ipv6), and the IPv6 ranges that embed
// IPv4 addresses.
var specialRanges = func() (out AllowedRanges) {
	for s := range strings.FieldsSeq(`0.0.0.0/8 100.64.0.0/10 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4
		::/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 2001::/23 2001:db8::/32 2002::/16 3fff::/20 5f00::/16 fec0::/10`) {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}()

// AllowedRanges are private ranges that may be reached.
type AllowedRanges []netip.Prefix

// ParseRanges parses ranges such as 10.0.0.0/8 that are separated by commas; none for "".
func ParseRanges(list string) (out AllowedRanges, err error) {
	for s := range strings.SplitSeq(list, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("%q is no range such as 10.0.0.0/8", s)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

func (a AllowedRanges) contains(ip netip.Addr) bool {
	return slices.ContainsFunc(a, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// Check returns ErrRefused for a private address outside of all allowed ranges.
func (a AllowedRanges) Check(ip netip.Addr) error {
	ip = ip.Unmap().WithZone("")
	if ip.IsGlobalUnicast() && !ip.IsPrivate() && !specialRanges.contains(ip) || a.contains(ip) {
		return nil
	}
	return fmt.Errorf("%s: %w", ip, ErrRefused)
}

// Dialer returns a dialer that connects only to addresses that Check permits. It checks the address after the name is resolved,
// so a change of the DNS record cannot bypass the check.
func (a AllowedRanges) Dialer() *net.Dialer {
	return &net.Dialer{Timeout: 10 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return a.Check(to.Addr())
	}}
}

// Client returns an HTTP client that connects only to addresses that Check permits. timeout bounds the request with its whole
// answer. The client follows no redirect and uses no proxy: a proxy would connect to any address.
func (a AllowedRanges) Client(timeout time.Duration) *http.Client {
	c := wire.Client(&http.Transport{DialContext: a.Dialer().DialContext, TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true, MaxIdleConns: 4, IdleConnTimeout: time.Minute})
	c.Timeout = timeout
	return c
}
