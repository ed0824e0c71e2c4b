// Withauto imports whylate's service/auto as a service would, and prints the
// GOMAXPROCS that it is left with.
package main

import (
	"fmt"
	"runtime"

	_ "github.com/whylate/whylate/service/auto"
)

func main() { fmt.Println(runtime.GOMAXPROCS(0)) }
