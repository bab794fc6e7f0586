package webhook

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/util/validation/field"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// object is a pointer to a T that can be copied.
type object[T any] interface {
	*T
	DeepCopyInto(*T)
}

// mutating answers with the smallest patch that makes the change. An error of change
// refuses the request.
func mutating[T any, P object[T]](change func(context.Context, P) error) admission.HandlerFunc {
	reads := readerOf[T]()
	return func(ctx context.Context, req admission.Request) admission.Response {
		after, err := reads.object(req.Object)
		if err != nil {
			return undecodable(req, err)
		}
		var before T
		P(after).DeepCopyInto(&before)
		if err := change(ctx, after); err != nil {
			return admission.Denied(err.Error())
		}
		patch, err := Diff(req.Object.Raw, &before, after)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		return admission.Patched("", patch...)
	}
}

// rules return the faults of a new object, the faults of a change, and warnings. old is
// nil for a new object.
type rules[T any] struct {
	create func(object *T) field.ErrorList
	update func(object, old *T) field.ErrorList
	warn   func(object, old *T) []string
}

// validating refuses an object with all its faults at once.
func validating[T any](r rules[T]) admission.HandlerFunc {
	reads := readerOf[T]()
	return func(_ context.Context, req admission.Request) admission.Response {
		var was *T
		var err error
		switch req.Operation {
		case admissionv1.Create:
		case admissionv1.Update:
			if was, err = reads.object(req.OldObject); err != nil {
				return undecodable(req, err)
			}
		default:
			return admission.Allowed("")
		}
		is, err := reads.object(req.Object)
		if err != nil {
			return undecodable(req, err)
		}
		return verdict(r.judge(is, was)).WithWarnings(r.warn(is, was)...)
	}
}

func (r rules[T]) judge(is, was *T) field.ErrorList {
	if was == nil {
		return r.create(is)
	}
	return r.update(is, was)
}

func verdict(faults field.ErrorList) admission.Response {
	if len(faults) > 0 {
		return admission.Denied(faults.ToAggregate().Error())
	}
	return admission.Allowed("")
}

// allowing allows everything.
func allowing(context.Context, admission.Request) admission.Response {
	return admission.Allowed("")
}

func undecodable(req admission.Request, err error) admission.Response {
	return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode %s %q: %w", req.Kind.Kind, req.Name, err))
}
