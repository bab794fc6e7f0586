// Command lockstep-release makes what a release of Lockstep consists of, out of programs that are already built.
//
//	lockstep-release image --version V --commit C --created SECONDS --layout dist/image DIR…
//	lockstep-release push --layout dist/image [--key KEY] HOST/NAME:TAG
//	lockstep-release chart --version V --created SECONDS [--image IMAGE] --out dist charts/lockstep
//	lockstep-release archive --version V --created SECONDS --url URL --layout dist/image --license LICENSE --out dist DIR…
//	lockstep-release checksums [--key KEY] dist
//
// DIR is named OS_ARCHITECTURE and holds the programs lockstep and, for archives, kubectl-lockstep.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"lockstep.dev/lockstep/release/chart"
	"lockstep.dev/lockstep/release/dist"
	"lockstep.dev/lockstep/release/image"
	"lockstep.dev/lockstep/release/sign"
)

// flags are those of all commands.
type flags struct {
	version, commit, image, layout, license, url, key, out string
	seconds                                                int64
}

func (f *flags) created() time.Time { return time.Unix(f.seconds, 0).UTC() }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	root, f := &cobra.Command{Use: "lockstep-release", Short: "Make a release of Lockstep", SilenceUsage: true}, &flags{}
	set := root.PersistentFlags()
	set.StringVar(&f.version, "version", "", "version of the release")
	set.StringVar(&f.commit, "commit", "", "commit that the programs are built from")
	set.Int64Var(&f.seconds, "created", 0, "time of everything that is written, in seconds since 1970: that of the commit")
	set.StringVar(&f.image, "image", "", "default `image` of the operator, HOST/NAME[:TAG][@DIGEST]")
	set.StringVar(&f.layout, "layout", "dist/image", "directory of the image layout")
	set.StringVar(&f.license, "license", "LICENSE", "`file` with the license")
	set.StringVar(&f.url, "url", "", "where the files of this release are published")
	set.StringVar(&f.key, "key", "", "`file` with the private key that signs, in PEM; without, nothing is signed")
	set.StringVar(&f.out, "out", "dist", "directory of the files that are written")
	add := func(use, short string, args cobra.PositionalArgs, run func(context.Context, []string) (made string, err error)) {
		root.AddCommand(&cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
			made, err := run(cmd.Context(), args)
			if err == nil && made != "" {
				fmt.Fprintln(cmd.OutOrStdout(), made)
			}
			return err
		}})
	}
	add("image DIR…", "Write an OCI image layout", cobra.MinimumNArgs(1), f.writeImage)
	add("push HOST/NAME:TAG", "Push an image layout to a registry", cobra.ExactArgs(1), f.push)
	add("chart DIR", "Write the archive of the chart", cobra.ExactArgs(1), f.packageChart)
	add("archive DIR…", "Write archives of programs and of the image, and the manifest of the plugin", cobra.MinimumNArgs(1), f.archive)
	add("checksums DIR", "Write checksums.txt", cobra.ExactArgs(1), f.checksums)
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		os.Exit(1)
	}
}

func (f *flags) writeImage(_ context.Context, dirs []string) (string, error) {
	digest, err := image.Options{Programs: dirs, Version: f.version, Commit: f.commit, Created: f.created()}.Write(f.layout)
	return f.layout + " " + digest.String(), err
}

func (f *flags) push(ctx context.Context, args []string) (string, error) {
	key, err := sign.Load(f.key)
	if err != nil {
		return "", err
	}
	digest, err := image.Push(ctx, f.layout, args[0], key)
	return args[0] + "@" + digest.String(), err
}

func (f *flags) packageChart(_ context.Context, args []string) (string, error) {
	return chart.Release{Version: f.version, Image: f.image, Created: f.created()}.Package(args[0], f.out)
}

func (f *flags) archive(_ context.Context, dirs []string) (string, error) {
	return "", dist.Options{
		Version: f.version, Created: f.created(), Programs: dirs, Image: f.layout, License: f.license, URL: f.url,
	}.Write(f.out)
}

func (f *flags) checksums(_ context.Context, args []string) (string, error) {
	key, err := sign.Load(f.key)
	if err != nil {
		return "", err
	}
	return "", dist.Seal(args[0], key)
}
