// Apiserver is Kubernetes' API server, built from its module: `go install` refuses that, because its go.mod has replacements.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
