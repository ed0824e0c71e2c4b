package stage

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"
)

// A Net is the network namespace of one program, connected to this process's by a pair of virtual Ethernet devices. The kernel
// removes namespace and devices when the program ends, for any reason, because only the program uses them.
type Net struct {
	HostAddr, ProgramAddr string // addresses of the two ends
	// LossPercent is the share of segments with data, in percent, that are lost on the way to the program.
	LossPercent int

	device string // the end in this process's namespace
}

// Net returns a namespace for a program that is not started yet. The addresses are of a range reserved for benchmarks (RFC
// 2544), which no network routes.
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
	n := os.Getpid()*4 + 4*s.nets // four addresses a pair, of which two are the ends
	first := fmt.Sprintf("198.18.%d.", n>>8&0xff)
	return &Net{
		HostAddr: first + strconv.Itoa(n&0xfc+1), ProgramAddr: first + strconv.Itoa(n&0xfc+2), LossPercent: lose,
		device: fmt.Sprintf("wl%d-%d", os.Getpid(), s.nets),
	}, nil
}

// wrapArgs returns the arguments that start a program in the namespace. The program waits there for its device.
func (n *Net) wrapArgs(args []string) []string {
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
	if n.LossPercent > 0 {
		probability := ""
		if n.LossPercent < 100 {
			probability = fmt.Sprintf("numgen random mod 100 < %d ", n.LossPercent)
		}
		// Segments without data (acknowledgements, handshakes) pass: only those with more than 60 bytes of headers and data
		// are dropped.
		script += fmt.Sprintf("nft -f - <<END\ntable inet story {\n\tchain in {\n\t\ttype filter hook input priority 0;\n"+
			"\t\tiifname peer meta l4proto tcp meta length > 80 %sdrop\n\t}\n}\nEND\n", probability)
	}
	return append([]string{"unshare", "--net", "sh", "-c", script + `exec "$@"`, "sh"}, args...)
}

// connect creates the pair of devices when the program with this ID has entered its namespace.
func (n *Net) connect(ctx context.Context, s *Stage, pid int) error {
	ownNamespace, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		programNamespace, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/net")
		if err != nil {
			return err
		}
		if programNamespace != ownNamespace {
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
