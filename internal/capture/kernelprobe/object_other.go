//go:build linux && !amd64 && !arm64

package kernelprobe

var object []byte

var callNames map[int32]string
