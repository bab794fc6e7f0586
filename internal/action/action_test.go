package action_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
)

func TestEveryFormSaysWhatItWritesAndWhy(t *testing.T) {
	ref := identity.Ref{Kind: identity.KindPod, Namespace: "ns", Name: "w-0", UID: "u", ResourceVersion: "3"}
	why := action.Reason{Code: "Code", Sentence: "sentence"}
	tell := action.Telling{Done: []action.Event{{Reason: "Told"}}}
	made := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w-0"}}
	fresh := identity.Ref{Kind: identity.KindPod, Namespace: "ns", Name: "w-0"}
	for _, tt := range []struct {
		action action.Action
		verb   string
		target identity.Ref
	}{
		{action.Create{Kind: identity.KindPod, Object: made, Because: why, Tell: tell}, "create", fresh},
		{action.Apply{Onto: ref, Because: why, Tell: tell}, "apply", ref},
		{action.Delete{Object: ref, Because: why, Tell: tell}, "delete", ref},
		{action.WriteStatus{Set: ref, Because: why, Tell: tell}, "status", ref},
	} {
		if tt.action.About().Verb != tt.verb || tt.action.Target() != tt.target || tt.action.About().Because != why || tt.action.About().Tell.Done[0].Reason != "Told" {
			t.Errorf("%s: got %s of %+v because %+v", tt.verb, tt.action.About().Verb, tt.action.Target(), tt.action.About().Because)
		}
	}
}
