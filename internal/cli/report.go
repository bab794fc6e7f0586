package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"lockstep.dev/lockstep/internal/cli/argument"
	"lockstep.dev/lockstep/internal/cli/bundle"
	"lockstep.dev/lockstep/internal/cli/cluster"
)

// readReport is what a report reads if it may.
const readReport = "get, list and watch what status and why read"

func (o *options) reportCommand() *cobra.Command {
	var file string
	var force bool
	cmd := describe("report")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		noun, names, err := setsOf(cmd, args, 0, many)
		if err != nil {
			return err
		}
		of := bundle.Request{Noun: noun, Names: names, Command: strings.Join(append([]string{cmd.CommandPath()}, args...), " ")}
		return o.report(cmd.Context(), of, file, force)
	}
	o.completeNames(cmd, many, argument.Sets, argument.DisaggregatedSets)
	cmd.Flags().BoolVar(&force, "force", false, "replace the file if it exists")
	cmd.Flags().StringVarP(&file, "output", "o", "", "`file` to write; - is standard output (default lockstep-report-TIME.tar.gz)")
	return cmd
}

func (o *options) report(ctx context.Context, of bundle.Request, path string, force bool) error {
	c, live, err := o.Client(ctx)
	if err != nil {
		return err
	}
	began := o.Now()
	of.Config, of.Live, of.Namespace, of.Now, of.Warn = c.Config, live, c.Namespace, o.Now, o.ErrOut
	packed, err := bundle.Collect(ctx, of)
	var missing apierrors.APIStatus
	switch {
	case apierrors.IsNotFound(err) && errors.As(err, &missing) && missing.Status().Details != nil:
		return cluster.NoSuch(of.Noun, c.Key(missing.Status().Details.Name))
	case err != nil:
		return c.Explain(err, readReport)
	}
	if path == "-" {
		_, err := packed.WriteTo(o.stdout)
		return err
	}
	if path == "" {
		path = "lockstep-report-" + began.UTC().Format("20060102-150405") + ".tar.gz"
	}
	if err := writeFile(path, packed, force); err != nil {
		return fmt.Errorf("write the report: %w; name a new file that you may write with -o, - for standard output, or --force to replace one", err)
	}
	_, err = fmt.Fprintln(o.Out, path)
	return err
}

// writeFile writes a new file for its owner alone: redaction is no reason to show it to others. With force it may take
// the place of a file, and never that of a link, whose target is another's.
func writeFile(path string, content io.WriterTo, force bool) (err error) {
	if info, err := os.Lstat(path); err == nil && force {
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is no regular file", path)
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = content.WriteTo(file)
	return err
}
