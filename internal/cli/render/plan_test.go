package render_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/action"
	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/cli/render"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

func reasonFor(code, sentence string) action.Reason {
	return action.Reason{Code: code, Sentence: sentence}
}

// planned is a survey with one action of each form and a wait.
func planned() clilws.Survey {
	s := newSurvey(1, 2)
	set := identity.Ref{Kind: identity.KindLeaderWorkerSet, Namespace: "ns", Name: "llama", UID: "set", ResourceVersion: "7"}
	gone := identity.Ref{Kind: identity.KindStatefulSet, Namespace: "ns", Name: "llama", UID: "old"}
	s.Plan.Actions = []action.Action{
		action.Create{Kind: identity.KindService, Object: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "llama"}},
			Owner: set, Because: reasonFor("Missing", "there is none")},
		action.Apply{Onto: identity.Ref{Kind: identity.KindStatefulSet, Namespace: "ns", Name: "llama", UID: "sts", ResourceVersion: "8"},
			Adopter: &set, Because: reasonFor("Orphan", "it has no controller")},
		action.Delete{Object: identity.Ref{Kind: identity.KindPod, Namespace: "ns", Name: "llama-0", UID: "pod", ResourceVersion: "9"},
			OwnerGone: &gone, Because: reasonFor("Garbage", "its owner is gone")},
		action.WriteStatus{Set: set, Because: reasonFor("Changed", "0 of 1 groups are ready")},
	}
	g := clilws.Group{}
	g.Plan.Waits = []lws.Wait{{Reason: reasonFor("WaitingForLeaderReady", "the leader is not ready"), Until: now.Add(10 * time.Second)}}
	s.Groups = []clilws.Group{g}
	return s
}

func TestPlanNamesEveryPrecondition(t *testing.T) {
	var out strings.Builder
	if err := render.Plan(planned()).WriteText(&out, now); err != nil {
		t.Fatal(err)
	}
	want := `llama in namespace ns:
the set
  create service llama
      because there is none (Missing)
      only if no object has the name, leaderworkerset llama (uid set) exists and is not terminating
  apply statefulset llama
      because it has no controller (Orphan)
      only if its uid is sts, its version is 8, leaderworkerset llama (uid set) exists and is not terminating
  delete pod llama-0
      because its owner is gone (Garbage)
      only if its uid is pod, its version is 9, statefulset llama (uid old) is gone
  write the status of leaderworkerset llama
      because 0 of 1 groups are ready (Changed)
      only if its uid is set, its version is 7
group 0
  wait: the leader is not ready (WaitingForLeaderReady), checks again in 10s at the latest
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAnEmptyPlanIsInStep(t *testing.T) {
	plan := render.Plan(newSurvey(1, 2))
	var out strings.Builder
	if err := plan.WriteText(&out, now); err != nil {
		t.Fatal(err)
	}
	if want := "llama in namespace ns:\nin step: nothing to do\n"; out.String() != want || !plan.InStep {
		t.Errorf("got %q, in step: %v", out.String(), plan.InStep)
	}
}

// The names below are read by programs: they are never changed or taken away.
func TestFieldsOfAPlanForPrograms(t *testing.T) {
	raw, err := json.Marshal(render.Plan(planned()))
	if err != nil {
		t.Fatal(err)
	}
	set := `{"kind":"LeaderWorkerSet","namespace":"ns","name":"llama","uid":"set"}`
	want := `{"kind":"SetPlan","apiVersion":"cli.lockstep.dev/v1","namespace":"ns","name":"llama","uid":"set","exists":true,"inStep":false,"parts":[{"actions":[` +
		`{"verb":"create","object":{"kind":"Service","namespace":"ns","name":"llama"},"reason":"Missing","message":"there is none","preconditions":{"absent":true,"alive":` + set + `}},` +
		`{"verb":"apply","object":{"kind":"StatefulSet","namespace":"ns","name":"llama","uid":"sts"},"reason":"Orphan","message":"it has no controller","preconditions":{"uid":"sts","resourceVersion":"8","alive":` + set + `}},` +
		`{"verb":"delete","object":{"kind":"Pod","namespace":"ns","name":"llama-0","uid":"pod"},"reason":"Garbage","message":"its owner is gone","preconditions":{"uid":"pod","resourceVersion":"9","gone":{"kind":"StatefulSet","namespace":"ns","name":"llama","uid":"old"}}},` +
		`{"verb":"status","object":` + set + `,"reason":"Changed","message":"0 of 1 groups are ready","preconditions":{"uid":"set","resourceVersion":"7"}}]},` +
		`{"group":0,"waits":[{"reason":"WaitingForLeaderReady","message":"the leader is not ready","until":"2026-01-01T12:00:10Z"}]}]}`
	if diff := cmp.Diff(want, string(raw)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
