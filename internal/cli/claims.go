package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"lockstep.dev/lockstep/internal/cli/inquiry"
)

// claimKinds are the words for claims that kubectl knows.
var claimKinds = []string{"pvc", "persistentvolumeclaim", "persistentvolumeclaims"}

// claimNames reads pvc, pvc NAME… and pvc/NAME….
func claimNames(args []string) ([]string, error) {
	if len(args) == 0 {
		return nil, errors.New("say about what: pvc/NAME, or pvc for all claims of the namespace")
	}
	kinded := slices.Contains(claimKinds, strings.ToLower(args[0]))
	if kinded {
		args = args[1:]
	}
	var names []string
	for _, arg := range args {
		kind, name, slashed := strings.Cut(arg, "/")
		switch {
		case !slashed && !kinded:
			return nil, fmt.Errorf("%q: say what it is: pvc/%s", arg, arg)
		case !slashed:
			name = arg
		case !slices.Contains(claimKinds, strings.ToLower(kind)):
			return nil, fmt.Errorf("%q is no PersistentVolumeClaim: give pvc/NAME", arg)
		}
		if name == "" {
			return nil, fmt.Errorf("%q: the name is missing", arg)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// openClaims finds the cluster and the namespace that the user means, and what
// reads claims there.
func (o *options) openClaims(ctx context.Context) (string, *rest.Config, *inquiry.Inquirer, error) {
	namespace, err := o.namespace()
	if err != nil {
		return "", nil, nil, err
	}
	config, err := o.config()
	if err != nil {
		return "", nil, nil, err
	}
	if err := reach(ctx, config); err != nil {
		return "", nil, nil, err
	}
	asker, err := inquiry.Open(config)
	return namespace, config, asker, err
}

// noSuchClaim says that there is no such claim, and which one may have been meant.
func noSuchClaim(ctx context.Context, asker *inquiry.Inquirer, namespace, name string) error {
	claims, err := asker.Claims(ctx, namespace)
	if err != nil {
		return fmt.Errorf("no persistentvolumeclaim %q in namespace %q", name, namespace)
	}
	var names []string
	for _, claim := range claims {
		names = append(names, claim.Name)
	}
	return fmt.Errorf("no persistentvolumeclaim %q in namespace %q%s", name, namespace, adviceOn("persistentvolumeclaims", name, names, asker.Elsewhere(ctx, name)))
}

// explainClaim says what to do about what an API server answered.
func explainClaim(err error, host, namespace string) error {
	switch {
	case apierrors.IsUnauthorized(err):
		return explain(err, host, namespace)
	case apierrors.IsForbidden(err) && namespace == "":
		return fmt.Errorf("not allowed: %w; ask about one namespace with -n, or for a role that may list %s everywhere", err, claimKinds[2])
	case apierrors.IsForbidden(err):
		return fmt.Errorf("not allowed: %w; ask for a role that may get and list %s, pods and workloads in namespace %q", err, claimKinds[2], namespace)
	}
	return err
}

// completeClaims offers the namespace's claims, as pvc/NAME unless the kind was
// given.
func (o *options) completeClaims(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	kind, prefix := claimKinds[0], ""
	if given, _, slashed := strings.Cut(typed, "/"); slashed {
		kind = given
	}
	if len(args) == 0 || !slices.Contains(claimKinds, args[0]) {
		prefix = kind + "/"
	}
	namespace, err := o.namespace()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names, directive := o.names(cmd.Context(), corev1.SchemeGroupVersion.WithResource(claimKinds[2]), namespace)
	var offered []string
	for _, name := range names {
		if offer := prefix + name; !slices.Contains(args, offer) {
			offered = append(offered, offer)
		}
	}
	return offered, directive
}
