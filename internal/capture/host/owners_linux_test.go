package host

import (
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

func TestListenersByPort(t *testing.T) {
	for _, c := range []struct{ name, listen, ask string }{
		{"IPv4", "127.0.0.1:0", "127.0.0.1"},
		{"IPv6", "[::1]:0", "::1"},
		{"wildcard of both, by IPv4", "[::]:0", "127.0.0.1"},
		{"wildcard of both, by IPv6", "[::]:0", "::1"},
		{"wildcard of IPv4", "0.0.0.0:0", "127.0.0.1"},
		{"unspecified", "127.0.0.1:0", "0.0.0.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.listen[0] == '[' {
				l, err := net.Listen("tcp6", "[::1]:0")
				if err != nil {
					t.Skipf("no IPv6 here: %v", err)
				}
				l.Close()
			}
			cmd, line := start(t, nil, "listen "+c.listen)
			address := netip.MustParseAddrPort(line)
			addrs := LocalAddrs(t.Context(), c.ask)
			must.Equal(t, len(addrs), 1, "%q is %v, want an address of this host", c.ask, addrs)
			found, err := Listeners(addrs, address.Port())
			check.True(t, err == nil && slices.Equal(found.PIDs, []int{cmd.Process.Pid}), "processes %v, %v; want %d", found, err, cmd.Process.Pid)
		})
	}
}

func TestListenersKeepsSpareCapacity(t *testing.T) {
	addrs := append(make([]netip.Addr, 0, 3), netip.IPv4Unspecified())
	must.Have(Listeners(addrs, 1))(t)
	check.True(t, !addrs[:2][1].IsValid(), "the caller's array is %v", addrs[:3])
}

// If several processes share a port, Acceptor finds the one that has accepted the connection. The
// child sends its process number.
func TestAcceptorOfASharedPort(t *testing.T) {
	first, line := start(t, nil, "listen 127.0.0.1:0")
	second, _ := start(t, nil, "listen "+line)
	address := netip.MustParseAddrPort(line)
	found, err := Listeners([]netip.Addr{address.Addr()}, address.Port())
	want := []int{first.Process.Pid, second.Process.Pid}
	slices.Sort(want)
	must.True(t, err == nil && slices.Equal(found.PIDs, want), "processes %v, %v; want %v", found, err, want)
	acceptors := map[int]bool{}
	for range 40 {
		c := must.Have(net.Dial("tcp", line))(t)
		var acceptorPID int
		must.Have(fmt.Fscanln(c, &acceptorPID))(t)
		local, remote := c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
		got, err := Acceptor(local, remote)
		must.True(t, err == nil && slices.Equal(got.PIDs, []int{acceptorPID}), "connection of %v, %v; it says %d", got, err, acceptorPID)
		c.Close()
		acceptors[acceptorPID] = true
		if len(acceptors) == 2 {
			return
		}
	}
	t.Skip("the kernel gave all 40 connections to one process")
}

func TestForeignAddresses(t *testing.T) {
	for _, a := range []string{"192.0.2.1", "2001:db8::1"} {
		if got := LocalAddrs(t.Context(), a); len(got) != 0 {
			t.Errorf("%s is %v of this host", a, got)
		}
	}
}

// link returns a symbolic link.
func link(to string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink} }

const tcpText = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0000000000000000 100 0 0 10 0
   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 4243 1 0000000000000000 20 4 30 10 -1
   2: 00000000:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4244 1 0000000000000000 100 0 0 10 0
 bad line
   3: 0100007F:XYZ 00000000:0000 0A 0 0 0 0 0 4245
`

const tcp6Text = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000000000000:1F92 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4250 1 0000000000000000 100 0 0 10 0
   1: 0000000000000000FFFF00000100007F:1F92 0000000000000000FFFF00000100007F:C351 01 00000000:00000000 00:00000000 00000000     0        0 4251 1 0000000000000000 20 4 0 10 -1
   2: B80D01200000000000000000010000000:1F92 00000000000000000000000000000000:0000 0A 0 0 0 0 0 1 1
`

func TestSocketTables(t *testing.T) {
	if !littleEndian() {
		t.Skip("the texts are of a little-endian machine")
	}
	loop := netip.MustParseAddr("127.0.0.1")
	fsys := fstest.MapFS{
		"self/net/tcp":  {Data: []byte(tcpText)},
		"self/net/tcp6": {Data: []byte(tcp6Text)},
		"17/fd/3":       link("socket:[4242]"),
		"17/fd/4":       link("socket:[4243]"),
		"18/fd/0":       link("/dev/null"),
		"19/fd/7":       link("socket:[4251]"),
		"20/status":     {Data: []byte("no rights to look at fd")},
		"uptime":        {Data: []byte("1")},
	}
	list, err := readTCP(fsys, "self")
	must.True(t, err == nil && len(list) == 5, "%d sockets, %v: %v", len(list), err, list)
	for _, c := range []struct {
		port uint16
		want []uint64
	}{{8080, []uint64{4242}}, {8081, []uint64{4244}}, {8082, []uint64{4250}}, {8083, nil}} {
		if got := listeningInodes(list, []netip.Addr{loop}, c.port); !slices.Equal(got, c.want) {
			t.Errorf("port %d: inodes %v, want %v", c.port, got, c.want)
		}
	}
	check.Equal(t, acceptedInode(list, netip.MustParseAddrPort("127.0.0.1:50001"), netip.MustParseAddrPort("127.0.0.1:8082")), 4251,
		"a connection of IPv4 on a socket of both: inode")
	o := findOwners(fsys, []uint64{4242, 4251})
	check.True(t, slices.Equal(o.PIDs, []int{17, 19}) && o.Unreadable == 1, "owners %+v", o)
}

