//go:build linux

package cpugroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

func group(t *testing.T, o Options) *Group {
	t.Helper()
	if testing.Short() {
		t.Skip("makes cgroups")
	}
	if os.Getuid() != 0 {
		t.Skip("making a cgroup needs root")
	}
	g, err := New(o)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := g.Kill(); err != nil {
			t.Error(err)
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
		for _, dir := range g.Dirs() {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s was left", dir)
			}
		}
	})
	return g
}

// TestKill: a command and its children run in the group, under its limits, with counters, and Kill
// ends all of them, including one in another session.
func TestKill(t *testing.T) {
	g := group(t, Options{CPUs: 0.5, Memory: 64 << 20, CountUsage: true, Owner: "whylate-test"})
	cmd := exec.Command("sh", "-c", "setsid sleep 100 & sleep 100 & while :; do :; done")
	g.Attach(cmd)
	must.Do(t, cmd.Start())
	deadline := time.Now().Add(20 * time.Second)
	for {
		used := must.Have(g.CPUTime())(t)
		if len(g.PIDs()) >= 3 && used > 20*time.Millisecond {
			break
		}
		must.False(t, time.Now().After(deadline), "processes %v used %v", g.PIDs(), used)
		time.Sleep(10 * time.Millisecond)
	}
	reopened, err := Open(g.Dirs())
	if err != nil || reopened.v2 != g.v2 {
		t.Fatal(reopened, err)
	}
	if err := reopened.Kill(); err != nil || len(g.PIDs()) != 0 {
		t.Errorf("%v; left: %v", err, g.PIDs())
	}
	check.Error(t, cmd.Wait(), "an endless loop ended by itself")
}

// TestRemoveOrphaned: groups whose creator has ended are removed, with the processes in them; groups
// of a living process stay.
func TestRemoveOrphaned(t *testing.T) {
	living := group(t, Options{Owner: "whylate-test", CountUsage: true})
	if _, err := RemoveOrphaned("whylate-test", nil); err != nil { // groups of tests that were killed
		t.Fatal(err)
	}
	orphan := group(t, Options{Owner: "whylate-test", CountUsage: true})
	deadOwner := exec.Command("true")
	must.Do(t, deadOwner.Run())
	for i, dir := range orphan.Dirs() { // the name that its owner would have given
		name := filepath.Join(filepath.Dir(dir), "whylate-test-999999999-1-"+filepath.Base(dir)[len("whylate-test-"):])
		if orphan.v2 || i > 0 || os.Rename(dir, name) != nil {
			_ = os.Remove(dir)
			must.Do(t, os.Mkdir(name, 0o755))
		}
		if i == 0 {
			orphan.Dir = name
		} else {
			orphan.otherDirs[i-1] = name
		}
	}
	cmd := exec.Command("sleep", "100")
	orphan.Attach(cmd)
	must.Do(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if n, err := RemoveOrphaned("whylate-test", nil); n != 1 || err != nil {
		t.Errorf("%d groups removed, %v", n, err)
	}
	<-ended
	if _, err := os.Stat(orphan.Dir); err == nil {
		t.Errorf("%s is still there", orphan.Dir)
	}
	if _, err := os.Stat(living.Dir); err != nil {
		t.Errorf("the group of a living process was removed: %v", err)
	}
}

// TestSettings: the kernel's files of a group have the requested quota, limit and weight.
func TestSettings(t *testing.T) {
	g := group(t, Options{CPUs: 1.5, Memory: 64 << 20, CountUsage: true, HighWeight: true, Owner: "whylate-test"})
	want := map[string]string{"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000", "cpu.shares": "262144", "memory.limit_in_bytes": "67108864"}
	if g.v2 {
		want = map[string]string{"cpu.max": "150000 100000", "cpu.weight": "10000", "memory.max": "67108864"}
	}
	for name, text := range want {
		got := "no such file"
		for _, dir := range g.Dirs() {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				got = strings.TrimSpace(string(b))
				break
			}
		}
		check.Equal(t, got, text, "%s", name)
	}
	// Nothing ran, so nothing was held back; the kernel may have counted the period in which the quota was set.
	if st, err := ReadStat(g.Dir); err != nil || st != (Stat{Periods: min(st.Periods, 1)}) {
		t.Errorf("%+v, %v", st, err)
	}
	if pids := g.PIDs(); len(pids) != 0 || g.OOMKills() != 0 {
		t.Errorf("processes %v, %d killed", pids, g.OOMKills())
	}
}
