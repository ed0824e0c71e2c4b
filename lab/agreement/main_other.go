//go:build !linux

// Command agreement needs Linux.
package main

func main() { panic("agreement needs Linux") }
