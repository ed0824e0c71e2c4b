//go:build linux

// Package testchild gives tests other processes to look at: the test program
// itself, started again as a child, in a CPU cgroup of its own where a test
// wants that.
package testchild

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// jobEnv says to a test program what it is to do as a child.
const jobEnv = "WHYLATE_TEST_CHILD"

// Main is what a TestMain calls. It runs the tests, or in a child, child with
// what the child is for: a kind, and after a space its argument.
func Main(m *testing.M, child func(kind, arg string) error) {
	job := os.Getenv(jobEnv)
	if job == "" {
		os.Exit(m.Run())
	}
	kind, arg, _ := strings.Cut(job, " ")
	if err := child(kind, arg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Wait lets a child last until its parent stops it or is gone.
func Wait() error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// Command returns this test program as a child that is for what.
func Command(job string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), jobEnv+"="+job)
	cmd.Stderr = os.Stderr
	return cmd
}

// Start starts a child and returns the first line that it prints, which says
// that it is ready.
func Start(cmd *exec.Cmd) (line string, stop func(), err error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	}
	if line, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		stop()
		return "", nil, fmt.Errorf("the child did not begin: %w", err)
	}
	return strings.TrimSpace(line), stop, nil
}

// LoopbackUp switches on the loopback interface of a new network namespace
// (netdevice(7)).
func LoopbackUp() error {
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
