// Command whylate explains why requests of a Go service are late. See `whylate help`.
package main

import (
	"os"

	"github.com/whylate/whylate/internal/cli"
	"github.com/whylate/whylate/internal/cli/experiments"
	"github.com/whylate/whylate/internal/experiment/demo/client"
)

func main() {
	os.Exit(cli.Main(append(cli.DemoVerbs(client.Load), experiments.Verbs(cli.StartRecording)...)...))
}
