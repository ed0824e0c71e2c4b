//go:build linux

// Package testchild provides tests with child processes: the test program itself, started with a job,
// if necessary in a separate CPU cgroup.
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

// jobEnv is the environment variable with a child's job.
const jobEnv = "WHYLATE_TEST_CHILD"

// Main is for a TestMain. It runs the tests or, in a child, calls child with the kind and the argument
// of its job, which are separated by a space.
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

// Wait blocks a child until its parent stops it or has ended.
func Wait() error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// Command returns the command, not yet started, that runs this test program as a child with a job ("KIND ARGUMENT"), for Main.
func Command(job string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), jobEnv+"="+job)
	cmd.Stderr = os.Stderr
	return cmd
}

// Start starts a child, waits for the first line that it prints, by which it reports that it is ready, and returns the line. stop closes the child's
// standard input, kills it and waits.
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

// LoopbackUp enables the loopback interface of a new network namespace (netdevice(7)).
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
