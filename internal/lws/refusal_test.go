package lws_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

var statefulSets = schema.GroupResource{Group: "apps", Resource: "statefulsets"}

func forbidden(why string) *apierrors.StatusError {
	return apierrors.NewForbidden(statefulSets, "w-1", errors.New(why))
}

func ending() error {
	err := forbidden("unable to create new content in namespace x because it is being terminated")
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "NamespaceTerminating"}}
	return err
}

func denied(code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: `admission webhook "w.example.com" denied the request: no`}}
}

// An error that passes by itself is no refusal.
func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"a quota":                        {forbidden("exceeded quota: few, requested: count/statefulsets.apps=1"), true},
		"no right":                       {forbidden(`User "system:serviceaccount:a:b" cannot create resource "statefulsets" in API group "apps"`), true},
		"a policy":                       {apierrors.NewInvalid(schema.GroupKind{Kind: "StatefulSet"}, "w", nil), true},
		"a terminating namespace":        {ending(), true},
		"a webhook":                      {denied(403), true},
		"a webhook with a code":          {denied(418), true},
		"a webhook that does not answer": {apierrors.NewInternalError(errors.New(`failed calling webhook "w.example.com": no route to host`)), true},
		"a bad request":                  {apierrors.NewBadRequest("no"), true},
		"a busy server":                  {apierrors.NewTooManyRequests("later", 1), false},
		"a kind that is being deleted":   {apierrors.NewMethodNotSupported(statefulSets, "patch"), false},
		"a timeout":                      {apierrors.NewTimeoutError("later", 1), false},
		"a server that fails":            {apierrors.NewInternalError(errors.New("etcd has no leader")), false},
		"no connection":                  {errors.New("connection refused"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lws.IsRefusal(fmt.Errorf("create statefulset w-1: %w", tt.err)); got != tt.want {
				t.Errorf("a refusal: %t", got)
			}
		})
	}
}

// messageLimit is the most bytes that the API takes in the message of a condition.
const messageLimit = 32 << 10

// A refusal that quoted the whole object made a status that the API server refused in its turn.
func TestALongRefusalFitsIntoAStatus(t *testing.T) {
	for _, lead := range []string{"", "x", "xx"} { // the cut falls within a character
		c := newCluster(t)
		fakeapi.Add(c.Server, fakeapi.Set("w", 1, 1))
		world := c.set()
		world.Refusal = lead + strings.Repeat("€", 100<<10/3)
		got := progress(t, lws.DecideSet(world))
		if got.Reason != lws.CodeRefused || !strings.Contains(got.Message, lead+"€€€") || len(got.Message) > messageLimit/2 || !utf8.ValidString(got.Message) {
			t.Errorf("got %s: %d bytes, %.200q", got.Reason, len(got.Message), got.Message)
		}
	}
}
