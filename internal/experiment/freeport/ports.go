// Package freeport finds loopback ports for servers whose port is a parameter.
package freeport

import (
	"fmt"
	"net"
	"strconv"
)

// Find returns n different TCP ports of 127.0.0.1 that are free now. Another process may take one
// before the caller uses it.
func Find(n int) ([]string, error) {
	ports := make([]string, 0, n)
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer l.Close() // at the end, so that the ports differ
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}
