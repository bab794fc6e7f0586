package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lockstep.dev/lockstep/local/internal/plane"
)

func (a *app) statusCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status --dir DIR",
		Short: "Show the components; exits 1 unless all of them are ready",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.status(cmd, output)
		},
	}
	a.addDir(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "", "json for programs; a table otherwise")
	return cmd
}

// errNotReady is the exit code of status; the output has said why.
var errNotReady = errors.New("not every component is ready")

func (a *app) status(cmd *cobra.Command, output string) error {
	if output != "" && output != "json" {
		return fmt.Errorf("--output %q: give json, or nothing for a table", output)
	}
	cluster, err := a.cluster()
	if err != nil {
		return err
	}
	status, err := cluster.Status(cmd.Context())
	if err != nil {
		return err
	}
	write := writeTable
	if output == "json" {
		write = writeJSON
	}
	if err := write(a.out, status); err != nil {
		return err
	}
	if !status.Ready() {
		return errNotReady
	}
	return nil
}

func writeJSON(out io.Writer, status plane.Status) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(status)
}

func writeTable(out io.Writer, status plane.Status) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tSTATE\tPID\tADDRESS\tDETAIL")
	for _, c := range status.Components {
		pid := "-"
		if c.PID != 0 {
			pid = strconv.Itoa(c.PID)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", c.Name, c.State, pid, c.Address, c.Detail)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	nodes := "unknown: the API server does not answer"
	if status.Nodes != nil {
		nodes = fmt.Sprintf("%d of %d ready", status.Nodes.Ready, status.Nodes.Total)
	}
	_, err := fmt.Fprintf(out, "\nnodes: %s\nkubeconfig: %s\n", nodes, status.Kubeconfig)
	return err
}
