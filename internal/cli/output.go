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

// table is the default output.
const table = "table"

// reporter is a value that commands print.
type reporter interface {
	runtime.Object
	WriteText(out io.Writer, now time.Time) error
}

// output prints values in the format of --output.
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
	formats := append([]string{table, "json", "yaml"}, o.flags.TemplatePrinterFlags.AllowedFormats()...)
	cmd.Flags().StringVarP(&format, "output", "o", format, "output format: "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	o.flags.OutputFlagSpecified = func() bool { return cmd.Flags().Changed("output") }
	return o
}

// begin reads the flags.
func (o *output) begin() (err error) {
	if *o.flags.OutputFormat == table && *o.flags.TemplatePrinterFlags.TemplateArgument == "" {
		return nil
	}
	if o.printer, err = o.flags.ToPrinter(); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	return nil
}

// between separates two values: formats for programs have their own separators.
func (o *output) between() string {
	if o.printer != nil {
		return ""
	}
	return "\n"
}

// print returns the value in the format, and a key that is the same for two values that differ only in
// ages.
func (o *output) print(r reporter, now time.Time) (text, key string, err error) {
	var out, ageless strings.Builder
	if o.printer != nil {
		err := o.printer.PrintObj(r, &out)
		return out.String(), out.String(), err
	}
	if err := r.WriteText(&out, now); err != nil {
		return "", "", err
	}
	err = r.WriteText(&ageless, time.Time{})
	return out.String(), ageless.String(), err
}
