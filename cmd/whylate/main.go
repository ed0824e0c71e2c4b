// Whylate says why a Go service is late. See `whylate help`.
package main

import (
	"os"

	"github.com/whylate/whylate/internal/cli"
)

func main() { os.Exit(cli.Main()) }
