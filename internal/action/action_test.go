package action

import (
	"regexp"
	"testing"

	"lockstep.dev/lockstep/test/expect"
)

// Users see verbs in plans, logs and metrics: they are words of Kubernetes, and stable.
func TestVerbsAreWordsOfKubernetes(t *testing.T) {
	isWord := regexp.MustCompile(`^(create|apply|relabel|annotate|delete|status|condition|set-finalizers|set-owner|remove-gate|scale)$`)
	for _, a := range []Action{Create{}, Apply{}, Relabel{}, Annotate{}, SetFinalizers{}, SetOwner{}, SetCondition{}, Ungate{}, Delete{}, Scale{}, WriteStatus{}} {
		verb := a.About().Verb
		expect.That(t, isWord.MatchString(verb), "%T has the verb %q", a, verb)
	}
}
