package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// assets are the names under which envtest looks for its programs.
var assets = []string{"etcd", "kube-apiserver", "kubectl"}

func (a *app) assetsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "assets DIR",
		Short: "Make DIR fit for KUBEBUILDER_ASSETS: etcd, kube-apiserver and kubectl as links to this binary",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			binary, err := os.Executable()
			if err != nil {
				return err
			}
			dir, err := linkAssets(args[0], binary)
			if err != nil {
				return err
			}
			fmt.Fprintln(a.out, dir)
			return nil
		},
	}
}

// linkAssets makes the links relative, so that a tree that holds both can be
// moved. It replaces links only: a file under such a name is a program that
// somebody put there.
func linkAssets(dir, binary string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	dir, err := realPath(dir)
	if err != nil {
		return "", err
	}
	binary, err = realPath(binary)
	if err != nil {
		return "", err
	}
	target, err := filepath.Rel(dir, binary)
	if err != nil {
		return "", err
	}
	for _, name := range assets {
		if err := link(target, filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	return dir, nil
}

func realPath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

func link(target, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return os.Symlink(target, path)
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink == 0:
		return fmt.Errorf("%q is not a link: move it away, or give another directory", path)
	}
	if now, err := os.Readlink(path); err == nil && now == target {
		return nil
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.Symlink(target, path)
}
