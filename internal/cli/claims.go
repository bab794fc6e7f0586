package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"lockstep.dev/lockstep/internal/cli/inquiry"
)

const claimsResource = "persistentvolumeclaims"

// openClaims returns the namespace and the cluster that the user means, and a reader of
// PVCs.
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

// explainClaim adds what to do about an error of the API server.
func explainClaim(err error, host, namespace string) error {
	switch {
	case apierrors.IsUnauthorized(err):
		return explain(err, host, namespace)
	case apierrors.IsForbidden(err) && namespace == "":
		return fmt.Errorf("not allowed: %w; ask about one namespace with -n, or for a role that may list %s everywhere", err, claimsResource)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("not allowed: %w; ask for a role that may get and list %s, pods and workloads in namespace %q", err, claimsResource, namespace)
	}
	return err
}

// completeClaims offers the PVCs of the namespace, as pvc/NAME unless the kind was given.
func (o *options) completeClaims(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	namespace, err := o.namespace()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names, directive := o.names(cmd.Context(), corev1.SchemeGroupVersion.WithResource(claimsResource), namespace)
	return claims.offers(names, args, typed), directive
}
