package stage

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"
)

// A Net is a network namespace of one program's own, joined to this process's by a pair of virtual Ethernet devices. The kernel
// removes namespace and devices when the program ends, however it does: nothing else holds them.
type Net struct {
	HostAddr, ProgramAddr string // addresses of the two ends
	// Lose is the share of segments with data, in percent, that are lost on the way to the program.
	Lose int

	device string // the end here
}

// Net returns a namespace for a program that is not started yet. The addresses are of a range that is kept for benchmarks
// (RFC 2544), which no network routes.
func (s *Stage) Net(lose int) (*Net, error) {
	if os.Getuid() != 0 {
		return nil, &Missing{"right to make a network namespace", "run as root"}
	}
	for program, pkg := range map[string]string{"ip": "iproute2", "nft": "nftables", "unshare": "util-linux"} {
		if err := Need(program, "apt-get install "+pkg); err != nil {
			return nil, err
		}
	}
	s.nets++
	n := os.Getpid()*4 + 4*s.nets // four addresses a pair: two are the ends
	first := fmt.Sprintf("198.18.%d.", n>>8&0xff)
	return &Net{
		HostAddr: first + strconv.Itoa(n&0xfc+1), ProgramAddr: first + strconv.Itoa(n&0xfc+2), Lose: lose,
		device: fmt.Sprintf("wl%d-%d", os.Getpid(), s.nets),
	}, nil
}

// in returns the arguments that start a program in the namespace. It waits there for its device.
func (n *Net) in(args []string) []string {
	script := `set -e
ip link set lo up
n=0
until ip link set peer up 2>/dev/null; do
	n=$((n + 1))
	[ $n -lt 500 ] || { echo "no device arrived"; exit 1; }
	sleep 0.02
done
ip address add ` + n.ProgramAddr + `/30 dev peer
`
	if n.Lose > 0 {
		which := ""
		if n.Lose < 100 {
			which = fmt.Sprintf("numgen random mod 100 < %d ", n.Lose)
		}
		// What has no data (an acknowledgement, a handshake) gets through: a segment of more than 60 bytes of headers.
		script += fmt.Sprintf("nft -f - <<END\ntable inet story {\n\tchain in {\n\t\ttype filter hook input priority 0;\n"+
			"\t\tiifname peer meta l4proto tcp meta length > 80 %sdrop\n\t}\n}\nEND\n", which)
	}
	return append([]string{"unshare", "--net", "sh", "-c", script + `exec "$@"`, "sh"}, args...)
}

// join makes the pair of devices, when the program with this id has entered its namespace.
func (n *Net) join(ctx context.Context, s *Stage, pid int) error {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		its, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/net")
		if err != nil {
			return err
		}
		if its != own {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d has made no network namespace", pid)
		}
	}
	for _, args := range [][]string{
		{"link", "add", "name", n.device, "type", "veth", "peer", "name", "peer", "netns", strconv.Itoa(pid)},
		{"address", "add", n.HostAddr + "/30", "dev", n.device},
		{"link", "set", n.device, "up"},
	} {
		if _, err := s.output(ctx, "ip", args...); err != nil {
			return fmt.Errorf("joining network namespaces: ip %v: %w", args, err)
		}
	}
	return nil
}
