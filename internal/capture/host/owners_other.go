//go:build !linux

package host

import (
	"context"
	"errors"
	"net/netip"
)

// LocalAddrs returns none: host samples exist on Linux only.
func LocalAddrs(context.Context, string) []netip.Addr { return nil }

// Listeners finds no process.
func Listeners([]netip.Addr, uint16) (Owners, error) { return Owners{}, nil }

// Acceptor finds no process.
func Acceptor(netip.AddrPort, netip.AddrPort) (Owners, error) { return Owners{}, nil }

// CommandLine reports false.
func CommandLine(int) (string, bool) { return "", false }

// ProgramName returns "".
func ProgramName(int) string { return "" }

// ContainerPID returns an error.
func ContainerPID(string) (int, error) { return 0, errors.New("containers are found on Linux only") }
