// Package child runs services as children of the program that has them, and records their traces, for lab/peers and lab/shop.
package child

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// Start runs this program with arguments and returns the first line that it prints, which has its addresses. end closes its
// standard input and waits for its end.
func Start(args ...string) (addresses string, end func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("starting %q: %w", args, err)
	}
	end = func() { in.Close(); _ = cmd.Wait() }
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		end()
		return "", nil, fmt.Errorf("%q did not print its address: %w", args, err)
	}
	return strings.TrimSpace(line), end, nil
}

// EndWithParent ends this program, which Start started, when its standard input ends.
func EndWithParent() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
}

// Get returns the body of an answer with status 200.
func Get(url string) ([]byte, error) {
	resp, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return b, err
}

// SaveTraces writes a trace of each service, of the same seconds, to dir/NAME.trace. urls has the services' addresses by name.
func SaveTraces(dir string, d time.Duration, urls map[string]string) error {
	var all errgroup.Group
	for name, url := range urls {
		all.Go(func() error {
			b, err := Get(fmt.Sprintf("%s/debug/pprof/trace?seconds=%g", url, d.Seconds()))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, name+".trace"), b, 0o666)
		})
	}
	return all.Wait()
}
