package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/terminal"
)

// table is the default output.
const table = "table"

// output prints values in the format of --output.
type output struct {
	*options
	format  *genericclioptions.PrintFlags
	printer printers.ResourcePrinter // nil for a table
}

// addOutput adds --output and --template to a command. They are read before it runs. A command writes texts of its own.
func (opts *options) addOutput(cmd *cobra.Command, texts ...string) *output {
	format := table
	o := &output{options: opts, format: &genericclioptions.PrintFlags{
		JSONYamlPrintFlags:   genericclioptions.NewJSONYamlPrintFlags(),
		TemplatePrinterFlags: genericclioptions.NewKubeTemplatePrintFlags(),
		OutputFormat:         &format,
	}}
	o.format.TemplatePrinterFlags.AddFlags(cmd)
	texts = append(texts, table)
	formats := slices.Concat(texts, []string{"json", "yaml"}, o.format.TemplatePrinterFlags.AllowedFormats())
	cmd.Flags().StringVarP(&format, "output", "o", format, "output format: "+strings.Join(formats, ", "))
	o.format.OutputFlagSpecified = func() bool { return cmd.Flags().Changed("output") }
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		if slices.Contains(texts, format) && *o.format.TemplatePrinterFlags.TemplateArgument == "" {
			return nil
		}
		if o.printer, err = o.format.ToPrinter(); err != nil {
			return fmt.Errorf("--output: %w", err)
		}
		return nil
	}
	return o
}

// between separates two values: formats for programs have their own separators.
func (o *output) between() string {
	if o.printer != nil {
		return ""
	}
	return "\n"
}

// text returns the value in the format.
func (o *output) text(r page.Report, now time.Time) (string, error) {
	if o.printer == nil && o.showsColours() {
		return page.Coloured(r, now), nil
	}
	if o.printer == nil {
		return page.Text(r, now), nil
	}
	var text strings.Builder
	err := o.printer.PrintObj(page.Printed{Report: r}, &text)
	return text.String(), err
}

// stream is where the format is printed. A page with colours has escaped all texts of others.
func (o *output) stream() io.Writer {
	switch {
	case o.printer == nil && o.showsColours():
		return o.stdout
	case o.printer == nil:
		return o.Out
	}
	return o.forPrograms()
}

// print prints values one after the other.
func (o *output) print(all ...page.Report) error {
	for i, r := range all {
		text, err := o.text(r, o.Now())
		if err != nil {
			return err
		}
		if i > 0 {
			text = o.between() + text
		}
		if _, err := io.WriteString(o.stream(), text); err != nil {
			return err
		}
	}
	return nil
}

// show prints what see returns, or with watch every change of it.
func (o *output) show(ctx context.Context, session *lws.Session, watch bool, gone string, see func() (page.Report, error)) error {
	if watch {
		return o.watch(ctx, session, gone, see)
	}
	r, err := see()
	if err != nil {
		return err
	}
	return o.print(r)
}

// watch prints what see returns, again every second until ctx ends: in place on a terminal, and
// elsewhere unless only ages changed. A value that is nil is gone.
func (o *output) watch(ctx context.Context, session *lws.Session, gone string, see func() (page.Report, error)) error {
	last, inPlace := "", terminal.Is(o.stdout)
	if o.printer != nil {
		gone = "" // programs get nothing: a missing set has no status
	}
	for {
		r, err := see()
		text, ageless := gone, gone
		if err == nil && r != nil {
			text, err = o.text(r, o.Now())
			ageless, _ = o.text(r, time.Time{})
		}
		switch {
		case ctx.Err() != nil: // ended by the user
			return nil
		case err != nil:
			return err
		case inPlace:
			fmt.Fprint(o.stdout, "\x1b[H\x1b[J")
			fmt.Fprint(o.stream(), terminal.Fit(o.stdout, text))
		case ageless != last && last != "":
			text = o.between() + text
			fallthrough
		case ageless != last:
			fmt.Fprint(o.stream(), text)
		}
		last = ageless
		if err := session.Await(); err != nil && ctx.Err() == nil {
			return err
		}
	}
}
