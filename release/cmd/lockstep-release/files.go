package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lockstep.dev/lockstep/release/dist"
	"lockstep.dev/lockstep/release/image"
	"lockstep.dev/lockstep/release/sign"
)

func archiveCommand() *cobra.Command {
	var (
		o       dist.Options
		created int64
		out     string
	)
	cmd := &cobra.Command{Use: "archive DIR…", Short: "Write archives of programs and of the image, and the manifest of the plugin",
		Args: cobra.MinimumNArgs(1), RunE: func(_ *cobra.Command, dirs []string) error {
			o.Created, o.Programs = time.Unix(created, 0).UTC(), dirs
			return o.Write(out)
		}}
	fs := cmd.Flags()
	fs.StringVar(&o.Version, "version", "", "version of the release")
	fs.Int64Var(&created, "created", 0, "time of everything in the archives, in seconds since 1970: that of the commit")
	fs.StringVar(&o.Image, "image", "dist/image", "directory of the image layout")
	fs.StringVar(&o.License, "license", "LICENSE", "`file` with the license")
	fs.StringVar(&o.URL, "url", "", "where the files of this release are published")
	fs.StringVar(&out, "out", "dist", "directory of the release")
	return cmd
}

func checksumsCommand() *cobra.Command {
	var keyFile string
	cmd := &cobra.Command{Use: "checksums DIR", Short: "Write checksums.txt", Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, args []string) error {
		key, err := load(keyFile)
		if err != nil {
			return err
		}
		return dist.Seal(args[0], key)
	}}
	cmd.Flags().StringVar(&keyFile, "key", "", "`file` with the private key that signs checksums.txt, in PEM; without, it is not signed")
	return cmd
}

func verifyCommand() *cobra.Command {
	var keyFile string
	cmd := &cobra.Command{Use: "verify DIR", Short: "Verify the files of a release", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		key, err := sign.LoadPublic(keyFile)
		if err != nil {
			return err
		}
		files, err := dist.Verify(args[0], key)
		if err == nil {
			fmt.Fprintf(cmd.OutOrStdout(), "%d files are verified\n", files)
		}
		return err
	}}
	cmd.Flags().StringVar(&keyFile, "key", "lockstep.pub", "`file` with the public key, in PEM")
	return cmd
}

func verifyImageCommand() *cobra.Command {
	var keyFile, out string
	cmd := &cobra.Command{Use: "verify-image HOST/NAME:TAG", Short: "Verify an image in a registry", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		key, err := sign.LoadPublic(keyFile)
		if err != nil {
			return err
		}
		found, err := image.Verify(cmd.Context(), args[0], key)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is verified: %s\n", args[0], found.Digest)
		if out == "" {
			return nil
		}
		for platform, text := range found.Materials {
			name := strings.ReplaceAll(platform, "/", "_") + ".spdx.json"
			if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil {
				return err
			}
		}
		return nil
	}}
	cmd.Flags().StringVar(&keyFile, "key", "lockstep.pub", "`file` with the public key, in PEM")
	cmd.Flags().StringVar(&out, "out", "", "directory to which the bills of materials are written")
	return cmd
}
