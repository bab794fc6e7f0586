package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/release"
)

// breakage is the arguments of release.
type breakage struct {
	space  bool // a namespace, not a claim
	name   string
	yes    bool
	delete bool
	dryRun string
}

func (o *options) releaseCommand() *cobra.Command {
	b := &breakage{}
	cmd := &cobra.Command{
		Use:   "release pvc/NAME | namespace/NAME",
		Short: "Let a PersistentVolumeClaim be deleted while it is in use",
		Long: `Let a PersistentVolumeClaim be deleted although it is in use, or a namespace although PVCs in it
are.

It shows the holders and what becomes of the data, asks for confirmation, and writes the
annotation protection.lockstep.dev/release with the UID of the PVC: a later PVC of the same name is
not released. This works while no operator runs; an operator removes the token after an hour,
unless it is configured otherwise. Nothing is deleted unless --delete is given.

It takes the verb "release" on claims.protection.lockstep.dev, and patch (with --delete also
delete) on the PVC.`,
		Example: `  kubectl lockstep release pvc/data-llama-0
  kubectl lockstep release pvc/data-llama-0 --delete
  kubectl lockstep release pvc/data-llama-0 --dry-run=server
  kubectl lockstep release namespace/inference --yes`,
		ValidArgsFunction: o.completeReleases,
		Args: func(_ *cobra.Command, args []string) error {
			if err := b.read(args); err != nil {
				return err
			}
			if b.space && b.delete {
				return errors.New("--delete is for PVCs; delete the namespace yourself, once it is released")
			}
			if !slices.Contains(dryRuns, b.dryRun) {
				return fmt.Errorf("--dry-run %q: give one of %s", b.dryRun, strings.Join(dryRuns, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return o.release(cmd.Context(), b) },
	}
	cmd.Flags().BoolVarP(&b.yes, "yes", "y", false, "do not ask for confirmation; needed without a terminal")
	cmd.Flags().BoolVar(&b.delete, "delete", false, "delete the PVC as well, by its UID")
	cmd.Flags().StringVar(&b.dryRun, "dry-run", string(lws.DryRunNone), "none, client (only say what would be done) or server (a dry run by the API server)")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = string(lws.DryRunClient)
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions(dryRuns, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// read reads the one name: each release is confirmed by itself.
func (b *breakage) read(args []string) error {
	if len(args) == 2 && !strings.Contains(args[0], "/") {
		args = []string{args[0] + "/" + args[1]}
	}
	if len(args) != 1 {
		return errors.New("give one PVC, pvc/NAME, or one namespace, namespace/NAME: each release is confirmed by itself")
	}
	word, _, slashed := strings.Cut(args[0], "/")
	of := claims
	switch {
	case !slashed && (claims.known(word) || spaces.known(word)):
		return fmt.Errorf("%q: the name is missing", word)
	case spaces.known(word):
		of, b.space = spaces, true
	case slashed && !claims.known(word):
		return fmt.Errorf("%q is neither a PersistentVolumeClaim nor a namespace: give pvc/NAME or namespace/NAME", args[0])
	}
	name, err := of.name(args[0], false)
	b.name = name
	return err
}

func (o *options) release(ctx context.Context, b *breakage) error {
	namespace, config, asker, err := o.openClaims(ctx)
	if err != nil {
		return err
	}
	releaser, err := release.Open(config)
	if err != nil {
		return err
	}
	releaser.DryRun = b.dryRun == string(lws.DryRunServer)
	r := &releasing{options: o, breakage: b, asker: asker, releaser: releaser, host: config.Host}
	if b.space {
		return r.ofNamespace(ctx)
	}
	return r.ofClaim(ctx, client.ObjectKey{Namespace: namespace, Name: b.name})
}

// completeReleases offers PVCs, and namespaces after their kind.
func (o *options) completeReleases(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	word, _, _ := strings.Cut(typed, "/")
	switch {
	case len(args) == 1 && spaces.said(args), len(args) == 0 && spaces.known(word):
		names, directive := o.completeNamespaces(cmd, nil, "")
		return spaces.offers(names, args, typed), directive
	case len(args) > 0 && !claims.said(args) || len(args) > 1:
		return nil, cobra.ShellCompDirectiveNoFileComp // one at a time
	}
	return o.completeClaims(cmd, args, typed)
}
