// Package webhook answers the API server's admission requests over HTTP.
//
// It knows paths, requests, answers and patches, which leave fields that our types lack as
// they are. It refuses to know the rules of the APIs: those are pure functions in
// internal/lws/admission and internal/disaggregated/admission, which know nothing of each other.
// It never writes, and asks the API server for dry runs.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	strictjson "sigs.k8s.io/json"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	disaggregated "lockstep.dev/lockstep/internal/disaggregated/admission"
	rule "lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/internal/quantity"
)

// The paths of requests. They are those of other implementations of the API, so that their webhook configurations work.
const (
	PathMutateSet             = "/mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset"
	PathValidateSet           = "/validate-leaderworkerset-x-k8s-io-v1-leaderworkerset"
	PathValidateDisaggregated = "/validate-disaggregatedset-x-k8s-io-v1-disaggregatedset"
	PathMutatePod             = "/mutate--v1-pod"
	PathValidatePod           = "/validate--v1-pod"
)

// Register adds each webhook to the server. The library counts requests, and answers a panic in a rule with 500. It
// would log what any client sends. Once ending is closed, each answer closes its connection.
func Register(server webhook.Server, sets Sets, pods Pods, ending <-chan struct{}) {
	gate := &gate{semaphore.NewWeighted(mostHeld), semaphore.NewWeighted(mostLight), semaphore.NewWeighted(mostHeavy)}
	weights := map[string]*weight{PathMutatePod: reviewOf[*corev1.Pod](), PathValidatePod: reviewOf[*corev1.Pod](),
		PathValidateDisaggregated: reviewOf[*dsv1.DisaggregatedSet]()}
	for path, answer := range handlers(sets, pods) {
		hook := &webhook.Admission{Handler: answer, LogConstructor: func(logr.Logger, *admission.Request) logr.Logger { return logr.Discard() }}
		server.Register(path, closing(gate.before(hook, cmp.Or(weights[path], reviewOf[*lwsv1.LeaderWorkerSet]())), ending))
	}
}

// closing returns a handler whose answers close their connections once ending is closed.
func closing(answer http.Handler, ending <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-ending:
			w.Header().Set("Connection", "close")
		default:
		}
		answer.ServeHTTP(w, r)
	})
}

func handlers(sets Sets, pods Pods) map[string]admission.HandlerFunc {
	return map[string]admission.HandlerFunc{
		PathMutateSet:             mutating(sets.mutateSet),
		PathValidateSet:           validating(sets.judge, sets.checkTemplates, rule.Warnings),
		PathValidateDisaggregated: validating(sets.judgeRoles, sets.checkRoles, disaggregated.Warnings),
		PathMutatePod:             mutating(func(ctx context.Context, pod, _ *corev1.Pod) error { return pods.mutatePod(ctx, pod) }),
		// Configurations of other implementations call it. Ours does not.
		PathValidatePod: func(context.Context, admission.Request) admission.Response { return admission.Allowed("") },
	}
}

// object is a pointer to a T that can be copied.
type object[T any] interface {
	*T
	DeepCopyInto(*T)
}

// mutating answers with the smallest patch that makes the change. An error of change
// refuses the request. The stored object is zero when there is none.
func mutating[T any, P object[T]](change func(ctx context.Context, is, was P) error) admission.HandlerFunc {
	reads := readerOf[T]()
	return func(ctx context.Context, req admission.Request) admission.Response {
		after, decimals, err := reads.read(req.Object)
		if err != nil {
			return undecodable(req, err)
		}
		was := new(T)
		if len(req.OldObject.Raw) > 0 {
			if was, _, err = reads.read(req.OldObject); err != nil {
				return undecodable(req, err)
			}
		}
		var before T
		P(after).DeepCopyInto(&before)
		if err := change(ctx, after, was); err != nil {
			return admission.Denied(err.Error())
		}
		var texts patch // what a typed client would write: the schema refuses decimals
		for _, d := range decimals {
			texts.then("replace", d.Pointer, d.Text)
		}
		patch, err := Diff(req.Object.Raw, &before, after)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		return admission.Patched("", append(texts, patch...)...)
	}
}

// validating refuses an object with all its faults at once. Its templates are checked if the rest is right. The stored
// object is nil when there is none.
func validating[T any](
	judge func(ctx context.Context, is, was *T) field.ErrorList,
	check func(ctx context.Context, is, was *T) (faults, warnings []string),
	warn func(is, was *T) []string,
) admission.HandlerFunc {
	reads := readerOf[T]()
	return func(ctx context.Context, req admission.Request) admission.Response {
		if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
			return admission.Allowed("")
		}
		is, _, err := reads.read(req.Object)
		var was *T
		if err == nil && req.Operation == admissionv1.Update {
			was, _, err = reads.read(req.OldObject)
		}
		if err != nil {
			return undecodable(req, err)
		}
		if faults := judge(ctx, is, was); len(faults) > 0 {
			return admission.Denied(faults.ToAggregate().Error()).WithWarnings(warn(is, was)...)
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		faults, warnings := check(ctx, is, was)
		response := admission.Allowed("")
		if len(faults) > 0 {
			response = admission.Denied(strings.Join(faults, "; "))
		}
		return response.WithWarnings(append(warnings, warn(is, was)...)...)
	}
}

func undecodable(req admission.Request, err error) admission.Response {
	code := int32(http.StatusBadRequest)
	if mistyped := (*field.Error)(nil); errors.As(err, &mistyped) && mistyped.Type == field.ErrorTypeTypeInvalid {
		code = http.StatusUnprocessableEntity
	}
	return admission.Errored(code, fmt.Errorf("decode %s %q: %w", req.Kind.Kind, req.Name, err))
}

// reader decodes objects of type T that the API server has not validated: it calls mutating
// webhooks first, and any client can reach the webhook server.
//
// The path determines the type, whatever kind the object has. An object that chose its type
// would also choose where its quantities are not checked.
type reader[T any] struct{ quantities *quantity.Places }

func readerOf[T any]() reader[T] { return reader[T]{quantity.In[T]()} }

// read returns an object, and its quantities that are decimals.
func (r reader[T]) read(from runtime.RawExtension) (*T, []quantity.Decimal, error) {
	if len(from.Raw) == 0 {
		return nil, nil, errors.New("the request has no object")
	}
	decimals, err := r.quantities.Decimals(from.Raw)
	if err != nil {
		return nil, nil, err
	}
	into := new(T)
	err = strictjson.UnmarshalCaseSensitivePreserveInts(from.Raw, into)
	if err == nil {
		return into, decimals, nil
	}
	if mistyped := r.quantities.Mistyped(from.Raw); mistyped != nil {
		err = mistyped
	}
	return into, nil, err
}
