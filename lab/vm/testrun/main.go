// Testrun runs a test program, /tests, inside a virtual machine and writes what
// it said as check.Result lines. Its arguments are in /arguments, a line each:
// the kernel's command line cannot hold them.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"

	"github.com/whylate/whylate/lab/vm/check"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

// verdict is a line by which "go test -v" says how a test ended.
var verdict = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (\S+)`)

func run() error {
	arguments, err := os.ReadFile("/arguments")
	if err != nil {
		return err
	}
	cmd := exec.Command("/tests", strings.Fields(string(arguments))...)
	cmd.Env = append(os.Environ(), "TMPDIR=/tmp")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var release string
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		release = strings.TrimSpace(string(b))
	}
	results := json.NewEncoder(os.Stdout)
	var output []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		m := verdict.FindStringSubmatch(lines.Text())
		if m == nil {
			output = append(output, lines.Text())
			continue
		}
		r := check.Result{Check: m[2], Kernel: release, Failed: m[1] == "FAIL", Log: output}
		if m[1] == "SKIP" {
			r.Skip = strings.Join(output, "; ")
		}
		output = nil
		if err := results.Encode(r); err != nil {
			return err
		}
	}
	if err := cmd.Wait(); err != nil {
		// A test that failed has said so; a program that broke off has not.
		if err := results.Encode(check.Result{Check: "all", Kernel: release, Failed: true, Log: append(output, err.Error())}); err != nil {
			return err
		}
	}
	return results.Encode(check.Result{Done: true})
}
