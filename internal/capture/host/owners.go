package host

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// TCP states as /proc/net/tcp writes them (include/net/tcp_states.h).
const (
	tcpEstablished = 0x01
	tcpListen      = 0x0A
)

// A tcpEntry is a line of /proc/net/tcp or tcp6.
type tcpEntry struct {
	local, remote netip.AddrPort
	state         uint8
	inode         uint64
}

// parseTCP reads /proc/net/tcp or tcp6 (Documentation/networking/proc_net_tcp.rst). Addresses are
// hexadecimal, in 32-bit words of the machine's byte order. Lines of another form are skipped.
// Sandboxes such as gVisor have these files, but not sock_diag, which has more data
// (sockdiag_linux.go).
func parseTCP(text []byte) []tcpEntry {
	var list []tcpEntry
	for line := range bytes.Lines(text) {
		f := bytes.Fields(line)
		if len(f) < 10 {
			continue
		}
		local, ok1 := parseAddrPort(f[1])
		remote, ok2 := parseAddrPort(f[2])
		state, err := strconv.ParseUint(string(f[3]), 16, 8)
		inode, err2 := strconv.ParseUint(string(f[9]), 10, 64)
		if !ok1 || !ok2 || err != nil || err2 != nil {
			continue // the heading
		}
		list = append(list, tcpEntry{local, remote, uint8(state), inode})
	}
	return list
}

// parseAddrPort parses an address as in /proc/net/tcp and tcp6: hexadecimal words in the machine's byte order, a colon and a hexadecimal port. An
// IPv4 address in IPv6 form becomes IPv4. It is false for a text of another form.
func parseAddrPort(b []byte) (netip.AddrPort, bool) {
	addr, port, ok := bytes.Cut(b, []byte(":"))
	p, err := strconv.ParseUint(string(port), 16, 16)
	if !ok || err != nil || len(addr) != 8 && len(addr) != 32 {
		return netip.AddrPort{}, false
	}
	raw := make([]byte, len(addr)/2)
	if _, err := hex.Decode(raw, addr); err != nil {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	a, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), true
}

// readTCP reads the TCP sockets, of IPv4 and then IPv6, in the network namespace of a process. dir is the directory of the process in fsys, a /proc.
// Without IPv6 there are none of it.
func readTCP(fsys fs.FS, dir string) ([]tcpEntry, error) {
	v4, err := fs.ReadFile(fsys, path.Join(dir, "net/tcp"))
	if err != nil {
		return nil, fmt.Errorf("listing TCP sockets: %w", err)
	}
	list := parseTCP(v4)
	if v6, err := fs.ReadFile(fsys, path.Join(dir, "net/tcp6")); err == nil { // no IPv6: no file
		list = append(list, parseTCP(v6)...)
	}
	return list, nil
}

// listeningInodes returns the inodes of the sockets in the list that accept connections to the port at one of the addresses. As in the kernel,
// sockets bound to one of the addresses win over sockets bound to a wildcard.
func listeningInodes(list []tcpEntry, addrs []netip.Addr, port uint16) []uint64 {
	var exact, wildcard []uint64
	for _, e := range list {
		if e.state != tcpListen || e.local.Port() != port {
			continue
		}
		switch {
		case slices.Contains(addrs, e.local.Addr()):
			exact = append(exact, e.inode)
		case e.local.Addr().IsUnspecified():
			wildcard = append(wildcard, e.inode)
		}
	}
	if len(exact) > 0 {
		return exact
	}
	return wildcard
}

// acceptedInode returns the inode of the server's socket of an established connection; 0 if the list
// lacks it or no process has accepted it yet.
func acceptedInode(list []tcpEntry, client, server netip.AddrPort) uint64 {
	client = netip.AddrPortFrom(client.Addr().Unmap().WithZone(""), client.Port())
	server = netip.AddrPortFrom(server.Addr().Unmap().WithZone(""), server.Port())
	for _, e := range list {
		if e.state == tcpEstablished && e.local == server && e.remote == client {
			return e.inode
		}
	}
	return 0
}

// Owners are the processes that have certain sockets open.
type Owners struct {
	PIDs []int
	// Unreadable counts processes whose files could not be looked at.
	Unreadable int
}

// findOwners returns the processes, in ascending order, that have at least one of the sockets with the given inodes open, and the number of those
// whose files it could not read.
func findOwners(procfs fs.FS, inodes []uint64) Owners {
	var o Owners
	if len(inodes) == 0 {
		return o
	}
	entries, err := fs.ReadDir(procfs, ".")
	if err != nil {
		return o
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid <= 0 {
			continue
		}
		switch held, err := socketInodes(procfs, e.Name()); {
		case err != nil:
			o.Unreadable++
		case slices.ContainsFunc(inodes, func(n uint64) bool { return held[n] }):
			o.PIDs = append(o.PIDs, pid)
		}
	}
	slices.Sort(o.PIDs)
	return o
}

// socketInodes returns the set of inodes of the sockets that a process has open. process is the name of its directory in procfs.
func socketInodes(procfs fs.FS, process string) (map[uint64]bool, error) {
	dir := path.Join(process, "fd")
	fds, err := fs.ReadDir(procfs, dir)
	if err != nil {
		return nil, err
	}
	held := map[uint64]bool{}
	for _, fd := range fds {
		target, err := fs.ReadLink(procfs, path.Join(dir, fd.Name()))
		if err != nil {
			continue // closed since
		}
		if n, ok := strings.CutPrefix(target, "socket:["); ok {
			if inode, err := strconv.ParseUint(strings.TrimSuffix(n, "]"), 10, 64); err == nil {
				held[inode] = true
			}
		}
	}
	return held, nil
}
