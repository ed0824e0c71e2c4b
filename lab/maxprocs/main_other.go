//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "maxprocs: CPU quotas need Linux: run this there, as root")
	os.Exit(3)
}
