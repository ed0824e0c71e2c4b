//go:build !full

package main

import "errors"

func checkSchema([]byte) error {
	return errors.New("it is not in this program: run it with -tags full")
}
