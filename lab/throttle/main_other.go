//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "throttle: needs Linux: it makes cgroups")
	os.Exit(2)
}
