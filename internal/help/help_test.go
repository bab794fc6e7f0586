package help

import (
	"testing"

	"lockstep.dev/lockstep/test/expect"
)

func TestCommandHasItsTexts(t *testing.T) {
	const texts = `== sets
show NAME
Print something.

== sets roll
one NAME
Begin it.

First.

Second.

Examples:
  show one x
  begin one y

== version
v
`
	cmd := Command(texts, "sets roll")
	if cmd.Use != "one NAME" || cmd.Short != "Begin it." || cmd.Long != "First.\n\nSecond." || cmd.Example != "  show one x\n  begin one y" {
		t.Errorf("got %q %q %q %q", cmd.Use, cmd.Short, cmd.Long, cmd.Example)
	}
	if cmd = Command(texts, "sets"); cmd.Use != "show NAME" || cmd.Short != "Print something." || cmd.Long+cmd.Example != "" {
		t.Errorf("got %q %q %q %q", cmd.Use, cmd.Short, cmd.Long, cmd.Example)
	}
	cmd = Command(texts, "other")
	expect.That(t, cmd.Use == "", "got %q of no command", cmd.Use)
}
