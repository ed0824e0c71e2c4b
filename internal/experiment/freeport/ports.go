// Package freeport finds loopback ports for servers that are told where to listen.
package freeport

import (
	"fmt"
	"net"
	"strconv"
)

// Find finds n different TCP ports of 127.0.0.1 that are free now. Somebody else may take one before it is used.
func Find(n int) ([]string, error) {
	ports := make([]string, 0, n)
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer l.Close() // when all are found: they differ
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}
