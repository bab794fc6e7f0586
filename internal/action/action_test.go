package action

import (
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/identity"
)

func TestEveryFormSaysWhatItWritesAndWhy(t *testing.T) {
	ref := identity.Ref{Kind: identity.KindPod, Namespace: "ns", Name: "w-0", UID: "u", ResourceVersion: "3"}
	why := Reason{Code: "Code", Sentence: "sentence"}
	tell := Telling{Done: []Event{{Reason: "Told"}}}
	made := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w-0"}}
	fresh := identity.Ref{Kind: identity.KindPod, Namespace: "ns", Name: "w-0"}
	for _, tt := range []struct {
		action Action
		verb   string
		target identity.Ref
	}{
		{Create{Kind: identity.KindPod, Object: made, Because: why, Tell: tell}, "create", fresh},
		{Apply{Onto: ref, Because: why, Tell: tell}, "apply", ref},
		{Delete{Object: ref, Because: why, Tell: tell}, "delete", ref},
		{WriteStatus{Set: ref, Because: why, Tell: tell}, "status", ref},
	} {
		if tt.action.About().Verb != tt.verb || tt.action.Target() != tt.target || tt.action.About().Because != why || tt.action.About().Tell.Done[0].Reason != "Told" {
			t.Errorf("%s: got %s of %+v because %+v", tt.verb, tt.action.About().Verb, tt.action.Target(), tt.action.About().Because)
		}
	}
}

// Users see verbs in plans, logs and metrics: they are words of Kubernetes, and stable.
func TestVerbsAreWordsOfKubernetes(t *testing.T) {
	isWord := regexp.MustCompile(`^(create|apply|relabel|annotate|delete|status|condition|set-finalizers|set-owner|remove-gate)$`)
	for _, a := range []Action{Create{}, Apply{}, Relabel{}, Annotate{}, SetFinalizers{}, SetOwner{}, SetCondition{}, Ungate{}, Delete{}, WriteStatus{}} {
		if verb := a.About().Verb; !isWord.MatchString(verb) {
			t.Errorf("%T has the verb %q", a, verb)
		}
	}
}
