// Command ko builds the image of docs/kubernetes.md with ko as .ko.yaml says, without pushing it, and checks the result: two
// architectures, no root, and a program that runs. The base image needs a network, so an empty one replaces it, in a registry
// of this process; distroless's own files, such as certificates, are not checked.
package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// nonroot is the user of distroless's image of that name.
const nonroot = "65532"

var architectures = []string{"amd64", "arm64"}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "ko:", err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "whylate-ko-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := httptest.NewServer(registry.New())
	defer s.Close()
	base := strings.TrimPrefix(s.URL, "http://") + "/base"
	if err := push(base); err != nil {
		return fmt.Errorf("making the base image: %w", err)
	}
	ko := filepath.Join(dir, "ko")
	if err := command("", nil, "go", "build", "-o", ko, "github.com/google/ko"); err != nil {
		return err
	}
	out := filepath.Join(dir, "image")
	env := []string{"GOWORK=", "KO_DEFAULTBASEIMAGE=" + base, "KO_DOCKER_REPO=registry.example/whylate"}
	if err := command("../..", env, ko, "build", "--bare", "--push=false", "--sbom=none", "--oci-layout-path="+out, "./cmd/whylate"); err != nil {
		return err
	}
	return look(out, dir)
}

func command(dir string, env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", filepath.Base(name), args[0], err)
	}
	return nil
}

// push makes an image with a user and nothing else, for each architecture.
func push(to string) error {
	ref, err := name.ParseReference(to)
	if err != nil {
		return err
	}
	index := v1.ImageIndex(empty.Index)
	for _, a := range architectures {
		img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: a, Config: v1.Config{User: nonroot}, RootFS: v1.RootFS{Type: "layers"}})
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: a}}})
	}
	return remote.WriteIndex(ref, index)
}

// look checks the image that ko made.
func look(path, dir string) error {
	p, err := layout.FromPath(path)
	if err != nil {
		return err
	}
	index, err := p.ImageIndex()
	if err != nil {
		return err
	}
	top, err := index.IndexManifest()
	if err != nil || len(top.Manifests) != 1 {
		return errors.Join(err, fmt.Errorf("the layout has %d images, want an index of one", len(top.Manifests)))
	}
	inner, err := index.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		return err
	}
	list, err := inner.IndexManifest()
	if err != nil {
		return err
	}
	var found []string
	for _, d := range list.Manifests {
		img, err := inner.Image(d.Digest)
		if err != nil {
			return err
		}
		config, err := img.ConfigFile()
		if err != nil {
			return err
		}
		if config.Config.User != nonroot || len(config.Config.Entrypoint) != 1 {
			return fmt.Errorf("%s: user %q, entry point %q", config.Architecture, config.Config.User, config.Config.Entrypoint)
		}
		program, err := extract(img, config.Config.Entrypoint[0], filepath.Join(dir, config.Architecture))
		if err != nil {
			return err
		}
		info, err := os.Stat(program)
		if err != nil {
			return err
		}
		fmt.Printf("linux/%s: %s, %d MB, user %s\n", config.Architecture, config.Config.Entrypoint[0], info.Size()>>20, config.Config.User)
		if config.Architecture == runtime.GOARCH {
			out, err := exec.Command(program, "version").CombinedOutput()
			fmt.Printf("%s", out)
			if err != nil || !strings.HasPrefix(string(out), "whylate ") {
				return errors.Join(err, errors.New("the image's program does not run"))
			}
		}
		found = append(found, config.Architecture)
	}
	slices.Sort(found)
	if !slices.Equal(found, architectures) {
		return fmt.Errorf("architectures %v, want %v", found, architectures)
	}
	return nil
}

// extract writes a file of an image to another place and returns that.
func extract(img v1.Image, file, to string) (string, error) {
	r := mutate.Extract(img)
	defer r.Close()
	files := tar.NewReader(r)
	for {
		h, err := files.Next()
		if err != nil {
			return "", fmt.Errorf("the image has no %s: %w", file, err)
		}
		if strings.Trim(h.Name, "/") != strings.Trim(file, "/") || h.Typeflag != tar.TypeReg {
			continue
		}
		f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o700)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(f, files)
		return to, errors.Join(err, f.Close())
	}
}
