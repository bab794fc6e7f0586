package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"lockstep.dev/lockstep/release/chart"
)

func chartCommand() *cobra.Command {
	var dir, out string
	var release chart.Release
	var created int64
	generate := &cobra.Command{Use: "generate", Short: "Write schema and table of values", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		files, err := chart.Generate(dir)
		if err != nil {
			return err
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				return err
			}
		}
		return nil
	}}
	pack := &cobra.Command{Use: "package", Short: "Write the archive of the chart", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		release.Created = time.Unix(created, 0).UTC()
		file, err := release.Package(dir, out)
		if err == nil {
			fmt.Fprintln(cmd.OutOrStdout(), file)
		}
		return err
	}}
	fs := pack.Flags()
	fs.StringVar(&release.Version, "version", "", "version of the release")
	fs.StringVar(&release.Image, "image", "", "default `image` of the operator, HOST/NAME[:TAG][@DIGEST]")
	fs.Int64Var(&created, "created", 0, "time of everything in the archive, in seconds since 1970: that of the commit")
	fs.StringVar(&out, "out", "dist", "directory of the archive")
	cmd := &cobra.Command{Use: "chart", Short: "Generate and package the Helm chart"}
	cmd.PersistentFlags().StringVar(&dir, "chart", "charts/lockstep", "directory of the chart")
	cmd.AddCommand(generate, pack)
	return cmd
}
