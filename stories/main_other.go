//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "stories: they need Linux: limits are those of its cgroups")
	os.Exit(1)
}
