//go:build !linux

// Guest runs inside a Linux virtual machine only.
package main

import "fmt"

func main() { fmt.Println("guest: built for Linux only") }
