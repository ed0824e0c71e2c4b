//go:build go1.25 && unix

package flight

import (
	"archive/zip"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

const killedDir = "WHYLATE_TEST_FLIGHT_DIR"

// TestMain is also the process that TestKilled kills: it writes one recording
// after another.
func TestMain(m *testing.M) {
	dir := os.Getenv(killedDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	r, err := Start(Options{Dir: dir, Budget: -1, MaxDisk: 1 << 20})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"+partInfix+"*"))
	fmt.Println(len(files)) // part files that Start did not remove
	for {
		if _, err := r.Capture(context.Background(), "again"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// TestKilled kills a recorder at random times: each file with a recording's name
// is complete, there is at most one part file, and the next start removes it.
func TestKilled(t *testing.T) {
	kills := 3
	if os.Getenv("WHYLATE_FULL") == "1" {
		kills = 200
	} else if testing.Short() {
		t.Skip("starts processes and kills them")
	}
	self := must.Have(os.Executable())(t)
	dir := t.TempDir()
	parts := 0
	for range kills {
		var out, complaints strings.Builder
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), killedDir+"="+dir)
		cmd.Stdout, cmd.Stderr = &out, &complaints
		must.Do(t, cmd.Start())
		time.Sleep(30*time.Millisecond + rand.N(60*time.Millisecond)) // the random time of the kill
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		must.True(t, complaints.Len() == 0, "it says %s", &complaints)
		if partFiles := strings.TrimSpace(out.String()); partFiles != "" && partFiles != "0" {
			t.Errorf("Start left %s part files", partFiles)
		}
		files := must.Have(os.ReadDir(dir))(t)
		halves := 0
		for _, f := range files {
			name := filepath.Join(dir, f.Name())
			if strings.Contains(f.Name(), partInfix) {
				halves++
				continue
			}
			z, err := zip.OpenReader(name)
			must.True(t, err == nil, "%s: %v", f.Name(), err)
			if n := len(z.File); n != 2 || z.File[1].Name != bundleMeta {
				t.Errorf("%s has %d entries", f.Name(), n)
			}
			z.Close()
		}
		check.True(t, halves <= 1, "%d part files", halves)
		parts += halves
	}
	t.Logf("%d of %d kills left a part file", parts, kills)
}
