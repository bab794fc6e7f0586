// Package webhook answers the API server's admission requests over HTTP.
//
// It knows paths, requests, answers and patches, which leave fields that our types lack as
// they are. It refuses to know the rules of the LeaderWorkerSet API: those are pure
// functions in internal/lws/admission. It never writes, and asks the API server for dry runs.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	strictjson "sigs.k8s.io/json"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	rule "lockstep.dev/lockstep/internal/lws/admission"
	"lockstep.dev/lockstep/internal/quantity"
)

// The paths of requests. They are those of other implementations of the API, so that their webhook configurations work.
const (
	PathMutateSet   = "/mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset"
	PathValidateSet = "/validate-leaderworkerset-x-k8s-io-v1-leaderworkerset"
	PathMutatePod   = "/mutate--v1-pod"
	PathValidatePod = "/validate--v1-pod"
)

// Register adds each webhook to the server. The library counts requests, and answers a panic in a rule with 500. It
// would log what any client sends. Once ending is closed, each answer closes its connection.
func Register(server webhook.Server, sets Sets, pods Pods, ending <-chan struct{}) {
	gate := &gate{semaphore.NewWeighted(mostHeld), semaphore.NewWeighted(mostLight), semaphore.NewWeighted(mostHeavy)}
	weights := map[string]*weight{PathMutatePod: reviewOf[*corev1.Pod](), PathValidatePod: reviewOf[*corev1.Pod]()}
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
		PathMutateSet:   mutating(sets.mutateSet),
		PathValidateSet: sets.validate(readerOf[lwsv1.LeaderWorkerSet]()),
		PathMutatePod:   mutating(func(ctx context.Context, pod, _ *corev1.Pod) error { return pods.mutatePod(ctx, pod) }),
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

// validate refuses a LeaderWorkerSet with all its faults at once. Its templates are checked if the rest is right.
func (s Sets) validate(reads reader[lwsv1.LeaderWorkerSet]) admission.HandlerFunc {
	return func(ctx context.Context, req admission.Request) admission.Response {
		if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
			return admission.Allowed("")
		}
		is, _, err := reads.read(req.Object)
		if err != nil {
			return undecodable(req, err)
		}
		var was *lwsv1.LeaderWorkerSet
		var faults field.ErrorList
		if req.Operation == admissionv1.Create {
			faults = s.Scheduling.ValidateCreate(is)
		} else {
			if was, _, err = reads.read(req.OldObject); err != nil {
				return undecodable(req, err)
			}
			faults = s.Scheduling.ValidateUpdate(is, was)
		}
		if len(faults) == 0 && s.Scheduling.IsEnabled {
			faults = checkUnits(ctx, is, was)
		}
		if len(faults) > 0 {
			return admission.Denied(faults.ToAggregate().Error()).WithWarnings(rule.Warnings(is, was)...)
		}
		return s.checkTemplates(ctx, is, was).WithWarnings(rule.Warnings(is, was)...)
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
