package lws_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/lwstest"
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

// Whoever is told of a refusal is told what would end it; what passes by itself is
// told to nobody.
func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		err    error
		remedy string
	}{
		"a quota":                        {forbidden("exceeded quota: few, requested: count/statefulsets.apps=1"), "raise the quota"},
		"a quota that wants limits":      {forbidden("failed quota: few: must specify limits.cpu"), "raise the quota"},
		"no right":                       {forbidden(`User "system:serviceaccount:a:b" cannot create resource "statefulsets" in API group "apps"`), "lockstep install"},
		"a policy":                       {apierrors.NewInvalid(schema.GroupKind{Kind: "StatefulSet"}, "w", nil), "change the spec, or what refuses it"},
		"a policy that forbids":          {forbidden("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"), "change the spec"},
		"a namespace on its way out":     {ending(), "namespace that is being deleted"},
		"a webhook":                      {denied(403), "change the spec"},
		"a webhook with a code":          {denied(418), "change the spec"},
		"a webhook that does not answer": {apierrors.NewInternalError(errors.New(`failed calling webhook "w.example.com": no route to host`)), "have that webhook answer"},
		"a bad request":                  {apierrors.NewBadRequest("no"), "change the spec"},
		"too much to do":                 {apierrors.NewTooManyRequests("later", 1), ""},
		"a kind that is going":           {apierrors.NewMethodNotSupported(statefulSets, "patch"), ""},
		"a timeout":                      {apierrors.NewTimeoutError("later", 1), ""},
		"a server that fails":            {apierrors.NewInternalError(errors.New("etcd has no leader")), ""},
		"no connection":                  {errors.New("connection refused"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, is := lws.RefusalOf(fmt.Errorf("create statefulset w-1: %w", tt.err), lwstest.Epoch)
			if is != (tt.remedy != "") || !strings.Contains(got.Remedy, tt.remedy) {
				t.Errorf("refused: %t, %q", is, got.Remedy)
			}
		})
	}
}

func TestARefusalThatGoesOnIsTriedEverLater(t *testing.T) {
	at := func(seconds int) lws.Refusal {
		r, _ := lws.RefusalOf(forbidden(fmt.Sprintf("exceeded quota: used %d", seconds)), lwstest.Epoch.Add(time.Duration(seconds)*time.Second))
		return r
	}
	r := at(0)
	for _, step := range []struct {
		at, again int
		says      string
	}{{1, 1, "used 0"}, {2, 2, "used 0"}, {4, 4, "used 0"}, {59, 30, "used 0"}, {60, 30, "used 60"}, {300, 1, "used 300"}} {
		r = at(step.at).After(r)
		if got := r.Again().Sub(r.At); got != time.Duration(step.again)*time.Second || !strings.Contains(r.Sentence, step.says) {
			t.Errorf("after %d s: tried again in %s, and told %q", step.at, got, r.Sentence)
		}
	}
	other, _ := lws.RefusalOf(forbidden("no"), r.At)
	if got := other.After(r); got.Sentence != other.Sentence {
		t.Errorf("another refusal is told as %q", got.Sentence)
	}
}

// A webhook that quotes the UID of each request had the status written with every try,
// and groups that it refused the same thing told of one by one.
func TestARefusalThatQuotesARequestIsTheSame(t *testing.T) {
	at := func(seconds int, request string) lws.Refusal {
		r, _ := lws.RefusalOf(forbidden("admission webhook denied the request: "+request+": no"), lwstest.Epoch.Add(time.Duration(seconds)*time.Second))
		return r
	}
	first, second := at(0, "4f6bdeca-beef-4a7c-9d3e-abcdefabcdef"), at(1, "fadedbee-cafe-4bcd-adef-fedcbafedcba")
	if got := second.After(first); got.Sentence != first.Sentence {
		t.Errorf("told as %q after %q", got.Sentence, first.Sentence)
	}
	set := lwstest.Set("w", 2, 2)
	got := progress(t, lws.SetSnapshot{Now: lwstest.Epoch, Set: set, Refused: []lws.Refused{{Index: 0, Refusal: first}, {Index: 1, Refusal: second}}})
	if !strings.Contains(got.Message, "what groups 0, 1 need: ") || strings.Contains(got.Message, "group 1 needs") {
		t.Errorf("told of one by one: %s", got.Message)
	}
}

func TestRefusalsOfManyGroupsAreToldTogether(t *testing.T) {
	set := lwstest.Set("w", 200, 2)
	w := lws.SetSnapshot{Now: lwstest.Epoch, Set: set}
	add := func(index int, text string) {
		r, _ := lws.RefusalOf(forbidden(text), lwstest.Epoch)
		w.Refused = append(w.Refused, lws.Refused{Index: index, Refusal: r})
	}
	add(identity.NoOrdinal, "set")
	for i := range 100 {
		add(i, fmt.Sprintf("exceeded quota: used %d", i))
	}
	add(100, "one")
	add(101, "two")
	add(102, "three"+strings.Repeat("x", 1<<20))
	got := progress(t, w)
	want := `the API server refuses what the set needs: statefulsets.apps "w-1" is forbidden: set; change the spec, or what refuses it; ` +
		`the API server refuses what groups 0, 1, 2, 3, 4, 5, 6, 7 and 92 more need: statefulsets.apps "w-1" is forbidden: exceeded quota: used 0; raise the quota, or free some of it; ` +
		`the API server refuses what group 100 needs: statefulsets.apps "w-1" is forbidden: one; change the spec, or what refuses it; and 2 more`
	if got.Reason != lws.CodeRefused || got.Message != want {
		t.Errorf("got %s: %s", got.Reason, got.Message)
	}
}
