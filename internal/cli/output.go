package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/render"
)

// table is the default output.
const table = "table"

// beat is how often ages on a terminal are brought up to date.
const beat = time.Second

// output prints values in the format of --output.
type output struct {
	flags   *genericclioptions.PrintFlags
	printer printers.ResourcePrinter // nil for a table
}

// addOutput adds --output and --template to a command. They are read before it runs.
func addOutput(cmd *cobra.Command) *output {
	format := table
	o := &output{flags: &genericclioptions.PrintFlags{
		JSONYamlPrintFlags:   genericclioptions.NewJSONYamlPrintFlags(),
		TemplatePrinterFlags: genericclioptions.NewKubeTemplatePrintFlags(),
		OutputFormat:         &format,
	}}
	o.flags.TemplatePrinterFlags.AddFlags(cmd)
	formats := append([]string{table, "json", "yaml"}, o.flags.TemplatePrinterFlags.AllowedFormats()...)
	cmd.Flags().StringVarP(&format, "output", "o", format, "output format: "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	o.flags.OutputFlagSpecified = func() bool { return cmd.Flags().Changed("output") }
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		if format == table && *o.flags.TemplatePrinterFlags.TemplateArgument == "" {
			return nil
		}
		if o.printer, err = o.flags.ToPrinter(); err != nil {
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
func (o *output) text(r render.Report, now time.Time) (string, error) {
	if o.printer == nil {
		return render.Text(r, now), nil
	}
	var text strings.Builder
	err := o.printer.PrintObj(r, &text)
	return text.String(), err
}

// print prints values one after the other.
func (o *output) print(to io.Writer, all ...render.Report) error {
	for i, r := range all {
		text, err := o.text(r, time.Now())
		if err != nil {
			return err
		}
		if i > 0 {
			text = o.between() + text
		}
		if _, err := io.WriteString(to, text); err != nil {
			return err
		}
	}
	return nil
}

// watch prints what see returns, again after every change until ctx ends: in place on a terminal, and
// elsewhere unless only ages changed. A value that is nil is gone.
func (o *output) watch(ctx context.Context, to io.Writer, session *lws.Session, gone string, see func(context.Context) (render.Report, error)) error {
	last, period := "", time.Duration(0)
	inPlace := isTerminal(to)
	if inPlace {
		period = beat
	}
	for {
		now := time.Now()
		r, err := see(ctx)
		text, ageless := gone, gone
		switch {
		case err == nil && r != nil:
			if text, err = o.text(r, now); err == nil {
				ageless, err = o.text(r, time.Time{})
			}
		case o.printer != nil:
			text = "" // programs get nothing: a missing set has no status
		}
		if err == nil {
			switch {
			case inPlace:
				fmt.Fprint(to, "\x1b[H\x1b[J", text)
			case ageless != last && last != "":
				fmt.Fprint(to, o.between(), text)
			case ageless != last:
				fmt.Fprint(to, text)
			}
			last = ageless
			err = session.Await(period)
		}
		switch {
		case ctx.Err() != nil: // ended by the user
			return nil
		case err != nil:
			return err
		}
	}
}

// isTerminal reports whether a stream is a terminal.
var isTerminal = func(stream any) bool {
	file, isFile := stream.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}
