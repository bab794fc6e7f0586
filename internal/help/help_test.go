package help

import "testing"

func TestCommandHasItsTexts(t *testing.T) {
	const texts = "== a\na\nA.\n\n== a b\nb NAME\nB in a line.\n\nOne.\n\nTwo.\n\nExamples:\n  x a b c\n  x a b d\n\n== b\nb\n"
	cmd := Command(texts, "a b")
	if cmd.Use != "b NAME" || cmd.Short != "B in a line." || cmd.Long != "One.\n\nTwo." || cmd.Example != "  x a b c\n  x a b d" {
		t.Errorf("got %q %q %q %q", cmd.Use, cmd.Short, cmd.Long, cmd.Example)
	}
	if cmd = Command(texts, "a"); cmd.Use != "a" || cmd.Short != "A." || cmd.Long+cmd.Example != "" {
		t.Errorf("got %q %q %q %q", cmd.Use, cmd.Short, cmd.Long, cmd.Example)
	}
	if cmd = Command(texts, "c"); cmd.Use != "" {
		t.Errorf("got %q of no command", cmd.Use)
	}
}
