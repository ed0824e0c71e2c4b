package host

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// childEnv makes this test program another process for the tests to look at.
const childEnv = "WHYLATE_TEST_HOST_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		if err := child(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child runs until standard input ends. It prints a line when it is ready.
func child(what string) error {
	kind, arg, _ := strings.Cut(what, " ")
	switch kind {
	case "busy": // goroutines that compute without any rest
		n, err := strconv.Atoi(arg)
		if err != nil {
			return err
		}
		for range n {
			go func() {
				for x := uint64(1); ; x = x*6364136223846793005 + 1 {
					if x == 0 {
						fmt.Println()
					}
				}
			}()
		}
		fmt.Println("ready")
	case "listen": // on an address, with SO_REUSEPORT; it says who it is to everybody that connects
		conf := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			var err error
			if cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }); cerr != nil {
				return cerr
			}
			return err
		}}
		l, err := conf.Listen(context.Background(), "tcp", arg)
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprintln(c, os.Getpid())
			}
		}()
		fmt.Println(l.Addr())
	case "pair": // a TCP connection with itself, in a network namespace of its own
		if err := loopbackUp(); err != nil {
			return err
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return err
		}
		defer c.Close()
		d, err := l.Accept()
		if err != nil {
			return err
		}
		defer d.Close()
		fmt.Println(c.LocalAddr())
	default:
		return fmt.Errorf("no such child: %q", what)
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// loopbackUp switches on the loopback interface of a new network namespace
// (netdevice(7)).
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, r); err != nil {
		return err
	}
	r.SetUint16(r.Uint16() | unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// start runs a child, in a group if that is not nil, and returns it with its
// first line.
func start(t testing.TB, g *group, what string) (cmd *exec.Cmd, line string) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	if g != nil {
		cmd = exec.Command("/bin/sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$1"`, g.dir, os.Args[0])
	}
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	if what == "pair" {
		if os.Getuid() != 0 {
			t.Skip("making a network namespace needs root")
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Signal(syscall.SIGCONT)
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the child %q did not begin: %v", what, err)
	}
	return cmd, strings.TrimSpace(line)
}

// A group is a CPU cgroup that a test has made.
type group struct {
	dir string
	v2  bool
}

// newGroup makes a group below another, or, for nil, below the hierarchy's
// root, with a quota in CPUs, 0 for none. It skips where that cannot be done.
func newGroup(t testing.TB, above *group, cpus float64) *group {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making a cgroup needs root")
	}
	if above == nil {
		dir, v2, err := cpuHierarchy()
		if err != nil {
			t.Skip(err)
		}
		above = &group{dir, v2}
	}
	if above.v2 {
		if err := os.WriteFile(filepath.Join(above.dir, "cgroup.subtree_control"), []byte("+cpu"), 0); err != nil {
			t.Skipf("enabling the cpu controller: %v", err)
		}
	}
	dir, err := os.MkdirTemp(above.dir, "whylate-test-")
	if err != nil {
		t.Skipf("making a cgroup: %v", err)
	}
	g := &group{dir, above.v2}
	t.Cleanup(func() {
		for i := range 50 {
			if err = os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
				return
			}
			time.Sleep(time.Duration(i) * time.Millisecond)
		}
		t.Errorf("removing the group: %v", err)
	})
	// Within its quota it goes before neighbours, so that a busy machine disturbs the measurement less.
	weight, largest := "cpu.shares", "262144"
	if g.v2 {
		weight, largest = "cpu.weight", "10000"
	}
	_ = os.WriteFile(filepath.Join(dir, weight), []byte(largest), 0)
	if cpus > 0 {
		file, text := "cpu.cfs_quota_us", strconv.Itoa(int(cpus*100000)) // the period is 100 ms unless set
		if g.v2 {
			file, text = "cpu.max", text+" 100000"
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0); err != nil {
			t.Skipf("setting a quota: %v", err)
		}
	}
	return g
}

func cpuHierarchy() (dir string, v2 bool, err error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", false, err
	}
	for line := range bytes.Lines(b) {
		before, after, _ := strings.Cut(string(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		switch {
		case len(f) < 5 || len(g) < 3:
		case g[0] == "cgroup" && strings.Contains(","+g[2]+",", ",cpu,"):
			return f[4], false, nil
		case g[0] == "cgroup2":
			if c, err := os.ReadFile(filepath.Join(f[4], "cgroup.controllers")); err == nil && strings.Contains(" "+strings.TrimSpace(string(c))+" ", " cpu ") {
				dir, v2 = f[4], true
			}
		}
	}
	if dir == "" {
		return "", false, errors.New("no hierarchy with the cpu controller is mounted")
	}
	return dir, v2, nil
}

// throttled reads the kernel's own account of the group.
func (g *group) throttled(t testing.TB) (periods, lost int64) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(g.dir, "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		n, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		switch f[0] {
		case "nr_throttled":
			periods = n
		case "throttled_time":
			lost = n
		case "throttled_usec":
			lost = n * 1000
		}
	}
	return periods, lost
}

// halt stops the group's process and waits until its counters stand still.
func (g *group) halt(t testing.TB, cmd *exec.Cmd) (periods, lost int64) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	same := 0
	for range 400 {
		p, l := g.throttled(t)
		if p == periods && l == lost {
			if same++; same == 30 { // 300 ms, three periods
				return p, l
			}
		} else {
			same, periods, lost = 0, p, l
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Skip("the counters of a group whose only process is stopped do not stand still")
	return 0, 0
}
