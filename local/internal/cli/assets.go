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
			if err := linkAssets(args[0], binary); err != nil {
				return err
			}
			fmt.Fprintln(a.out, args[0])
			return nil
		},
	}
}

// linkAssets replaces links only: a file under such a name is a program of the user.
func linkAssets(dir, binary string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range assets {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if err == nil && info.Mode()&fs.ModeSymlink == 0 {
			return fmt.Errorf("%q is not a link: move it away, or give another directory", path)
		}
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(binary, path); err != nil {
			return err
		}
	}
	return nil
}
