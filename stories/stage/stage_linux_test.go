package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testchild"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/report"
)

func TestMain(m *testing.M) {
	Helper()
	testchild.Main(m, func(kind, _ string) error {
		switch kind {
		case "story":
			return runStory()
		case "nobody": // prints what a user without rights lacks for a quota
			if err := errors.Join(syscall.Setgid(65534), syscall.Setuid(65534)); err != nil {
				return err
			}
			fmt.Println(NeedQuota())
			return testchild.Wait()
		case "leaves": // starts a process that outlives it, and prints its ID
			cmd := testchild.Command("sleeper")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			in, err := cmd.StdinPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				return err
			}
			_ = in
			fmt.Printf("sleeper %d\n", cmd.Process.Pid)
			time.Sleep(time.Minute)
		case "echo": // on port 7 of all addresses
			l, err := net.Listen("tcp", ":7")
			if err != nil {
				return err
			}
			for {
				c, err := l.Accept()
				if err != nil {
					return err
				}
				go io.Copy(c, c)
			}
		case "sleeper":
			time.Sleep(time.Minute)
		}
		return nil
	})
}

// runStory starts a server on a stage and waits.
func runStory() error {
	s, err := New(Options{Log: io.Discard})
	if err != nil {
		return err
	}
	defer s.Close()
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	v, err := s.Start(context.Background(), Program{Name: "a server", Args: []string{exe}, Env: []string{"WHYLATE_TEST_CHILD=leaves"}})
	if err != nil {
		return err
	}
	for v.lastLines() == "" {
		time.Sleep(time.Millisecond)
	}
	fmt.Printf("%s %d %s\n", v.lastLines(), v.PID(), s.dir)
	return testchild.Wait()
}

// TestNothingRemains: whatever kills a story, its servers, their child processes in other sessions, and its temporary
// directory are gone. It fails if a server is started without a guard, or only Close removes the directory.
func TestNothingRemains(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, 0} { // 0: it ends without a signal
		cmd := testchild.Command("story")
		line, stop, err := testchild.Start(cmd)
		must.Do(t, err)
		var sleeper, server int
		var dir string
		if _, err := fmt.Sscanf(line, "sleeper %d %d %s", &sleeper, &server, &dir); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if sig != 0 {
			must.Do(t, cmd.Process.Signal(sig))
		}
		stop()
		deadline := time.Now().Add(time.Minute)
		remaining := func() (remaining []string) {
			for _, pid := range []int{sleeper, server} {
				if !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
					remaining = append(remaining, fmt.Sprintf("process %d", pid))
				}
			}
			if _, err := os.Stat(dir); err == nil {
				remaining = append(remaining, dir)
			}
			return remaining
		}
		for len(remaining()) > 0 && time.Now().Before(deadline) {
			time.Sleep(5 * time.Millisecond)
		}
		if l := remaining(); len(l) > 0 {
			t.Errorf("after %v there are still %v", sig, l)
		}
	}
}

// TestMissing: a missing requirement is reported in one line, with the remedy.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for want, err := range map[string]error{
		"apt-get install it":                      Need("no-such-program-anywhere", "apt-get install it"),
		"apt-get install openjdk-17-jre-headless": NeedJars("pubsub/kafka"),
	} {
		var missing *Missing
		if !errors.As(err, &missing) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestMissingRoot: a user without the right to create cgroups gets one line about it. It fails if NeedQuota only checks files.
func TestMissingRoot(t *testing.T) {
	if testing.Short() || os.Getuid() != 0 {
		t.Skip("starts a process that gives up root")
	}
	line, stop, err := testchild.Start(testchild.Command("nobody"))
	must.Do(t, err)
	stop()
	check.True(t, strings.HasPrefix(line, "no cgroup for a quota here: run as root"), "%q", line)
}

// TestJudge: the first finding counts, facts that weaken a report do not, and if no finding is expected, none may be of medium
// or high severity.
func TestJudge(t *testing.T) {
	sleep := report.Finding{Code: "WL2001", Severity: report.SeverityMedium, Site: &report.Site{Func: "lib.(*C).release", File: "/a/lib.go", Line: 7}}
	fewRequests := report.Finding{Code: "WL5001", Severity: report.SeverityInfo}
	busy := report.Finding{Code: "WL1009", Severity: report.SeverityMedium}
	lock := report.Finding{Code: "WL2002", Severity: report.SeverityMedium}
	low := report.Finding{Code: "WL2005", Severity: report.SeverityLow}
	for name, c := range map[string]struct {
		findings []report.Finding
		expected Place
		want     bool
	}{
		"right":         {[]report.Finding{fewRequests, sleep, low}, Place{Code: "WL2001", Site: `lib\.\(\*C\)\.release`}, true},
		"by line":       {[]report.Finding{sleep}, Place{Code: "WL2001", Site: `lib\.go:7`}, true},
		"busy machine":  {[]report.Finding{busy, sleep}, Place{Code: "WL2001", Site: ""}, true},
		"but busy":      {[]report.Finding{busy}, Place{}, false},
		"alone":         {[]report.Finding{fewRequests, sleep, low}, Place{Code: "WL2001", Only: true}, true},
		"not alone":     {[]report.Finding{sleep, lock}, Place{Code: "WL2001", Only: true}, false},
		"second":        {[]report.Finding{low, sleep}, Place{Code: "WL2001", Site: ""}, false},
		"elsewhere":     {[]report.Finding{sleep}, Place{Code: "WL2001", Site: `fetch`}, false},
		"quiet":         {[]report.Finding{fewRequests, low}, Place{}, true},
		"loud":          {[]report.Finding{sleep}, Place{}, false},
		"nothing found": {nil, Place{Code: "WL2001", Site: ""}, false},
	} {
		got, err := judgeArm(name, &Explained{Report: &report.Report{Findings: c.findings}, Text: "head\n\nwhy"}, c.expected)
		check.True(t, err == nil && got.Right == c.want, "%s: %+v, %v", name, got, err)
	}
}

// TestNetEnds: a program in its own network namespace is reachable over its pair of devices, loses the given share of
// segments, and its namespace and devices disappear when it is killed. It fails if the namespace has a name, or the devices
// are created in this one.
func TestNetEnds(t *testing.T) {
	testfull.Need(t, "root, to make network namespaces")
	s := must.Have(New(Options{Log: io.Discard}))(t)
	defer s.Close()
	exe, err := os.Executable()
	must.Do(t, err)
	for _, lose := range []int{0, 100} {
		n := must.Have(s.Net(lose))(t)
		address := net.JoinHostPort(n.ProgramAddr, "7")
		v := must.Have(s.Start(context.Background(), Program{Name: "an echo", Args: []string{exe}, Env: []string{"WHYLATE_TEST_CHILD=echo"}, Net: n, Ready: address}))(t)
		c, err := net.Dial("tcp", address)
		must.Do(t, err)
		defer c.Close()
		b := make([]byte, 100)
		must.Have(c.Write(b))(t)
		c.SetReadDeadline(time.Now().Add(time.Second))
		if got, err := io.ReadFull(c, b); lose == 0 && err != nil || lose == 100 && got > 0 {
			t.Errorf("losing %d %%: %d bytes came back, %v", lose, got, err)
		}
		must.Do(t, syscall.Kill(v.PID(), syscall.SIGKILL))
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if _, err := net.InterfaceByName(n.device); err != nil {
				break
			}
			must.False(t, time.Now().After(deadline), "%s is still there", n.device)
		}
	}
}
