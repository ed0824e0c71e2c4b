//go:build !linux

package main

import (
	"fmt"
	"os/exec"

	"github.com/whylate/whylate/lab/truth/catalog"
)

func startInPlace(*exec.Cmd, *catalog.Place) (release func(), err error) {
	return nil, fmt.Errorf("%w: affinity and cgroups need Linux", errPlace)
}
