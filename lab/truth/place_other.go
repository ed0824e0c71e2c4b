//go:build !linux

package main

import (
	"fmt"
	"os/exec"

	"github.com/whylate/whylate/lab/truth/catalog"
)

func startIn(*exec.Cmd, *catalog.Place) (leave func(), err error) {
	return nil, fmt.Errorf("%w: affinity and cgroups need Linux", errPlace)
}
