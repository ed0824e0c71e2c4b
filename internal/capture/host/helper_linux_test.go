package host

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testchild"
)

func TestMain(m *testing.M) { testchild.Main(m, child) }

// child prints a line when it is ready.
func child(kind, arg string) error {
	switch kind {
	case "busy": // goroutines that never block
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
	case "listen": // on an address, with SO_REUSEPORT; each client gets the child's process number
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
	case "pair": // a TCP connection with itself, in a separate network namespace
		if err := testchild.LoopbackUp(); err != nil {
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
		return fmt.Errorf("no such child: %q", kind)
	}
	return testchild.Wait()
}

// start runs a child, in a group if that is not nil, and returns the command and the child's first
// line.
func start(t testing.TB, g *cpugroup.Group, kind string) (cmd *exec.Cmd, line string) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a process")
	}
	cmd = testchild.Command(kind)
	if g != nil {
		g.Attach(cmd)
	}
	if kind == "pair" {
		if os.Getuid() != 0 {
			t.Skip("making a network namespace needs root")
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	}
	line, stop, err := testchild.Start(cmd)
	must.Do(t, err, kind)
	t.Cleanup(stop)
	return cmd, line
}

// haltAndCount stops the only process of a group, waits until the group's counters no longer change,
// and returns them.
func haltAndCount(t testing.TB, g *cpugroup.Group, cmd *exec.Cmd) (periods, lost int64) {
	t.Helper()
	must.Do(t, cmd.Process.Signal(syscall.SIGSTOP))
	unchanged := 0
	for range 400 {
		p, l := testchild.Throttled(t, g)
		if p == periods && l == lost {
			if unchanged++; unchanged == 30 { // 300 ms, three periods
				return p, l
			}
		} else {
			unchanged, periods, lost = 0, p, l
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Skip("the counters of a group whose only process is stopped do not stand still")
	return 0, 0
}

// stopAll stops a process and returns when none of its threads runs any longer.
func stopAll(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	must.Do(t, cmd.Process.Signal(syscall.SIGSTOP))
	for range 1000 {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", cmd.Process.Pid))
		must.True(t, err == nil && len(stats) != 0, "no threads: %v", err)
		if !slices.ContainsFunc(stats, func(name string) bool {
			b, err := os.ReadFile(name)
			_, state, _ := strings.Cut(string(b), ") ")
			return err == nil && !strings.HasPrefix(state, "T")
		}) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Skip("a process that was to stop does not within ten seconds")
}