func littleEndian() bool {
	a, _ := parseAddrPort([]byte("0100007F:0050"))
	return a == netip.MustParseAddrPort("127.0.0.1:80")
}

func TestStatTexts(t *testing.T) {
	const tail = ` S 1 2 2 0 -1 4194304 1117 0 5 0 12 34 0 0 20 0 10 0 93274 3133440 409 18446744073709551615 1 2 3`
	for _, name := range []string{"svc", "a b", "x) S 1 2", "(((", "\n"} {
		st, ok := parseStat([]byte("2448 (" + name + ")" + tail))
		if !ok || st != (procStat{state: 'S', taskFlags: 4194304, minorFaults: 1117, majorFaults: 5, userTicks: 12, systemTicks: 34, threads: 10, rssPages: 409}) {
			t.Errorf("%q: %+v, %v", name, st, ok)
		}
	}
	for text, hasEnded := range map[string]bool{tail: false, strings.Replace(tail, "S", "Z", 1): true, strings.Replace(tail, "4194304", "4194308", 1): true} {
		st, ok := parseStat([]byte("2448 (x)" + text))
		check.True(t, ok && st.hasEnded() == hasEnded, "%q: %+v, %v", text, st, ok)
	}
	for _, text := range []string{"", "2448 (x)", "2448 (x) S 1", "2448 x" + tail[:20], "2448 (x)" + tail[:60]} {
		if st, ok := parseStat([]byte(text)); ok {
			t.Errorf("%q gives %+v", text, st)
		}
	}
	if n, ok := parseRetransmitted([]byte("Ip: a b\nIp: 1 2\nTcp: RtoMin InSegs OutSegs RetransSegs InErrs\nTcp: 1 2 3 116 5\n")); !ok || n != 116 {
		t.Errorf("retransmitted %d, %v", n, ok)
	}
	for _, text := range []string{"", "Tcp: RetransSegs\n", "Tcp: A RetransSegs\nTcp: 1\n", "Tcp: RetransSegs\nTcp: -1\n"} {
		if n, ok := parseRetransmitted([]byte(text)); ok {
			t.Errorf("%q gives %d", text, n)
		}
	}
	if machine, steal, ok := parseMachine([]byte("cpu  1 2 3 4 5 6 7 89 0 0\ncpu0 1\n")); !ok || machine != 190e6 || steal != 890e6 {
		t.Errorf("the machine's CPU time %d, steal %d, %v", machine, steal, ok)
	}
	if n, ok := parsePressure([]byte("some avg10=0.20 avg60=0.30 avg300=0.40 total=5012\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")); !ok || n != 5012e3 {
		t.Errorf("pressure %d, %v", n, ok)
	}
	for _, text := range []string{"", "full avg10=0.00 total=1\n", "some total=x\n", "some total=-1\n"} {
		if n, ok := parsePressure([]byte(text)); ok {
			t.Errorf("%q gives %d", text, n)
		}
	}
	if v, ok := parseSchedstat([]byte("208798438 13486940 " + strconv.Itoa(380) + "\n")); !ok || v != [2]int64{208798438, 13486940} {
		t.Errorf("schedstat %v, %v", v, ok)
	}
}

// TestContainerPID: the first process whose control groups have the container's identifier.
func TestContainerPID(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	proc := fstest.MapFS{
		"7/cgroup":    {Data: []byte("0::/system.slice\n")},
		"4242/cgroup": {Data: []byte("0::/../../kubepods.slice/cri-containerd-" + id + ".scope\n")},
		"512/cgroup":  {Data: []byte("1:cpu:/kubepods/pod1/" + id + "\n")},
		"self/cgroup": {Data: []byte("0::/" + id + "\n")},
	}
	for _, part := range []string{id, id[:12]} {
		if pid, err := containerPID(proc, part); pid != 512 || err != nil {
			t.Errorf("%s: process %d, error %v", part, pid, err)
		}
	}
	if pid, err := containerPID(proc, "ffffffffffff"); err == nil {
		t.Errorf("process %d of a container that is not here", pid)
	}
}
