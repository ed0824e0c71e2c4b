//go:build !linux

// Judge is for Linux.
package main

import "fmt"

func main() { fmt.Println("judge: built for Linux only") }
