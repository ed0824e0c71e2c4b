//go:build !linux

package host

import (
	"context"
	"net/netip"
)

// Local returns none: processes are looked for on Linux only.
func Local(context.Context, string) []netip.Addr { return nil }

// Listeners returns none.
func Listeners([]netip.Addr, uint16) (Owners, error) { return Owners{}, nil }

// Acceptor returns none.
func Acceptor(netip.AddrPort, netip.AddrPort) (Owners, error) { return Owners{}, nil }

// CommandLine is not known.
func CommandLine(int) (string, bool) { return "", false }

// Name is not known.
func Name(int) string { return "" }
