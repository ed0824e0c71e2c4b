package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A sockDiag lists the TCP sockets of one network namespace, with tcp_info, through sock_diag(7). One
// answer has all sockets; /proc/net/tcp would have to be parsed as text and lacks tcp_info.
type sockDiag struct {
	fd  int
	seq uint32
	buf []byte
}

// openSockDiag opens a netlink socket in the network namespace that the file /proc/PID/ns/net names; "" means the namespace of this process. The
// caller closes it.
func openSockDiag(namespace string) (*sockDiag, error) {
	if namespace == "" {
		return newSockDiag()
	}
	var d *sockDiag
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		// A thread in another namespace must not run other goroutines. It stays
		// locked, so it ends with this goroutine.
		runtime.LockOSThread()
		if err = enterNamespace(namespace); err == nil {
			d, err = newSockDiag()
		}
	}()
	<-done
	return d, err
}

// enterNamespace moves the calling thread, which the goroutine has locked, into the network namespace that the file name names.
func enterNamespace(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering the process's network namespace: %w", err)
	}
	return nil
}

// newSockDiag opens a netlink socket for queries of TCP sockets, with a timeout of one second for an answer.
func newSockDiag() (*sockDiag, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("opening a sock_diag socket: %w", err)
	}
	// Sampling must never block: the kernel answers at once or not at all.
	tv := unix.NsecToTimeval(int64(time.Second))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("opening a sock_diag socket: %w", err)
	}
	return &sockDiag{fd: fd, buf: make([]byte, 64<<10)}, nil
}

func (d *sockDiag) close() { unix.Close(d.fd) }

// A diagSocket is one socket of an answer.
type diagSocket struct {
	Ends
	state    uint8
	inode    uint64
	counters Socket // from tcp_info; its ends and state are empty
}

// Layout of struct inet_diag_req_v2 and inet_diag_msg (include/uapi/linux/inet_diag.h).
// Ports and addresses are in network order, the rest in the machine's.
const (
	diagReqLen = 56
	diagMsgLen = 72
	diagInfo   = 2     // INET_DIAG_INFO
	diagStates = 0xFFF // all states
)

// forEachSocket calls f for every TCP socket of the namespace.
func (d *sockDiag) forEachSocket(f func(*diagSocket)) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		err := d.dumpFamily(family, f)
		if family == unix.AF_INET6 && errors.Is(err, unix.ENOENT) {
			err = nil // a kernel without IPv6
		}
		if err != nil {
			return fmt.Errorf("asking the kernel for TCP sockets: %w", err)
		}
	}
	return nil
}

// dumpFamily calls f for every TCP socket of an address family.
func (d *sockDiag) dumpFamily(family uint8, f func(*diagSocket)) error {
	d.seq++
	var req [unix.SizeofNlMsghdr + diagReqLen]byte
	native := binary.NativeEndian
	native.PutUint32(req[0:], uint32(len(req)))
	native.PutUint16(req[4:], unix.SOCK_DIAG_BY_FAMILY)
	native.PutUint16(req[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	native.PutUint32(req[8:], d.seq)
	body := req[unix.SizeofNlMsghdr:]
	body[0], body[1] = family, unix.IPPROTO_TCP
	body[2] = 1 << (diagInfo - 1)
	native.PutUint32(body[4:], diagStates)
	if err := unix.Sendto(d.fd, req[:], 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	for {
		n, _, err := unix.Recvfrom(d.fd, d.buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return os.NewSyscallError("recvfrom", err)
		}
		done, err := parseDiag(d.buf[:n], d.seq, f)
		if done || err != nil {
			return err
		}
	}
}

// parseDiag reads one datagram of the answer to request seq and calls f for each socket; the socket is valid during the call. done reports that the
// answer is complete: at NLMSG_DONE or an error.
func parseDiag(b []byte, seq uint32, f func(*diagSocket)) (done bool, err error) {
	native := binary.NativeEndian
	for len(b) >= unix.SizeofNlMsghdr {
		length, kind := int(native.Uint32(b)), native.Uint16(b[4:])
		if length < unix.SizeofNlMsghdr || length > len(b) {
			return true, errors.New("the answer is cut")
		}
		body := b[unix.SizeofNlMsghdr:length]
		if native.Uint32(b[8:]) == seq { // skips the rest of an answer that an error has interrupted
			switch kind {
			case unix.NLMSG_DONE:
				return true, nil
			case unix.NLMSG_ERROR:
				if len(body) >= 4 {
					if e := int32(native.Uint32(body)); e != 0 {
						return true, unix.Errno(-e)
					}
				}
				return true, nil
			case unix.SOCK_DIAG_BY_FAMILY:
				if s, ok := parseDiagSocket(body); ok {
					f(&s)
				}
			}
		}
		b = b[min(align4(length), len(b)):]
	}
	return false, nil
}

// align4 rounds up to a multiple of 4.
func align4(n int) int { return (n + 3) &^ 3 }

// parseDiagSocket reads an inet_diag_msg and its attributes; false if it is too short.
func parseDiagSocket(b []byte) (s diagSocket, ok bool) {
	if len(b) < diagMsgLen {
		return s, false
	}
	native, bigEndian := binary.NativeEndian, binary.BigEndian
	family := b[0]
	s.state = b[1]
	addr := func(offset int) netip.Addr {
		if family == unix.AF_INET {
			return netip.AddrFrom4([4]byte(b[offset : offset+4]))
		}
		return netip.AddrFrom16([16]byte(b[offset : offset+16])).Unmap()
	}
	s.Local = netip.AddrPortFrom(addr(8), bigEndian.Uint16(b[4:]))
	s.Remote = netip.AddrPortFrom(addr(24), bigEndian.Uint16(b[6:]))
	s.inode = uint64(native.Uint32(b[68:]))
	for attrs := b[diagMsgLen:]; len(attrs) >= unix.SizeofRtAttr; {
		length, kind := int(native.Uint16(attrs)), native.Uint16(attrs[2:])
		if length < unix.SizeofRtAttr || length > len(attrs) {
			break
		}
		if kind == diagInfo {
			s.counters = parseTCPInfo(attrs[unix.SizeofRtAttr:length])
		}
		attrs = attrs[min(align4(length), len(attrs)):]
	}
	return s, true
}

// parseTCPInfo reads the counters of a Socket from struct tcp_info (include/uapi/linux/tcp.h). The
// struct of an older kernel is shorter: counters that it lacks are 0.
func parseTCPInfo(b []byte) Socket {
	var layout unix.TCPInfo
	counter := func(offset uintptr) int64 {
		if int(offset)+4 > len(b) {
			return 0
		}
		return int64(binary.NativeEndian.Uint32(b[offset:]))
	}
	us := time.Microsecond.Nanoseconds()
	s := Socket{
		Retransmitted: counter(unsafe.Offsetof(layout.Total_retrans)), Spurious: counter(unsafe.Offsetof(layout.Dsack_dups)), OutOfOrder: counter(unsafe.Offsetof(layout.Rcv_ooopack)),
		UnackedSegs: counter(unsafe.Offsetof(layout.Unacked)), RTTNS: us * counter(unsafe.Offsetof(layout.Rtt)),
	}
	if minRTT := counter(unsafe.Offsetof(layout.Min_rtt)); minRTT != 1<<32-1 { // the kernel has measured one
		s.MinRTTNS = us * minRTT
	}
	return s
}
