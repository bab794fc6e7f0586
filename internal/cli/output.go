package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
)

// table is the output for people; it is what no --output means too.
const table = "table"

// reporter is what commands print.
type reporter interface {
	runtime.Object
	WriteText(out io.Writer, now time.Time) error
}

// output prints reports as the user asked.
type output struct {
	flags   *genericclioptions.PrintFlags
	printer printers.ResourcePrinter // nil for a table
}

func newOutput(cmd *cobra.Command) *output {
	format := table
	o := &output{flags: &genericclioptions.PrintFlags{
		JSONYamlPrintFlags:   genericclioptions.NewJSONYamlPrintFlags(),
		TemplatePrinterFlags: genericclioptions.NewKubeTemplatePrintFlags(),
		OutputFormat:         &format,
	}}
	o.flags.TemplatePrinterFlags.AddFlags(cmd)
	cmd.Flags().StringVarP(&format, "output", "o", format, "output format: "+strings.Join(o.formats(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(o.formats(), cobra.ShellCompDirectiveNoFileComp))
	o.flags.OutputFlagSpecified = func() bool { return cmd.Flags().Changed("output") }
	return o
}

func (o *output) formats() []string {
	return append([]string{table, "json", "yaml"}, o.flags.TemplatePrinterFlags.AllowedFormats()...)
}

// begin finds out what was asked for.
func (o *output) begin() error {
	template := o.flags.TemplatePrinterFlags.TemplateArgument
	templated := template != nil && *template != "" && !o.flags.OutputFlagSpecified()
	if *o.flags.OutputFormat == table && !templated {
		return nil
	}
	asked := *o.flags.OutputFormat
	printer, err := o.printerFor(asked)
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return fmt.Errorf("--output %q: give one of %s", asked, strings.Join(o.formats(), ", "))
	}
	o.printer = printer
	return err
}

func (o *output) printerFor(format string) (printers.ResourcePrinter, error) {
	if printer, err := o.flags.JSONYamlPrintFlags.ToPrinter(format); !genericclioptions.IsNoCompatiblePrinterError(err) {
		return printer, err
	}
	if format == table {
		format = "go-template" // only --template was given
	}
	return o.flags.TemplatePrinterFlags.ToPrinter(format)
}

// between is what stands between two reports: formats for programs have their own.
func (o *output) between() string {
	if o.printer != nil {
		return ""
	}
	return "\n"
}

// print returns the report as it was asked for, and a key that is the same for
// two reports that differ in nothing but the age of things.
func (o *output) print(r reporter, now time.Time) (text, key string, err error) {
	var out strings.Builder
	if o.printer != nil {
		err := o.printer.PrintObj(r, &out)
		return out.String(), out.String(), err
	}
	if err := r.WriteText(&out, now); err != nil {
		return "", "", err
	}
	var ageless strings.Builder
	err = r.WriteText(&ageless, time.Time{})
	return out.String(), ageless.String(), err
}
