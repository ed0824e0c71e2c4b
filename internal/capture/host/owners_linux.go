package host

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

func procFS() fs.FS { return os.DirFS("/proc") }

// ownThread is the directory of the calling thread. That of the process, "self", is its main thread's, which stays in another network
// namespace if the goroutine that read the sockets of a container happened to run on it: a locked main thread does not end.
const ownThread = "thread-self"

// LocalAddrs resolves a host name, within a second, and returns those of its addresses that belong to this machine: loopback addresses and addresses
// of the machine's interfaces. An unspecified address counts as local. The result is nil if the name does not resolve.
func LocalAddrs(ctx context.Context, name string) []netip.Addr {
	addrs := []netip.Addr{}
	if a, err := netip.ParseAddr(name); err == nil {
		addrs = append(addrs, a)
	} else {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if addrs, err = net.DefaultResolver.LookupNetIP(ctx, "ip", name); err != nil {
			return nil
		}
	}
	interfaceAddrs := map[netip.Addr]bool{}
	if list, err := net.InterfaceAddrs(); err == nil {
		for _, a := range list {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				interfaceAddrs[p.Addr().WithZone("").Unmap()] = true
			}
		}
	}
	var local []netip.Addr
	for _, a := range addrs {
		a = a.WithZone("").Unmap()
		if a.IsLoopback() || a.IsUnspecified() || interfaceAddrs[a] {
			local = append(local, a)
		}
	}
	return local
}

// Listeners returns the processes of this host that accept connections to the port at one of the
// addresses. An unspecified address (0.0.0.0) means loopback, as in connect(2).
func Listeners(addrs []netip.Addr, port uint16) (Owners, error) {
	list, err := readTCP(procFS(), ownThread)
	if err != nil {
		return Owners{}, err
	}
	if slices.ContainsFunc(addrs, netip.Addr.IsUnspecified) {
		addrs = append(slices.Clip(addrs), netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
	}
	return findOwners(procFS(), listeningInodes(list, addrs, port)), nil
}

// Acceptor returns the process that has accepted a connection of the calling process, given by its two ends as that process sees them. The result has
// no process as long as none has accepted the connection.
func Acceptor(client, server netip.AddrPort) (Owners, error) {
	list, err := readTCP(procFS(), ownThread)
	if err != nil {
		return Owners{}, err
	}
	if inode := acceptedInode(list, client, server); inode != 0 {
		return findOwners(procFS(), []uint64{inode}), nil
	}
	return Owners{}, nil
}

// CommandLine returns the arguments of a process, separated by zero bytes as in /debug/pprof/cmdline; false for a thread of the kernel and if it
// cannot be read.
func CommandLine(pid int) (string, bool) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil || len(b) == 0 {
		return "", false
	}
	return string(bytes.TrimSuffix(b, []byte{0})), true
}

// ProgramName returns the short name of a process's program, "" if it cannot be read.
func ProgramName(pid int) string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}

// ListeningPorts returns the TCP ports on which a process accepts connections; nil if its files cannot be read.
func ListeningPorts(pid int) (ports []uint16) {
	process := strconv.Itoa(pid)
	list, err := readTCP(procFS(), process)
	if err != nil {
		return nil
	}
	inodes, err := socketInodes(procFS(), process)
	if err != nil {
		return nil
	}
	for _, e := range list {
		if e.state == tcpListen && inodes[e.inode] {
			ports = append(ports, e.local.Port())
		}
	}
	return ports
}

// ContainerPID returns the first process of a container, whose identifier or its beginning is in the names of its control groups.
func ContainerPID(id string) (int, error) { return containerPID(procFS(), id) }

// containerPID returns the smallest process id below proc (a /proc) with a control group whose path contains the container's id; an error if there is
// none.
func containerPID(proc fs.FS, id string) (pid int, err error) {
	entries, err := fs.ReadDir(proc, ".")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil || pid != 0 && n > pid {
			continue
		}
		groups, err := fs.ReadFile(proc, e.Name()+"/cgroup")
		if err == nil && bytes.Contains(groups, []byte(id)) {
			pid = n
		}
	}
	if pid == 0 {
		return 0, fmt.Errorf("no process here is in a control group of container %s", id)
	}
	return pid, nil
}
