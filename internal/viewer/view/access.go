package view

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// checkAllowed returns an error for a request that another web site may have caused: its host is no address or localhost, or a page of another site
// sent it. Links to the page itself are allowed.
func (s *Server) checkAllowed(r *http.Request) error {
	name := r.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if addr, err := netip.ParseAddr(name); err == nil {
		if !addr.IsLoopback() && !s.opts.Remote {
			return fmt.Errorf("this server answers to loopback addresses and localhost")
		}
	} else if !strings.EqualFold(name, "localhost") {
		// Anybody may own a name that resolves to this machine.
		return fmt.Errorf("this server answers to addresses and localhost, not to other names")
	}
	// A link on another site may lead to the page, but to no other path.
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		if r.URL.Path != "/" || r.Header.Get("Sec-Fetch-Mode") != "navigate" {
			return fmt.Errorf("this server answers to its own page")
		}
	}
	return nil
}
