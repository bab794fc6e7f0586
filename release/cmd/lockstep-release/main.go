// Command lockstep-release makes what a release of Lockstep consists of, out of programs that are
// already built.
//
//	lockstep-release image --version V --commit C --created SECONDS --out dist/image DIR…
//	lockstep-release chart generate --chart charts/lockstep
//	lockstep-release chart package --chart charts/lockstep --version V --created SECONDS --out dist
//	lockstep-release push --from dist/image [--key KEY] HOST/NAME:TAG
//	lockstep-release archive --version V --created SECONDS --url URL --out dist DIR…
//	lockstep-release checksums [--key KEY] dist
//	lockstep-release verify --key PUBLIC dist
//	lockstep-release verify-image --key PUBLIC HOST/NAME:TAG
//
// DIR is named OS_ARCHITECTURE and holds the programs lockstep and, for archives, kubectl-lockstep.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lockstep.dev/lockstep/release/image"
	"lockstep.dev/lockstep/release/sign"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	root := &cobra.Command{Use: "lockstep-release", Short: "Make a release of Lockstep", SilenceUsage: true}
	root.AddCommand(imageCommand(), pushCommand(), chartCommand(),
		archiveCommand(), checksumsCommand(), verifyCommand(), verifyImageCommand())
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		os.Exit(1)
	}
}

func imageCommand() *cobra.Command {
	var (
		o       image.Options
		created int64
		out     string
	)
	cmd := &cobra.Command{Use: "image DIR…", Short: "Write an OCI image layout", Args: cobra.MinimumNArgs(1), RunE: func(cmd *cobra.Command, dirs []string) error {
		o.Created = time.Unix(created, 0).UTC()
		for _, dir := range dirs {
			system, architecture, ok := strings.Cut(filepath.Base(dir), "_")
			if !ok {
				return fmt.Errorf("%s: wants a directory named OS_ARCHITECTURE", dir)
			}
			o.Programs = append(o.Programs, image.Program{OS: system, Architecture: architecture, Path: filepath.Join(dir, "lockstep")})
		}
		built, err := image.Build(o)
		if err != nil {
			return err
		}
		if err := built.Write(out, o.Version); err != nil {
			return err
		}
		digest, err := built.Index.Digest()
		if err == nil {
			fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", out, digest)
		}
		return err
	}}
	fs := cmd.Flags()
	fs.StringVar(&o.Version, "version", "", "version of the release")
	fs.StringVar(&o.Commit, "commit", "", "commit that the programs are built from")
	fs.Int64Var(&created, "created", 0, "time of everything in the image, in seconds since 1970: that of the commit")
	fs.StringVar(&out, "out", "dist/image", "directory of the layout")
	return cmd
}

func pushCommand() *cobra.Command {
	var from, keyFile string
	cmd := &cobra.Command{Use: "push HOST/NAME:TAG", Short: "Push an image layout to a registry", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		read, err := image.Read(from)
		if err != nil {
			return err
		}
		key, err := load(keyFile)
		if err != nil {
			return err
		}
		digest, err := read.Push(cmd.Context(), args[0], key)
		if err == nil {
			fmt.Fprintf(cmd.OutOrStdout(), "%s@%s\n", args[0], digest)
		}
		return err
	}}
	cmd.Flags().StringVar(&keyFile, "key", "", "`file` with the private key that signs the image, in PEM; without, it is not signed")
	cmd.Flags().StringVar(&from, "from", "dist/image", "directory of the layout")
	return cmd
}

// load reads a signing key. Without a file there is none.
func load(file string) (*sign.Key, error) {
	if file == "" {
		return nil, nil
	}
	return sign.Load(file)
}
