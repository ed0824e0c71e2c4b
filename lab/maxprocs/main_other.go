//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "maxprocs: CPU quotas are a thing of Linux: run this there, as root")
	os.Exit(3)
}
