package manifest

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// DryRunner asks the API server what it would store. It is not safe for concurrent use.
type DryRunner struct {
	client   client.Client
	warnings warnings
}

// NewDryRunner returns a DryRunner. Its client can store nothing.
func NewDryRunner(config *rest.Config, scheme *runtime.Scheme) (*DryRunner, error) {
	d := &DryRunner{}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return dryRuns{next} })
	config.WarningHandlerWithContext = &d.warnings
	var err error
	d.client, err = client.New(config, client.Options{Scheme: scheme})
	return d, err
}

// dryRuns sends reads and dry runs, and nothing else.
type dryRuns struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (d dryRuns) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet && request.URL.Query().Get("dryRun") != metav1.DryRunAll {
		return nil, fmt.Errorf("refused to send %s %s: a plan writes nothing", request.Method, request.URL.Path)
	}
	return d.next.RoundTrip(request)
}

// warnings collects the warnings of the API server.
type warnings []string

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, code int, _, text string) {
	if code == 299 && text != "" { // the only code that Kubernetes uses
		*w = append(*w, text)
	}
}

// Apply returns the set as kubectl apply would have it stored, with the warnings of the API server.
// The set has no UID if the cluster does not have it yet.
func (d *DryRunner) Apply(ctx context.Context, s Set) (*lwsv1.LeaderWorkerSet, []string, error) {
	d.warnings = nil
	stored, err := d.apply(ctx, s.object.DeepCopy())
	if err != nil {
		return nil, nil, err
	}
	set := &lwsv1.LeaderWorkerSet{}
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, set)
	return set, d.warnings, err
}

func (d *DryRunner) apply(ctx context.Context, said *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(said.GroupVersionKind())
	err := d.client.Get(ctx, client.ObjectKeyFromObject(said), live)
	strict := client.FieldValidation(metav1.FieldValidationStrict)
	switch {
	case apierrors.IsNotFound(err):
		err = d.client.Create(ctx, said, client.DryRunAll, strict)
		said.SetUID("") // of an object that was not stored
		return said, err
	case err != nil:
		return nil, err
	}
	patch, err := threeWay(said, live)
	if err != nil {
		return nil, err
	}
	err = d.client.Patch(ctx, live, client.RawPatch(types.MergePatchType, patch), client.DryRunAll, strict)
	return live, err
}

// threeWay returns the patch that kubectl apply sends for a custom resource. A field that the file
// does not name stays, unless the last apply named it: it may be an autoscaler's.
func threeWay(said, live *unstructured.Unstructured) ([]byte, error) {
	current, err := live.MarshalJSON()
	if err != nil {
		return nil, err
	}
	modified, err := said.MarshalJSON()
	if err != nil {
		return nil, err
	}
	last := live.GetAnnotations()[corev1.LastAppliedConfigAnnotation]
	if !strings.HasPrefix(strings.TrimSpace(last), "{") {
		last = ""
	}
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch([]byte(last), modified, current)
	if err != nil {
		return nil, fmt.Errorf("compare %s with the stored set: %w", said.GetName(), err)
	}
	return patch, nil
}
