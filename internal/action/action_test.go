package action

import (
	"regexp"
	"testing"
)

// Users see verbs in plans, logs and metrics: they are words of Kubernetes, and stable.
func TestVerbsAreWordsOfKubernetes(t *testing.T) {
	isWord := regexp.MustCompile(`^(create|apply|relabel|annotate|delete|status|condition|set-finalizers|set-owner|remove-gate)$`)
	for _, a := range []Action{Create{}, Apply{}, Relabel{}, Annotate{}, SetFinalizers{}, SetOwner{}, SetCondition{}, Ungate{}, Delete{}, WriteStatus{}} {
		if verb := a.About().Verb; !isWord.MatchString(verb) {
			t.Errorf("%T has the verb %q", a, verb)
		}
	}
}
