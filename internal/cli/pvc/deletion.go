package pvc

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/pvc"
)

// Outcomes of a dry-run DELETE.
const (
	Accepted   = "Accepted"
	Refused    = "Refused"    // by admission
	NotAllowed = "NotAllowed" // the user may not delete PVCs
	NotTried   = "NotTried"   // the API server could not try it
)

// Deletion is the API server's answer to a dry-run DELETE.
type Deletion struct {
	// Outcome is Accepted, Refused, NotAllowed or NotTried.
	Outcome string `json:"outcome"`
	// RefusedBy is a policy or a webhook.
	RefusedBy string   `json:"refusedBy,omitempty"`
	Message   string   `json:"message,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
}

// TryDelete sends a dry-run DELETE of a PVC.
func TryDelete(ctx context.Context, config *rest.Config, claim *corev1.PersistentVolumeClaim) (*Deletion, error) {
	var warnings clilws.Warnings
	config = clilws.Restrict(config, clilws.IsDryRun)
	config.WarningHandlerWithContext = &warnings
	c, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	// The parameter stands in the URL: the guard of requests does not read their bodies.
	d, err := deletionOf(c.RESTClient().Delete().Namespace(claim.Namespace).Resource("persistentvolumeclaims").Name(claim.Name).
		Param("dryRun", metav1.DryRunAll).Do(ctx).Error())
	d.Warnings = warnings
	return &d, err
}

// deletionOf distinguishes a refusal by admission from a lack of permission: both are 403.
func deletionOf(err error) (Deletion, error) {
	switch {
	case err == nil:
		return Deletion{Outcome: Accepted}, nil
	case apierrors.IsNotFound(err), apierrors.IsUnauthorized(err):
		return Deletion{}, err
	}
	text := err.Error()
	if _, after, ok := strings.Cut(text, " is forbidden: "); ok {
		text = after
	}
	for _, between := range []string{" denied request: ", " denied the request: "} {
		if by, message, ok := strings.Cut(text, between); ok {
			return Deletion{Outcome: Refused, RefusedBy: strings.TrimPrefix(by, "admission webhook "), Message: message}, nil
		}
	}
	switch {
	case apierrors.IsForbidden(err) && strings.HasPrefix(text, "User "):
		return Deletion{Outcome: NotAllowed, Message: text}, nil
	case apierrors.IsForbidden(err), apierrors.IsConflict(err), apierrors.IsInvalid(err):
		return Deletion{Outcome: Refused, RefusedBy: "the API server", Message: text}, nil
	}
	return Deletion{Outcome: NotTried, Message: text}, nil
}

// Learn takes the result of a dry-run DELETE: it shows whether a policy enforces the hold.
func (f *Found) Learn(d *Deletion) {
	if f.Claim.Annotations[pvc.HoldersAnnotation] != "" && f.Claim.DeletionTimestamp == nil && !pvc.Released(f.Claim) {
		f.Unguarded = d.Outcome == Accepted
	}
}
