// Guest is the only program of the virtual machine: its init, the runner of
// the checks, and every process that a check starts. On the machine itself
// "guest run" runs the same checks in whatever layout is there.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"

	"github.com/whylate/whylate/lab/vm/check"
)

func main() {
	if os.Getpid() == 1 {
		boot()
		return
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, w, werr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprintln(werr, "guest: say run [PATTERN], or boot it")
		return 2
	}
	var err error
	switch args[0] {
	case "join":
		// The namespaces of a thread go with its exec.
		runtime.LockOSThread()
		err = check.Join("/proc/self/exe", args[1:])
	case "child":
		return check.RunChild(args[1:])
	case "run":
		pattern := ""
		if len(args) > 1 {
			pattern = args[1]
		}
		err = runChecks(w, "/proc/self/exe", pattern)
	default:
		err = fmt.Errorf("no verb is called %q", args[0])
	}
	if err != nil {
		fmt.Fprintln(werr, "guest:", err)
		return 1
	}
	return 0
}

// runChecks runs the checks whose names match and writes a line for each.
func runChecks(w io.Writer, self, pattern string) error {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	e, err := check.NewEnv(self)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(w)
	anyRan := 0
	for _, c := range check.All() {
		if !re.MatchString(c.Name) {
			continue
		}
		anyRan++
		if err := enc.Encode(check.RunOne(e, c)); err != nil {
			return err
		}
	}
	if anyRan == 0 {
		return errors.New("no check matches " + pattern)
	}
	return enc.Encode(check.Result{Done: true, Layout: e.Layout, Kernel: e.Kernel})
}
