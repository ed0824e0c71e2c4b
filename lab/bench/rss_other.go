//go:build !unix

package main

import "os"

// maxRSS returns 0: peak memory is unknown on this system.
func maxRSS(*os.ProcessState) int64 { return 0 }
