package lws_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// messageLimit is the most bytes that the API takes in the message of a condition.
const messageLimit = 32 << 10

// checkMessage checks that the progress told can be stored, with room to spare.
func checkMessage(t *testing.T, plan lws.Plan, reason, says string) {
	t.Helper()
	got := condition(one[action.WriteStatus](t, plan).Status, progressing)
	if got.Reason != reason || !strings.Contains(got.Message, says) {
		t.Errorf("got %s: %.200q, want it to say %q", got.Reason, got.Message, says)
	}
	if len(got.Message) > messageLimit/2 || !utf8.ValidString(got.Message) {
		t.Errorf("the message has %d bytes, valid UTF-8: %t", len(got.Message), utf8.ValidString(got.Message))
	}
}

// A refusal that quoted the whole object made a status that the API server refused
// in its turn: the user saw nothing at all.
func TestALongRefusalIsToldInAStatusThatCanBeWritten(t *testing.T) {
	for _, lead := range []string{"", "x", "xx"} { // the cut falls within a character
		c := newCluster(t)
		fakeapi.Add(c.Server, fakeapi.Set("w", 1, 1))
		world := c.set("w")
		world.Refusal = lws.Refusal{Sentence: lead + strings.Repeat("€", 100<<10/3), At: c.Now}
		checkMessage(t, lws.DecideSet(world), lws.CodeRefused, "the API server refuses: "+lead+"€€€")
	}
}

// Previous objects with more finalizers than a condition can name kept their set's status
// from being written, for as long as they stayed.
func TestPreviousObjectsWithAThousandFinalizersAreToldInAStatusThatCanBeWritten(t *testing.T) {
	c := reborn(t, 12, 1)
	var left []string
	var finalizers []string
	for i := range 1000 {
		finalizers = append(finalizers, fmt.Sprintf("example.com/%s-%d", strings.Repeat("long", 10), i))
	}
	for i := range 12 {
		left = append(left, fmt.Sprintf("pod w-%d", i))
		fakeapi.Terminate[*corev1.Pod](c.Server, fmt.Sprintf("w-%d", i), finalizers...)
	}
	c.leave(left...)
	c.do(c.decideSet())
	c.pass(time.Minute)
	checkMessage(t, c.decideSet(), lws.CodePreviousIncarnation, "pod w-0 is held by finalizer example.com/long")
}
