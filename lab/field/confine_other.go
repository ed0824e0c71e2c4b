//go:build !linux

package main

import (
	"errors"
	"os"
	"os/exec"
)

func confineCPU(*exec.Cmd, float64) (release func(), err error) {
	return nil, errors.New("CPU quotas need Linux")
}

func stopOrContinue(*os.Process, bool) error { return errors.New("stopping a process needs Linux") }
